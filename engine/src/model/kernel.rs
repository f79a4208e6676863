//! The matrix product at the bottom of every linear layer.
//!
//! Weights are packed into panels of [`PANEL`] outputs. Every output is one chain of fused multiply-adds over
//! [`DEPTH`] inputs, and the sums of the blocks are added in order. The order depends neither on the number of
//! rows nor on the width of the machine's vectors, so a row's result is the same to the bit whatever is
//! computed beside it.

use pulp::{Arch, Simd, WithSimd};

/// Where something is computed.
#[derive(Clone, Copy)]
pub(crate) struct Execution {
    /// Instruction set, detected at run time.
    pub(crate) arch: Arch,
    /// Whether the current rayon pool may share the work.
    pub(crate) parallel: bool,
}

/// Outputs in one packed panel.
pub(crate) const PANEL: usize = 64;
/// Inputs summed in one chain.
pub(crate) const DEPTH: usize = 256;
/// The most rows one tile works on.
const TILE_ROWS: usize = 6;

/// How many rows each tile takes when `rows` are shared out evenly over as few tiles as possible.
pub(crate) fn row_blocks(rows: usize) -> impl Iterator<Item = usize> + Clone {
    let blocks = rows.div_ceil(TILE_ROWS);
    let (base, larger) = (rows / blocks.max(1), rows % blocks.max(1));
    (0..blocks).map(move |block| base + usize::from(block < larger))
}

/// Interleaves row-major activations (`rows` × `inputs`) block by block, so that a tile reads them in order.
pub(crate) fn pack_rows(activations: &[f32], inputs: usize, packed: &mut [f32]) {
    if inputs == 0 {
        return;
    }
    let rows = activations.len() / inputs;
    let (mut source, mut target) = (activations, packed);
    for count in row_blocks(rows) {
        let (block, rest) = source.split_at(count * inputs);
        let (block_packed, rest_packed) = target.split_at_mut(count * inputs);
        if count == 1 {
            block_packed.copy_from_slice(block);
        } else {
            for (row, values) in block.chunks_exact(inputs).enumerate() {
                for (slot, value) in block_packed.chunks_exact_mut(count).zip(values) {
                    slot[row] = *value;
                }
            }
        }
        (source, target) = (rest, rest_packed);
    }
}

/// One panel of weights times all packed rows.
pub(crate) struct PanelProduct<'a> {
    /// `depth` × [`PANEL`] weights, where `depth` is the part of the inputs that starts at `start`.
    pub(crate) weights: &'a [f32],
    /// First input of this part, a multiple of [`DEPTH`]. Later parts are added to what `output` holds.
    pub(crate) start: usize,
    /// Rows as [`pack_rows`] leaves them.
    pub(crate) packed: &'a [f32],
    /// Inputs of a whole row.
    pub(crate) inputs: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    /// `rows` × [`PANEL`].
    pub(crate) output: &'a mut [f32],
}

impl WithSimd for PanelProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Vectors per panel, then vectors per tile for one row, two rows, and more: as many
        // accumulators as fit the registers.
        match S::F32_LANES {
            16 => self.run::<S, 4, 4, 4, 4>(simd),
            8 => self.run::<S, 8, 8, 4, 2>(simd),
            4 => self.run::<S, 16, 8, 4, 2>(simd),
            _ => self.run::<S, 64, 8, 4, 2>(simd),
        }
    }
}

impl PanelProduct<'_> {
    #[inline(always)]
    fn run<S: Simd, const VECTORS: usize, const ONE: usize, const TWO: usize, const MORE: usize>(
        self,
        simd: S,
    ) {
        let (all_weights, _) = S::as_simd_f32s(self.weights).0.as_chunks::<VECTORS>();
        let depth = self.inputs.min(self.weights.len() / PANEL);
        let mut done = 0;
        while done < depth {
            let length = DEPTH.min(depth - done);
            let weights = &all_weights[done..done + length];
            let input = self.start + done;
            let add = input > 0;
            let mut first_row = 0;
            for count in row_blocks(self.rows) {
                let block = &self.packed[first_row * self.inputs..][..count * self.inputs];
                let rows = &block[input * count..][..length * count];
                let output = &mut self.output[first_row * PANEL..][..count * PANEL];
                match count {
                    1 => tile::<S, VECTORS, ONE, 1>(simd, weights, rows, output, add),
                    2 => tile::<S, VECTORS, TWO, 2>(simd, weights, rows, output, add),
                    3 => tile::<S, VECTORS, MORE, 3>(simd, weights, rows, output, add),
                    4 => tile::<S, VECTORS, MORE, 4>(simd, weights, rows, output, add),
                    5 => tile::<S, VECTORS, MORE, 5>(simd, weights, rows, output, add),
                    _ => tile::<S, VECTORS, MORE, 6>(simd, weights, rows, output, add),
                }
                first_row += count;
            }
            done += length;
        }
    }
}

/// `ROWS` rows times one panel, `TILE` vectors of it at a time.
#[inline(always)]
fn tile<S: Simd, const VECTORS: usize, const TILE: usize, const ROWS: usize>(
    simd: S,
    weights: &[[S::f32s; VECTORS]],
    rows: &[f32],
    output: &mut [f32],
    add: bool,
) {
    let (rows, _) = rows.as_chunks::<ROWS>();
    let (output, _) = S::as_mut_simd_f32s(output).0.as_chunks_mut::<VECTORS>();
    let mut first = 0;
    while first + TILE <= VECTORS {
        let mut sums = [[simd.splat_f32s(0.0); TILE]; ROWS];
        for (weights, values) in weights.iter().zip(rows) {
            let weights: &[S::f32s] = &weights[first..first + TILE];
            for row in 0..ROWS {
                let value = simd.splat_f32s(values[row]);
                for vector in 0..TILE {
                    sums[row][vector] = simd.mul_add_f32s(value, weights[vector], sums[row][vector]);
                }
            }
        }
        for (output, sums) in output.iter_mut().zip(&sums) {
            for (output, sum) in output[first..first + TILE].iter_mut().zip(sums) {
                *output = if add { simd.add_f32s(*output, *sum) } else { *sum };
            }
        }
        first += TILE;
    }
}
