//! Vector kernels on weights in ggml's block formats.
//!
//! Weights are repacked from rows of blocks into panels of [`PANEL`] outputs ([`layout`]) without changing a
//! number. Activations are rounded to 8 bits in blocks of [`BLOCK`] inputs ([`activations`]). Products of a
//! block (of half a block with 6 bits) are added up as integers, exactly; then, per output of every row and
//! block by block in ascending order, `sum = fused(integer, weight scale · activation scale, sum)`, with 4
//! bits followed by `sum = fused(weight minimum, -(activation scale · sum of the block's activations), sum)`.
//! All paths are bit-identical, and a row's result does not depend on the other rows of the batch.

mod activations;
mod lanes;
mod layout;
#[cfg(target_arch = "aarch64")]
mod neon;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;

pub(crate) use activations::{ROW_WORDS, pack_rows};
pub use layout::QuantizedFormat;
pub(crate) use layout::pack_block;

use super::lanes::Portable;
use super::tile::next_block;
use super::{Columns, InstructionLimit, PANEL};

/// Inputs per block of activations.
pub(crate) const BLOCK: usize = 32;

/// The instructions that compute a product with quantized weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantizedPath {
    /// Plain Rust.
    Portable,
    /// NEON with dot products of signed bytes (ARMv8.2 and later).
    NeonDot,
    /// NEON with dot products of unsigned and signed bytes, which come with the instructions for matrices of bytes (I8MM).
    NeonI8mm,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX2 with AVX-VNNI: dot products of four bytes on processors that may lack AVX-512.
    AvxVnni,
    /// AVX-512 with VNNI: dot products of four bytes.
    Avx512Vnni,
}

impl QuantizedPath {
    /// All paths of the architecture; usually each is faster than those before it.
    #[cfg(not(target_arch = "aarch64"))]
    pub const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::AvxVnni, Self::Avx512Vnni];
    /// All paths of the architecture; usually each is faster than those before it.
    #[cfg(target_arch = "aarch64")]
    pub const ALL: [Self; 3] = [Self::Portable, Self::NeonDot, Self::NeonI8mm];

    /// The fastest path of this processor, within the [`instruction_limit`](crate::instruction_limit).
    pub fn best() -> Self {
        let limit = InstructionLimit::current();
        let allowed = |path: &Self| path.needs() <= limit && path.available();
        Self::ALL.into_iter().rev().find(allowed).unwrap_or(Self::Portable)
    }

    /// The lowest limit that allows the path.
    fn needs(self) -> InstructionLimit {
        match self {
            Self::Portable => InstructionLimit::Portable,
            Self::NeonDot => InstructionLimit::NeonDot,
            Self::NeonI8mm => InstructionLimit::NeonI8mm,
            Self::Avx2 => InstructionLimit::Avx2,
            Self::AvxVnni => InstructionLimit::AvxVnni,
            Self::Avx512Vnni => InstructionLimit::Avx512,
        }
    }

    /// Whether this processor supports the path.
    #[cfg(target_arch = "x86_64")]
    pub fn available(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 => super::Path::Avx2.available(super::DType::F32),
            Self::AvxVnni => Self::Avx2.available() && is_x86_feature_detected!("avxvnni"),
            Self::Avx512Vnni => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vnni")
            }
            Self::NeonDot | Self::NeonI8mm => false,
        }
    }

    /// Whether this processor supports the path.
    #[cfg(target_arch = "aarch64")]
    pub fn available(self) -> bool {
        match self {
            Self::Portable => true,
            Self::NeonDot => std::arch::is_aarch64_feature_detected!("dotprod"),
            Self::NeonI8mm => Self::NeonDot.available() && std::arch::is_aarch64_feature_detected!("i8mm"),
            Self::Avx2 | Self::AvxVnni | Self::Avx512Vnni => false,
        }
    }

    /// Whether this processor supports the path.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub fn available(self) -> bool {
        self == Self::Portable
    }

    /// Rows of the next block of activations if `rest` rows remain.
    pub(crate) fn next_block(self, rest: usize) -> usize {
        match self {
            Self::Portable => next_block(2, rest),
            Self::Avx2 | Self::AvxVnni => next_block(4, rest),
            Self::Avx512Vnni | Self::NeonDot | Self::NeonI8mm => next_block(6, rest),
        }
    }
}

impl fmt::Display for QuantizedPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Portable => "portable",
            Self::NeonDot => "neondot",
            Self::NeonI8mm => "neoni8mm",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avxvnni",
            Self::Avx512Vnni => "avx512vnni",
        })
    }
}

/// One panel of weights times all rows, over a stretch of the inputs.
pub(crate) struct QuantizedUnit<'a> {
    /// The format of `weights`.
    pub(crate) format: QuantizedFormat,
    /// The panel's blocks of the stretch, in ascending order of the inputs.
    pub(crate) weights: &'a [u8],
    /// Activations of all rows and inputs as written by [`pack_rows`], in blocks of
    /// [`QuantizedPath::next_block`].
    pub(crate) activations: &'a [i32],
    /// First block of activations of the stretch.
    pub(crate) first_block: usize,
    /// At most [`PANEL`] outputs of all rows. The first stretch overwrites them, later ones add to them.
    pub(crate) output: Columns<'a>,
}

impl QuantizedPath {
    /// Computes a unit. Panics if the processor does not support the path or a length does not match.
    pub(crate) fn multiply(self, unit: QuantizedUnit<'_>) {
        assert!(self.available(), "the processor does not support {self}");
        let (inputs, bytes) = (unit.format.block_values(), unit.format.panel_bytes());
        let (rows, width) = (unit.output.rows(), unit.output.width());
        let row_blocks = unit.activations.len() / (rows * ROW_WORDS);
        let panel_blocks = unit.weights.len() / bytes;
        assert!(width <= PANEL && unit.weights.len() == panel_blocks * bytes);
        assert!(unit.activations.len() == rows * row_blocks * ROW_WORDS);
        assert!(unit.first_block + panel_blocks * (inputs / BLOCK) <= row_blocks);
        // SAFETY: the lengths are right by the lines above, and so are the processor's instructions. No kernel needs
        // alignment.
        unsafe {
            match self {
                Self::Portable => tile::run::<Portable, 2, 2>(unit, panel_blocks, row_blocks),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => x86::avx2(unit, panel_blocks, row_blocks),
                #[cfg(target_arch = "x86_64")]
                Self::AvxVnni => x86::avx_vnni(unit, panel_blocks, row_blocks),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512Vnni => x86::avx512_vnni(unit, panel_blocks, row_blocks),
                #[cfg(target_arch = "aarch64")]
                Self::NeonDot => neon::multiply::<false>(unit, panel_blocks, row_blocks),
                #[cfg(target_arch = "aarch64")]
                Self::NeonI8mm => neon::multiply::<true>(unit, panel_blocks, row_blocks),
                _ => unreachable!("no path of this architecture"),
            }
        }
    }
}
