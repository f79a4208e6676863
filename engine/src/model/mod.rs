//! Language models on flattened tokens, with one KV cache per sequence.
//!
//! [`LanguageModel`] is the interface that the scheduler drives: it takes [`Chunk`]s of sequences and returns
//! [`Prediction`]s, which are logits or the tokens that a device chose. [`Runner`] implements it on the CPU with
//! [`Decoder`]; the CUDA backend has its own implementation.

mod attention;
mod decoder;
mod embedding;
mod experts;
pub(crate) mod fuzzing;
mod key_value;
mod layer;
mod linear;
mod rope;
mod runner;

pub(crate) use attention::{AttentionShape, attention_storage};
pub(crate) use decoder::{Decoder, Matrices};
pub(crate) use embedding::Embedding;
pub(crate) use layer::{Dense, FeedForwardWeights, Layer, LayerNorms, Named, Precision};
pub(crate) use linear::{Linear, LinearScratch};
pub use linear::{linear_path, quantized_path};
pub(crate) use rope::RotaryTable;
pub(crate) use runner::Runner;

use crate::cache::KvCache;
use crate::sampler::Choosing;

/// A failed forward pass.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    /// The next one may succeed.
    #[error("{0}")]
    Failed(String),
    /// The GPU cannot compute any more in this process.
    #[error("{0}")]
    Lost(String),
}

/// The next tokens of one sequence.
pub(crate) struct Chunk<'a> {
    /// Tokens that follow those in the cache; at least one.
    pub(crate) tokens: &'a [u32],
    /// The sequence's cache, which must have room for these tokens. The forward pass adds them.
    pub(crate) cache: &'a mut KvCache,
    /// Number of last tokens after which to return predictions; at most all. A device returns at most one.
    pub(crate) predictions: usize,
    /// How a device may choose the next token itself; `None` if the host needs all logits.
    pub(crate) choosing: Option<Choosing>,
}

/// The interface between the scheduler and a model.
pub(crate) trait LanguageModel: Send {
    /// Advances all sequences and returns the requested predictions, in order of the chunks and of their tokens.
    fn forward(&mut self, chunks: &mut [Chunk<'_>]) -> Result<Vec<Prediction<'_>>, ForwardError>;
}

/// The prediction of the token that follows one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Prediction<'a> {
    /// One logit per token of the vocabulary.
    Logits(&'a [f32]),
    /// The token that the device chose.
    Token(u32),
    /// The logits are not finite.
    NotFinite,
}
