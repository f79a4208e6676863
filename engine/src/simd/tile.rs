//! The inner loops: one panel of weights times blocks of rows, the sums held in registers.

use super::lanes::{Lanes, Weight};
use super::{LINE, PANEL, Unit};

/// The maximum number of rows per tile.
const MOST_ROWS: usize = 12;

/// One tile: some rows of a unit.
struct Tile<E> {
    weights: *const E,
    activations: *const f32,
    lines: usize,
    add: bool,
    output: *mut f32,
    stride: usize,
    prefetch: bool,
}

/// Number of streams, one page apart, in which the following weights are prefetched: several streams get more
/// memory bandwidth than one.
const STREAMS: usize = 8;
/// Bytes from one stream to the next.
const STREAM_BYTES: usize = 4096;
/// Bytes of one cache line.
const LINE_BYTES: usize = 64;

/// Prefetches `lines` cache lines of the window of `STREAMS` × `STREAM_BYTES` after the one that contains
/// `weights`, in a different order: while a window is read from start to end, the next one is fetched in
/// [`STREAMS`] streams.
///
/// # Safety
/// As for [`Lanes`]; the addresses need not be valid.
#[inline(always)]
pub(super) unsafe fn prefetch_next<L: Lanes>(weights: *const u8, lines: usize) {
    const WINDOW: usize = STREAMS * STREAM_BYTES;
    let offset = weights.addr() % WINDOW;
    let column = offset / STREAMS / LINE_BYTES * LINE_BYTES;
    let next = weights.wrapping_sub(offset).wrapping_add(WINDOW + column);
    for index in 0..lines / STREAMS {
        for stream in 0..STREAMS {
            // SAFETY: the caller's promise.
            unsafe { L::prefetch(next.wrapping_add(stream * STREAM_BYTES + index * LINE_BYTES)) };
        }
    }
}

/// Computes all rows of a unit, in tiles of at most `MOST` rows × [`PANEL`] outputs (`VECTORS` vectors). `row_lines`:
/// lines of activations in a whole row.
///
/// # Safety
/// As for [`Lanes`]; the lengths of the unit are those that [`Kernel::multiply`](super::Kernel::multiply) checks.
/// Sums are added to the output unless the stretch is the first one.
#[inline(always)]
pub(super) unsafe fn run<L: Lanes, W: Weight<L>, const VECTORS: usize, const MOST: usize>(
    mut unit: Unit<'_>,
    row_lines: usize,
) {
    let (rows, width) = (unit.output.rows(), unit.output.width());
    let (mut first, add) = (0, unit.first_line > 0);
    while first < rows {
        let count = MOST.min(rows - first);
        let mut copy: Option<[f32; MOST_ROWS * PANEL]> = None;
        let (output, stride) = unit.output.open((first, count), width == PANEL, add, &mut copy);
        let offset = (first * row_lines + unit.first_line * count) * LINE;
        let tile = Tile {
            weights: unit.weights.as_ptr().cast::<W::Element>(),
            // SAFETY: the block of `count` rows from `first` on starts at `first × row_lines` lines.
            activations: unsafe { unit.activations.as_ptr().add(offset) },
            lines: unit.lines,
            add,
            output,
            stride,
            prefetch: first == 0,
        };
        // SAFETY: the caller's promise; `count` is at most `MOST`.
        unsafe { tile.run_rows::<L, W, VECTORS, MOST>(count) };
        unit.output.close((first, count), &copy);
        first += count;
    }
}

impl<E> Tile<E> {
    #[inline(always)]
    unsafe fn run_rows<L: Lanes, W: Weight<L, Element = E>, const VECTORS: usize, const MOST: usize>(
        &self,
        rows: usize,
    ) {
        const { assert!(MOST <= MOST_ROWS) };
        // SAFETY: the caller's promise.
        unsafe {
            match rows {
                1 => self.run::<L, W, VECTORS, 1>(),
                2 => self.run::<L, W, VECTORS, 2>(),
                3 => self.run::<L, W, VECTORS, 3>(),
                _ if MOST == 3 => unreachable!("a tile has at most three rows"),
                4 => self.run::<L, W, VECTORS, 4>(),
                5 => self.run::<L, W, VECTORS, 5>(),
                6 => self.run::<L, W, VECTORS, 6>(),
                7 => self.run::<L, W, VECTORS, 7>(),
                8 => self.run::<L, W, VECTORS, 8>(),
                9 => self.run::<L, W, VECTORS, 9>(),
                10 => self.run::<L, W, VECTORS, 10>(),
                11 => self.run::<L, W, VECTORS, 11>(),
                _ => self.run::<L, W, VECTORS, 12>(),
            }
        }
    }

    /// # Safety
    /// As for [`run`], where the block has `ROWS` rows.
    #[inline(always)]
    unsafe fn run<L: Lanes, W: Weight<L, Element = E>, const VECTORS: usize, const ROWS: usize>(&self) {
        let lanes = PANEL / VECTORS;
        // SAFETY: the caller's promise: every line has `ROWS` × `LINE` activations and `LINE` / `STEP` steps of
        // `ELEMENTS` × `PANEL` weights, and every row of the output `PANEL` floats.
        unsafe {
            for row in 0..ROWS {
                for line in (0..PANEL).step_by(LINE) {
                    L::prefetch(self.output.wrapping_add(row * self.stride + line).cast());
                }
            }
            let mut sums = [[L::zero(); VECTORS]; ROWS];
            let (mut weights, mut activations) = (self.weights, self.activations);
            for _ in 0..self.lines {
                if self.prefetch {
                    let bytes = LINE / W::STEP * W::ELEMENTS * PANEL * size_of::<E>();
                    prefetch_next::<L>(weights.cast(), bytes / LINE_BYTES);
                }
                for step in 0..LINE / W::STEP {
                    for word in 0..W::STEP {
                        let mut columns = [L::zero(); VECTORS];
                        for (vector, column) in columns.iter_mut().enumerate() {
                            *column = W::load(weights.add(vector * lanes * W::ELEMENTS), word);
                        }
                        for (row, sums) in sums.iter_mut().enumerate() {
                            let activation = L::splat(activations.add(row * LINE + step * W::STEP + word));
                            for (sum, column) in sums.iter_mut().zip(&columns) {
                                *sum = L::multiply_add(activation, *column, *sum);
                            }
                        }
                    }
                    weights = weights.add(PANEL * W::ELEMENTS);
                }
                activations = activations.add(ROWS * LINE);
            }
            for (row, sums) in sums.iter().enumerate() {
                for (vector, sum) in sums.iter().enumerate() {
                    let output = self.output.add(row * self.stride + vector * lanes);
                    L::store(output, if self.add { L::add(L::load(output), *sum) } else { *sum });
                }
            }
        }
    }
}
