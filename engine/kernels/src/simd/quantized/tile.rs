//! The inner loops: one panel of weights times blocks of rows, integer and float sums held in registers.

mod packed;
mod unpacked;

use std::mem::MaybeUninit;

use super::super::PANEL;
use super::super::lanes::Lanes;
use super::super::path::intel;
use super::super::tile::{LINE_BYTES, next_block, prefetch_next};
use super::QuantizedUnit;
use super::activations::{MINIMUM, ROW_WORDS, SCALE};
use super::lanes::QuantizedLanes;
use super::layout::QuantizedFormat;
use packed::{Q4K, Q6K, Q8_0};
use unpacked::{Unpacked, UnpackedQ4K, UnpackedQ6K};

/// The maximum number of rows per tile.
const MOST_ROWS: usize = 6;

/// One tile: some rows of a unit.
struct Tile {
    weights: *const u8,
    panel_blocks: usize,
    activations: *const i32,
    add: bool,
    output: *mut f32,
    stride: usize,
    prefetch: Option<Ahead>,
}

/// Computes all rows of a unit, in tiles of at most `MOST` rows × `VECTORS` vectors of outputs. `panel_blocks`: blocks of the
/// panel in the stretch; `row_blocks`: blocks of activations in a whole row. Sums are added to the output unless the stretch is
/// the first one.
///
/// # Safety
/// As for [`QuantizedLanes`]; the lengths of the unit are those that
/// [`QuantizedPath::multiply`](super::QuantizedPath::multiply) checks, and blocks of activations have the rows of
/// [`next_block`].
#[inline(always)]
pub(super) unsafe fn run<L: QuantizedLanes, const VECTORS: usize, const MOST: usize>(
    unit: QuantizedUnit<'_>,
    panel_blocks: usize,
    row_blocks: usize,
) {
    let weights = unit.weights.as_ptr();
    // SAFETY: the caller's promise.
    unsafe {
        match unit.format {
            QuantizedFormat::Q8_0 => {
                run_format::<L, Q8_0, VECTORS, MOST>(unit, weights, panel_blocks, row_blocks);
            }
            QuantizedFormat::Q4K => {
                run_format::<L, Q4K, VECTORS, MOST>(unit, weights, panel_blocks, row_blocks);
            }
            QuantizedFormat::Q6K => {
                run_format::<L, Q6K, VECTORS, MOST>(unit, weights, panel_blocks, row_blocks);
            }
        }
    }
}

/// As [`run`], for many rows: weights of 4 and 6 bits are first unpacked into bytes, once for all rows.
///
/// # Safety
/// As for [`run`].
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "AVX2 only"))]
#[inline(always)]
pub(super) unsafe fn run_unpacked<L: QuantizedLanes, const VECTORS: usize, const MOST: usize>(
    unit: QuantizedUnit<'_>,
    panel_blocks: usize,
    row_blocks: usize,
) {
    if unit.format == QuantizedFormat::Q8_0 || panel_blocks != 1 {
        // SAFETY: the caller's promise.
        return unsafe { run::<L, VECTORS, MOST>(unit, panel_blocks, row_blocks) };
    }
    let mut unpacked = MaybeUninit::<Unpacked>::uninit();
    let weights = unit.weights.as_ptr();
    // SAFETY: the caller's promise; the second step reads what the first one has written.
    unsafe {
        let target = unpacked.as_mut_ptr();
        if unit.format == QuantizedFormat::Q4K {
            UnpackedQ4K::unpack::<L>(weights, target);
            run_format::<L, UnpackedQ4K, VECTORS, MOST>(unit, target.cast(), 1, row_blocks);
        } else {
            UnpackedQ6K::unpack::<L>(weights, target);
            run_format::<L, UnpackedQ6K, VECTORS, MOST>(unit, target.cast(), 1, row_blocks);
        }
    }
}

