//! Encodes pairs of texts.

use tokenizers::{PostProcessor, Tokenizer, TruncationParams, TruncationStrategy};

use crate::error::GenerateError;

/// A tokenizer of pairs: adds special tokens and truncates the longer text first.
pub(crate) struct PairTokenizer {
    inner: Tokenizer,
}

impl PairTokenizer {
    pub(super) fn new(mut inner: Tokenizer, longest: usize) -> Result<Self, String> {
        // Without special tokens the input would differ from the model's training data.
        if inner.get_post_processor().is_none_or(|processor| processor.added_tokens(true) == 0) {
            return Err("its post_processor adds no special tokens to pairs".to_owned());
        }
        let truncation = TruncationParams {
            max_length: longest,
            strategy: TruncationStrategy::LongestFirst,
            ..TruncationParams::default()
        };
        inner.with_truncation(Some(truncation)).map_err(|error| error.to_string())?;
        Ok(Self { inner })
    }

    /// The ids of two texts.
    pub(crate) fn encode(&self, first: &str, second: &str) -> Result<Vec<u32>, GenerateError> {
        super::ids(|| self.inner.encode_fast((first, second), true))
    }
}
