//! Keys and values of one head in whole tiles, from pages that are smaller than a tile.

use std::ops::Range;

use lumos_kernels::AlignedBuffer;

use crate::cache::{KvCache, TILE};

/// Tiles of keys (`head_size` × positions) and of values (positions × `padded_head`) of a range of positions.
#[derive(Clone, Copy)]
pub(super) struct Collected<'a> {
    /// The first position.
    base: usize,
    keys: &'a [f32],
    values: &'a [f32],
    /// Floats of one tile's keys and of its values.
    sizes: (usize, usize),
}

impl<'a> Collected<'a> {
    /// The keys and values of a layer's head at the given positions, from the start of a tile on. `None` if the pages
    /// have whole tiles. The other arguments are buffers.
    #[inline(always)]
    pub(super) fn of(
        (cache, layer, head): (&KvCache, usize, usize),
        positions: Range<usize>,
        keys: &'a mut AlignedBuffer,
        values: &'a mut AlignedBuffer,
    ) -> Option<Self> {
        let layout = cache.layout();
        if layout.has_whole_tiles() {
            return None;
        }
        let base = positions.start;
        let tiles = positions.len().div_ceil(TILE);
        let sizes = (layout.shape.head_size * TILE, layout.padded_head() * TILE);
        keys.resize(tiles * sizes.0);
        values.resize(tiles * sizes.1);
        let each = keys.chunks_exact_mut(sizes.0).zip(values.chunks_exact_mut(sizes.1));
        for ((keys, values), position) in each.zip(positions.step_by(TILE)) {
            cache.collect((layer, head, position), keys, values);
        }
        Some(Self { base, keys, values, sizes })
    }

    /// Keys and values of the tile that starts at `position`.
    #[inline(always)]
    pub(super) fn tile(&self, position: usize) -> (&[f32], &[f32]) {
        let (tile, (keys, values)) = ((position - self.base) / TILE, self.sizes);
        (&self.keys[tile * keys..][..keys], &self.values[tile * values..][..values])
    }
}
