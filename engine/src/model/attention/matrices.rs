//! Attention over keys and values in bfloat16, where the processor multiplies them: up to 16 queries at a time.
//!
//! Queries and weights are rounded to bfloat16, as in transformers with models of that type; scores, softmax and sums
//! are float32. Weights are rounded before they are divided by their sum.

use std::ops::Range;

use lumos_kernels::{AlignedBuffer, AttentionTiles, Columns, compiled, round_to_bf16};
use pulp::Arch;

use super::{Scratch, Task};
use crate::cache::{KvCache, TILE};

/// Buffers of a thread.
#[derive(Default)]
pub(super) struct Matrices {
    /// Queries × padded dimensions.
    queries: AlignedBuffer<u16>,
    /// Queries × positions.
    weights: AlignedBuffer<u16>,
    /// Factor of each query's weights.
    factors: AlignedBuffer,
    /// Queries × padded dimensions.
    sums: AlignedBuffer,
    /// Tiles that the pages do not have: those split over several pages, and the values of the last one.
    copied: Vec<u16>,
}

/// Numbers in one tile of keys or of values.
fn tile_numbers(cache: &KvCache) -> usize {
    cache.layout().padded_head() * TILE
}

impl Task<'_> {
    /// Computes the task.
    pub(super) fn multiply(&self, arch: Arch, mut output: Columns<'_>, scratch: &mut Scratch) {
        let Scratch { scores, matrices, .. } = scratch;
        let Matrices { queries, weights, factors, sums, copied } = matrices;
        let (size, padded) = (self.shape.head_size, self.block.cache.layout().padded_head());
        let all = self.span(0, self.block.count - 1);
        let (keys, values) = self.tiles(all.clone(), copied);
        for first in (0..self.queries()).step_by(AttentionTiles::MOST_QUERIES) {
            let count = AttentionTiles::MOST_QUERIES.min(self.queries() - first);
            let range = self.span(self.place(first).0, self.place(first + count - 1).0);
            let tiles = (range.start - all.start) / TILE..(range.end - all.start).div_ceil(TILE);
            let width = tiles.len() * TILE;
            queries.resize(count * padded);
            for (index, rounded) in queries.chunks_exact_mut(padded).enumerate() {
                let query = self.query(self.place(first + index));
                compiled(
                    arch,
                    #[inline(always)]
                    || round_to_bf16(query, &mut rounded[..size]),
                );
                rounded[size..].fill(0);
            }
            let registers = AttentionTiles::new(count);
            scores.resize(count * width);
            registers.scores(queries, &keys[tiles.clone()], scores);
            weights.resize(count * width);
            factors.resize(count);
            compiled(
                arch,
                #[inline(always)]
                || {
                    let rows = scores.chunks_exact_mut(width).zip(weights.chunks_exact_mut(width));
                    for (index, (scores, weights)) in rows.enumerate() {
                        let (row, _) = self.place(first + index);
                        factors[index] = self.exponentials(scores, range.start, row);
                        round_to_bf16(scores, weights);
                    }
                },
            );
            sums.resize(count * padded);
            registers.sums(weights, &values[tiles], sums);
            for (index, (sums, factor)) in sums.chunks_exact(padded).zip(factors.iter()).enumerate() {
                let (row, place) = self.place(first + index);
                for (output, sum) in output.row_mut(row)[place * size..][..size].iter_mut().zip(sums) {
                    *output = sum * factor;
                }
            }
        }
    }

    /// The tiles of keys and of values at the given positions. Values after the last position are zero, so that weights
    /// of zero make zeros of them whatever the page contained.
    fn tiles<'a>(
        &'a self,
        positions: Range<usize>,
        copied: &'a mut Vec<u16>,
    ) -> (Vec<&'a [u16]>, Vec<&'a [u16]>) {
        let (cache, layer, head) = (self.block.cache, self.layer.index, self.head);
        let (numbers, count) = (tile_numbers(cache), positions.len().div_ceil(TILE));
        let last = positions.start + (count - 1) * TILE;
        let filled = positions.end - last;
        if cache.layout().has_whole_tiles() {
            let tiles = positions.step_by(TILE).map(|position| cache.tile(layer, head, position));
            let (keys, mut values): (Vec<_>, Vec<_>) = tiles.unzip();
            if filled < TILE {
                copied.clear();
                copied.extend_from_slice(values[count - 1]);
                clear_positions(copied, filled);
                values[count - 1] = copied;
            }
            (keys, values)
        } else {
            // Padded dimensions stay zero.
            copied.clear();
            copied.resize(2 * count * numbers, 0);
            let (keys, values) = copied.split_at_mut(count * numbers);
            let each = keys.chunks_exact_mut(numbers).zip(values.chunks_exact_mut(numbers));
            for ((keys, values), position) in each.zip(positions.step_by(TILE)) {
                cache.collect((layer, head, position), keys, values);
            }
            clear_positions(&mut values[(count - 1) * numbers..], filled);
            let (keys, values) = (&*keys, &*values);
            (keys.chunks_exact(numbers).collect(), values.chunks_exact(numbers).collect())
        }
    }
}

/// Clears the values of a tile (pairs of positions × padded dimensions × 2) from position `filled` on.
fn clear_positions(values: &mut [u16], filled: usize) {
    let rows = values.chunks_exact_mut(values.len() / (TILE / 2));
    for (row, pair) in rows.skip(filled / 2).zip(filled / 2..) {
        let first = filled.saturating_sub(2 * pair);
        for values in row.as_chunks_mut::<2>().0 {
            values[first..].fill(0);
        }
    }
}
