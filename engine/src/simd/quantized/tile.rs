//! The inner loops: one panel of weights times blocks of rows, integer and float sums held in registers.

use super::super::PANEL;
use super::super::lanes::Lanes;
use super::QuantizedUnit;
use super::activations::{MINIMUM, ROW_WORDS, SCALE, START_Q6K, START_Q8_0};
use super::lanes::QuantizedLanes;
use super::layout::{
    FOUR, Q4K_BLOCK_MINIMA, Q4K_BLOCK_SCALES, Q4K_BLOCK_VALUES, Q4K_MINIMUM_SCALES, Q4K_VALUES,
    Q6K_BLOCK_SCALES, Q6K_BLOCK_VALUES, Q6K_VALUES, Q8_0_SCALES, QuantizedFormat,
};

/// The maximum number of rows per tile.
const MOST_ROWS: usize = 6;
/// Vectors of outputs that one tile computes at a time.
const VECTORS: usize = 2;
/// Size of a cache line in bytes.
const LINE_BYTES: usize = 64;

/// One tile: some rows of a unit.
struct Tile {
    weights: *const u8,
    panel_blocks: usize,
    activations: *const i32,
    add: bool,
    output: *mut f32,
    stride: usize,
    prefetch: bool,
}

/// Computes all rows of a unit, in tiles of at most `MOST` rows. `panel_blocks`: blocks of the panel in the stretch;
/// `row_blocks`: blocks of activations in a whole row. Sums are added to the output unless the stretch is the first one.
///
/// # Safety
/// As for [`QuantizedLanes`]; the lengths of the unit are those that
/// [`QuantizedPath::multiply`](super::QuantizedPath::multiply) checks.
#[inline(always)]
pub(super) unsafe fn run<L: QuantizedLanes, const MOST: usize>(
    mut unit: QuantizedUnit<'_>,
    panel_blocks: usize,
    row_blocks: usize,
) {
    let (rows, width) = (unit.output.rows(), unit.output.width());
    let mut first = 0;
    while first < rows {
        let count = MOST.min(rows - first);
        let add = unit.first_block > 0;
        let mut copy: Option<[f32; MOST_ROWS * PANEL]> = None;
        let (output, stride) = unit.output.open((first, count), width == PANEL, add, &mut copy);
        let offset = (first * row_blocks + unit.first_block * count) * ROW_WORDS;
        let tile = Tile {
            weights: unit.weights.as_ptr(),
            panel_blocks,
            // SAFETY: the `count` rows from `first` on start at `first × row_blocks` blocks.
            activations: unsafe { unit.activations.as_ptr().add(offset) },
            add,
            output,
            stride,
            prefetch: first == 0,
        };
        // SAFETY: the caller's promise; `count` is at most `MOST`.
        unsafe { tile.run_rows::<L, MOST>(count, unit.format) };
        unit.output.close((first, count), &copy);
        first += count;
    }
}

impl Tile {
    #[inline(always)]
    unsafe fn run_rows<L: QuantizedLanes, const MOST: usize>(&self, rows: usize, format: QuantizedFormat) {
        const { assert!(MOST <= MOST_ROWS && PANEL.is_multiple_of(VECTORS * L::LANES)) };
        // SAFETY: the caller's promise.
        unsafe {
            match rows {
                1 => self.run_format::<L, 1>(format),
                2 => self.run_format::<L, 2>(format),
                _ if MOST == 2 => unreachable!("a tile has at most two rows"),
                3 => self.run_format::<L, 3>(format),
                4 => self.run_format::<L, 4>(format),
                5 => self.run_format::<L, 5>(format),
                _ => self.run_format::<L, 6>(format),
            }
        }
    }

    #[inline(always)]
    unsafe fn run_format<L: QuantizedLanes, const ROWS: usize>(&self, format: QuantizedFormat) {
        for column in (0..PANEL).step_by(VECTORS * L::LANES) {
            // SAFETY: the caller's promise.
            unsafe {
                match format {
                    QuantizedFormat::Q8_0 => self.run::<L, Q8_0, ROWS>(column),
                    QuantizedFormat::Q4K => self.run::<L, Q4K, ROWS>(column),
                    QuantizedFormat::Q6K => self.run::<L, Q6K, ROWS>(column),
                }
            }
        }
    }

    /// Computes the outputs of [`VECTORS`] vectors starting with `column`.
    ///
    /// # Safety
    /// As for [`run`], where the block has `ROWS` rows.
    #[inline(always)]
    unsafe fn run<L: QuantizedLanes, F: Format, const ROWS: usize>(&self, column: usize) {
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
                    prefetch: self.prefetch && column == 0,
                };
                F::multiply::<L, ROWS>(block, &mut sums);
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
type Sums<L, const ROWS: usize> = [[<L as Lanes>::Vector; VECTORS]; ROWS];

/// How a panel's block is multiplied in one format.
trait Format {
    const FORMAT: QuantizedFormat;

