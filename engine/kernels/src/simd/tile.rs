//! The inner loops: one panel of weights times blocks of rows, the sums held in registers.

use std::mem::MaybeUninit;

use super::lanes::{Lanes, Weight, Words};
use super::path::intel;
use super::{LINE, PANEL, STRETCH_LINES, Unit};

/// The maximum number of rows per tile.
const MOST_ROWS: usize = 12;

/// One tile: some rows of a unit times some of its outputs.
struct Tile<E> {
    weights: *const E,
    activations: *const f32,
    lines: usize,
    add: bool,
    output: *mut f32,
    stride: usize,
    prefetch: Option<Prefetch>,
    ahead: Option<Ahead>,
}

/// The stored weights after which the following ones are prefetched, a part of them by each block of rows: the memory works
/// while all rows are multiplied, not only the first ones.
#[derive(Clone, Copy)]
struct Prefetch {
    /// The first line that the tile prefetches.
    line: *const u8,
    /// Lines from one that is prefetched to the next.
    step: usize,
    /// Bytes from one line to the next, and bytes prefetched per line.
    stored: usize,
    fetched: usize,
}

/// The stored weights [`AHEAD_BYTES`] after those of the unit, one or two cache lines for each step. They are prefetched
/// one by one between the steps of all blocks: many at once are slower than none.
#[derive(Clone, Copy)]
struct Ahead {
    /// Those after the first step.
    weights: *const u8,
    /// Bytes per step.
    step: usize,
    /// Cache lines that a block prefetches in a step.
    lines: usize,
    /// Lines from one in which the block prefetches to the next, and the first of them.
    period: usize,
    first: usize,
}

/// Bytes from the weights that a tile multiplies to those that it prefetches: a stretch of float32 or of pairs.
const AHEAD_BYTES: usize = 32 << 10;
/// Fewest rows for which weights are prefetched. For fewer, the processor's own prefetching is faster.
const FEWEST_ROWS: usize = 8;

/// Number of streams, one page apart, in which the following weights are prefetched: several streams get more
/// memory bandwidth than one.
const STREAMS: usize = 8;
/// Bytes from one stream to the next.
const STREAM_BYTES: usize = 4096;
/// Bytes of one cache line.
pub(super) const LINE_BYTES: usize = 64;

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

/// Number of rows of the next block if `rest` rows remain and a block has at most `most`. The last two blocks share their
/// rows evenly: a tile of one or two rows takes as long as a larger one, because its sums wait for each other.
#[inline(always)]
pub(super) fn next_block(most: usize, rest: usize) -> usize {
    if rest <= most || rest >= 2 * most { rest.min(most) } else { rest.div_ceil(2) }
}

/// Computes all rows of a unit, in tiles of at most `MOST` rows × `VECTORS` vectors of outputs. `row_lines`: lines of
/// activations in a whole row. Sums are added to the output unless the stretch is the first one.
///
/// # Safety
/// As for [`Lanes`]; the lengths of the unit are those that [`Kernel::multiply`](super::Kernel::multiply) checks, and
/// blocks of activations have the rows of [`next_block`].
#[inline(always)]
pub(super) unsafe fn run<L: Lanes, W: Weight<L>, const VECTORS: usize, const MOST: usize>(
    mut unit: Unit<'_>,
    row_lines: usize,
) {
    for column in (0..unit.output.width()).step_by(VECTORS * L::LANES) {
        // SAFETY: the caller's promise; a panel has the weights of `PANEL` outputs for each input.
        unsafe {
            let weights = unit.weights.as_ptr().cast::<W::Element>().add(column * W::ELEMENTS);
            let prefetch = Prefetch::new::<L, W>(&unit, column, VECTORS * L::LANES);
            let ahead = Ahead::new::<L>(&unit, VECTORS * L::LANES, size_of::<W::Element>() * W::ELEMENTS);
            run_column::<L, W, VECTORS, MOST>(&mut unit, row_lines, column, weights, prefetch, ahead);
        }
    }
}

