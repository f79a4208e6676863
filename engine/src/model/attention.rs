//! Causal attention that reads the KV cache pages of the sequences in place.
//!
//! Scores, weights and the weighted sum are computed in an order that depends only on a row's position: not
//! on the batch, the chunking of its prompt, the page size, or the machine's vector width. Rows and heads
//! that read the same keys are computed together, each in its own order.
//!
//! `tiles` computes in float32; keys and values that the pages do not have in whole tiles are first collected. Where the
//! processor multiplies bfloat16, `matrices` computes those in bfloat16.

mod collected;
#[cfg(target_arch = "x86_64")]
mod matrices;
mod tiles;

use std::cell::RefCell;
use std::ops::Range;

use lumos_kernels::{
    AlignedBuffer, Columns, DType, Execution, LANES, OutputColumns, add_lanes, exponential, for_each_cell,
    maximum, tangent,
};
use pulp::{Simd, WithSimd};

use crate::cache::{KvCache, Storage, TILE};
use crate::load::block::ModelConfig;
use collected::Collected;
use tiles::Span;

/// Minimum number of multiply-adds for which attention uses several threads.
const PARALLEL_WORK: usize = 1 << 20;
/// Rows of one sequence computed by one thread.
const BLOCK_ROWS: usize = 16;
/// Queries that share each read of keys and values.
const SHARED: usize = 4;

/// How the CPU stores keys and values of models with weights of a type.
pub(crate) fn attention_storage(dtype: DType) -> Storage {
    match dtype {
        #[cfg(target_arch = "x86_64")]
        DType::Bf16 if lumos_kernels::AttentionTiles::available() => Storage::Bf16,
        _ => Storage::F32,
    }
}

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
/// `queries` has one row of [`AttentionShape::stride`] floats each, which starts with `query_heads` × `head_size` queries;
/// `output` is rows × (`query_heads` × `head_size`).
pub(crate) fn attention<'a>(
    execution: Execution,
    shape: &AttentionShape,
    layer: AttentionLayer,
    rows: impl Iterator<Item = AttentionRows<'a>> + Clone,
    queries: &[f32],
    output: &mut [f32],
) {
    let width = shape.query_heads * shape.head_size;
    let seen = |rows: &AttentionRows<'_>| {
        let end = rows.position + rows.count;
        layer.window.map_or(end, |window| end.min(window.saturating_add(rows.count)))
    };
    let work: usize = rows.clone().map(|rows| rows.count * seen(&rows) * width).sum();
    let parallel = execution.parallel && work >= PARALLEL_WORK;
    compute(execution, parallel, shape, layer, rows, queries, output);
}

/// As [`attention`], where `parallel` says whether to use several threads.
fn compute<'a>(
    execution: Execution,
    parallel: bool,
    shape: &AttentionShape,
    layer: AttentionLayer,
    rows: impl Iterator<Item = AttentionRows<'a>>,
    queries: &[f32],
    output: &mut [f32],
) {
    thread_local! {
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }

    let mut queries = queries;
    let mut blocks = Vec::new();
    for AttentionRows { cache, position, count } in rows {
        for start in (0..count).step_by(BLOCK_ROWS) {
            let (position, count) = (position + start, BLOCK_ROWS.min(count - start));
            let (block, rest) = queries.split_at(count * shape.stride());
            queries = rest;
            blocks.push(Block { cache, position, count, queries: block });
        }
    }
    let heights: Vec<usize> = blocks.iter().map(|block| block.count).collect();
    let width = shape.query_heads * shape.head_size;
    let target = OutputColumns::whole(&mut output[..heights.iter().sum::<usize>() * width], width);
    // All sequences at one head before the next head, so that what they share stays in a cache.
    for_each_cell(target, &heights, width / shape.key_value_heads, parallel, |block, head, output| {
        let task = Task { shape, layer, head, block: blocks[block] };
        SCRATCH.with_borrow_mut(|scratch| match task.block.cache.layout().storage {
            #[cfg(target_arch = "x86_64")]
            Storage::Bf16 => task.multiply(execution.arch, output, scratch),
            _ => execution.arch.dispatch(Vectors { task, output, scratch }),
        });
    });
}

