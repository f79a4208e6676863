//! Matrices in the block formats of ggml.

use crate::model::QuantizedFormat;

/// A matrix in a block format.
#[derive(Clone, Debug)]
pub(crate) struct QuantizedMatrix {
    pub(crate) format: QuantizedFormat,
    /// Outputs.
    pub(crate) rows: usize,
    /// Inputs: whole blocks.
    pub(crate) columns: usize,
    /// Row after row.
    pub(crate) blocks: Vec<u8>,
}
