//! [`DprReader`]: scores the relevance of passages to a question with a DPR reader model.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::config::EncoderConfig;
use super::elementwise::scores;
use super::service::{EncoderError, Layout, Score, Service};
use super::transformer::{Encoder, Reading, Scratch};
use crate::error::LoadError;
use crate::load::contents;
use crate::load::weights::Weights;
use crate::tokenizer::Tokenizer;

/// Tensor name prefixes of the encoder and of the scoring layer in transformers.
const ENCODER: &str = "span_predictor.encoder.bert_model";
const CLASSIFIER: &str = "span_predictor.qa_classifier";

/// A passage in the form that a reader takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReaderPassage {
    /// Title of the page that the passage is from.
    pub title: String,
    /// Text of the passage.
    pub text: String,
}

/// A DPR reader (Karpukhin et al. 2020): scores the relevance of passages to a question.
///
/// Cloning returns another handle to the same model; its thread ends, and is joined, when the last handle is
/// dropped. A passage's score is bit-identical whatever else is scored in the same batch.
#[derive(Clone)]
pub struct DprReader {
    service: Arc<Service<PassageTokenizer>>,
}

impl fmt::Debug for DprReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl DprReader {
    /// Opens a Hugging Face folder of a DPR reader. Configuration and tokenizer are read immediately. The
    /// reader's own thread reads the weights; the first question returns an error if that fails.
    ///
    /// # Errors
    /// Fails if a file is missing, corrupt or unsupported; the error names the file and a remedy.
    pub fn open(folder: &Path, threads: Option<usize>) -> Result<Self, LoadError> {
        let (config, tokenizer, weights) = contents(folder, EncoderConfig::parse)?;
        tokenizer.check_rows(Reading::new(&weights, ENCODER).words(&config)?)?;
        let longest = config.longest();
        let tokenizer = PassageTokenizer::new(tokenizer, longest)?;
        let load = move || Scorer::load(&config, &weights, longest);
        Ok(Self { service: Arc::new(Service::start(tokenizer, threads, load)?) })
    }

    /// The reader's relevance logit of each passage, in the order of the passages. Dropping the future
    /// cancels the question if it has not been started.
    ///
    /// # Errors
    /// See [`EncoderError`].
    pub async fn score(
        &self,
        question: impl Into<String>,
        passages: Vec<ReaderPassage>,
    ) -> Result<Vec<f32>, EncoderError> {
        self.service.score(question.into(), passages).await
    }

    /// Encodes a question and a passage as `[CLS] question [SEP] title [SEP] text`, truncated to 512 ids.
    ///
    /// # Errors
    /// Fails if the tokenizer cannot encode a text.
    pub fn encode(&self, question: &str, passage: &ReaderPassage) -> Result<Vec<u32>, EncoderError> {
        let tokenizer = &self.service.layout;
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

    fn ids(&self, text: &str) -> Result<Vec<u32>, EncoderError> {
        self.tokenizer.encode(text).map_err(|error| EncoderError::Tokenizer(error.to_string()))
    }

    fn encode(&self, question: &[u32], passage: &ReaderPassage) -> Result<Vec<u32>, EncoderError> {
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

    fn encode_all(&self, question: &str, passages: &[ReaderPassage]) -> Result<Vec<Vec<u32>>, EncoderError> {
        let ids = self.ids(question)?;
        passages.par_iter().map(|passage| self.encode(&ids, passage)).collect()
    }
}

/// The encoder with its scoring layer.
struct Scorer {
    encoder: Encoder,
    weight: Vec<f32>,
    bias: f32,
    scratch: Scratch,
}

impl Scorer {
    fn load(config: &EncoderConfig, weights: &Weights, longest: usize) -> Result<Self, LoadError> {
        let reading = Reading::new(weights, CLASSIFIER);
        let encoder = Encoder::load(config, weights, ENCODER, longest)?;
        let weight = reading.values("weight", &[1, config.hidden_size])?;
        let bias = reading.values("bias", &[1])?[0];
        Ok(Self { encoder, weight, bias, scratch: Scratch::default() })
    }
}

impl Score for Scorer {
    fn score(&mut self, sequences: &[&[u32]]) -> Vec<f32> {
        let states = self.encoder.first_states(sequences, &mut self.scratch);
        scores(states, &self.weight, self.bias)
    }
}
