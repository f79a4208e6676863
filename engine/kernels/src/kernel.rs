//! The matrix product of linear layers: packing, blocking and threads around the vector kernels.
//!
//! Weights are packed once into panels of [`PANEL`] outputs, activations at every call into blocks of rows. A
//! stretch of a panel's weights stays in the first-level cache while it is multiplied with all rows. The
//! order in which an output is reduced is a property of the [`Path`]; it depends neither on the number of
//! rows nor on the threads, so a row's result is bit-identical whatever else is in the batch.

use bytemuck::Pod;
use half::{bf16, f16};
use pulp::Arch;
use rayon::prelude::*;

use crate::buffer::AlignedBuffer;
use crate::simd::{
    Columns, DType, Kernel, LINE, OutputColumns, PANEL, Path, Unit, for_each_window, round_line,
};

/// How an operation is executed.
#[derive(Clone, Copy)]
pub struct Execution {
    /// Instruction set of everything except linear layers, detected at run time.
    pub arch: Arch,
    /// Whether the work may be split over the current rayon pool.
    pub parallel: bool,
}

/// Panels that one work item processes per stretch when there are many rows, so that the rows of a stretch
/// are read from the second-level cache.
const GROUP: usize = 4;
/// Minimum number of rows for which panels are grouped.
const MANY_ROWS: usize = 64;
/// Minimum number of multiply-adds for which a product uses several threads. Reading a megabyte of weights for a single row
/// takes long enough.
const PARALLEL_WORK: usize = 1 << 18;
/// Minimum number of activations for which packing uses several threads.
const PARALLEL_ACTIVATIONS: usize = 1 << 17;

/// Minimum size of weights for which packing them uses several threads.
const PARALLEL_BYTES: usize = 1 << 20;
/// Inputs of a panel that are packed before the next ones; they fit into the first-level cache.
const STRETCH: usize = 256;

/// How a product is split into work items.
pub(crate) struct Share {
    /// Panels per work item.
    pub(crate) group: usize,
    /// Whether several threads are used.
    pub(crate) parallel: bool,
}

impl Share {
    pub(crate) fn of(parallel: bool, rows: usize, inputs: usize, outputs: usize) -> Self {
        let threads = if parallel { rayon::current_num_threads() } else { 1 };
        let group = if rows < MANY_ROWS { 1 } else { (outputs / PANEL / (4 * threads)).clamp(1, GROUP) };
        Self { group, parallel: threads > 1 && rows * inputs * outputs >= PARALLEL_WORK }
    }
}

/// Packed weights of a product `activations · weightsᵀ`.
pub struct PanelWeights {
    /// The path that computes the product.
    path: Path,
    inputs: usize,
    /// Number of inputs, padded with zeros to whole lines.
    padded: usize,
    outputs: usize,
    added: usize,
    dtype: DType,
    /// Panel after panel, `padded` × [`PANEL`] numbers each; bfloat16 numbers are stored in pairs of inputs.
    storage: AlignedBuffer<u8>,
}

/// Writes rows of `inputs` weights of type `given` into consecutive columns of a panel of numbers of type `stored`.
fn fill_panel(panel: &mut [u8], stored: DType, first: usize, weights: &[u8], inputs: usize, given: DType) {
    use DType::{Bf16, F16, F32};
    let width = given.width();
    for start in (0..inputs).step_by(STRETCH) {
        let end = (start + STRETCH).min(inputs);
        let slots = &mut panel[start * PANEL * stored.width()..];
        for (index, row) in weights.chunks_exact(inputs * width).enumerate() {
            let (at, row) = (first + index, &row[start * width..end * width]);
            // Bits are copied if the type stays.
            match (stored, given) {
                (F32, F32) => place(slots, at, row, f32::from_le_bytes),
                (F32, Bf16) => place(slots, at, row, |bytes| f32::from(bf16::from_le_bytes(bytes))),
                (F32, F16) => place(slots, at, row, |bytes| f32::from(f16::from_le_bytes(bytes))),
                (F16, F16) => place(slots, at, row, f16::from_le_bytes),
                (F16, F32) => place(slots, at, row, |bytes| f16::from_f32(f32::from_le_bytes(bytes))),
                (F16, Bf16) => {
                    place(slots, at, row, |bytes| f16::from_f32(bf16::from_le_bytes(bytes).to_f32()));
                }
                (Bf16, Bf16) => place_pairs(slots, at, row, bf16::from_le_bytes),
                (Bf16, F32) => place_pairs(slots, at, row, |bytes| bf16::from_f32(f32::from_le_bytes(bytes))),
                (Bf16, F16) => {
                    place_pairs(slots, at, row, |bytes| bf16::from_f32(f16::from_le_bytes(bytes).to_f32()));
                }
            }
        }
    }
}