/// As [`run`], for many rows: the weights are first copied to a buffer as float32, which stays in the first-level cache
/// while it is multiplied with all rows, so that they are widened once for all of them.
///
/// # Safety
/// As for [`run`].
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "AVX2 only"))]
#[inline(always)]
pub(super) unsafe fn run_widened<L: Lanes, W: Weight<L>, const VECTORS: usize, const MOST: usize>(
    mut unit: Unit<'_>,
    row_lines: usize,
) {
    #[repr(C, align(64))]
    struct Buffer(MaybeUninit<[f32; STRETCH_LINES * LINE * PANEL]>);

    const { assert!(VECTORS * L::LANES == PANEL) };
    let mut buffer = Buffer(MaybeUninit::uninit());
    // SAFETY: the caller's promise; a panel has the weights of `PANEL` outputs for each input, and a stretch has at most
    // `STRETCH_LINES` lines.
    unsafe {
        let mut weights = unit.weights.as_ptr().cast::<W::Element>();
        let mut widened = buffer.0.as_mut_ptr().cast::<f32>();
        for _ in 0..unit.lines * LINE / W::STEP {
            for word in 0..W::STEP {
                for vector in 0..VECTORS {
                    let values = W::load(weights.add(vector * L::LANES * W::ELEMENTS), word);
                    L::store(widened.add(vector * L::LANES), values);
                }
                widened = widened.add(PANEL);
            }
            weights = weights.add(PANEL * W::ELEMENTS);
        }
        let widened = buffer.0.as_ptr().cast::<f32>();
        let prefetch = Prefetch::new::<L, W>(&unit, 0, PANEL);
        let output = size_of::<W::Element>() * W::ELEMENTS / W::STEP;
        let ahead = Ahead::new::<L>(&unit, PANEL, output);
        run_column::<L, Words, VECTORS, MOST>(&mut unit, row_lines, 0, widened, prefetch, ahead);
    }
}

/// Computes `VECTORS` vectors of outputs starting with `column`, whose weights start at `weights`, for all rows.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn run_column<L: Lanes, W: Weight<L>, const VECTORS: usize, const MOST: usize>(
    unit: &mut Unit<'_>,
    row_lines: usize,
    column: usize,
    weights: *const W::Element,
    prefetch: Option<Prefetch>,
    ahead: Option<Ahead>,
) {
    let (rows, whole) = (unit.output.rows(), unit.output.width() == PANEL);
    let (mut first, add) = (0, unit.first_line > 0);
    let parts = rows.div_ceil(MOST).min(STRETCH_LINES);
    for block in 0.. {
        let count = next_block(MOST, rows - first);
        if count == 0 {
            break;
        }
        let mut copy: Option<[f32; MOST_ROWS * PANEL]> = None;
        // A copy has all columns, also those that are already computed.
        let (output, stride) = unit.output.open((first, count), whole, add || column > 0, &mut copy);
        let offset = (first * row_lines + unit.first_line * count) * LINE;
        let tile = Tile {
            weights,
            // SAFETY: the block of `count` rows from `first` on starts at `first × row_lines` lines.
            activations: unsafe { unit.activations.as_ptr().add(offset) },
            lines: unit.lines,
            add,
            // SAFETY: every row has `PANEL` floats.
            output: unsafe { output.add(column) },
            stride,
            prefetch: prefetch.and_then(|prefetch| prefetch.part(block, parts)),
            ahead: ahead.map(|ahead| ahead.part(block, rows.div_ceil(MOST))),
        };
        // SAFETY: the caller's promise; `count` is at most `MOST`.
        unsafe { tile.run_rows::<L, W, VECTORS, MOST>(count) };
        unit.output.close((first, count), &copy);
        first += count;
    }
}

impl Prefetch {
    /// Each tile of `outputs` outputs fetches its share of the following weights, on Intel's cores. A Zen core reads up to two
    /// fifths more weights per second without it; [`Ahead`] is for those.
    #[inline(always)]
    fn new<L: Lanes, W: Weight<L>>(unit: &Unit<'_>, column: usize, outputs: usize) -> Option<Self> {
        let output = LINE / W::STEP * W::ELEMENTS * size_of::<W::Element>();
        let line = unit.weights.as_ptr().wrapping_add(column * output);
        intel().then_some(Self { line, step: 1, stored: PANEL * output, fetched: outputs * output })
    }

    /// What block number `block` prefetches: every `parts`th line.
    #[inline(always)]
    fn part(self, block: usize, parts: usize) -> Option<Self> {
        let line = self.line.wrapping_add(block * self.stored);
        (block < parts).then_some(Self { line, step: parts, ..self })
    }
}

impl Ahead {
    /// If the processor is not one of Intel's and the instruction set has such prefetches. `outputs`: those of a tile, with
    /// `bytes` bytes of stored weights per step.
    #[inline(always)]
    fn new<L: Lanes>(unit: &Unit<'_>, outputs: usize, bytes: usize) -> Option<Self> {
        let wanted = L::PREFETCHES && outputs == PANEL && unit.output.rows() >= FEWEST_ROWS && !intel();
        let weights = unit.weights.as_ptr().wrapping_add(AHEAD_BYTES);
        wanted.then_some(Self { weights, step: PANEL * bytes, lines: 1, period: 1, first: 0 })
    }

    /// What block number `block` of `blocks` prefetches. Lines of activations and the cache lines of a step are shared
    /// evenly among the blocks.
    #[inline(always)]
    fn part(self, block: usize, blocks: usize) -> Self {
        let each = self.step / LINE_BYTES;
        let (lines, shares) = if blocks == 1 { (each, 1) } else { (1, each) };
        let period = (blocks / shares).clamp(1, STRETCH_LINES);
        // Blocks after the last share have no line.
        let first = if block < period * shares { block / shares } else { usize::MAX };
        Self { weights: self.weights.wrapping_add(block % shares * LINE_BYTES), lines, period, first, ..self }
    }

