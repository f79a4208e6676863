//! Matrices in ggml's block formats, as stored.

use std::borrow::Cow;
use std::fmt;

use candle_core::quantized::GgmlDType;

use crate::simd::QuantizedFormat;

impl QuantizedFormat {
    /// The format of ggml's type; `None` for types that are widened to floats on loading.
    pub(crate) fn of(dtype: GgmlDType) -> Option<Self> {
        match dtype {
            GgmlDType::Q8_0 => Some(Self::Q8_0),
            GgmlDType::Q4K => Some(Self::Q4K),
            GgmlDType::Q6K => Some(Self::Q6K),
            _ => None,
        }
    }
}

impl fmt::Display for QuantizedFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q6K => "Q6_K",
        })
    }
}

/// A matrix whose rows are whole blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuantizedMatrix<'a> {
    pub(crate) format: QuantizedFormat,
    /// Inputs; a multiple of the values in a block.
    pub(crate) columns: usize,
    /// Rows in order (one per output), in the order of Hugging Face's tensor of the same name.
    pub(crate) blocks: Cow<'a, [u8]>,
}
