//! The Llama family on flattened tokens, with one cache per sequence.

mod aligned;
mod attention;
mod elementwise;
pub(crate) mod fuzzing;
mod kernel;
mod linear;
mod llama;
mod prediction;
mod quantized;
mod rope;
mod runner;
mod simd;

pub(crate) use aligned::AlignedBuffer;
pub(crate) use elementwise::{LANES, add_lanes, compiled, exponential};
pub(crate) use kernel::Execution;
pub(crate) use linear::{Linear, LinearScratch, Matrix, to_f32};
pub use linear::{linear_path, quantized_path};
pub(crate) use llama::{Llama, Matrices};
pub(crate) use prediction::{Choice, Prediction, Predictions};
pub(crate) use rope::RotaryTable;
pub(crate) use runner::Runner;
pub(crate) use simd::QuantizedFormat;

use crate::cache::KvCache;
use crate::sampler::Choosing;

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
    /// Whether it is wanted what follows the last token.
    pub(crate) logits: bool,
    /// How a device may choose what follows by itself; `None` when all logits have to be sent back.
    pub(crate) choosing: Option<Choosing>,
}

/// What the scheduler needs of a model.
pub(crate) trait LanguageModel: Send {
    /// Advances all sequences and returns what follows those that want it, in order.
    fn forward(&mut self, chunks: &mut [Chunk<'_>]) -> Result<Predictions<'_>, ForwardError>;
}

impl LanguageModel for Box<dyn LanguageModel> {
    fn forward(&mut self, chunks: &mut [Chunk<'_>]) -> Result<Predictions<'_>, ForwardError> {
        (**self).forward(chunks)
    }
}