/// # Safety
/// As for [`run`]; `weights` has the blocks of the stretch.
#[inline(always)]
unsafe fn run_format<L: QuantizedLanes, F: Format, const VECTORS: usize, const MOST: usize>(
    mut unit: QuantizedUnit<'_>,
    weights: *const u8,
    panel_blocks: usize,
    row_blocks: usize,
) {
    let (rows, width) = (unit.output.rows(), unit.output.width());
    let (mut first, ahead) = (0, Ahead::best());
    while first < rows {
        let count = next_block(MOST, rows - first);
        let add = unit.first_block > 0;
        let mut copy: Option<[f32; MOST_ROWS * PANEL]> = None;
        let (output, stride) = unit.output.open((first, count), width == PANEL, add, &mut copy);
        let offset = (first * row_blocks + unit.first_block * count) * ROW_WORDS;
        let tile = Tile {
            weights,
            panel_blocks,
            // SAFETY: the `count` rows from `first` on start at `first × row_blocks` blocks.
            activations: unsafe { unit.activations.as_ptr().add(offset) },
            add,
            output,
            stride,
            prefetch: (first == 0).then_some(ahead),
        };
        // SAFETY: the caller's promise; `count` is at most `MOST`.
        unsafe { tile.run_rows::<L, F, VECTORS, MOST>(count) };
        unit.output.close((first, count), &copy);
        first += count;
    }
}

impl Tile {
    #[inline(always)]
    unsafe fn run_rows<L: QuantizedLanes, F: Format, const VECTORS: usize, const MOST: usize>(
        &self,
        rows: usize,
    ) {
        const { assert!(MOST == 2 || MOST == 4 || MOST == MOST_ROWS) };
        // SAFETY: the caller's promise.
        unsafe {
            match rows {
                1 => self.run_columns::<L, F, VECTORS, 1>(),
                2 => self.run_columns::<L, F, VECTORS, 2>(),
                _ if MOST == 2 => unreachable!("a tile has at most two rows"),
                3 => self.run_columns::<L, F, VECTORS, 3>(),
                4 => self.run_columns::<L, F, VECTORS, 4>(),
                _ if MOST == 4 => unreachable!("a tile has at most four rows"),
                5 => self.run_columns::<L, F, VECTORS, 5>(),
                _ => self.run_columns::<L, F, VECTORS, 6>(),
            }
        }
    }

    #[inline(always)]
    unsafe fn run_columns<L: QuantizedLanes, F: Format, const VECTORS: usize, const ROWS: usize>(&self) {
        const { assert!(PANEL.is_multiple_of(VECTORS * L::LANES)) };
        for column in (0..PANEL).step_by(VECTORS * L::LANES) {
            // SAFETY: the caller's promise.
            unsafe { self.run::<L, F, VECTORS, ROWS>(column) };
        }
    }

    /// Computes the outputs of `VECTORS` vectors starting with `column`.
    ///
    /// # Safety
    /// As for [`run`], where the block has `ROWS` rows.
    #[inline(always)]
    unsafe fn run<L: QuantizedLanes, F: Format, const VECTORS: usize, const ROWS: usize>(
        &self,
        column: usize,
    ) {
        let (inputs, bytes) = (F::FORMAT.block_values(), F::FORMAT.panel_bytes());
        // SAFETY: the caller's promise; every row of the output has `PANEL` floats.
        unsafe {
            let mut sums = [[L::zero(); VECTORS]; ROWS];
            for (row, sums) in sums.iter_mut().enumerate() {
                for (vector, sum) in sums.iter_mut().enumerate() {
                    if self.add {
                        *sum = L::load(self.output.add(row * self.stride + column + vector * L::LANES));
                    }
                }
            }
            for block in 0..self.panel_blocks {
                let words = inputs / super::BLOCK * ROW_WORDS * ROWS;
                let block = Block {
                    weights: self.weights.add(block * bytes),
                    column,
                    activations: self.activations.add(block * words),
                    prefetch: self.prefetch.filter(|_| column == 0),
                };
                F::multiply::<L, VECTORS, ROWS>(block, &mut sums);
            }
            for (row, sums) in sums.iter().enumerate() {
                for (vector, sum) in sums.iter().enumerate() {
                    L::store(self.output.add(row * self.stride + column + vector * L::LANES), *sum);
                }
            }
        }
    }
}

/// Float sums of a tile.
type Sums<L, const VECTORS: usize, const ROWS: usize> = [[<L as Lanes>::Vector; VECTORS]; ROWS];

/// How a panel's block is multiplied in one format.
trait Format {
    const FORMAT: QuantizedFormat;

    /// Adds the products of a block of a panel with `ROWS` rows' blocks of activations.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`]; the pointers of the block are valid for what their descriptions say.
    unsafe fn multiply<L: QuantizedLanes, const VECTORS: usize, const ROWS: usize>(
        block: Block,
        sums: &mut Sums<L, VECTORS, ROWS>,
    );
}