/// Writes numbers of `N` bytes each into a column of a panel.
fn place<T: Pod, const N: usize>(
    slots: &mut [u8],
    column: usize,
    values: &[u8],
    convert: impl Fn([u8; N]) -> T,
) {
    let slots: &mut [T] = bytemuck::cast_slice_mut(slots);
    for (slot, bytes) in slots.chunks_exact_mut(PANEL).zip(values.as_chunks::<N>().0) {
        slot[column] = convert(*bytes);
    }
}

/// As [`place`], for pairs of inputs.
fn place_pairs<const N: usize>(
    slots: &mut [u8],
    column: usize,
    values: &[u8],
    convert: impl Fn([u8; N]) -> bf16,
) {
    let slots: &mut [[bf16; 2]] = bytemuck::cast_slice_mut(slots);
    let (pairs, last) = values.as_chunks::<N>().0.as_chunks::<2>();
    for (slot, [first, second]) in slots.chunks_exact_mut(PANEL).zip(pairs) {
        slot[column] = [convert(*first), convert(*second)];
    }
    if let [last] = last {
        slots[pairs.len() * PANEL + column][0] = convert(*last);
    }
}

impl PanelWeights {
    /// Allocates zeros, to be replaced by [`Self::add`].
    pub fn new(dtype: DType, inputs: usize, outputs: usize) -> Self {
        assert!(inputs > 0, "a product has at least one input");
        let line = if dtype == DType::Bf16 { 2 * LINE } else { LINE };
        let padded = inputs.next_multiple_of(line);
        let length = outputs.next_multiple_of(PANEL) * padded;
        let storage = AlignedBuffer::zeros(length * dtype.width());
        Self { path: Path::best(dtype), inputs, padded, outputs, added: 0, dtype, storage }
    }

    /// Packs the weights of the next outputs: little-endian numbers of a type, row-major (outputs × inputs), rounded to
    /// the nearest value of the stored type. Large weights are split over the current rayon pool, if there is one.
    pub fn add(&mut self, given: DType, weights: &[u8]) {
        let row_bytes = self.inputs * given.width();
        let (first, rows) = (self.added, weights.len() / row_bytes);
        self.added += rows;
        if rows == 0 {
            return;
        }
        let (inputs, stored, panel_bytes) =
            (self.inputs, self.dtype, self.padded * PANEL * self.dtype.width());
        let first_panel = first / PANEL;
        let fill = |(index, panel): (usize, &mut [u8])| {
            let start = (first_panel + index) * PANEL;
            let (from, to) = (first.max(start), (first + rows).min(start + PANEL));
            let weights = &weights[(from - first) * row_bytes..(to - first) * row_bytes];
            fill_panel(panel, stored, from - start, weights, inputs, given);
        };
        let panels = &mut self.storage[first_panel * panel_bytes..self.added.div_ceil(PANEL) * panel_bytes];
        if weights.len() >= PARALLEL_BYTES && rayon::current_thread_index().is_some() {
            panels.par_chunks_mut(panel_bytes).enumerate().for_each(fill);
        } else {
            panels.chunks_mut(panel_bytes).enumerate().for_each(fill);
        }
    }

    /// The same weights for another path, if this processor supports it for them.
    pub fn with_path(mut self, path: Path) -> Option<Self> {
        self.path = path;
        path.available(self.dtype).then_some(self)
    }

    /// The path that computes the product.
    #[inline]
    pub fn path(&self) -> Path {
        self.path
    }

