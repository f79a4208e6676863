//! The Llama family on flattened tokens, with one cache per sequence.

mod aligned;
mod attention;
mod elementwise;
mod kernel;
mod linear;
mod llama;
mod quantized;
mod rope;
mod runner;
mod simd;

pub(crate) use aligned::AlignedBuffer;
pub(crate) use elementwise::{LANES, add_lanes, compiled, exponential};
pub(crate) use kernel::Execution;
pub use linear::linear_path;
pub(crate) use linear::{Linear, LinearScratch, Matrix, to_f32};
pub(crate) use llama::{Llama, Matrices};
pub(crate) use runner::Runner;
pub(crate) use simd::QuantizedFormat;

use crate::cache::KvCache;

/// Why a forward pass gave no logits.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ForwardError(pub(crate) String);

/// The next tokens of one sequence.
pub(crate) struct Chunk<'a> {
    /// Tokens that follow what the cache holds; at least one.
    pub(crate) tokens: &'a [u32],
    /// The sequence's cache, which has room for these tokens and holds them too afterwards.
    pub(crate) cache: &'a mut KvCache,
    /// Whether the logits after the last token are wanted.
    pub(crate) logits: bool,
}

/// What the scheduler needs of a model.
pub(crate) trait LanguageModel: Send {
    /// Number of logits.
    fn vocabulary(&self) -> usize;

    /// Advances all sequences and returns the logits of those that want them, one row each, in order.
    fn forward(&mut self, chunks: &mut [Chunk<'_>]) -> Result<&[f32], ForwardError>;
}
