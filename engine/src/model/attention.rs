//! Causal attention that reads the KV cache pages of the sequences in place.
//!
//! Scores, weights and the weighted sum are computed in an order that depends only on a row's position: not
//! on the batch, the chunking of its prompt, the page size, or the machine's vector width. Rows and heads
//! that read the same keys are computed together, each in its own order.

mod tiles;

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::kernel::Execution;
use crate::cache::{KvCache, TILE};
use crate::load::block::ModelConfig;
use crate::vector::{LANES, add_lanes, exponential, tangent};
use tiles::Span;

/// Minimum number of multiply-adds for which attention uses several threads.
const PARALLEL_WORK: usize = 1 << 20;
/// Rows of one sequence computed by one thread.
const BLOCK_ROWS: usize = 16;
/// Queries that share each read of keys and values.
const SHARED: usize = 4;

/// The heads of all layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionShape {
    /// Query heads; a multiple of the key-value heads.
    pub(crate) query_heads: usize,
    pub(crate) key_value_heads: usize,
    pub(crate) head_size: usize,
}

/// The parameters that all rows of one layer share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionLayer {
    /// The layer's place in the pages.
    pub(crate) index: usize,
    /// Sliding window in positions: a row attends to itself and the `window - 1` preceding positions.
    pub(crate) window: Option<usize>,
    /// Factor of the scores.
    pub(crate) scale: f32,
    /// Soft cap of the scaled scores.
    pub(crate) cap: Option<f32>,
}

impl AttentionShape {
    pub(crate) fn of(config: &ModelConfig) -> Self {
        Self {
            query_heads: config.heads,
            key_value_heads: config.key_value_heads,
            head_size: config.head_size,
        }
    }

    /// Numbers in one row of queries, keys and values.
    pub(crate) fn stride(&self) -> usize {
        (self.query_heads + 2 * self.key_value_heads) * self.head_size
    }
}

/// Consecutive rows of one sequence.
#[derive(Clone, Copy)]
pub(crate) struct AttentionRows<'a> {
    /// Already contains the rows' own keys.
    pub(crate) cache: &'a KvCache,
    /// Position of the first row.
    pub(crate) position: usize,
    pub(crate) count: usize,
}

/// Computes attention of all rows, in order.
///
/// `queries` has one row of `stride` floats each, which starts with `query_heads` × `head_size` queries;
/// `output` is rows × (`query_heads` × `head_size`).
pub(crate) fn attention<'a>(
    execution: Execution,
    shape: &AttentionShape,
    layer: AttentionLayer,
    rows: impl Iterator<Item = AttentionRows<'a>> + Clone,
    queries: &[f32],
    stride: usize,
    output: &mut [f32],
) {
    let width = shape.query_heads * shape.head_size;
    let seen = |rows: &AttentionRows<'_>| {
        let end = rows.position + rows.count;
        layer.window.map_or(end, |window| end.min(window.saturating_add(rows.count)))
    };
    let work: usize = rows.clone().map(|rows| rows.count * seen(&rows) * width).sum();
    let parallel = execution.parallel && work >= PARALLEL_WORK;
    let mut tasks = Vec::new();
    let (mut queries, mut output) = (queries, output);
    for AttentionRows { cache, position, count } in rows {
        for start in (0..count).step_by(BLOCK_ROWS) {
            let (position, count) = (position + start, BLOCK_ROWS.min(count - start));
            let (block, rest) = queries.split_at(count * stride);
            queries = rest;
            let (mut rows, rest) = output.split_at_mut(count * width);
            output = rest;
            let heads = shape.key_value_heads;
            if parallel && count == 1 {
                // A single row is split at its heads, which are contiguous.
                for head in 0..heads {
                    let (part, rest) = rows.split_at_mut(width / heads);
                    rows = rest;
                    tasks.push(Task {
                        cache,
                        position,
                        count,
                        heads: head..head + 1,
                        queries: block,
                        output: part,
                    });
                }
            } else {
                tasks.push(Task { cache, position, count, heads: 0..heads, queries: block, output: rows });
            }
        }
    }
    let run = |scores: &mut Vec<f32>, task: Task<'_>| {
        execution.arch.dispatch(Block { shape, layer, stride, task, scores });
    };
    if parallel {
        tasks.into_par_iter().for_each_init(Vec::new, run);
    } else {
        let mut scores = Vec::new();
        tasks.into_iter().for_each(|task| run(&mut scores, task));
    }
}

/// Consecutive rows of one sequence, for some of the key-value heads.
struct Task<'a> {
    cache: &'a KvCache,
    position: usize,
    count: usize,
    heads: Range<usize>,
    /// Starts at the first row's queries.
    queries: &'a [f32],
    /// The query heads of `heads`, in row order.
    output: &'a mut [f32],
}