/// A block of a panel with the activations that it is multiplied with.
#[derive(Clone, Copy)]
struct Block {
    /// The block.
    weights: *const u8,
    /// First of the outputs.
    column: usize,
    /// Blocks of activations that cover the same inputs.
    activations: *const i32,
    /// How to prefetch the following weights, if at all.
    prefetch: Option<Ahead>,
}

/// Cache lines prefetched at a time.
const PREFETCHED: usize = 8;
/// Prefetch distance in bytes of [`Ahead::Near`]. Of 1 to 16 KiB this is the best for one thread on Zen 5.
const AHEAD_BYTES: usize = 8192;

/// Where weights are prefetched. Hardware prefetchers fetch the following lines too, but not across pages.
#[derive(Clone, Copy)]
enum Ahead {
    /// The lines at a fixed distance: a tenth faster than streams on Zen 5.
    Near,
    /// Several streams ([`prefetch_next`]): a third faster than a fixed distance on Sapphire Rapids.
    Streams,
}

impl Ahead {
    #[inline(always)]
    fn best() -> Self {
        if intel() { Self::Streams } else { Self::Near }
    }

    /// Prefetches the lines after the [`PREFETCHED`] ones that start at `weights`.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`]; the address may be any.
    #[inline(always)]
    unsafe fn prefetch<L: QuantizedLanes>(self, weights: *const u8) {
        match self {
            Self::Near => {
                for line in 0..PREFETCHED {
                    // SAFETY: the caller's promise.
                    unsafe { L::prefetch(weights.wrapping_add(AHEAD_BYTES + line * LINE_BYTES)) };
                }
            }
            // SAFETY: the caller's promise.
            Self::Streams => unsafe { prefetch_next::<L>(weights, PREFETCHED) },
        }
    }

    /// Prefetches what follows a block of `bytes` bytes.
    ///
    /// # Safety
    /// As for [`Self::prefetch`].
    #[inline(always)]
    unsafe fn prefetch_block<L: QuantizedLanes>(self, weights: *const u8, bytes: usize) {
        for first in (0..bytes).step_by(PREFETCHED * LINE_BYTES) {
            // SAFETY: the caller's promise.
            unsafe { self.prefetch::<L>(weights.wrapping_add(first)) };
        }
    }
}

impl Block {
    /// Prefetches what follows the `part`th [`PREFETCHED`] lines of the block.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`].
    #[inline(always)]
    unsafe fn prefetch<L: QuantizedLanes>(&self, part: usize) {
        if let Some(ahead) = self.prefetch {
            // SAFETY: the caller's promise.
            unsafe { ahead.prefetch::<L>(self.weights.wrapping_add(part * PREFETCHED * LINE_BYTES)) };
        }
    }
}

/// Integer sums of a tile over a part of the inputs that has one scale.
struct Dots<L: QuantizedLanes, const VECTORS: usize, const ROWS: usize> {
    sums: [[L::Integers; VECTORS]; ROWS],
    /// Sums of 16 bits that are not part of `sums` yet, if the instruction set uses them.
    pairs: [[L::Integers; VECTORS]; ROWS],
    /// The block of activations.
    activations: *const i32,
}

