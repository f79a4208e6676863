//! [`AttentionTiles`]: scores and weighted sums of attention over keys and values in bfloat16.
//!
//! Up to 16 queries of one key-value head are multiplied with tiles of [`POSITIONS`] positions, by the instructions of the
//! processor's best path for bfloat16, in an order that depends on the path alone: neither on the other queries, nor on
//! where the tiles are stored.
//!
//! - `avx512bf16`: a score is one chain over pairs of dimensions in ascending order. A weighted sum is one chain over the
//!   first half of each tile's pairs of positions and one over the second half, and their sum.
//! - `amx`: a score is a sum over blocks of 32 dimensions (16 in the last one if they do not fill it), a weighted sum one
//!   over tiles of positions, in ascending order; within a block, one chain adds the even and one the odd products.

use super::lanes::Lanes;
use super::x86::Avx512Pairs;
use super::{DType, Path, x86};

/// Positions per tile of keys and of values.
pub(super) const POSITIONS: usize = 16;
/// Numbers that are padded with zeros to a multiple of this: the dimensions of queries, keys and values.
pub(super) const PADDING: usize = 16;

/// Multiplies some queries with keys, and their weights with values.
pub struct AttentionTiles {
    queries: usize,
    /// The tile registers, for [`Path::Amx`].
    #[cfg(target_os = "linux")]
    registers: Option<super::amx::AttentionRegisters>,
}

impl AttentionTiles {
    /// Most queries that are computed together.
    pub const MOST_QUERIES: usize = 16;

    /// Whether the processor has the instructions, within the [`instruction_limit`](crate::instruction_limit).
    pub fn available() -> bool {
        Path::best(DType::Bf16).rounds()
    }

    /// Prepares this thread for a number of queries. Panics if the processor does not have the instructions, or if its
    /// tile registers are in use.
    pub fn new(queries: usize) -> Self {
        let path = Path::best(DType::Bf16);
        assert!(path.rounds() && (1..=Self::MOST_QUERIES).contains(&queries));
        Self {
            queries,
            #[cfg(target_os = "linux")]
            registers: (path == Path::Amx).then(|| super::amx::AttentionRegisters::new(queries)),
        }
    }

    /// Writes the dot products of the queries (queries × padded dimensions) with the keys of all positions (one slice
    /// per tile: padded dimensions / 2 × 16 positions × 2) to `scores` (queries × positions).
    pub fn scores(&self, queries: &[u16], keys: &[&[u16]], scores: &mut [f32]) {
        let padded = queries.len() / self.queries;
        assert_eq!((queries.len(), padded % PADDING), (self.queries * padded, 0));
        assert_eq!(scores.len(), self.queries * keys.len() * POSITIONS);
        assert!(keys.iter().all(|keys| keys.len() == padded * POSITIONS));
        // SAFETY: the lengths are right by the lines above. Without tile registers, `new` has found the instructions.
        unsafe {
            #[cfg(target_os = "linux")]
            if let Some(registers) = &self.registers {
                return registers.scores(queries, keys, scores);
            }
            x86::attention_scores(self.queries, queries, keys, scores);
        }
    }

    /// Writes the sums of the values (one slice per tile: 8 pairs of positions × padded dimensions × 2) weighted by each
    /// query's weights (queries × positions) to `output` (queries × padded dimensions).
    pub fn sums(&self, weights: &[u16], values: &[&[u16]], output: &mut [f32]) {
        let padded = output.len() / self.queries;
        assert_eq!((output.len(), padded % PADDING), (self.queries * padded, 0));
        assert_eq!(weights.len(), self.queries * values.len() * POSITIONS);
        assert!(values.iter().all(|values| values.len() == padded * POSITIONS));
        // SAFETY: as in `scores`.
        unsafe {
            #[cfg(target_os = "linux")]
            if let Some(registers) = &self.registers {
                return registers.sums(weights, values, output);
            }
            x86::attention_sums(self.queries, weights, values, output);
        }
    }
}

/// Queries that share each load of keys and of values.
const SHARED: usize = 4;

/// [`AttentionTiles::scores`] with dot products of pairs.
///
/// # Safety
/// See [`Lanes`]; the lengths are those that [`AttentionTiles::scores`] checks.
#[inline(always)]
pub(super) unsafe fn scores(count: usize, queries: &[u16], keys: &[&[u16]], scores: &mut [f32]) {
    let mut done = 0;
    // SAFETY: the caller's promise; the tiles of a call are at most all tiles, and its queries all queries.
    unsafe {
        // Sums that do not wait for each other, although there are few queries.
        while count < SHARED && done + 8 <= keys.len() {
            for query in 0..count {
                score::<1, 8>(count, query, queries, keys, done, scores);
            }
            done += 8;
        }
        while done + 4 <= keys.len() {
            score_all::<4>(count, queries, keys, done, scores);
            done += 4;
        }
        while done < keys.len() {
            score_all::<1>(count, queries, keys, done, scores);
            done += 1;
        }
    }
}