/// A task with its context.
struct Block<'a> {
    shape: &'a AttentionShape,
    layer: AttentionLayer,
    stride: usize,
    task: Task<'a>,
    scores: &'a mut Vec<f32>,
}

impl WithSimd for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match S::F32_LANES {
            16 => self.run::<S, 1>(simd),
            8 => self.run::<S, 2>(simd),
            4 => self.run::<S, 4>(simd),
            _ => self.run::<S, 16>(simd),
        }
    }
}

impl Block<'_> {
    /// `VECTORS`: number of vectors in sixteen floats.
    #[inline(always)]
    fn run<S: Simd, const VECTORS: usize>(mut self, simd: S) {
        let group = self.shape.query_heads / self.shape.key_value_heads;
        for head in self.task.heads.clone() {
            let queries = self.task.count * group;
            let mut query = 0;
            while query < queries {
                if queries - query >= SHARED {
                    self.queries::<S, VECTORS, SHARED, 1>(simd, head, query);
                    query += SHARED;
                } else {
                    self.queries::<S, VECTORS, 1, 4>(simd, head, query);
                    query += 1;
                }
            }
        }
    }

    /// Computes `COUNT` queries of one key-value head starting with the given one, counted in row order.
    /// `WIDE`: number of tiles of keys and of values processed at a time.
    #[inline(always)]
    fn queries<S: Simd, const VECTORS: usize, const COUNT: usize, const WIDE: usize>(
        &mut self,
        simd: S,
        head: usize,
        query: usize,
    ) {
        let (shape, layer, task) = (self.shape, self.layer, &mut self.task);
        let size = shape.head_size;
        let group = shape.query_heads / shape.key_value_heads;
        let row_width = task.heads.len() * group * size;
        let places: [(usize, usize); COUNT] =
            std::array::from_fn(|index| ((query + index) / group, (query + index) % group));
        let queries: [&[f32]; COUNT] = places
            .map(|(row, place)| &task.queries[row * self.stride + (head * group + place) * size..][..size]);
        let end = |row: usize| task.position + row + 1;
        let first = |row: usize| layer.window.map_or(0, |window| end(row).saturating_sub(window));
        let base = first(places[0].0) / TILE * TILE;
        let end_of_all = end(places[COUNT - 1].0);
        let span = Span { cache: task.cache, layer: layer.index, head, base, end: end_of_all };
        let width = span.width();
        self.scores.resize(COUNT * width, 0.0);
        span.scores::<S, VECTORS, COUNT, WIDE>(simd, &queries, self.scores);
        for (scores, (row, _)) in self.scores.chunks_exact_mut(width).zip(places) {
            let (first, end) = (first(row) - base, end(row) - base);
            let scale = match layer.cap {
                None => layer.scale,
                Some(cap) => {
                    // Floats outside of the range are unspecified.
                    cap_scores(&mut scores[first..end], layer.scale, cap);
                    1.0
                }
            };
            softmax(scores, first, end, scale);
        }
        let starts =
            places.map(|(row, place)| row * row_width + ((head - task.heads.start) * group + place) * size);
        span.weighted_sums::<S, VECTORS, COUNT, WIDE>(simd, self.scores, &starts, task.output);
    }
}

/// Scales scores and caps them softly: `cap · tanh(score · scale / cap)`.
#[inline(always)]
fn cap_scores(scores: &mut [f32], scale: f32, cap: f32) {
    let factor = scale / cap;
    for score in scores {
        *score = cap * tangent(*score * factor);
    }
}