impl<L: QuantizedLanes, const VECTORS: usize, const ROWS: usize> Dots<L, VECTORS, ROWS> {
    /// Starts with zero, or with a word of the activations.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`]; `activations` is one block.
    #[inline(always)]
    unsafe fn new(activations: *const i32, start: Option<usize>) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let zeros = [[L::zero_integers(); VECTORS]; ROWS];
            let mut sums = zeros;
            if let Some(start) = start {
                for (row, sums) in sums.iter_mut().enumerate() {
                    *sums = [L::splat_integer(activations.add(start * ROWS + row)); VECTORS];
                }
            }
            Self { sums, pairs: zeros, activations }
        }
    }

    /// Adds the products of one four, the `four`th of the block of activations. Calls [`Self::add_pairs`] must follow as
    /// often as [`QuantizedLanes`] says.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`].
    #[inline(always)]
    unsafe fn add(&mut self, four: usize, weights: [L::Integers; VECTORS]) {
        for (row, (sums, pairs)) in self.sums.iter_mut().zip(&mut self.pairs).enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let values = L::splat_integer(self.activations.add(four * ROWS + row));
                for ((sum, pairs), weights) in sums.iter_mut().zip(pairs).zip(&weights) {
                    if L::PAIRS {
                        *pairs = L::dot_pairs(*pairs, *weights, values);
                    } else {
                        *sum = L::dot(*sum, *weights, values);
                    }
                }
            }
        }
    }

    /// Adds the sums of 16 bits to those of 32 bits.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`].
    #[inline(always)]
    unsafe fn add_pairs(&mut self) {
        if L::PAIRS {
            for (sum, pairs) in self.sums.as_flattened_mut().iter_mut().zip(self.pairs.as_flattened_mut()) {
                // SAFETY: the caller's promise.
                unsafe {
                    *sum = L::add_pairs(*sum, *pairs);
                    *pairs = L::zero_integers();
                }
            }
        }
    }

    /// Adds the products of one four of weights with an offset of 128.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`].
    #[inline(always)]
    unsafe fn add_offset(&mut self, four: usize, weights: [L::Integers; VECTORS]) {
        for (row, sums) in self.sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let values = L::splat_integer(self.activations.add(four * ROWS + row));
                for (sum, weights) in sums.iter_mut().zip(&weights) {
                    *sum = L::dot_offset(*sum, *weights, values);
                }
            }
        }
    }

    /// Adds the products of the weights' minima and the sums of the activations to the float sums.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`]; `activations` is one block.
    #[inline(always)]
    unsafe fn add_minima(
        activations: *const i32,
        minima: [L::Vector; VECTORS],
        sums: &mut Sums<L, VECTORS, ROWS>,
    ) {
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let activation = L::splat(activations.add(MINIMUM * ROWS + row).cast());
                for (sum, minimum) in sums.iter_mut().zip(&minima) {
                    *sum = L::multiply_add(*minimum, activation, *sum);
                }
            }
        }
    }

    /// Adds the integers, scaled, to the float sums.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`].
    #[inline(always)]
    unsafe fn finish(self, scales: [L::Vector; VECTORS], sums: &mut Sums<L, VECTORS, ROWS>) {
        for (row, (dots, sums)) in self.sums.iter().zip(sums).enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let activation = L::splat(self.activations.add(SCALE * ROWS + row).cast());
                for ((dot, scale), sum) in dots.iter().zip(&scales).zip(sums) {
                    *sum = L::multiply_add(L::to_floats(*dot), L::multiply(*scale, activation), *sum);
                }
            }
        }
    }
}

/// One value per vector of the tile (`VECTORS`), initialised with another. A macro, because a closure might not be compiled
/// for the instruction set.
macro_rules! vectors {
    ($vector:ident, $initial:expr => $value:expr) => {{
        let mut values = [$initial; VECTORS];
        for $vector in 0..VECTORS {
            values[$vector] = $value;
        }
        values
    }};
}

use vectors;

/// Loads the vectors' bytes of one four.
///
/// # Safety
/// As for [`QuantizedLanes`]; `bytes` is what belongs to the first of the outputs.
#[inline(always)]
unsafe fn load_four<L: QuantizedLanes, const VECTORS: usize>(bytes: *const u8) -> [L::Integers; VECTORS] {
    // SAFETY: the caller's promise.
    unsafe { vectors!(vector, L::zero_integers() => L::load_bytes(bytes.add(vector * 4 * L::LANES))) }
}

/// Loads the vectors' float16 scales.
///
/// # Safety
/// As for [`load_four`].
#[inline(always)]
unsafe fn load_scales<L: QuantizedLanes, const VECTORS: usize>(bytes: *const u8) -> [L::Vector; VECTORS] {
    // SAFETY: the caller's promise.
    unsafe { vectors!(vector, L::zero() => L::load_f16(bytes.add(vector * 2 * L::LANES).cast())) }
}

/// Scales or minima from unsigned bytes.
///
/// # Safety
/// As for [`load_four`].
#[inline(always)]
unsafe fn scaled<L: QuantizedLanes, const VECTORS: usize>(
    bytes: *const u8,
    scales: [L::Vector; VECTORS],
) -> [L::Vector; VECTORS] {
    // SAFETY: the caller's promise.
    unsafe {
        vectors!(vector, L::zero() => L::multiply(scales[vector], L::load_unsigned(bytes.add(vector * L::LANES))))
    }
}
