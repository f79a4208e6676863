//! Vector kernels of the linear layers, chosen at run time by the processor's features.
//!
//! Weights are stored in panels of [`PANEL`] outputs, activations in lines of [`LINE`] words of 32 bits: a
//! word is one float32 or, on the paths that multiply bfloat16 ([`Path::rounds`]), a pair of them. Every
//! output of every row is reduced separately, in an order that depends on the path alone:
//!
//! - `portable`, `neon`, `avx2`, `avx512`: weights are widened to float32 exactly and activations stay float32. One
//!   chain of fused multiply-adds over the inputs of a stretch in ascending order from zero; the sums of the
//!   stretches are added in order. These paths are bit-identical.
//! - `avx512bf16`: activations are rounded to bfloat16 (nearest, ties to even, subnormal numbers to zero).
//!   The same chain over pairs of inputs, the second of a pair before the first, subnormal numbers being
//!   zero.
//! - `amx`: the same rounding. For each 32 inputs, one chain over the even and one over the odd ones; their
//!   sum is added to the output's. All inputs are one such series.
//!
//! All unsafe code of the kernels is below this module.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
#[cfg(target_arch = "x86_64")]
mod attention;
mod columns;
mod lanes;
mod limit;
#[cfg(target_arch = "aarch64")]
mod neon;
mod path;
mod peak;
mod quantized;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub use attention::AttentionTiles;
pub(crate) use columns::for_each_window;
pub use columns::{Columns, OutputColumns, for_each_cell};
pub(crate) use limit::InstructionLimit;
pub use limit::{arch, instruction_limit};
pub use path::{DType, Path};
pub use peak::{byte_operations, float_operations};
pub(crate) use quantized::{BLOCK, QuantizedUnit, ROW_WORDS, pack_block, pack_rows};
pub use quantized::{QuantizedFormat, QuantizedPath};

use lanes::{Bfloat16Pairs, Float16, Portable, Words};

/// Outputs in one panel.
pub const PANEL: usize = 32;
/// Words in one line of activations: 64 bytes.
pub(crate) const LINE: usize = 16;
/// Lines of activations per stretch of the inputs, except with tiles. A panel's weights of one stretch stay in the first-level
/// cache.
const STRETCH_LINES: usize = 16;

/// One panel of weights times all rows, over a stretch of the inputs.
pub(crate) struct Unit<'a> {
    /// Type of the weights.
    pub(crate) dtype: DType,
    /// Weights of the stretch, in ascending order of the inputs: [`PANEL`] numbers per input or, with bfloat16,
    /// [`PANEL`] pairs per two inputs.
    pub(crate) weights: &'a [u8],
    /// Activations of all rows and inputs: [`Path::packed_rows`] rows in blocks of [`Path::next_block`]. Each
    /// block is [line][row][word].
    pub(crate) activations: &'a [f32],
    /// First line of the stretch.
    pub(crate) first_line: usize,
    /// Lines of the stretch.
    pub(crate) lines: usize,
    /// At most [`PANEL`] outputs of all rows. The first stretch overwrites them, later ones add to them.
    pub(crate) output: Columns<'a>,
}

/// A path that is initialised on this thread.
pub(crate) struct Kernel {
    path: Path,
    /// The tile registers, for [`Path::Amx`].
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    tiles: Option<amx::Tiles>,
}

impl Kernel {
    /// Initialises `path` on this thread. Panics if the processor does not support it.
    pub(crate) fn new(path: Path) -> Self {
        assert!(path.available(DType::Bf16), "the processor does not support {path}");
        Self {
            path,
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            tiles: (path == Path::Amx).then(amx::Tiles::new),
        }
    }

    /// Computes a unit. Panics if the path does not support the weights or a length does not match.
    pub(crate) fn multiply(&self, unit: Unit<'_>) {
        let (path, dtype) = (self.path, unit.dtype);
        let rows = path.packed_rows(unit.output.rows());
        let row_lines = unit.activations.len() / LINE / rows;
        assert_eq!(unit.weights.len(), unit.lines * path.line_inputs() * PANEL * dtype.width());
        assert_eq!(unit.activations.len(), rows * row_lines * LINE);
        assert!(unit.first_line + unit.lines <= row_lines && unit.output.width() <= PANEL);
        assert!(unit.lines <= path.stretch_lines());
        // SAFETY: the lengths are right by the lines above, and a kernel is only made where the processor has
        // the instructions. A pair of bfloat16 is a word; no kernel needs alignment.
        unsafe {
            match (path, dtype) {
                (Path::Portable, DType::F32) => tile::run::<Portable, Words, 4, 3>(unit, row_lines),
                (Path::Portable, DType::Bf16) => tile::run::<Portable, Bfloat16Pairs, 4, 3>(unit, row_lines),
                (Path::Portable, DType::F16) => tile::run::<Portable, Float16, 4, 3>(unit, row_lines),
                #[cfg(target_arch = "aarch64")]
                (Path::Neon, DType::F32) => neon::multiply::<Words>(unit, row_lines),
                #[cfg(target_arch = "aarch64")]
                (Path::Neon, DType::Bf16) => neon::multiply::<Bfloat16Pairs>(unit, row_lines),
                #[cfg(target_arch = "aarch64")]
                (Path::Neon, DType::F16) => neon::multiply::<Float16>(unit, row_lines),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx2, DType::F32) => x86::avx2_f32(unit, row_lines),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx2, DType::Bf16) => x86::avx2_bf16(unit, row_lines),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx2, DType::F16) => x86::avx2_f16(unit, row_lines),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx512, DType::F32) => x86::avx512_f32(unit, row_lines),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx512, DType::Bf16) => x86::avx512_bf16(unit, row_lines),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx512, DType::F16) => x86::avx512_f16(unit, row_lines),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx512Bf16, DType::Bf16) => x86::avx512_pairs(unit, row_lines),
                #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
                (Path::Amx, DType::Bf16) => {
                    let tiles = self.tiles.as_ref().expect("`new` has initialised the tiles");
                    tiles.multiply(unit, row_lines);
                }
                _ => panic!("{path} does not support these weights"),
            }
        }
    }
}

/// Rounds 32 activations to bfloat16 as the rounding paths require: to nearest, ties to even, subnormal
/// numbers to zero. Panics if the processor supports no such path.
pub(crate) fn round_line(values: &[f32; 2 * LINE], rounded: &mut [u16; 2 * LINE]) {
    assert!(Path::Avx512Bf16.available(DType::Bf16));
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the processor has the instructions by the line above.
    unsafe {
        x86::round_line(values, rounded);
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("no such path: {values:?} {rounded:?}");
}