    /// Adds the products of a block of a panel with `ROWS` rows' blocks of activations.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`]; the pointers of the block are valid for what their descriptions say.
    unsafe fn multiply<L: QuantizedLanes, const ROWS: usize>(block: Block, sums: &mut Sums<L, ROWS>);
}

/// A block of a panel with the activations that it is multiplied with.
#[derive(Clone, Copy)]
struct Block {
    /// The block.
    weights: *const u8,
    /// First of the outputs; [`VECTORS`] vectors are computed.
    column: usize,
    /// Blocks of activations that cover the same inputs.
    activations: *const i32,
    /// Whether to prefetch the following weights.
    prefetch: bool,
}

/// Cache lines prefetched at a time.
const PREFETCHED: usize = 8;
/// Prefetch distance in bytes. Of 1 to 16 KiB this is the best for one thread on Zen 5, a tenth faster than
/// several streams. Hardware prefetchers fetch the following lines too, but not across pages.
const AHEAD_BYTES: usize = 8192;

impl Block {
    /// Prefetches the lines that are [`AHEAD_BYTES`] after the `part`th [`PREFETCHED`] lines of the block.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`].
    #[inline(always)]
    unsafe fn prefetch<L: QuantizedLanes>(&self, part: usize) {
        if self.prefetch {
            let first = self.weights.wrapping_add(AHEAD_BYTES + part * PREFETCHED * LINE_BYTES);
            for line in 0..PREFETCHED {
                // SAFETY: the caller's promise; the address may be any.
                unsafe { L::prefetch(first.wrapping_add(line * LINE_BYTES)) };
            }
        }
    }
}

/// Integer sums of a tile over a part of the inputs that has one scale.
struct Dots<L: QuantizedLanes, const ROWS: usize> {
    sums: [[L::Integers; VECTORS]; ROWS],
    /// The block of activations.
    activations: *const i32,
}

impl<L: QuantizedLanes, const ROWS: usize> Dots<L, ROWS> {
    /// Starts with zero, or with a word of the activations.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`]; `activations` is one block.
    #[inline(always)]
    unsafe fn new(activations: *const i32, start: Option<usize>) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [[L::zero_integers(); VECTORS]; ROWS];
            if let Some(start) = start {
                for (row, sums) in sums.iter_mut().enumerate() {
                    *sums = [L::splat_integer(activations.add(start * ROWS + row)); VECTORS];
                }
            }
            Self { sums, activations }
        }
    }

    /// Adds the products of one four, the `four`th of the block of activations.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`].
    #[inline(always)]
    unsafe fn add(&mut self, four: usize, weights: [L::Integers; VECTORS]) {
        for (row, sums) in self.sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let values = L::splat_integer(self.activations.add(four * ROWS + row));
                for (sum, weights) in sums.iter_mut().zip(&weights) {
                    *sum = L::dot(*sum, *weights, values);
                }
            }
        }
    }

    /// Adds the integers, scaled, to the float sums.
    ///
    /// # Safety
    /// As for [`QuantizedLanes`].
    #[inline(always)]
    unsafe fn finish(self, scales: [L::Vector; VECTORS], sums: &mut Sums<L, ROWS>) {
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

/// One value per vector of the tile. A macro, because a closure might not be compiled for the instruction
/// set.
macro_rules! vectors {
    ($vector:ident => $value:expr) => {
        [
            {
                let $vector = 0;
                $value
            },
            {
                let $vector = 1;
                $value
            },
        ]
    };
}

/// Loads the vectors' bytes of one four.
///
/// # Safety
/// As for [`QuantizedLanes`]; `bytes` is what belongs to the first of the outputs.
#[inline(always)]
unsafe fn load_four<L: QuantizedLanes>(bytes: *const u8) -> [L::Integers; VECTORS] {
    // SAFETY: the caller's promise.
    unsafe { vectors!(vector => L::load_bytes(bytes.add(vector * 4 * L::LANES))) }
}

/// Loads the vectors' float16 scales.
///
/// # Safety
/// As for [`load_four`].
#[inline(always)]
unsafe fn load_scales<L: QuantizedLanes>(bytes: *const u8) -> [L::Vector; VECTORS] {
    // SAFETY: the caller's promise.
    unsafe { vectors!(vector => L::load_f16(bytes.add(vector * 2 * L::LANES).cast())) }
}

/// Scales or minima from unsigned bytes.
///
/// # Safety
/// As for [`load_four`].
#[inline(always)]
unsafe fn scaled<L: QuantizedLanes>(bytes: *const u8, scales: [L::Vector; VECTORS]) -> [L::Vector; VECTORS] {
    // SAFETY: the caller's promise.
    unsafe { vectors!(vector => L::multiply(scales[vector], L::load_unsigned(bytes.add(vector * L::LANES)))) }
}

struct Q8_0;

impl Format for Q8_0 {
    const FORMAT: QuantizedFormat = QuantizedFormat::Q8_0;

    #[inline(always)]
    unsafe fn multiply<L: QuantizedLanes, const ROWS: usize>(block: Block, sums: &mut Sums<L, ROWS>) {
        let Block { weights, column, activations, .. } = block;
        // SAFETY: the caller's promise and the layout of a block.
        unsafe {
            let mut dots = Dots::<L, ROWS>::new(activations, Some(START_Q8_0));
            block.prefetch::<L>(0);
            for four in 0..8 {
                if four == 4 {
                    block.prefetch::<L>(1);
                }
                dots.add(four, load_four::<L>(weights.add(four * FOUR + 4 * column)));
            }
            dots.finish(load_scales::<L>(weights.add(Q8_0_SCALES + 2 * column)), sums);
        }
    }
}

struct Q4K;

impl Format for Q4K {
    const FORMAT: QuantizedFormat = QuantizedFormat::Q4K;

    #[inline(always)]
    unsafe fn multiply<L: QuantizedLanes, const ROWS: usize>(block: Block, sums: &mut Sums<L, ROWS>) {
        let Block { weights, column, activations, .. } = block;
        // SAFETY: the caller's promise and the layout of a block.
        unsafe {
            let scale_scales = load_scales::<L>(weights.add(2 * column));
            let minimum_scales = load_scales::<L>(weights.add(Q4K_MINIMUM_SCALES + 2 * column));
            // The scales, then each part.
            block.prefetch::<L>(0);
            for part in 0..8 {
                block.prefetch::<L>(1 + part);
                let activations = activations.add(part * ROW_WORDS * ROWS);
                let values = weights.add(Q4K_VALUES + part * Q4K_BLOCK_VALUES + 4 * column);
                let mut dots = Dots::<L, ROWS>::new(activations, None);
                for pair in 0..4 {
                    let bytes = load_four::<L>(values.add(pair * FOUR));
                    dots.add(2 * pair, vectors!(vector => L::low(bytes[vector])));
                    dots.add(2 * pair + 1, vectors!(vector => L::high(bytes[vector])));
                }
                let scales = weights.add(Q4K_BLOCK_SCALES + part * PANEL + column);
                dots.finish(scaled::<L>(scales, scale_scales), sums);
                let minima = weights.add(Q4K_BLOCK_MINIMA + part * PANEL + column);
                let minima = scaled::<L>(minima, minimum_scales);
                for (row, sums) in sums.iter_mut().enumerate() {
                    let activation = L::splat(activations.add(MINIMUM * ROWS + row).cast());
                    for (sum, minimum) in sums.iter_mut().zip(&minima) {
                        *sum = L::multiply_add(*minimum, activation, *sum);
                    }
                }
            }
        }
    }
}

struct Q6K;

impl Format for Q6K {
    const FORMAT: QuantizedFormat = QuantizedFormat::Q6K;

    #[inline(always)]
    unsafe fn multiply<L: QuantizedLanes, const ROWS: usize>(block: Block, sums: &mut Sums<L, ROWS>) {
        let Block { weights, column, activations, .. } = block;
        // SAFETY: the caller's promise and the layout of a block.
        unsafe {
            let scale_scales = load_scales::<L>(weights.add(2 * column));
            block.prefetch::<L>(0);
            for part in 0..16 {
                // Four parts have as many lines as three prefetches fetch.
                if part % 4 < 3 {
                    block.prefetch::<L>(1 + part - part / 4);
                }
                let activations = activations.add(part / 2 * ROW_WORDS * ROWS);
                let values = weights.add(Q6K_VALUES + part * Q6K_BLOCK_VALUES + 4 * column);
                let mut dots = Dots::<L, ROWS>::new(activations, Some(START_Q6K + part % 2));
                let pairs = load_four::<L>(values.add(2 * FOUR));
                for half in 0..2 {
                    let four = part % 2 * 4 + 2 * half;
                    let bytes = load_four::<L>(values.add(half * FOUR));
                    let low = vectors!(vector => {
                        L::or(L::low(bytes[vector]), L::pair(pairs[vector], 2 * half))
                    });
                    dots.add(four, low);
                    let high = vectors!(vector => {
                        L::or(L::high(bytes[vector]), L::pair(pairs[vector], 2 * half + 1))
                    });
                    dots.add(four + 1, high);
                }
                let scales = weights.add(Q6K_BLOCK_SCALES + part * PANEL + column);
                let scales = vectors!(vector => {
                    L::multiply(scale_scales[vector], L::load_signed(scales.add(vector * L::LANES)))
                });
                dots.finish(scales, sums);
            }
        }
    }
}
