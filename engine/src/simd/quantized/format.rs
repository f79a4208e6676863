//! Block formats of ggml.

/// A block format whose blocks are multiplied as stored (ggml's `ggml-common.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QuantizedFormat {
    /// 32 values of 8 bits with one scale: 34 bytes.
    Q8_0,
    /// 256 values of 4 bits; each group of 32 has a scale and a minimum of 6 bits: 144 bytes.
    Q4K,
    /// 256 values of 6 bits; each group of 16 has a scale of 8 bits: 210 bytes.
    Q6K,
}

impl QuantizedFormat {
    /// Values per block.
    pub(crate) fn block_values(self) -> usize {
        match self {
            Self::Q8_0 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// Bytes per block.
    pub(crate) fn block_bytes(self) -> usize {
        match self {
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q6K => 210,
        }
    }
}
