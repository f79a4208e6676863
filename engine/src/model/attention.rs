//! Causal attention of single rows over the pages of their own sequences, read in place.
//!
//! Scores, weights and the weighted sum are computed in an order that depends on a row's position only:
//! not on the batch, the chunking of its prompt, or the machine's vector width.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::cache::{KvCache, PAGE, PageLayout};
use super::elementwise::{LANES, add_lanes, exponential};
use super::kernel::Execution;

/// Multiply-adds from which attention is worth waking other threads for.
const PARALLEL_WORK: usize = 1 << 20;

/// What all rows of one layer share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionShape {
    /// Query heads; a multiple of the key-value heads.
    pub(crate) query_heads: usize,
    /// Sliding window in positions (Mistral): a row sees itself and the `window - 1` positions before.
    pub(crate) window: Option<usize>,
    /// Layout of the caches.
    pub(crate) layout: PageLayout,
}

/// One row: whose cache it reads and where it stands in its sequence.
#[derive(Clone, Copy)]
pub(crate) struct AttentionRow<'a> {
    pub(crate) cache: &'a KvCache,
    pub(crate) position: usize,
}

/// Attention of every row; its own key must be in its cache already.
///
/// `queries` has one row of `stride` floats each, which starts with `query_heads` × `head_size` queries;
/// `output` is rows × (`query_heads` × `head_size`).
pub(crate) fn attention(
    execution: Execution,
    shape: &AttentionShape,
    layer: usize,
    rows: &[AttentionRow<'_>],
    queries: &[f32],
    stride: usize,
    output: &mut [f32],
) {
    let group = shape.query_heads / shape.layout.heads * shape.layout.head_size;
    let heads = shape.layout.heads;
    let run = |scores: &mut Vec<f32>, (task, output): (usize, &mut [f32])| {
        let (row, head) = (task / heads, task % heads);
        let queries = &queries[row * stride + head * group..][..group];
        execution.arch.dispatch(HeadGroup { shape, layer, head, row: rows[row], queries, scores, output });
    };
    let work: usize =
        rows.iter().map(|row| row.position + 1).sum::<usize>() * shape.query_heads * shape.layout.head_size;
    if execution.parallel && work >= PARALLEL_WORK {
        output.par_chunks_exact_mut(group).enumerate().for_each_init(Vec::new, run);
    } else {
        let mut scores = Vec::new();
        output.chunks_exact_mut(group).enumerate().for_each(|task| run(&mut scores, task));
    }
}

/// The query heads of one row that share one key-value head.
struct HeadGroup<'a> {
    shape: &'a AttentionShape,
    layer: usize,
    head: usize,
    row: AttentionRow<'a>,
    queries: &'a [f32],
    scores: &'a mut Vec<f32>,
    output: &'a mut [f32],
}

impl WithSimd for HeadGroup<'_> {
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

impl HeadGroup<'_> {
    /// `VECTORS`: vectors in sixteen floats.
    #[inline(always)]
    fn run<S: Simd, const VECTORS: usize>(self, simd: S) {
        let layout = &self.shape.layout;
        let end = self.row.position + 1;
        let first = self.shape.window.map_or(0, |window| end.saturating_sub(window));
        let (first_page, last_page) = (first / PAGE, self.row.position / PAGE);
        let pages = self
            .row
            .cache
            .head(layout, self.layer, self.head)
            .skip(first_page)
            .take(last_page - first_page + 1);
        let offset = first_page * PAGE;
        let scale = 1.0 / (layout.head_size as f32).sqrt();
        self.scores.resize((last_page - first_page + 1) * PAGE, 0.0);
        let scores = &mut self.scores[..];
        for (query, output) in
            self.queries.chunks_exact(layout.head_size).zip(self.output.chunks_exact_mut(layout.head_size))
        {
            for ((keys, _), scores) in pages.clone().zip(scores.as_chunks_mut::<PAGE>().0) {
                let keys = S::as_simd_f32s(keys).0.as_chunks::<VECTORS>().0;
                let mut sums = [simd.splat_f32s(0.0); VECTORS];
                for (key, query) in keys.iter().zip(query) {
                    let query = simd.splat_f32s(*query);
                    for vector in 0..VECTORS {
                        sums[vector] = simd.mul_add_f32s(query, key[vector], sums[vector]);
                    }
                }
                S::as_mut_simd_f32s(scores).0.copy_from_slice(&sums);
            }
            softmax(scores, first - offset, end - offset, scale);
            weighted_sum::<S, VECTORS>(simd, layout, &pages, scores, output);
        }
    }
}

/// Turns scores into weights that add up to one; those outside `first..end` become zero.
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

