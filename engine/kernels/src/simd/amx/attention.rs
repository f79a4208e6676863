//! [`AttentionTiles`]: scores and weighted sums of attention over keys and values in bfloat16.
//!
//! Up to 16 queries of one key-value head are multiplied with tiles of [`POSITIONS`] positions. A score is a sum over
//! blocks of 32 dimensions (16 in the last one if they do not fill it), a weighted sum one over tiles of positions, in
//! ascending order; within a block, one chain adds the even and one the odd products. So neither depends on the other
//! queries, nor on where the tiles are stored.

use std::arch::asm;
use std::marker::PhantomData;

use super::{Configuration, GUARDS, ROW_BYTES, TILE_ROWS, configure, release};
use crate::simd::{DType, Path};

/// Positions per tile of keys and of values.
const POSITIONS: usize = 16;
/// Dimensions in a whole block of keys.
const BLOCK: usize = 32;
/// Numbers that are padded with zeros to a multiple of this: the dimensions of queries, keys and values.
const PADDING: usize = 16;

/// This thread's tile registers, configured for some queries: 0 to 3 are sums of all queries; 4 has queries (a block of
/// dimensions), 5 queries or weights (16 dimensions or positions), 6 keys (a block), 7 keys or values (16 dimensions or
/// positions). Not to be nested with other uses of the registers.
pub struct AttentionTiles {
    queries: usize,
    /// A guard belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl AttentionTiles {
    /// Most queries that are computed together.
    pub const MOST_QUERIES: usize = TILE_ROWS;

    /// Whether the processor has the instructions, within the [`instruction_limit`](crate::instruction_limit).
    pub fn available() -> bool {
        Path::best(DType::Bf16) == Path::Amx
    }

    /// Configures the registers for this number of queries. Panics if the processor does not have them, or if they are
    /// in use.
    pub fn new(queries: usize) -> Self {
        assert!(super::available() && (1..=Self::MOST_QUERIES).contains(&queries));
        assert_eq!(GUARDS.replace(1), 0, "the tile registers of this thread are in use");
        let mut configuration = Configuration::new();
        configuration.set(0..4, queries, ROW_BYTES);
        configuration.set(4..5, queries, ROW_BYTES);
        configuration.set(5..6, queries, ROW_BYTES / 2);
        configuration.set(6..7, TILE_ROWS, ROW_BYTES);
        configuration.set(7..8, TILE_ROWS / 2, ROW_BYTES);
        configure(&configuration);
        Self { queries, thread: PhantomData }
    }

    /// Writes the dot products of the queries (queries × padded dimensions) with the keys of all positions (one slice
    /// per tile: padded dimensions / 2 × 16 positions × 2) to `scores` (queries × positions).
    pub fn scores(&self, queries: &[u16], keys: &[&[u16]], scores: &mut [f32]) {
        let padded = queries.len() / self.queries;
        assert_eq!((queries.len(), padded % PADDING), (self.queries * padded, 0));
        assert_eq!(scores.len(), self.queries * keys.len() * POSITIONS);
        assert!(keys.iter().all(|keys| keys.len() == padded * POSITIONS));
        let width = keys.len() * POSITIONS;
        let mut scores = scores.as_mut_ptr();
        let (pairs, last) = keys.as_chunks();
        // SAFETY: the lengths are right by the lines above; `scores` advances by the positions that are written.
        unsafe {
            for [first, second] in pairs {
                self.score::<true>(queries, [first, second], scores, width);
                scores = scores.add(2 * POSITIONS);
            }
            if let [last] = last {
                self.score::<false>(queries, [last, last], scores, width);
            }
        }
    }