/// The scores of all queries with `WIDE` tiles from `tile` on.
///
/// # Safety
/// As for [`scores`]; there are that many tiles.
#[inline(always)]
unsafe fn score_all<const WIDE: usize>(
    count: usize,
    queries: &[u16],
    keys: &[&[u16]],
    tile: usize,
    scores: &mut [f32],
) {
    let mut query = 0;
    // SAFETY: the caller's promise; the queries of a call are at most all queries.
    unsafe {
        while query + SHARED <= count {
            score::<SHARED, WIDE>(count, query, queries, keys, tile, scores);
            query += SHARED;
        }
        while query < count {
            score::<1, WIDE>(count, query, queries, keys, tile, scores);
            query += 1;
        }
    }
}

/// The scores of `COUNT` queries from `query` on with `WIDE` tiles from `tile` on.
///
/// # Safety
/// As for [`scores`]; there are that many queries and tiles.
#[inline(always)]
unsafe fn score<const COUNT: usize, const WIDE: usize>(
    count: usize,
    query: usize,
    queries: &[u16],
    keys: &[&[u16]],
    tile: usize,
    scores: &mut [f32],
) {
    type L = Avx512Pairs;
    let (pairs, width) = (queries.len() / count / 2, scores.len() / count);
    // SAFETY: the caller's promise. A query has `pairs` words, a tile of keys `pairs` vectors.
    unsafe {
        let queries = queries.as_ptr().cast::<f32>().add(query * pairs);
        let mut sums = [[L::zero(); WIDE]; COUNT];
        for pair in 0..pairs {
            let mut vectors = [L::zero(); WIDE];
            for (wide, vector) in vectors.iter_mut().enumerate() {
                *vector =
                    L::load(keys.get_unchecked(tile + wide).as_ptr().cast::<f32>().add(pair * L::LANES));
            }
            for (query, sums) in sums.iter_mut().enumerate() {
                let query = L::splat(queries.add(query * pairs + pair));
                for (vector, sum) in vectors.iter().zip(sums) {
                    *sum = L::multiply_add(query, *vector, *sum);
                }
            }
        }
        let scores = scores.as_mut_ptr().add(query * width + tile * POSITIONS);
        for (query, sums) in sums.iter().enumerate() {
            for (wide, sum) in sums.iter().enumerate() {
                L::store(scores.add(query * width + wide * POSITIONS), *sum);
            }
        }
    }
}

/// [`AttentionTiles::sums`] with dot products of pairs.
///
/// # Safety
/// See [`Lanes`]; the lengths are those that [`AttentionTiles::sums`] checks.
#[inline(always)]
pub(super) unsafe fn sums(count: usize, weights: &[u16], values: &[&[u16]], output: &mut [f32]) {
    let padded = output.len() / count;
    let mut query = 0;
    // SAFETY: the caller's promise; the queries of a call are at most all queries, and its dimensions all dimensions.
    unsafe {
        while query + SHARED <= count {
            let mut start = 0;
            while start + 2 * PADDING <= padded {
                sum::<SHARED, 2>(count, query, weights, values, start, output);
                start += 2 * PADDING;
            }
            if start < padded {
                sum::<SHARED, 1>(count, query, weights, values, start, output);
            }
            query += SHARED;
        }
        while query < count {
            let mut start = 0;
            while start + 4 * PADDING <= padded {
                sum::<1, 4>(count, query, weights, values, start, output);
                start += 4 * PADDING;
            }
            while start < padded {
                sum::<1, 1>(count, query, weights, values, start, output);
                start += PADDING;
            }
            query += 1;
        }
    }
}

/// `WIDE` × 16 dimensions from `start` on of the sums of `COUNT` queries from `query` on.
///
/// # Safety
/// As for [`sums`]; there are that many queries and dimensions.
#[inline(always)]
unsafe fn sum<const COUNT: usize, const WIDE: usize>(
    count: usize,
    query: usize,
    weights: &[u16],
    values: &[&[u16]],
    start: usize,
    output: &mut [f32],
) {
    type L = Avx512Pairs;
    /// Pairs of positions in half a tile.
    const HALF: usize = POSITIONS / 4;
    let (padded, pairs) = (output.len() / count, weights.len() / count / 2);
    // SAFETY: the caller's promise. A query has `pairs` words of weights; a tile has `padded` words of values for each of
    // its pairs of positions.
    unsafe {
        let weights = weights.as_ptr().cast::<f32>().add(query * pairs);
        let mut sums = [[[L::zero(); 2]; WIDE]; COUNT];
        for (tile, values) in values.iter().enumerate() {
            let values = values.as_ptr().cast::<f32>().add(start);
            for first in 0..HALF {
                for half in 0..2 {
                    let pair = half * HALF + first;
                    let mut vectors = [L::zero(); WIDE];
                    for (wide, vector) in vectors.iter_mut().enumerate() {
                        *vector = L::load(values.add(pair * padded + wide * PADDING));
                    }
                    for (query, sums) in sums.iter_mut().enumerate() {
                        let weight = L::splat(weights.add(query * pairs + tile * 2 * HALF + pair));
                        for (vector, sums) in vectors.iter().zip(sums) {
                            sums[half] = L::multiply_add(weight, *vector, sums[half]);
                        }
                    }
                }
            }
        }
        let output = output.as_mut_ptr().add(query * padded + start);
        for (query, sums) in sums.iter().enumerate() {
            for (wide, [first, second]) in sums.iter().enumerate() {
                L::store(output.add(query * padded + wide * PADDING), L::add(*first, *second));
            }
        }
    }
}
