//! The inner loops of attention: several queries against a range of positions in one head's pages.

use pulp::Simd;

use crate::cache::{KvCache, TILE};

/// Positions `base..end` of one key-value head; `base` is a multiple of [`TILE`].
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) cache: &'a KvCache,
    pub(super) layer: usize,
    pub(super) head: usize,
    pub(super) base: usize,
    pub(super) end: usize,
}

impl Span<'_> {
    /// Floats of one query's scores: whole tiles.
    pub(super) fn width(&self) -> usize {
        (self.end - self.base).next_multiple_of(TILE)
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
        if self.cache.layout().tile() < TILE {
            return self.narrow_scores(queries, scores);
        }
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
        let layout = self.cache.layout();
        let size = layout.shape.head_size;
        let tiles: [&[[S::f32s; VECTORS]]; WIDE] = std::array::from_fn(|tile| {
            let position = position + tile * TILE;
            let (keys, _) = self.cache.head(self.layer, self.head, position);
            let keys = &keys[position % layout.positions * size..][..size * TILE];
            S::as_simd_f32s(keys).0.as_chunks().0
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

    /// The same for pages that are smaller than a tile.
    #[inline(always)]
    fn narrow_scores<const COUNT: usize>(&self, queries: &[&[f32]; COUNT], scores: &mut [f32]) {
        let tile = self.cache.layout().tile();
        let width = self.width();
        for position in (self.base..self.end).step_by(tile) {
            let (keys, _) = self.cache.head(self.layer, self.head, position);
            for (query, scores) in queries.iter().zip(scores.chunks_exact_mut(width)) {
                let scores = &mut scores[position - self.base..][..tile];
                scores.fill(0.0);
                for (key, query) in keys.chunks_exact(tile).zip(*query) {
                    for (score, key) in scores.iter_mut().zip(key) {
                        *score = query.mul_add(*key, *score);
                    }
                }
            }
        }
    }

    /// Sums of the values weighted by each query's weights (in the layout of [`scores`](Self::scores)),
    /// written to `output` at each of `starts`: summed per tile of positions, then tile after tile.
    #[inline(always)]
    pub(super) fn weighted_sums<S: Simd, const VECTORS: usize, const COUNT: usize, const WIDE: usize>(
        &self,
        simd: S,
        weights: &[f32],
        starts: &[usize; COUNT],
        output: &mut [f32],
    ) {
        let chunks = self.cache.layout().padded_head() / TILE;
        let mut chunk = 0;
        while chunk + WIDE <= chunks {
            self.sum_chunks::<S, VECTORS, COUNT, WIDE>(simd, weights, chunk, starts, output);
            chunk += WIDE;
        }
        while chunk < chunks {
            self.sum_chunks::<S, VECTORS, COUNT, 1>(simd, weights, chunk, starts, output);
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
        starts: &[usize; COUNT],
        output: &mut [f32],
    ) {
        let layout = self.cache.layout();
        let (size, padded, width) = (layout.shape.head_size, layout.padded_head(), self.width());
        let weights: [&[f32]; COUNT] = std::array::from_fn(|query| &weights[query * width..][..width]);
        let mut totals = [[[simd.splat_f32s(0.0); VECTORS]; WIDE]; COUNT];
        for tile in (self.base..self.end).step_by(TILE) {
            let mut sums = [[[simd.splat_f32s(0.0); VECTORS]; WIDE]; COUNT];
            let tile_end = self.end.min(tile + TILE);
            let mut position = tile;
            while position < tile_end {
                let (_, values) = self.cache.head(self.layer, self.head, position);
                let slot = position % layout.positions;
                let count = (layout.positions - slot).min(tile_end - position);
                for (row, at) in
                    values[slot * padded..].chunks_exact(padded).take(count).zip(position - self.base..)
                {
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
                position += count;
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
        for (total, start) in totals.iter().zip(starts) {
            let values: &[f32] = bytemuck::cast_slice(total.as_flattened());
            output[start + first..][..count].copy_from_slice(&values[..count]);
        }
    }
}