    /// How many cache lines are prefetched in each of the `steps` steps of a line, and where the first ones are.
    #[inline(always)]
    fn line(self, line: usize, steps: usize) -> (usize, *const u8, usize) {
        let lines = if line % self.period == self.first { self.lines } else { 0 };
        (lines, self.weights.wrapping_add(line * steps * self.step), self.step)
    }
}

impl<E> Tile<E> {
    #[inline(always)]
    unsafe fn run_rows<L: Lanes, W: Weight<L, Element = E>, const VECTORS: usize, const MOST: usize>(
        &self,
        rows: usize,
    ) {
        const { assert!(MOST == 3 || MOST == MOST_ROWS) };
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
        // SAFETY: the caller's promise: every line has `ROWS` × `LINE` activations and `LINE` / `STEP` steps of
        // `ELEMENTS` × `STRIDE` weights, and every row of the output `VECTORS` vectors.
        unsafe {
            for row in 0..ROWS {
                for line in (0..VECTORS * L::LANES).step_by(LINE) {
                    L::prefetch(self.output.wrapping_add(row * self.stride + line).cast());
                }
            }
            let mut sums = [[L::zero(); VECTORS]; ROWS];
            let (mut weights, mut activations) = (self.weights, self.activations);
            let (mut prefetch, ahead) = (self.prefetch, self.ahead);
            let mut next_prefetch = 0;
            for line in 0..self.lines {
                if let Some(prefetch) = &mut prefetch
                    && line == next_prefetch
                {
                    prefetch_next::<L>(prefetch.line, prefetch.fetched / LINE_BYTES);
                    prefetch.line = prefetch.line.wrapping_add(prefetch.step * prefetch.stored);
                    next_prefetch += prefetch.step;
                }
                let (fetched, from, step) =
                    ahead.map_or((0, std::ptr::null(), 0), |ahead| ahead.line(line, LINE / W::STEP));
                match fetched {
                    0 => Self::line::<L, W, VECTORS, ROWS, 0>(weights, activations, from, step, &mut sums),
                    1 => Self::line::<L, W, VECTORS, ROWS, 1>(weights, activations, from, step, &mut sums),
                    _ => Self::line::<L, W, VECTORS, ROWS, 2>(weights, activations, from, step, &mut sums),
                }
                weights = weights.add(LINE / W::STEP * PANEL * W::ELEMENTS);
                activations = activations.add(ROWS * LINE);
            }
            for (row, sums) in sums.iter().enumerate() {
                for (vector, sum) in sums.iter().enumerate() {
                    let output = self.output.add(row * self.stride + vector * L::LANES);
                    L::store(output, if self.add { L::add(L::load(output), *sum) } else { *sum });
                }
            }
        }
    }

    /// Multiplies one line of activations, and prefetches `FETCHED` cache lines per step, the first ones at `ahead` and
    /// the following ones after `ahead_step` bytes each.
    ///
    /// # Safety
    /// As for [`Self::run`].
    #[inline(always)]
    unsafe fn line<
        L: Lanes,
        W: Weight<L, Element = E>,
        const VECTORS: usize,
        const ROWS: usize,
        const FETCHED: usize,
    >(
        mut weights: *const E,
        activations: *const f32,
        mut ahead: *const u8,
        ahead_step: usize,
        sums: &mut [[L::Vector; VECTORS]; ROWS],
    ) {
        // SAFETY: the caller's promise; the addresses to prefetch may be any.
        unsafe {
            for step in 0..LINE / W::STEP {
                for index in 0..FETCHED {
                    L::prefetch_far(ahead.wrapping_add(index * LINE_BYTES));
                }
                if FETCHED > 0 {
                    ahead = ahead.wrapping_add(ahead_step);
                }
                for word in 0..W::STEP {
                    let column = |vector| W::load(weights.add(vector * L::LANES * W::ELEMENTS), word);
                    let activation = |row| L::splat(activations.add(row * LINE + step * W::STEP + word));
                    // The smaller side is held in registers.
                    if ROWS < VECTORS {
                        let activations: [_; ROWS] = std::array::from_fn(activation);
                        for vector in 0..VECTORS {
                            let column = column(vector);
                            for (sums, activation) in sums.iter_mut().zip(&activations) {
                                sums[vector] = L::multiply_add(*activation, column, sums[vector]);
                            }
                        }
                    } else {
                        let columns: [_; VECTORS] = std::array::from_fn(column);
                        for (row, sums) in sums.iter_mut().enumerate() {
                            let activation = activation(row);
                            for (sum, column) in sums.iter_mut().zip(&columns) {
                                *sum = L::multiply_add(activation, *column, *sum);
                            }
                        }
                    }
                }
                weights = weights.add(PANEL * W::ELEMENTS);
            }
        }
    }
}
