//! Attention over keys and values in bfloat16 with tile registers.

use std::arch::asm;
use std::marker::PhantomData;

use super::{Configuration, GUARDS, ROW_BYTES, TILE_ROWS, configure, release};
use crate::simd::attention::{PADDING, POSITIONS};

/// Dimensions in a whole block of keys.
const BLOCK: usize = 32;

/// This thread's tile registers, configured for some queries: 0 to 3 are sums of all queries; 4 has queries (a block of
/// dimensions), 5 queries or weights (16 dimensions or positions), 6 keys (a block), 7 keys or values (16 dimensions or
/// positions). Not to be nested with other uses of the registers.
pub(in crate::simd) struct AttentionRegisters {
    queries: usize,
    /// A guard belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl AttentionRegisters {
    /// Configures the registers for this number of queries. Panics if the processor does not have them, or if they are
    /// in use.
    pub(in crate::simd) fn new(queries: usize) -> Self {
        assert!((1..=TILE_ROWS).contains(&queries));
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

    /// See [`AttentionTiles::scores`](crate::simd::AttentionTiles::scores).
    ///
    /// # Safety
    /// The lengths are those that it checks.
    pub(in crate::simd) unsafe fn scores(&self, queries: &[u16], keys: &[&[u16]], scores: &mut [f32]) {
        let width = keys.len() * POSITIONS;
        let mut scores = scores.as_mut_ptr();
        let (pairs, last) = keys.as_chunks();
        // SAFETY: the caller's promise; `scores` advances by the positions that are written.
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

    /// See [`AttentionTiles::sums`](crate::simd::AttentionTiles::sums).
    ///
    /// # Safety
    /// The lengths are those that it checks.
    pub(in crate::simd) unsafe fn sums(&self, weights: &[u16], values: &[&[u16]], output: &mut [f32]) {
        let padded = output.len() / self.queries;
        let mut start = 0;
        // SAFETY: the caller's promise, and `start` + the dimensions of a call is at most `padded`.
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

impl Drop for AttentionRegisters {
    fn drop(&mut self) {
        GUARDS.set(0);
        release();
    }
}
