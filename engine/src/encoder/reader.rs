//! A reader that scores passages: a thread owns the model, takes what waits together, and answers.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use tokio::sync::{mpsc, oneshot};

use super::bert::{Bert, Scratch};
use super::config::EncoderConfig;
use crate::error::LoadError;
use crate::load::weights::Weights;
use crate::load::{self, Contents};
use crate::model::to_f32;
use crate::tokenizer::Tokenizer;

/// Questions that may wait before those who ask have to wait.
const WAITING: usize = 256;
/// Questions that are taken together at most.
const TOGETHER: usize = 64;
/// Tokens of one pass, unless a single passage has more.
const TOKENS: usize = 2048;
/// The longest sequence of the published reader; what is longer is cut.
const LONGEST: usize = 512;
/// Where transformers puts the encoder, and the layer that scores.
const ENCODER: &str = "span_predictor.encoder.bert_model";
const CLASSIFIER: &str = "span_predictor.qa_classifier";

/// Why passages have no scores.
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
    #[error("the reader has ended")]
    Ended,
}

/// A passage, as a reader takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReaderPassage {
    /// The title of the page it is from.
    pub title: String,
    /// Its text.
    pub text: String,
}

struct Question {
    question: String,
    passages: Vec<ReaderPassage>,
    answer: oneshot::Sender<Result<Vec<f32>, ReadError>>,
}

/// A DPR reader (Karpukhin et al. 2020): how relevant passages are to a question.
///
/// Cloning gives another handle to the same model; its thread ends, and is joined, when the last one is dropped. A
/// passage's score is the same to the bit whatever is scored beside it.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<Inner>,
}

struct Inner {
    tokenizer: Arc<PassageTokenizer>,
    questions: Option<mpsc::Sender<Question>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.questions = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the reader's thread panicked");
        }
    }
}

impl Reader {
    /// Opens a Hugging Face folder of a DPR reader. Configuration and tokenizer are read now; the weights are read by
    /// the reader's own thread, and what is wrong with them is what the first question is told.
    ///
    /// # Errors
    /// When a file is missing, damaged or of a kind that is not supported; the error names it and a remedy.
    pub fn open(folder: &Path, threads: Option<usize>) -> Result<Self, LoadError> {
        let Contents { config, config_file, tokenizer, weights } = load::contents(folder)?;
        let config = EncoderConfig::parse(&config, &config_file)?;
        let words = format!("{ENCODER}.embeddings.word_embeddings.weight");
        let rows = weights.rows(&words, config.hidden_size)?;
        if tokenizer.id_limit() > rows {
            let file = tokenizer.file().to_owned();
            return Err(LoadError::VocabularyTooLarge { file, pieces: tokenizer.id_limit(), rows });
        }
        let tokenizer = Arc::new(PassageTokenizer::new(tokenizer, config.positions.min(LONGEST))?);
        let available = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads.unwrap_or_else(available).max(1))
            .thread_name(|index| format!("lumos-reader-{index}"))
            .build()
            .map_err(|error| LoadError::Thread { reason: error.to_string() })?;
        let (questions, waiting) = mpsc::channel(WAITING);
        let thread = {
            let tokenizer = Arc::clone(&tokenizer);
            std::thread::Builder::new()
                .name("lumos-reader".to_owned())
                .spawn(move || {
                    // Tokenizing and multiplying are shared out over the pool.
                    pool.install(|| serve(&config, &weights, &tokenizer, waiting));
                })
                .map_err(|error| LoadError::Thread { reason: error.to_string() })?
        };
        Ok(Self {
            inner: Arc::new(Inner {
                tokenizer,
                questions: Some(questions),
                thread: Mutex::new(Some(thread)),
            }),
        })
    }

    /// How relevant each passage is: the reader's relevance logits, in the order of the passages. Dropping the future
    /// takes the question back if nobody has begun with it.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn score(
        &self,
        question: impl Into<String>,
        passages: Vec<ReaderPassage>,
    ) -> Result<Vec<f32>, ReadError> {
        let (answer, answered) = oneshot::channel();
        let question = Question { question: question.into(), passages, answer };
        let questions = self.inner.questions.as_ref().ok_or(ReadError::Ended)?;
        questions.send(question).await.map_err(|_| ReadError::Ended)?;
        answered.await.map_err(|_| ReadError::Ended)?
    }

    /// The ids that a question and a passage become: `[CLS] question [SEP] title [SEP] text`, cut at 512.
    ///
    /// # Errors
    /// If the tokenizer refuses a text.
    pub fn encode(&self, question: &str, passage: &ReaderPassage) -> Result<Vec<u32>, ReadError> {
        let question = self.inner.tokenizer.ids(question)?;
        self.inner.tokenizer.encode(&question, passage)
    }
}