/// Consecutive rows of one sequence that are computed by one thread.
#[derive(Clone, Copy)]
struct Block<'a> {
    cache: &'a KvCache,
    /// Position of the first row.
    position: usize,
    count: usize,
    /// Starts at the first row's queries.
    queries: &'a [f32],
}

/// One key-value head of a block of rows.
#[derive(Clone, Copy)]
struct Task<'a> {
    shape: &'a AttentionShape,
    layer: AttentionLayer,
    head: usize,
    block: Block<'a>,
}

/// Buffers of a thread.
#[derive(Default)]
struct Scratch {
    scores: AlignedBuffer,
    /// Keys and values that are collected from several pages.
    keys: AlignedBuffer,
    values: AlignedBuffer,
    #[cfg(target_arch = "x86_64")]
    matrices: matrices::Matrices,
}

impl Task<'_> {
    /// Query heads per key-value head.
    fn group(&self) -> usize {
        self.shape.query_heads / self.shape.key_value_heads
    }

    /// Number of queries: those of all rows, in row order.
    fn queries(&self) -> usize {
        self.block.count * self.group()
    }

    /// A query's row in the block, and its place in the row's queries of the head.
    fn place(&self, query: usize) -> (usize, usize) {
        (query / self.group(), query % self.group())
    }

    fn query(&self, (row, place): (usize, usize)) -> &[f32] {
        let size = self.shape.head_size;
        &self.block.queries[row * self.shape.stride() + (self.head * self.group() + place) * size..][..size]
    }

    /// The positions that a row attends to.
    fn seen(&self, row: usize) -> Range<usize> {
        let end = self.block.position + row + 1;
        self.layer.window.map_or(0, |window| end.saturating_sub(window))..end
    }

    /// The positions from the first tile that `first` attends to until the last position of `last`.
    fn span(&self, first: usize, last: usize) -> Range<usize> {
        self.seen(first).start / TILE * TILE..self.seen(last).end
    }
}

/// A task that is computed in float32.
struct Vectors<'a> {
    task: Task<'a>,
    output: Columns<'a>,
    scratch: &'a mut Scratch,
}

impl WithSimd for Vectors<'_> {
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

impl Vectors<'_> {
    /// `VECTORS`: number of vectors in sixteen floats.
    #[inline(always)]
    fn run<S: Simd, const VECTORS: usize>(mut self, simd: S) {
        let task = self.task;
        let (cache, layer) = (task.block.cache, task.layer.index);
        let all = task.span(0, task.block.count - 1);
        let Scratch { scores, keys, values, .. } = &mut *self.scratch;
        let collected = Collected::of((cache, layer, task.head), all, keys, values);
        let mut query = 0;
        while query < task.queries() {
            if task.queries() - query >= SHARED {
                task.compute::<S, VECTORS, SHARED, 1>(simd, query, collected, scores, &mut self.output);
                query += SHARED;
            } else {
                task.compute::<S, VECTORS, 1, 4>(simd, query, collected, scores, &mut self.output);
                query += 1;
            }
        }
    }
}

