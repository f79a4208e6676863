//! Models of the Llama family on flattened tokens, with one KV cache per sequence.
//!
//! [`LanguageModel`] is the interface that the scheduler drives: it takes [`Chunk`]s of sequences and returns
//! [`Predictions`], which are logits or the tokens that a device chose. [`Runner`] implements it on the CPU with
//! [`Llama`]; the CUDA backend has its own implementation.

mod attention;
mod elementwise;
pub(crate) mod fuzzing;
mod kernel;
mod linear;
mod llama;
mod quantized;
mod rope;
mod runner;

pub(crate) use kernel::Execution;
pub(crate) use linear::{Linear, LinearScratch};
pub use linear::{linear_path, quantized_path};
pub(crate) use llama::{Llama, Matrices};
pub(crate) use rope::RotaryTable;
pub(crate) use runner::Runner;

use crate::cache::KvCache;
use crate::sampler::Choosing;

/// A failed forward pass.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ForwardError(pub(crate) String);

/// The next tokens of one sequence.
pub(crate) struct Chunk<'a> {
    /// Tokens that follow those in the cache; at least one.
    pub(crate) tokens: &'a [u32],
    /// The sequence's cache, which must have room for these tokens. The forward pass adds them.
    pub(crate) cache: &'a mut KvCache,
    /// Whether to return the prediction after the last token.
    pub(crate) logits: bool,
    /// How a device may choose the next token itself; `None` if the host needs all logits.
    pub(crate) choosing: Option<Choosing>,
}

/// The interface between the scheduler and a model.
pub(crate) trait LanguageModel: Send {
    /// Advances all sequences and returns the predictions of those that request them, in order.
    fn forward(&mut self, chunks: &mut [Chunk<'_>]) -> Result<Predictions<'_>, ForwardError>;
}

impl LanguageModel for Box<dyn LanguageModel> {
    fn forward(&mut self, chunks: &mut [Chunk<'_>]) -> Result<Predictions<'_>, ForwardError> {
        (**self).forward(chunks)
    }
}

/// The prediction for one sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Prediction<'a> {
    /// One logit per token of the vocabulary.
    Logits(&'a [f32]),
    /// The token that the device chose.
    Token(u32),
    /// The logits are not finite.
    NotFinite,
}

/// The result of one sequence on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The logits are this row of the downloaded ones.
    Row(usize),
    /// The token that the device chose.
    Token(u32),
    /// The logits are not finite.
    NotFinite,
}

/// The predictions of all sequences that requested them, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predictions<'a> {
    vocabulary: usize,
    /// Rows of `vocabulary` logits.
    logits: &'a [f32],
    /// One per sequence; `None` if the rows of logits are in order.
    choices: Option<&'a [Choice]>,
}

impl<'a> Predictions<'a> {
    /// Predictions with one row of logits per sequence.
    pub(crate) fn from_logits(logits: &'a [f32], vocabulary: usize) -> Self {
        Self { vocabulary: vocabulary.max(1), logits, choices: None }
    }

    /// Predictions with one choice per sequence; `logits` has the rows that they refer to.
    pub(crate) fn from_choices(choices: &'a [Choice], logits: &'a [f32], vocabulary: usize) -> Self {
        Self { vocabulary: vocabulary.max(1), logits, choices: Some(choices) }
    }

    /// Iterates over the predictions in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Prediction<'a>> + use<'a> {
        let Self { vocabulary, logits, choices } = *self;
        let count = choices.map_or(logits.len() / vocabulary, <[Choice]>::len);
        (0..count).map(move |index| match choices.map_or(Choice::Row(index), |choices| choices[index]) {
            Choice::Row(row) => Prediction::Logits(&logits[row * vocabulary..][..vocabulary]),
            Choice::Token(token) => Prediction::Token(token),
            Choice::NotFinite => Prediction::NotFinite,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_order_or_by_choice() {
        let logits = [1.0, 2.0, 3.0, 4.0];
        let all: Vec<Prediction<'_>> = Predictions::from_logits(&logits, 2).iter().collect();
        assert_eq!(all, [Prediction::Logits(&[1.0, 2.0]), Prediction::Logits(&[3.0, 4.0])]);
        let choices = [Choice::Token(7), Choice::Row(1), Choice::NotFinite, Choice::Row(0)];
        let some: Vec<Prediction<'_>> = Predictions::from_choices(&choices, &logits, 2).iter().collect();
        let [first, second] = [Prediction::Logits(&[1.0, 2.0]), Prediction::Logits(&[3.0, 4.0])];
        assert_eq!(some, [Prediction::Token(7), second, Prediction::NotFinite, first]);
        assert_eq!(Predictions::from_logits(&[], 2).iter().count(), 0);
    }
}