    /// Computes the scores of one tile or, if `BOTH`, two.
    ///
    /// # Safety
    /// Every query has `width` floats from `scores` on, of which this many tiles are free; for the other lengths see
    /// [`Self::scores`].
    #[inline(always)]
    unsafe fn score<const BOTH: bool>(
        &self,
        queries: &[u16],
        [first, second]: [&[u16]; 2],
        scores: *mut f32,
        width: usize,
    ) {
        let padded = queries.len() / self.queries;
        let (query_bytes, score_bytes) = (padded * size_of::<u16>(), width * size_of::<f32>());
        // SAFETY: the caller's promise. A block of keys is `BLOCK` / 2 rows of `ROW_BYTES`.
        unsafe {
            zero!(0);
            if BOTH {
                zero!(1);
            }
            for block in 0..padded / BLOCK {
                let keys = block * BLOCK * POSITIONS;
                load!(4, queries.as_ptr().add(block * BLOCK), query_bytes);
                load!(6, first.as_ptr().add(keys), ROW_BYTES);
                multiply!(0, 4, 6);
                if BOTH {
                    load!(6, second.as_ptr().add(keys), ROW_BYTES);
                    multiply!(1, 4, 6);
                }
            }
            if !padded.is_multiple_of(BLOCK) {
                let start = padded / BLOCK * BLOCK;
                load!(5, queries.as_ptr().add(start), query_bytes);
                load!(7, first.as_ptr().add(start * POSITIONS), ROW_BYTES);
                multiply!(0, 5, 7);
                if BOTH {
                    load!(7, second.as_ptr().add(start * POSITIONS), ROW_BYTES);
                    multiply!(1, 5, 7);
                }
            }
            store!(0, scores, score_bytes);
            if BOTH {
                store!(1, scores.add(POSITIONS), score_bytes);
            }
        }
    }

    /// Writes the sums of the values (one slice per tile: 8 pairs of positions × padded dimensions × 2) weighted by each
    /// query's weights (queries × positions) to `output` (queries × padded dimensions).
    pub fn sums(&self, weights: &[u16], values: &[&[u16]], output: &mut [f32]) {
        let padded = output.len() / self.queries;
        assert_eq!((output.len(), padded % PADDING), (self.queries * padded, 0));
        assert_eq!(weights.len(), self.queries * values.len() * POSITIONS);
        assert!(values.iter().all(|values| values.len() == padded * POSITIONS));
        let mut start = 0;
        // SAFETY: the lengths are right by the lines above, and `start` + the dimensions of a call is at most `padded`.
        unsafe {
            while start + 4 * PADDING <= padded {
                self.sum::<true>(weights, values, output, start);
                start += 4 * PADDING;
            }
            while start < padded {
                self.sum::<false>(weights, values, output, start);
                start += PADDING;
            }
        }
    }

    /// Sums 16 dimensions starting with `start` or, if `FOUR`, 64.
    ///
    /// # Safety
    /// There are that many dimensions; for the lengths see [`Self::sums`].
    #[inline(always)]
    unsafe fn sum<const FOUR: bool>(
        &self,
        weights: &[u16],
        values: &[&[u16]],
        output: &mut [f32],
        start: usize,
    ) {
        let padded = output.len() / self.queries;
        let weight_bytes = weights.len() / self.queries * size_of::<u16>();
        let value_bytes = padded * 2 * size_of::<u16>();
        // SAFETY: the caller's promise. Each row of values has `padded` pairs, of which a tile takes `PADDING`.
        unsafe {
            zero!(0);
            if FOUR {
                zero!(1);
                zero!(2);
                zero!(3);
            }
            for (tile, values) in values.iter().enumerate() {
                let values = values.as_ptr().add(2 * start);
                load!(5, weights.as_ptr().add(tile * POSITIONS), weight_bytes);
                load!(7, values, value_bytes);
                multiply!(0, 5, 7);
                if FOUR {
                    load!(7, values.add(2 * PADDING), value_bytes);
                    multiply!(1, 5, 7);
                    load!(7, values.add(4 * PADDING), value_bytes);
                    multiply!(2, 5, 7);
                    load!(7, values.add(6 * PADDING), value_bytes);
                    multiply!(3, 5, 7);
                }
            }
            let output_bytes = padded * size_of::<f32>();
            let output = output.as_mut_ptr().add(start);
            store!(0, output, output_bytes);
            if FOUR {
                store!(1, output.add(PADDING), output_bytes);
                store!(2, output.add(2 * PADDING), output_bytes);
                store!(3, output.add(3 * PADDING), output_bytes);
            }
        }
    }
}

impl Drop for AttentionTiles {
    fn drop(&mut self) {
        GUARDS.set(0);
        release();
    }
}