/// The values weighted by `weights`: per page, then page after page.
#[inline(always)]
fn weighted_sum<'a, S: Simd, const VECTORS: usize>(
    simd: S,
    layout: &PageLayout,
    pages: &(impl Iterator<Item = (&'a [f32], &'a [f32])> + Clone),
    weights: &[f32],
    output: &mut [f32],
) {
    let stride = layout.padded_head() / LANES;
    for (chunk, output) in output.chunks_mut(LANES).enumerate() {
        let mut total = [simd.splat_f32s(0.0); VECTORS];
        for ((_, values), weights) in pages.clone().zip(weights.as_chunks::<PAGE>().0) {
            let values = S::as_simd_f32s(values).0.as_chunks::<VECTORS>().0;
            let mut sums = [simd.splat_f32s(0.0); VECTORS];
            for (value, weight) in values[chunk..].iter().step_by(stride).zip(weights) {
                let weight = simd.splat_f32s(*weight);
                for vector in 0..VECTORS {
                    sums[vector] = simd.mul_add_f32s(weight, value[vector], sums[vector]);
                }
            }
            for vector in 0..VECTORS {
                total[vector] = simd.add_f32s(total[vector], sums[vector]);
            }
        }
        output.copy_from_slice(&bytemuck::cast_slice(&total)[..output.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Uniform;
    use crate::model::cache::PagePool;
    use proptest::prelude::*;

    /// Attention by the book, in double precision.
    fn plain(
        shape: &AttentionShape,
        query: &[f32],
        keys: &[f32],
        values: &[f32],
        position: usize,
        head: usize,
    ) -> Vec<f64> {
        let size = shape.layout.head_size;
        let first = shape.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let row = |of: &[f32], at: usize| -> Vec<f64> {
            let start = (at * shape.layout.heads + head) * size;
            of[start..start + size].iter().map(|value| f64::from(*value)).collect()
        };
        let scores: Vec<f64> = (first..=position)
            .map(|at| {
                let dot: f64 = row(keys, at).iter().zip(query).map(|(k, q)| k * f64::from(*q)).sum();
                dot / (size as f64).sqrt()
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

    proptest! {
           #![proptest_config(ProptestConfig::with_cases(64))]

           #[test]
           fn equals_the_plain_version(
               heads in 1usize..4, group in 1usize..4, half in 1usize..40, layers in 1usize..3,
               lengths in prop::collection::vec(1usize..90, 1..5), window in prop::option::of(1usize..50),
               seed in any::<u64>(),
           ) {
               let head_size = 2 * half;
               let layout = PageLayout { layers, heads, head_size };
               let shape = AttentionShape { query_heads: heads * group, window, layout };
               let mut random = Uniform::new(seed);
               let mut pool = PagePool::default();
               let width = heads * head_size;
               let mut caches = Vec::new();
               let mut contents = Vec::new();
               for length in &lengths {
                   let (keys, values) = (random.values(length * width, 2.0), random.values(length * width, 2.0));
                   let mut cache = KvCache::default();
                   cache.reserve(*length, &layout, &mut pool);
                   for position in 0..*length {
                       for head in 0..heads {
                           let at = position * width + head * head_size..position * width + (head + 1) * head_size;
                           cache.store(&layout, layers - 1, head, position, &keys[at.clone()], &values[at]);
                       }
                   }
                   cache.advance(*length);
                   caches.push(cache);
                   contents.push((keys, values));
               }
               let rows: Vec<AttentionRow<'_>> = caches
                   .iter()
                   .zip(&lengths)
                   .flat_map(|(cache, length)| [0, length / 2, length - 1].map(|position| AttentionRow { cache, position }))
                   .collect();
               let query_width = shape.query_heads * head_size;
               let stride = query_width + 7;
               let queries = random.values(rows.len() * stride, 2.0);
               let mut output = vec![0.0; rows.len() * query_width];
               attention(
    Execution { arch: pulp::Arch::new(), parallel: false }, &shape, layers - 1, &rows, &queries, stride, &mut output);
               for (index, row) in rows.iter().enumerate() {
                   let (keys, values) = &contents[index / 3];
                   for head in 0..shape.query_heads {
                       let query = &queries[index * stride + head * head_size..][..head_size];
                       let expected = plain(&shape, query, keys, values, row.position, head / group);
                       let found = &output[index * query_width + head * head_size..][..head_size];
                       for (expected, found) in expected.iter().zip(found) {
                           prop_assert!((expected - f64::from(*found)).abs() < 2e-5, "{} against {}", expected, found);
                       }
                   }
                   let mut alone = vec![0.0; query_width];
                   let one = &queries[index * stride..][..stride];
                   attention(
    Execution { arch: pulp::Arch::new(), parallel: true }, &shape, layers - 1, &rows[index..=index], one, stride, &mut alone);
                   prop_assert_eq!(&alone[..], &output[index * query_width..][..query_width]);
               }
           }
       }
}
