//! Cross-encoders: score how well a text matches a query by reading both together.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use lumos_kernels::arch;
use pulp::Arch;
use rayon::prelude::*;

use super::config::{EncoderConfig, Family};
use super::elementwise::{add_bias_and_gelu, add_bias_and_tanh, scores};
use super::service::{EncoderError, Layout, Score, Service};
use super::transformer::{Affine, Encoder, Reading, Scratch};
use crate::error::LoadError;
use crate::load::contents;
use crate::load::weights::Weights;
use crate::model::LinearScratch;
use crate::tokenizer::Tokenizer;

/// A cross-encoder as in the sentence-transformers library, with one label (Reimers and Gurevych 2019):
/// `RobertaForSequenceClassification` (`cross-encoder/stsb-roberta-large`) or
/// `DebertaV2ForSequenceClassification` (`osunlp/MindAct_CandidateGeneration_deberta-v3-base`).
///
/// Cloning returns another handle to the same model; its thread ends, and is joined, when the last handle is
/// dropped. Sequences are never padded, so a pair's score is bit-identical whatever else is scored in the
/// same batch.
#[derive(Clone)]
pub struct CrossEncoder {
    service: Arc<Service<Pairs>>,
}

impl fmt::Debug for CrossEncoder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CrossEncoder").finish_non_exhaustive()
    }
}

impl CrossEncoder {
    /// Opens a Hugging Face folder; `model_type` of its config.json selects the architecture. Configuration
    /// and tokenizer are read immediately. The cross-encoder's own thread reads the weights; the first query
    /// returns an error if that fails.
    ///
    /// # Errors
    /// Fails if a file is missing, corrupt or unsupported; the error names the file and a remedy.
    pub fn open(folder: &Path, threads: Option<usize>) -> Result<Self, LoadError> {
        let parse = |bytes: &[u8], file: &Path| {
            let config = EncoderConfig::parse(bytes, file)?;
            let layer = match config.family {
                Family::Roberta => "roberta",
                Family::Deberta(_) => "deberta",
                Family::Bert => {
                    let reason = "model_type is neither roberta nor deberta-v2".to_owned();
                    return Err(LoadError::Unsupported { file: file.to_owned(), reason });
                }
            };
            Ok((config, layer))
        };
        let ((config, layer), tokenizer, weights) = contents(folder, parse)?;
        tokenizer.check_rows(Reading::new(&weights, layer).words(&config)?)?;
        let longest = config.longest();
        let pairs = Pairs(tokenizer.for_pairs(longest)?);
        let load = move || Classifier::load(&config, &weights, layer, longest);
        Ok(Self { service: Arc::new(Service::start(pairs, threads, load)?) })
    }

    /// The logit of each text with the query, in the order of the texts. The library that published these
    /// models applies the logistic function, which keeps the order. Dropping the future cancels the query.
    ///
    /// # Errors
    /// See [`EncoderError`].
    pub async fn score(
        &self,
        query: impl Into<String>,
        texts: Vec<String>,
    ) -> Result<Vec<f32>, EncoderError> {
        self.service.score(query.into(), texts).await
    }

    /// Encodes a query and a text with the tokenizer's special tokens. Truncates the longer of the two until
    /// the total is at most 512 ids. Keeps white space around texts: older versions of the library stripped
    /// it, newer ones and their tokenizers do not.
    ///
    /// # Errors
    /// Fails if the tokenizer cannot encode a text.
    pub fn encode(&self, query: &str, text: &str) -> Result<Vec<u32>, EncoderError> {
        self.service.layout.encode(query, text)
    }
}

/// Lays out pairs as the library's tokenizer does.
struct Pairs(Tokenizer);

impl Pairs {
    fn encode(&self, query: &str, text: &str) -> Result<Vec<u32>, EncoderError> {
        self.0.encode_pair(query, text).map_err(|error| EncoderError::Tokenizer(error.to_string()))
    }
}

impl Layout for Pairs {
    type Text = String;

    fn encode_all(&self, query: &str, texts: &[String]) -> Result<Vec<Vec<u32>>, EncoderError> {
        texts.par_iter().map(|text| self.encode(query, text)).collect()
    }
}

/// Adds a bias to each row and applies the activation between the encoder and the scoring layer.
type Activation = fn(Arch, &mut [f32], &[f32]);

/// The encoder with its scoring layers.
struct Classifier {
    encoder: Encoder,
    dense: Affine,
    activation: Activation,
    weight: Vec<f32>,
    bias: f32,
    arch: Arch,
    scratch: Scratch,
    linear: LinearScratch,
    pooled: Vec<f32>,
}

impl Classifier {
    fn load(
        config: &EncoderConfig,
        weights: &Weights,
        encoder: &str,
        longest: usize,
    ) -> Result<Self, LoadError> {
        let width = config.hidden_size;
        let (dense, score, activation): (_, _, Activation) = match config.family {
            Family::Bert | Family::Roberta => ("classifier.dense", "classifier.out_proj", add_bias_and_tanh),
            Family::Deberta(_) => ("pooler.dense", "classifier", add_bias_and_gelu),
        };
        let reading = Reading::new(weights, "");
        let bias = reading.values(&format!("{score}.bias"), &[1])?.into_iter().sum();
        Ok(Self {
            weight: reading.values(&format!("{score}.weight"), &[1, width])?,
            bias,
            dense: reading.affine(&[dense.to_owned()], width, width)?,
            activation,
            encoder: Encoder::load(config, weights, encoder, longest)?,
            arch: arch(),
            scratch: Scratch::default(),
            linear: LinearScratch::default(),
            pooled: Vec::new(),
        })
    }
}

impl Score for Classifier {
    fn score(&mut self, sequences: &[&[u32]]) -> Vec<f32> {
        let Self { dense, pooled, linear, .. } = self;
        let states = self.encoder.first_states(sequences, &mut self.scratch);
        dense.product(self.arch, states, pooled, linear);
        (self.activation)(self.arch, pooled, &dense.bias);
        scores(pooled, &self.weight, self.bias)
    }
}
