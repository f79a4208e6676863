//! Keys and values of one head as float32, from pages that store 16 bits, or whose tiles are split over several pages.

use std::ops::Range;

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use crate::cache::{KvCache, Storage, TILE};
use crate::vector::AlignedBuffer;

/// Tiles of keys (`head_size` × positions) and of values (positions × `padded_head`) of a range of positions.
#[derive(Clone, Copy)]
pub(super) struct Widened<'a> {
    /// The first position.
    base: usize,
    keys: &'a [f32],
    values: &'a [f32],
    /// Floats of one tile's keys and of its values.
    sizes: (usize, usize),
}

impl Widened<'_> {
    /// Keys and values of the tile that starts at `position`.
    #[inline(always)]
    pub(super) fn tile(&self, position: usize) -> (&[f32], &[f32]) {
        let (tile, (keys, values)) = ((position - self.base) / TILE, self.sizes);
        (&self.keys[tile * keys..][..keys], &self.values[tile * values..][..values])
    }
}

/// The keys and values of a layer's head at the given positions, from the start of a tile on. `None` if the pages have
/// them already: float32 in whole tiles. The other arguments are buffers.
#[inline(always)]
pub(super) fn widened<'a>(
    (cache, layer, head): (&KvCache, usize, usize),
    positions: Range<usize>,
    [tile_keys, tile_values]: &mut [Vec<u16>; 2],
    keys: &'a mut AlignedBuffer,
    values: &'a mut AlignedBuffer,
) -> Option<Widened<'a>> {
    let layout = cache.layout();
    if layout.storage == Storage::F32 && layout.has_whole_tiles() {
        return None;
    }
    let (size, padded, base) = (layout.shape.head_size, layout.padded_head(), positions.start);
    let tiles = positions.len().div_ceil(TILE);
    let sizes = (size * TILE, padded * TILE);
    keys.resize(tiles * sizes.0);
    values.resize(tiles * sizes.1);
    let each = positions.step_by(TILE).zip(keys.chunks_exact_mut(sizes.0));
    for ((position, keys), values) in each.zip(values.chunks_exact_mut(sizes.1)) {
        let place = (layer, head, position);
        if layout.storage == Storage::F32 {
            cache.collect(place, keys, values);
            continue;
        }
        let (stored_keys, stored_values) = if layout.has_whole_tiles() {
            cache.tile(layer, head, position)
        } else {
            tile_keys.resize(sizes.1, 0);
            tile_values.resize(sizes.1, 0);
            cache.collect(place, tile_keys, tile_values);
            (&tile_keys[..], &tile_values[..])
        };
        if layout.storage == Storage::Bf16 {
            widen_pairs(stored_keys, keys, TILE);
            widen_pairs(stored_values, values, padded);
        } else {
            stored_keys[..sizes.0].reinterpret_cast::<f16>().convert_to_f32_slice(keys);
            stored_values.reinterpret_cast::<f16>().convert_to_f32_slice(values);
        }
    }
    Some(Widened { base, keys, values, sizes })
}

/// Widens rows of `width` pairs of bfloat16 to two rows each; the last row may be missing.
#[inline(always)]
fn widen_pairs(pairs: &[u16], rows: &mut [f32], width: usize) {
    for (pairs, rows) in pairs.chunks_exact(2 * width).zip(rows.chunks_mut(2 * width)) {
        let pairs = pairs.as_chunks::<2>().0;
        let (first, second) = rows.split_at_mut(width);
        for (value, [bits, _]) in first.iter_mut().zip(pairs) {
            *value = f32::from_bits(u32::from(*bits) << 16);
        }
        for (value, [_, bits]) in second.iter_mut().zip(pairs) {
            *value = f32::from_bits(u32::from(*bits) << 16);
        }
    }
}