    /// Outputs per row.
    #[inline]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes that one product reads.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.storage.len()
    }

    /// Computes `target` (rows × outputs) from `input` (rows × inputs), both row-major. `packed` is scratch space.
    pub fn multiply(
        &self,
        parallel: bool,
        input: &[f32],
        target: OutputColumns<'_>,
        packed: &mut AlignedBuffer,
    ) {
        assert_eq!(target.columns.len(), self.outputs);
        let rows = target.rows();
        if rows == 0 {
            return;
        }
        self.pack(parallel, &input[..rows * self.inputs], packed);
        let Share { group, parallel } = Share::of(parallel, rows, self.inputs, self.outputs);
        for_each_window(target, group * PANEL, parallel, |index, mut window| {
            self.panels(index * group, packed, &mut window);
        });
    }

    /// Computes the panels of one window, starting with `first`.
    fn panels(&self, first: usize, packed: &[f32], window: &mut Columns<'_>) {
        let line_inputs = self.path.line_inputs();
        let lines = self.padded / line_inputs;
        let stretch = self.path.stretch_lines();
        let (kernel, dtype) = (Kernel::new(self.path), self.dtype);
        let input_bytes = PANEL * dtype.width();
        for first_line in (0..lines).step_by(stretch) {
            let count = stretch.min(lines - first_line);
            for panel in 0..window.width().div_ceil(PANEL) {
                let start = ((first + panel) * self.padded + first_line * line_inputs) * input_bytes;
                let weights = &self.storage[start..][..count * line_inputs * input_bytes];
                let output = window.narrow(panel * PANEL, PANEL);
                let unit = Unit { dtype, weights, activations: packed, first_line, lines: count, output };
                kernel.multiply(unit);
            }
        }
    }

    /// Packs activations into blocks of rows in the layout that the kernels read, each [line][row][word].
    fn pack(&self, parallel: bool, input: &[f32], packed: &mut AlignedBuffer) {
        let line_inputs = self.path.line_inputs();
        let words = self.padded / line_inputs * LINE;
        let rows = input.len().checked_div(self.inputs).unwrap_or(0);
        packed.resize(self.path.packed_rows(rows) * words);
        if packed.is_empty() {
            return;
        }
        let pack = |(block, input): (&mut [f32], &[f32])| {
            let rows = self.path.packed_rows(input.len() / self.inputs);
            for (row, values) in input.chunks_exact(self.inputs).enumerate() {
                let lines = block.chunks_exact_mut(LINE).skip(row).step_by(rows);
                // Padded inputs may fill a line of their own.
                for (line, values) in lines.zip(values.chunks(line_inputs).chain(std::iter::repeat(&[][..])))
                {
                    pack_line(self.path, values, line);
                }
            }
        };
        let block = |rest: usize| {
            let rows = self.path.next_block(rest / self.inputs);
            (self.path.packed_rows(rows) * words, rows * self.inputs)
        };
        for_each_block(parallel, packed, input, block, pack);
    }
}

/// Calls `pack` with the space of each block of rows and its part of `input`, on the current rayon pool if `parallel` and
/// there is enough work. `block` returns the lengths of both for the next block, from the length of the remaining input.
pub(crate) fn for_each_block<T: Send>(
    parallel: bool,
    mut packed: &mut [T],
    mut input: &[f32],
    block: impl Fn(usize) -> (usize, usize),
    pack: impl Fn((&mut [T], &[f32])) + Send + Sync,
) {
    let parallel = parallel && input.len() >= PARALLEL_ACTIVATIONS;
    let blocks = std::iter::from_fn(|| {
        let (space, values) = block(input.len());
        (values > 0).then_some((packed.split_off_mut(..space)?, input.split_off(..values)?))
    });
    if parallel {
        blocks.collect::<Vec<_>>().into_par_iter().for_each(pack);
    } else {
        blocks.for_each(pack);
    }
}

/// Writes one line of activations, padded with zeros.
#[inline]
fn pack_line(path: Path, values: &[f32], line: &mut [f32]) {
    if path.rounds() {
        let Ok(line) = bytemuck::cast_slice_mut(line).try_into() else { unreachable!("a line is 32 halves") };
        if let Ok(values) = values.try_into() {
            round_line(values, line);
        } else {
            let mut filled = [0.0; 2 * LINE];
            filled[..values.len()].copy_from_slice(values);
            round_line(&filled, line);
        }
    } else {
        line[..values.len()].copy_from_slice(values);
        line[values.len()..].fill(0.0);
    }
}
