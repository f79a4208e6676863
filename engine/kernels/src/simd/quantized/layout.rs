//! The block formats of ggml ([`QuantizedFormat`]), and the layout of the blocks of [`PANEL`] outputs in a panel.
//!
//! One block of a panel holds the same inputs of all its outputs. "Fours" are four adjacent inputs of all
//! outputs: `[output][input]` bytes, so that a 32-bit lane belongs to one output.
//!
//! | format | inputs | in this order, [`PANEL`] of each |
//! |---|---|---|
//! | Q8_0 | 32 | 8 fours of bytes (value + 128); f16 scale |
//! | Q4_K | 256 | f16 scale of scales; f16 scale of minima; 8 × scale byte; 8 × minimum byte; for each 32 inputs 4 × two fours, the first in the low, the second in the high half of each byte |
//! | Q6_K | 256 | f16 scale of scales; 16 × signed scale byte; for each 16 inputs 2 × two fours of the low 4 bits as above, then four fours of the high 2 bits, the first in the lowest (value + 32) |

use std::fmt;

use super::super::PANEL;

/// Bytes per four.
pub(super) const FOUR: usize = 4 * PANEL;
/// Offset of the scales in a block of Q8_0.
pub(super) const Q8_0_SCALES: usize = 8 * FOUR;
/// Offsets of the parts of a block of Q4_K.
pub(super) const Q4K_MINIMUM_SCALES: usize = 2 * PANEL;
pub(super) const Q4K_BLOCK_SCALES: usize = Q4K_MINIMUM_SCALES + 2 * PANEL;
pub(super) const Q4K_BLOCK_MINIMA: usize = Q4K_BLOCK_SCALES + 8 * PANEL;
pub(super) const Q4K_VALUES: usize = Q4K_BLOCK_MINIMA + 8 * PANEL;
/// Bytes per 32 inputs of Q4_K.
pub(super) const Q4K_BLOCK_VALUES: usize = 4 * FOUR;
/// Offsets of the parts of a block of Q6_K.
pub(super) const Q6K_BLOCK_SCALES: usize = 2 * PANEL;
pub(super) const Q6K_VALUES: usize = Q6K_BLOCK_SCALES + 16 * PANEL;
/// Bytes per 16 inputs of Q6_K.
pub(super) const Q6K_BLOCK_VALUES: usize = 3 * FOUR;

/// A block format whose blocks are multiplied as stored (ggml's `ggml-common.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantizedFormat {
    /// 32 values of 8 bits with one scale: 34 bytes.
    Q8_0,
    /// 256 values of 4 bits; each group of 32 has a scale and a minimum of 6 bits: 144 bytes.
    Q4K,
    /// 256 values of 6 bits; each group of 16 has a scale of 8 bits: 210 bytes.
    Q6K,
}

impl QuantizedFormat {
    /// Values per block.
    pub fn block_values(self) -> usize {
        match self {
            Self::Q8_0 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q6K => 210,
        }
    }

    /// Bytes per block of a panel, which has as many inputs as a block.
    pub(crate) fn panel_bytes(self) -> usize {
        match self {
            Self::Q8_0 => Q8_0_SCALES + 2 * PANEL,
            Self::Q4K => Q4K_VALUES + 8 * Q4K_BLOCK_VALUES,
            Self::Q6K => Q6K_VALUES + 16 * Q6K_BLOCK_VALUES,
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

/// Writes one block of one output, as stored by ggml, to its column of a panel's block. The column must be
/// zero.
pub(crate) fn pack_block(format: QuantizedFormat, block: &[u8], column: usize, panel: &mut [u8]) {
    assert_eq!(block.len(), format.block_bytes());
    assert!(column < PANEL && panel.len() == format.panel_bytes());
    match format {
        QuantizedFormat::Q8_0 => pack_q8_0(block, column, panel),
        QuantizedFormat::Q4K => pack_q4k(block, column, panel),
        QuantizedFormat::Q6K => pack_q6k(block, column, panel),
    }
}

fn pack_q8_0(block: &[u8], column: usize, panel: &mut [u8]) {
    let (scale, values) = block.split_at(2);
    for (four, values) in values.chunks_exact(4).enumerate() {
        for (input, value) in values.iter().enumerate() {
            // Converts two's complement to the value + 128.
            panel[four * FOUR + column * 4 + input] = value ^ 0x80;
        }
    }
    panel[Q8_0_SCALES + 2 * column..][..2].copy_from_slice(scale);
}

fn pack_q4k(block: &[u8], column: usize, panel: &mut [u8]) {
    let (scale, rest) = block.split_at(2);
    let (minimum_scale, rest) = rest.split_at(2);
    let (scales, values) = rest.split_at(12);
    panel[2 * column..][..2].copy_from_slice(scale);
    panel[Q4K_MINIMUM_SCALES + 2 * column..][..2].copy_from_slice(minimum_scale);
    for part in 0..8 {
        let (scale, minimum) = if part < 4 {
            (scales[part] & 63, scales[part + 4] & 63)
        } else {
            let low = scales[part + 4];
            (low & 15 | scales[part - 4] >> 6 << 4, low >> 4 | scales[part] >> 6 << 4)
        };
        panel[Q4K_BLOCK_SCALES + part * PANEL + column] = scale;
        panel[Q4K_BLOCK_MINIMA + part * PANEL + column] = minimum;
        // 32 bytes hold two parts: the even one in their low halves.
        let value = |input: usize| values[part / 2 * 32 + input] >> (part % 2 * 4) & 15;
        let target = &mut panel[Q4K_VALUES + part * Q4K_BLOCK_VALUES..][..Q4K_BLOCK_VALUES];
        for input in 0..32 {
            let (pair, high, lane) = (input / 8, input / 4 % 2, input % 4);
            target[pair * FOUR + column * 4 + lane] |= value(input) << (4 * high);
        }
    }
}

fn pack_q6k(block: &[u8], column: usize, panel: &mut [u8]) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, scale) = rest.split_at(16);
    panel[2 * column..][..2].copy_from_slice(scale);
    for (part, scale) in scales.iter().enumerate() {
        panel[Q6K_BLOCK_SCALES + part * PANEL + column] = *scale;
    }
    for input in 0..256 {
        // Each half has 128 values in quarters of 32: two quarters are in the low and two in the high halves
        // of 64 bytes, and the high bits of all four are in the bit pairs of 32 bytes.
        let (half, quarter, place) = (input / 128, input / 32 % 4, input % 32);
        let low = low[half * 64 + quarter % 2 * 32 + place] >> (quarter / 2 * 4) & 15;
        let high = high[half * 32 + place] >> (quarter * 2) & 3;
        let (part, four, lane) = (input / 16, input / 4 % 4, input % 4);
        let target = &mut panel[Q6K_VALUES + part * Q6K_BLOCK_VALUES..][..Q6K_BLOCK_VALUES];
        target[four / 2 * FOUR + column * 4 + lane] |= low << (four % 2 * 4);
        target[2 * FOUR + column * 4 + lane] |= high << (four * 2);
    }
}