/// Lays questions and passages out as transformers' `DPRReaderTokenizer` does.
struct PassageTokenizer {
    tokenizer: Tokenizer,
    class: u32,
    separator: u32,
    longest: usize,
}

impl PassageTokenizer {
    fn new(tokenizer: Tokenizer, longest: usize) -> Result<Self, LoadError> {
        let id = |piece: &str| {
            tokenizer.id(piece).ok_or_else(|| LoadError::InvalidTokenizer {
                file: tokenizer.file().to_owned(),
                reason: format!("it has no {piece}"),
            })
        };
        let (class, separator) = (id("[CLS]")?, id("[SEP]")?);
        Ok(Self { tokenizer, class, separator, longest })
    }

    fn ids(&self, text: &str) -> Result<Vec<u32>, ReadError> {
        self.tokenizer.encode(text).map_err(|error| ReadError::Tokenizer(error.to_string()))
    }

    fn encode(&self, question: &[u32], passage: &ReaderPassage) -> Result<Vec<u32>, ReadError> {
        let mut ids = vec![self.class];
        ids.extend(question);
        ids.push(self.separator);
        ids.extend(self.ids(&passage.title)?);
        ids.push(self.separator);
        ids.extend(self.ids(&passage.text)?);
        ids.truncate(self.longest);
        Ok(ids)
    }

    fn encode_all(&self, question: &Question) -> Result<Vec<Vec<u32>>, ReadError> {
        let ids = self.ids(&question.question)?;
        question.passages.par_iter().map(|passage| self.encode(&ids, passage)).collect()
    }
}

/// The encoder with the layer that scores.
struct Scorer {
    encoder: Bert,
    weight: Vec<f32>,
    bias: f32,
    scratch: Scratch,
}

impl Scorer {
    fn load(config: &EncoderConfig, weights: &Weights) -> Result<Self, LoadError> {
        let values = |name: &str, shape: &[usize]| {
            let name = format!("{CLASSIFIER}.{name}");
            to_f32(&weights.get(&name, shape)?).map_err(|error| weights.invalid(&name, &error))
        };
        let encoder = Bert::load(config, weights, ENCODER)?;
        let weight = values("weight", &[1, config.hidden_size])?;
        let bias = values("bias", &[1])?[0];
        Ok(Self { encoder, weight, bias, scratch: Scratch::default() })
    }

    fn score(&mut self, sequences: &[Vec<u32>]) -> Vec<f32> {
        let states = self.encoder.first_states(sequences, &mut self.scratch);
        let score = |state: &[f32]| {
            let products = state.iter().zip(&self.weight);
            products.fold(0.0f32, |sum, (value, weight)| value.mul_add(*weight, sum)) + self.bias
        };
        states.chunks_exact(self.weight.len()).map(score).collect()
    }
}

/// Answers until nobody can ask any more.
fn serve(
    config: &EncoderConfig,
    weights: &Weights,
    tokenizer: &PassageTokenizer,
    mut waiting: mpsc::Receiver<Question>,
) {
    let mut scorer = match Scorer::load(config, weights) {
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
        answer(&mut scorer, tokenizer, &mut questions);
    }
}

/// Scores the passages of all questions in as few passes as the limit on tokens allows, and answers each question
/// when its last passage is scored.
fn answer(scorer: &mut Scorer, tokenizer: &PassageTokenizer, questions: &mut Vec<Question>) {
    let encoded: Vec<_> = questions.par_iter().map(|question| tokenizer.encode_all(question)).collect();
    let mut open = Vec::new();
    let mut sequences: Vec<Vec<u32>> = Vec::new();
    for (question, encoded) in questions.drain(..).zip(encoded) {
        match encoded {
            Ok(encoded) => {
                open.push((encoded.len(), question.answer));
                sequences.extend(encoded);
            }
            Err(error) => {
                let _ = question.answer.send(Err(error));
            }
        }
    }
    let vocabulary = scorer.encoder.vocabulary();
    debug_assert!(sequences.iter().flatten().all(|id| (*id as usize) < vocabulary));
    let mut scores = Vec::with_capacity(sequences.len());
    let (mut rest, mut open) = (sequences.as_slice(), open.into_iter().peekable());
    let mut answered = 0;
    loop {
        while let Some((count, answer)) = open.next_if(|(count, _)| scores.len() >= answered + count) {
            let own: Vec<f32> = scores[answered..answered + count].to_vec();
            answered += count;
            let finite = own.iter().all(|score: &f32| score.is_finite());
            let _ = answer.send(if finite { Ok(own) } else { Err(ReadError::NotFinite) });
        }
        if rest.is_empty() {
            return;
        }
        let mut tokens = 0;
        let fits = |ids: &&Vec<u32>| {
            tokens += ids.len();
            tokens <= TOKENS
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (now, later) = rest.split_at(count);
        scores.extend(scorer.score(now));
        rest = later;
    }
}
