//! What scores texts: a thread owns the model, takes what waits together, and answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use tokio::sync::{mpsc, oneshot};

use crate::error::LoadError;
use crate::load::weights::Weights;
use crate::tokenizer::Tokenizer;

/// Questions that may wait before those who ask have to wait.
const WAITING: usize = 256;
/// Questions that are taken together at most.
const TOGETHER: usize = 64;
/// Tokens of one pass, unless a single sequence has more.
const TOKENS: usize = 2048;

/// Why texts have no scores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The weights could not be read.
    #[error("{0}")]
    Load(String),
    /// The tokenizer refused a text.
    #[error("cannot encode a text: {0}")]
    Tokenizer(String),
    /// The model computed something that is not a number.
    #[error("a passage's score is not finite; the model's weights are damaged")]
    NotFinite,
    /// The reader's thread has ended.
    #[error("the thread of the reader has ended")]
    Ended,
}

/// Lays a question and what is to be scored out as ids.
pub(super) trait Layout: Send + Sync + 'static {
    /// What is scored.
    type Text: Send + Sync + 'static;

    /// The ids of the question with each text. All are within the model's vocabulary, and none is empty or too long.
    fn encode_all(&self, question: &str, texts: &[Self::Text]) -> Result<Vec<Vec<u32>>, ReadError>;
}

/// Scores sequences of ids, each the same to the bit whatever stands beside it.
pub(super) trait Score {
    /// One score for each sequence.
    fn score(&mut self, sequences: &[&[u32]]) -> Vec<f32>;
}

struct Question<T> {
    question: String,
    texts: Vec<T>,
    answer: oneshot::Sender<Result<Vec<f32>, ReadError>>,
}

/// A handle to the thread that scores. The thread ends, and is joined, when this is dropped.
pub(super) struct Service<L: Layout> {
    layout: Arc<L>,
    questions: Option<mpsc::Sender<Question<L::Text>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<L: Layout> Drop for Service<L> {
    fn drop(&mut self) {
        self.questions = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the reader's thread panicked");
        }
    }
}

