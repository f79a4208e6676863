//! Vector kernels of the linear layers, chosen at run time by the processor's features.
//!
//! Weights are stored in panels of [`PANEL`] outputs, activations in lines of [`LINE`] words of 32 bits: a
//! word is one float32 or, on the paths that multiply bfloat16 ([`Path::rounds`]), a pair of them. Every
//! output of every row is reduced separately, in an order that depends on the path alone:
//!
//! - `portable`, `avx2`, `avx512`: weights are widened to float32 exactly and activations stay float32. One
//!   chain of fused multiply-adds over the inputs of a stretch in ascending order from zero; the sums of the
//!   stretches are added in order. The three paths are bit-identical.
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
mod columns;
mod lanes;
mod path;
mod quantized;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use columns::{Columns, Target, for_each_window};
pub use path::DType;
pub(crate) use path::Path;
pub(crate) use quantized::{
    BLOCK, PanelLayout, QuantizedFormat, QuantizedPath, QuantizedUnit, ROW_WORDS, pack_block, pack_rows,
};

use lanes::{Bfloat16Pairs, Float16, Portable, Words};
use tile::RawUnit;

/// Outputs in one panel.
pub(crate) const PANEL: usize = 32;
/// Words in one line of activations: 64 bytes.
pub(crate) const LINE: usize = 16;

/// Weights of one panel over a stretch of the inputs, in ascending order of the inputs.
#[derive(Clone, Copy)]
pub(crate) enum Weights<'a> {
    /// [`PANEL`] numbers per input.
    F32(&'a [f32]),
    /// [`PANEL`] pairs per two inputs.
    Bf16(&'a [u16]),
    /// [`PANEL`] numbers per input.
    F16(&'a [u16]),
}

/// One panel of weights times all rows, over a stretch of the inputs.
pub(crate) struct Unit<'a> {
    /// Weights of the stretch.
    pub(crate) weights: Weights<'a>,
    /// Activations of all rows and inputs: [`Path::packed_rows`] rows in blocks of [`Path::block_rows`]. Each
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
        let (path, weights) = (self.path, unit.weights);
        let length = match weights {
            Weights::F32(numbers) => numbers.len(),
            Weights::Bf16(numbers) | Weights::F16(numbers) => numbers.len(),
        };
        let rows = path.packed_rows(unit.output.rows());
        let row_lines = unit.activations.len() / LINE / rows;
        assert_eq!(length, unit.lines * path.line_inputs() * PANEL);
        assert_eq!(unit.activations.len(), rows * row_lines * LINE);
        assert!(unit.first_line + unit.lines <= row_lines && unit.output.width() <= PANEL);
        // SAFETY: the lengths are right by the lines above, and a kernel is only made where the processor has
        // the instructions. A pair of bfloat16 is a word; no kernel needs alignment.
        unsafe {
            match (path, weights) {
                (Path::Portable, Weights::F32(weights)) => {
                    tile::run::<Portable, Words, 4, 3>(raw(weights, row_lines, unit));
                }
                (Path::Portable, Weights::Bf16(weights)) => {
                    tile::run::<Portable, Bfloat16Pairs, 4, 3>(raw(weights, row_lines, unit));
                }
                (Path::Portable, Weights::F16(weights)) => {
                    tile::run::<Portable, Float16, 4, 3>(raw(weights, row_lines, unit));
                }
                #[cfg(target_arch = "x86_64")]
                (Path::Avx2, Weights::F32(weights)) => x86::avx2_f32(raw(weights, row_lines, unit)),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx2, Weights::Bf16(weights)) => x86::avx2_bf16(raw(weights, row_lines, unit)),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx2, Weights::F16(weights)) => x86::avx2_f16(raw(weights, row_lines, unit)),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx512, Weights::F32(weights)) => x86::avx512_f32(raw(weights, row_lines, unit)),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx512, Weights::Bf16(weights)) => x86::avx512_bf16(raw(weights, row_lines, unit)),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx512, Weights::F16(weights)) => x86::avx512_f16(raw(weights, row_lines, unit)),
                #[cfg(target_arch = "x86_64")]
                (Path::Avx512Bf16, Weights::Bf16(weights)) => {
                    x86::avx512_pairs(raw(weights, row_lines, unit));
                }
                #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
                (Path::Amx, Weights::Bf16(weights)) => {
                    let tiles = self.tiles.as_ref().expect("`new` has initialised the tiles");
                    tiles.multiply(raw(weights, row_lines, unit));
                }
                _ => panic!("{path} does not support these weights"),
            }
        }
    }
}

fn raw<'a, S, E>(weights: &[S], row_lines: usize, unit: Unit<'a>) -> RawUnit<'a, E> {
    RawUnit {
        weights: weights.as_ptr().cast(),
        activations: unit.activations.as_ptr(),
        row_lines,
        first_line: unit.first_line,
        lines: unit.lines,
        add: unit.first_line > 0,
        output: unit.output,
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