impl Task<'_> {
    /// Computes `COUNT` queries starting with the given one.
    /// `WIDE`: number of tiles of keys and of values processed at a time.
    #[inline(always)]
    fn compute<S: Simd, const VECTORS: usize, const COUNT: usize, const WIDE: usize>(
        &self,
        simd: S,
        query: usize,
        collected: Option<Collected<'_>>,
        scores: &mut AlignedBuffer,
        output: &mut Columns<'_>,
    ) {
        let places: [(usize, usize); COUNT] = std::array::from_fn(|index| self.place(query + index));
        let queries: [&[f32]; COUNT] = places.map(|place| self.query(place));
        let Range { start: base, end } = self.span(places[0].0, places[COUNT - 1].0);
        let span =
            Span { cache: self.block.cache, layer: self.layer.index, head: self.head, base, end, collected };
        let width = span.width();
        scores.resize(COUNT * width);
        span.scores::<S, VECTORS, COUNT, WIDE>(simd, &queries, scores);
        for (scores, (row, _)) in scores.chunks_exact_mut(width).zip(places) {
            let factor = self.exponentials(scores, base, row);
            for score in scores.iter_mut() {
                *score *= factor;
            }
        }
        span.weighted_sums::<S, VECTORS, COUNT, WIDE>(simd, scores, &places, output);
    }

    /// Converts a row's scores of the positions from `base` on to weights that sum to one over the returned factor;
    /// those of positions that the row does not attend to become zero.
    #[inline(always)]
    fn exponentials(&self, scores: &mut [f32], base: usize, row: usize) -> f32 {
        let Range { start, end } = self.seen(row);
        let (first, end) = (start - base, end - base);
        let scale = match self.layer.cap {
            None => self.layer.scale,
            Some(cap) => {
                // Floats outside of the range are unspecified.
                cap_scores(&mut scores[first..end], self.layer.scale, cap);
                1.0
            }
        };
        exponentials(scores, first, end, scale)
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

/// Converts scores to weights that sum to one over the returned factor; those outside `first..end` become zero.
#[inline(always)]
fn exponentials(scores: &mut [f32], first: usize, end: usize, scale: f32) -> f32 {
    scores[..first].fill(f32::NEG_INFINITY);
    scores[end..].fill(f32::NEG_INFINITY);
    let maximum = maximum(scores);
    let blocks = scores.as_chunks_mut::<LANES>().0;
    let mut sums = [0.0; LANES];
    for block in blocks.iter_mut() {
        for lane in 0..LANES {
            let score = block[lane];
            let weight = exponential((score - maximum) * scale);
            block[lane] = if score == f32::NEG_INFINITY { 0.0 } else { weight };
            sums[lane] += block[lane];
        }
    }
    1.0 / add_lanes(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{KeyValueShape, PageLayout, Pool};
    use crate::fixtures::Uniform;
    use half::bf16;
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
        assert!(Pool::new(layout, layout.pages(length), false).reserve(&mut cache, length));
        for position in 0..length {
            for head in 0..heads {
                let at = position * width + head * head_size..position * width + (head + 1) * head_size;
                let (key, value) = (&keys[at.clone()], &values[at]);
                let bits = |of: &[f32]| -> Vec<u16> {
                    of.iter().map(|value| bf16::from_f32(*value).to_bits()).collect()
                };
                match layout.storage {
                    Storage::F32 => cache.store(layer, head, position, key, value),
                    _ => cache.store(layer, head, position, &bits(key), &bits(value)),
                }
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
            dtype in prop::sample::select(vec![DType::F32, DType::Bf16]),
        ) {
            let storage = attention_storage(dtype);
            // Numbers that every type has, so that only weights are rounded.
            let exact = |values: Vec<f32>| -> Vec<f32> {
                values.into_iter().map(|value| (value * 64.0).round() / 64.0).collect()
            };
            let tolerance = if storage == Storage::Bf16 { 1e-2 } else { 2e-5 };
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
                .map(|count| (exact(random.values(count, 2.0)), exact(random.values(count, 2.0))))
                .collect();
            let caches = |positions: usize| -> Vec<KvCache> {
                let layout = PageLayout { shape: kept, positions, storage };
                contents.iter().map(|(keys, values)| filled(layout, layers - 1, keys, values)).collect()
            };
            let (stride, width) = (shape.stride(), query_heads * head_size);
            let count: usize = lengths.iter().sum();
            let queries = exact(random.values(count * stride, 2.0));
            let compute = |rows: &[AttentionRows<'_>], queries: &[f32], parallel: bool| {
                let count: usize = rows.iter().map(|rows| rows.count).sum();
                let mut output = vec![0.0; count * width];
                let execution = Execution { arch: pulp::Arch::new(), parallel };
                let rows = rows.iter().copied();
                super::compute(execution, parallel, &shape, layer, rows, queries, &mut output);
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
                        prop_assert!((expected - f64::from(*found)).abs() < tolerance, "{} against {}", expected, found);
                    }
                }
            }
        }
    }
}