impl<L: Layout> Service<L> {
    /// Starts the thread, which loads the model.
    pub(super) fn start<S: Score>(
        layout: L,
        threads: Option<usize>,
        load: impl FnOnce() -> Result<S, LoadError> + Send + 'static,
    ) -> Result<Self, LoadError> {
        let available = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let failed = |error: &dyn std::fmt::Display| LoadError::Thread { reason: error.to_string() };
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads.unwrap_or_else(available).max(1))
            .thread_name(|index| format!("lumos-reader-{index}"))
            .build()
            .map_err(|error| failed(&error))?;
        let (questions, waiting) = mpsc::channel(WAITING);
        let layout = Arc::new(layout);
        let thread = {
            let layout = Arc::clone(&layout);
            std::thread::Builder::new()
                .name("lumos-reader".to_owned())
                .spawn(move || {
                    // Tokenizing and multiplying are shared out over the pool.
                    pool.install(|| serve(load, &*layout, waiting));
                })
                .map_err(|error| failed(&error))?
        };
        Ok(Self { layout, questions: Some(questions), thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn layout(&self) -> &L {
        &self.layout
    }

    /// One score for each text, in order. Dropping the future takes the question back.
    pub(super) async fn score(&self, question: String, texts: Vec<L::Text>) -> Result<Vec<f32>, ReadError> {
        let (answer, answered) = oneshot::channel();
        let questions = self.questions.as_ref().ok_or(ReadError::Ended)?;
        questions.send(Question { question, texts, answer }).await.map_err(|_| ReadError::Ended)?;
        answered.await.map_err(|_| ReadError::Ended)?
    }
}

/// The tokenizer's ids all have a row of the embedding.
pub(super) fn check_vocabulary(
    tokenizer: &Tokenizer,
    weights: &Weights,
    encoder: &str,
    width: usize,
) -> Result<(), LoadError> {
    let rows = weights.rows(&format!("{encoder}.embeddings.word_embeddings.weight"), width)?;
    if tokenizer.id_limit() > rows {
        let file = tokenizer.file().to_owned();
        return Err(LoadError::VocabularyTooLarge { file, pieces: tokenizer.id_limit(), rows });
    }
    Ok(())
}

/// Answers until nobody can ask any more.
fn serve<L: Layout, S: Score>(
    load: impl FnOnce() -> Result<S, LoadError>,
    layout: &L,
    mut waiting: mpsc::Receiver<Question<L::Text>>,
) {
    let mut scorer = match load() {
        Ok(scorer) => scorer,
        Err(error) => {
            let error = ReadError::Load(error.to_string());
            while let Some(question) = waiting.blocking_recv() {
                // Whoever gave up waiting needs no answer.
                let _ = question.answer.send(Err(error.clone()));
            }
            return;
        }
    };
    let mut questions = Vec::with_capacity(TOGETHER);
    while waiting.blocking_recv_many(&mut questions, TOGETHER) > 0 {
        questions.retain(|question| !question.answer.is_closed());
        answer(&mut scorer, layout, &mut questions);
    }
}

/// Scores the texts of all questions in as few passes as the limit on tokens allows, and answers each question when
/// its last text is scored. What stands there twice is scored once; of questions that nobody waits for any more
/// nothing further is scored.
fn answer<L: Layout>(scorer: &mut impl Score, layout: &L, questions: &mut Vec<Question<L::Text>>) {
    let encoded: Vec<_> = questions
        .par_iter()
        .map(|Question { question, texts, .. }| layout.encode_all(question, texts))
        .collect();
    let (mut sequences, mut answers) = (Vec::new(), VecDeque::new());
    for (question, encoded) in questions.drain(..).zip(encoded) {
        match encoded {
            Ok(own) => {
                sequences.push(own);
                answers.push_back(question.answer);
            }
            Err(error) => {
                let _ = question.answer.send(Err(error));
            }
        }
    }
    let mut passes = Passes::default();
    let mut waiting = sequences.iter();
    for (index, own) in sequences.iter().enumerate() {
        for ids in own {
            let answered = sequences.len() - waiting.len();
            if answers.get(index - answered).is_none_or(oneshot::Sender::is_closed) {
                break;
            }
            if passes.add(ids, scorer) {
                // What came before this question is scored.
                for own in waiting.by_ref().take(index - answered) {
                    reply(own, answers.pop_front(), &passes.scores);
                }
            }
        }
    }
    passes.run(scorer);
    for own in waiting {
        reply(own, answers.pop_front(), &passes.scores);
    }
}

/// Sequences that wait for the next pass, and what earlier ones gave.
#[derive(Default)]
struct Passes<'a> {
    next: Vec<&'a [u32]>,
    tokens: usize,
    scores: BTreeMap<&'a [u32], f32>,
}

impl<'a> Passes<'a> {
    /// Takes a sequence in; whether those before it had to be scored first.
    fn add(&mut self, ids: &'a [u32], scorer: &mut impl Score) -> bool {
        if self.scores.contains_key(ids) {
            return false;
        }
        let is_full = !self.next.is_empty() && self.tokens + ids.len() > TOKENS;
        if is_full {
            self.run(scorer);
        }
        self.scores.insert(ids, f32::NAN);
        self.next.push(ids);
        self.tokens += ids.len();
        is_full
    }

    fn run(&mut self, scorer: &mut impl Score) {
        let scores = if self.next.is_empty() { Vec::new() } else { scorer.score(&self.next) };
        self.scores.extend(self.next.drain(..).zip(scores));
        self.tokens = 0;
    }
}

/// Answers a question, if somebody waits for it and all its texts were scored.
fn reply(
    sequences: &[Vec<u32>],
    answer: Option<oneshot::Sender<Result<Vec<f32>, ReadError>>>,
    scores: &BTreeMap<&[u32], f32>,
) {
    let own: Option<Vec<f32>> = sequences.iter().map(|ids| scores.get(ids.as_slice()).copied()).collect();
    let (Some(own), Some(answer)) = (own, answer) else { return };
    let is_finite = own.iter().all(|score| score.is_finite());
    let _ = answer.send(if is_finite { Ok(own) } else { Err(ReadError::NotFinite) });
}