/// Converts scores to weights that sum to one; those outside `first..end` become zero.
#[inline(always)]
fn softmax(scores: &mut [f32], first: usize, end: usize, scale: f32) {
    scores[..first].fill(f32::NEG_INFINITY);
    scores[end..].fill(f32::NEG_INFINITY);
    let blocks = scores.as_chunks_mut::<LANES>().0;
    let mut maxima = [f32::NEG_INFINITY; LANES];
    for block in blocks.iter() {
        for lane in 0..LANES {
            maxima[lane] = if block[lane] > maxima[lane] { block[lane] } else { maxima[lane] };
        }
    }
    let maximum = maxima.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0; LANES];
    for block in blocks.iter_mut() {
        for lane in 0..LANES {
            let score = block[lane];
            let weight = exponential((score - maximum) * scale);
            block[lane] = if score == f32::NEG_INFINITY { 0.0 } else { weight };
            sums[lane] += block[lane];
        }
    }
    let factor = 1.0 / add_lanes(sums);
    for score in scores.iter_mut() {
        *score *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{KeyValueShape, PageLayout, Pool, Storage};
    use crate::fixtures::Uniform;
    use proptest::prelude::*;

    /// Textbook attention in double precision.
    fn plain(
        shape: &AttentionShape,
        layer: AttentionLayer,
        query: &[f32],
        keys: &[f32],
        values: &[f32],
        position: usize,
        head: usize,
    ) -> Vec<f64> {
        let size = shape.head_size;
        let first = layer.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let row = |of: &[f32], at: usize| -> Vec<f64> {
            let start = (at * shape.key_value_heads + head) * size;
            of[start..start + size].iter().map(|value| f64::from(*value)).collect()
        };
        let scores: Vec<f64> = (first..=position)
            .map(|at| {
                let dot: f64 = row(keys, at).iter().zip(query).map(|(k, q)| k * f64::from(*q)).sum();
                let score = dot * f64::from(layer.scale);
                layer.cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
            })
            .collect();
        let maximum = scores.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b));
        let weights: Vec<f64> = scores.iter().map(|score| (score - maximum).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut output = vec![0.0; size];
        for (at, weight) in (first..=position).zip(&weights) {
            for (output, value) in output.iter_mut().zip(row(values, at)) {
                *output += weight / total * value;
            }
        }
        output
    }

    /// Keys and values of one sequence, as rows and in pages of the given size.
    fn filled(layout: PageLayout, layer: usize, keys: &[f32], values: &[f32]) -> KvCache {
        let KeyValueShape { heads, head_size, .. } = layout.shape;
        let width = heads * head_size;
        let length = keys.len() / width;
        let mut cache = KvCache::new(layout);
        assert!(Pool::new(layout, layout.pages(length), false, 0).reserve(&mut cache, length));
        for position in 0..length {
            for head in 0..heads {
                let at = position * width + head * head_size..position * width + (head + 1) * head_size;
                cache.store(layer, head, position, &keys[at.clone()], &values[at]);
            }
        }
        cache.advance(length);
        cache
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn equals_the_plain_version_whatever_is_computed_together(
            heads in 1usize..4, group in 1usize..6, half in 1usize..40, layers in 1usize..3,
            lengths in prop::collection::vec(1usize..90, 1..5), window in prop::option::of(1usize..50),
            page in 0usize..5, scale in 0.1f32..1.0, cap in prop::option::of(0.5f32..20.0), seed in any::<u64>(),
        ) {
            let head_size = 2 * half;
            let (query_heads, key_value_heads) = (heads * group, heads);
            let shape = AttentionShape { query_heads, key_value_heads, head_size };
            let layer = AttentionLayer { index: layers - 1, window, scale, cap };
            let kept = KeyValueShape { layers, heads, head_size };
            let page_sizes = [1, 4, 8, 16, 48];
            let mut random = Uniform::new(seed);
            let contents: Vec<(Vec<f32>, Vec<f32>)> = lengths
                .iter()
                .map(|length| length * heads * head_size)
                .map(|count| (random.values(count, 2.0), random.values(count, 2.0)))
                .collect();
            let caches = |positions: usize| -> Vec<KvCache> {
                let layout = PageLayout { shape: kept, positions, storage: Storage::Memory };
                contents.iter().map(|(keys, values)| filled(layout, layers - 1, keys, values)).collect()
            };
            let (stride, width) = (query_heads * head_size + 7, query_heads * head_size);
            let count: usize = lengths.iter().sum();
            let queries = random.values(count * stride, 2.0);
            let compute = |rows: &[AttentionRows<'_>], queries: &[f32], parallel: bool| {
                let count: usize = rows.iter().map(|rows| rows.count).sum();
                let mut output = vec![0.0; count * width];
                let execution = Execution { arch: pulp::Arch::new(), parallel };
                let rows = rows.iter().copied();
                attention(execution, &shape, layer, rows, queries, stride, &mut output);
                output
            };
            let sixteen = caches(16);
            let all: Vec<AttentionRows<'_>> = sixteen
                .iter()
                .map(|cache| AttentionRows { cache, position: 0, count: cache.length() })
                .collect();
            let together = compute(&all, &queries, false);
            prop_assert_eq!(&together, &compute(&all, &queries, true));
            let other = caches(page_sizes[page]);
            let places = (0..lengths.len()).flat_map(|sequence| (0..lengths[sequence]).map(move |at| (sequence, at)));
            for (row, (sequence, position)) in places.enumerate() {
                let one = [AttentionRows { cache: &other[sequence], position, count: 1 }];
                let queries = &queries[row * stride..][..stride];
                let output = &together[row * width..][..width];
                prop_assert_eq!(&compute(&one, queries, false)[..], output);
                let (keys, values) = &contents[sequence];
                for head in [0, query_heads - 1] {
                    let query = &queries[head * head_size..][..head_size];
                    let expected = plain(&shape, layer, query, keys, values, position, head / group);
                    for (expected, found) in expected.iter().zip(&output[head * head_size..]) {
                        prop_assert!((expected - f64::from(*found)).abs() < 2e-5, "{} against {}", expected, found);
                    }
                }
            }
        }
    }
}
