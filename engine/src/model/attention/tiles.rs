//! The inner loops of attention: several queries against a range of positions in one head's pages.

use lumos_kernels::Columns;
use pulp::Simd;

use super::Collected;
use crate::cache::{KvCache, TILE};

/// Positions `base..end` of one key-value head; `base` is a multiple of [`TILE`].
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) cache: &'a KvCache,
    pub(super) layer: usize,
    pub(super) head: usize,
    pub(super) base: usize,
    pub(super) end: usize,
    /// Keys and values of these positions, unless the pages have whole tiles.
    pub(super) collected: Option<Collected<'a>>,
}

impl Span<'_> {
    /// Floats of one query's scores: whole tiles.
    pub(super) fn width(&self) -> usize {
        (self.end - self.base).next_multiple_of(TILE)
    }

    /// Keys and values of a tile, in the layout of pages with float32.
    #[inline(always)]
    fn tile(&self, position: usize) -> (&[f32], &[f32]) {
        match &self.collected {
            Some(collected) => collected.tile(position),
            None => self.cache.tile(self.layer, self.head, position),
        }
    }

    /// Dot products of each query (`head_size` floats) with each key, in query order. Floats after the last
    /// position are unspecified. `VECTORS`: vectors per tile; `WIDE`: tiles processed at a time.
    #[inline(always)]
    pub(super) fn scores<S: Simd, const VECTORS: usize, const COUNT: usize, const WIDE: usize>(
        &self,
        simd: S,
        queries: &[&[f32]; COUNT],
        scores: &mut [f32],
    ) {
        let mut position = self.base;
        while position + (WIDE - 1) * TILE < self.end {
            self.score_tiles::<S, VECTORS, COUNT, WIDE>(simd, queries, position, scores);
            position += WIDE * TILE;
        }
        while position < self.end {
            self.score_tiles::<S, VECTORS, COUNT, 1>(simd, queries, position, scores);
            position += TILE;
        }
    }

    #[inline(always)]
    fn score_tiles<S: Simd, const VECTORS: usize, const COUNT: usize, const WIDE: usize>(
        &self,
        simd: S,
        queries: &[&[f32]; COUNT],
        position: usize,
        scores: &mut [f32],
    ) {
        let size = self.cache.layout().shape.head_size;
        let tiles: [&[[S::f32s; VECTORS]]; WIDE] = std::array::from_fn(|tile| {
            let (keys, _) = self.tile(position + tile * TILE);
            S::as_simd_f32s(&keys[..size * TILE]).0.as_chunks().0
        });
        let mut sums = [[[simd.splat_f32s(0.0); VECTORS]; WIDE]; COUNT];
        for dimension in 0..size {
            for query in 0..COUNT {
                let value = simd.splat_f32s(queries[query][dimension]);
                for tile in 0..WIDE {
                    let key = &tiles[tile][dimension];
                    for vector in 0..VECTORS {
                        let sum = &mut sums[query][tile][vector];
                        *sum = simd.mul_add_f32s(value, key[vector], *sum);
                    }
                }
            }
        }
        let width = self.width();
        for (sums, scores) in sums.iter().zip(scores.chunks_exact_mut(width)) {
            let scores = &mut scores[position - self.base..][..WIDE * TILE];
            S::as_mut_simd_f32s(scores).0.copy_from_slice(sums.as_flattened());
        }
    }

    /// Sums of the values weighted by each query's weights (in the layout of [`scores`](Self::scores)),
    /// written to `output` at each row and place of `places`: summed per tile of positions, then tile after tile.
    #[inline(always)]
    pub(super) fn weighted_sums<S: Simd, const VECTORS: usize, const COUNT: usize, const WIDE: usize>(
        &self,
        simd: S,
        weights: &[f32],
        places: &[(usize, usize); COUNT],
        output: &mut Columns<'_>,
    ) {
        let chunks = self.cache.layout().padded_head() / TILE;
        let mut chunk = 0;
        while chunk + WIDE <= chunks {
            self.sum_chunks::<S, VECTORS, COUNT, WIDE>(simd, weights, chunk, places, output);
            chunk += WIDE;
        }
        while chunk < chunks {
            self.sum_chunks::<S, VECTORS, COUNT, 1>(simd, weights, chunk, places, output);
            chunk += 1;
        }
    }

    /// Sums `WIDE` chunks of [`TILE`] dimensions each.
    #[inline(always)]
    fn sum_chunks<S: Simd, const VECTORS: usize, const COUNT: usize, const WIDE: usize>(
        &self,
        simd: S,
        weights: &[f32],
        chunk: usize,
        places: &[(usize, usize); COUNT],
        output: &mut Columns<'_>,
    ) {
        let layout = self.cache.layout();
        let (size, padded, width) = (layout.shape.head_size, layout.padded_head(), self.width());
        let weights: [&[f32]; COUNT] = std::array::from_fn(|query| &weights[query * width..][..width]);
        let mut totals = [[[simd.splat_f32s(0.0); VECTORS]; WIDE]; COUNT];
        for tile in (self.base..self.end).step_by(TILE) {
            let mut sums = [[[simd.splat_f32s(0.0); VECTORS]; WIDE]; COUNT];
            let tile_end = self.end.min(tile + TILE);
            let (_, values) = self.tile(tile);
            for (row, at) in values.chunks_exact(padded).zip(tile - self.base..tile_end - self.base) {
                let row = S::as_simd_f32s(&row[chunk * TILE..][..WIDE * TILE]).0;
                let row: &[[S::f32s; VECTORS]] = row.as_chunks().0;
                for query in 0..COUNT {
                    let weight = simd.splat_f32s(weights[query][at]);
                    for part in 0..WIDE {
                        for vector in 0..VECTORS {
                            let sum = &mut sums[query][part][vector];
                            *sum = simd.mul_add_f32s(weight, row[part][vector], *sum);
                        }
                    }
                }
            }
            for (total, sum) in totals
                .as_flattened_mut()
                .as_flattened_mut()
                .iter_mut()
                .zip(sums.as_flattened().as_flattened())
            {
                *total = simd.add_f32s(*total, *sum);
            }
        }
        let first = chunk * TILE;
        let count = (WIDE * TILE).min(size - first);
        for (total, (row, place)) in totals.iter().zip(places) {
            let values: &[f32] = bytemuck::cast_slice(total.as_flattened());
            output.row_mut(*row)[place * size + first..][..count].copy_from_slice(&values[..count]);
        }
    }
}
