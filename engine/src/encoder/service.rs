//! The scoring thread of an encoder: owns the model, batches waiting questions and sends back their scores.
//!
//! [`Service`] is the handle. A [`Layout`] tokenizes a question with its texts, a [`Score`] computes the
//! scores.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rayon::prelude::*;
use tokio::sync::{mpsc, oneshot};

use crate::error::LoadError;
use crate::options::thread_pool;

/// Questions that may wait in the queue; further callers wait to submit.
const WAITING: usize = 256;
/// Maximum number of questions that are scored together.
const TOGETHER: usize = 64;
/// Maximum number of tokens per pass, unless a single sequence is longer.
const TOKENS: usize = 2048;

/// Errors of scoring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncoderError {
    /// The weights could not be read.
    #[error("{0}")]
    Load(String),
    /// The tokenizer failed to encode a text.
    #[error("cannot encode a text: {0}")]
    Tokenizer(String),
    /// The model computed a value that is not finite.
    #[error("a passage's score is not finite; the model's weights are damaged")]
    NotFinite,
    /// The reader's thread has ended.
    #[error("the thread of the reader has ended")]
    Ended,
}

/// Encodes a question and the texts to score as ids.
pub(super) trait Layout: Send + Sync + 'static {
    /// The text type that is scored.
    type Text: Send + Sync + 'static;

    /// Encodes the question with each text. All ids are in the model's vocabulary, and no sequence is empty
    /// or too long.
    fn encode_all(&self, question: &str, texts: &[Self::Text]) -> Result<Vec<Vec<u32>>, EncoderError>;
}

/// Scores sequences of ids. Each score is bit-identical whatever else is in the batch.
pub(super) trait Score {
    /// One score per sequence.
    fn score(&mut self, sequences: &[&[u32]]) -> Vec<f32>;
}

struct Question<T> {
    question: String,
    texts: Vec<T>,
    answer: oneshot::Sender<Result<Vec<f32>, EncoderError>>,
}

/// A handle to the scoring thread. The thread ends, and is joined, when the handle is dropped.
pub(super) struct Service<L: Layout> {
    pub(super) layout: Arc<L>,
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
        let pool = thread_pool(threads, "lumos-reader")?;
        let (questions, waiting) = mpsc::channel(WAITING);
        let layout = Arc::new(layout);
        let own_layout = Arc::clone(&layout);
        // Tokenizing and matrix products run in parallel on the pool.
        let work = move || pool.install(|| serve(load, &*own_layout, waiting));
        let thread = std::thread::Builder::new().name("lumos-reader".to_owned());
        let thread = thread.spawn(work).map_err(LoadError::thread)?;
        Ok(Self { layout, questions: Some(questions), thread: Mutex::new(Some(thread)) })
    }

    /// One score per text, in order. Dropping the future cancels the question.
    pub(super) async fn score(
        &self,
        question: String,
        texts: Vec<L::Text>,
    ) -> Result<Vec<f32>, EncoderError> {
        let (answer, answered) = oneshot::channel();
        let questions = self.questions.as_ref().ok_or(EncoderError::Ended)?;
        questions.send(Question { question, texts, answer }).await.map_err(|_| EncoderError::Ended)?;
        answered.await.map_err(|_| EncoderError::Ended)?
    }
}

/// Processes questions until all senders are dropped.
fn serve<L: Layout, S: Score>(
    load: impl FnOnce() -> Result<S, LoadError>,
    layout: &L,
    mut waiting: mpsc::Receiver<Question<L::Text>>,
) {
    let mut scorer = match load() {
        Ok(scorer) => scorer,
        Err(error) => {
            let error = EncoderError::Load(error.to_string());
            while let Some(question) = waiting.blocking_recv() {
                // The receiver may be gone; in that case no answer is needed.
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

/// Scores the texts of all questions in as few passes as the token limit allows, and answers each question
/// when its last text is scored. Duplicates are scored once. Questions whose future was dropped are not
/// scored further.
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
                // Everything before this question has been scored.
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

/// Sequences that wait for the next pass, and the scores of earlier passes.
#[derive(Default)]
struct Passes<'a> {
    next: Vec<&'a [u32]>,
    tokens: usize,
    scores: BTreeMap<&'a [u32], f32>,
}

impl<'a> Passes<'a> {
    /// Adds a sequence. Returns whether a pass had to be run first to make room.
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

/// Answers a question if its receiver exists and all its texts are scored.
fn reply(
    sequences: &[Vec<u32>],
    answer: Option<oneshot::Sender<Result<Vec<f32>, EncoderError>>>,
    scores: &BTreeMap<&[u32], f32>,
) {
    let own: Option<Vec<f32>> = sequences.iter().map(|ids| scores.get(ids.as_slice()).copied()).collect();
    let (Some(own), Some(answer)) = (own, answer) else { return };
    let is_finite = own.iter().all(|score| score.is_finite());
    let _ = answer.send(if is_finite { Ok(own) } else { Err(EncoderError::NotFinite) });
}
