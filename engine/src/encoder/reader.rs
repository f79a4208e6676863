//! A reader that scores passages.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::config::EncoderConfig;
use super::elementwise::scores;
use super::service::{Layout, ReadError, Score, Service, check_vocabulary};
use super::transformer::{Encoder, Scratch};
use crate::error::LoadError;
use crate::load::weights::Weights;
use crate::load::{self, Contents};
use crate::model::to_f32;
use crate::tokenizer::Tokenizer;

/// The longest sequence of the published reader; what is longer is cut.
const LONGEST: usize = 512;
/// Where transformers puts the encoder, and the layer that scores.
const ENCODER: &str = "span_predictor.encoder.bert_model";
const CLASSIFIER: &str = "span_predictor.qa_classifier";

/// A passage, as a reader takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReaderPassage {
    /// The title of the page it is from.
    pub title: String,
    /// Its text.
    pub text: String,
}

/// A DPR reader (Karpukhin et al. 2020): how relevant passages are to a question.
///
/// Cloning gives another handle to the same model; its thread ends, and is joined, when the last one is dropped. A
/// passage's score is the same to the bit whatever is scored beside it.
#[derive(Clone)]
pub struct Reader {
    service: Arc<Service<PassageTokenizer>>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reader").finish_non_exhaustive()
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
        check_vocabulary(&tokenizer, &weights, ENCODER, config.hidden_size)?;
        let longest = config.longest().min(LONGEST);
        let tokenizer = PassageTokenizer::new(tokenizer, longest)?;
        let load = move || Scorer::load(&config, &weights, longest);
        Ok(Self { service: Arc::new(Service::start(tokenizer, threads, load)?) })
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
        self.service.score(question.into(), passages).await
    }

    /// The ids that a question and a passage become: `[CLS] question [SEP] title [SEP] text`, cut at 512.
    ///
    /// # Errors
    /// If the tokenizer refuses a text.
    pub fn encode(&self, question: &str, passage: &ReaderPassage) -> Result<Vec<u32>, ReadError> {
        let tokenizer = self.service.layout();
        tokenizer.encode(&tokenizer.ids(question)?, passage)
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
                reason: format!("missing token {piece}"),
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
}

impl Layout for PassageTokenizer {
    type Text = ReaderPassage;

    fn encode_all(&self, question: &str, passages: &[ReaderPassage]) -> Result<Vec<Vec<u32>>, ReadError> {
        let ids = self.ids(question)?;
        passages.par_iter().map(|passage| self.encode(&ids, passage)).collect()
    }
}

/// The encoder with the layer that scores.
struct Scorer {
    encoder: Encoder,
    weight: Vec<f32>,
    bias: f32,
    scratch: Scratch,
}

impl Scorer {
    fn load(config: &EncoderConfig, weights: &Weights, longest: usize) -> Result<Self, LoadError> {
        let values = |name: &str, shape: &[usize]| {
            let name = format!("{CLASSIFIER}.{name}");
            to_f32(&weights.get(&name, shape)?).map_err(|error| weights.invalid(&name, &error))
        };
        let encoder = Encoder::load(config, weights, ENCODER, longest)?;
        let weight = values("weight", &[1, config.hidden_size])?;
        let bias = values("bias", &[1])?[0];
        Ok(Self { encoder, weight, bias, scratch: Scratch::default() })
    }
}

impl Score for Scorer {
    fn score(&mut self, sequences: &[&[u32]]) -> Vec<f32> {
        let states = self.encoder.first_states(sequences, &mut self.scratch);
        scores(states, &self.weight, self.bias)
    }
}
