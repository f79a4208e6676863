//! Attention within one sequence, with absolute positions in the hidden states (BERT) or relative distances
//! (DeBERTa).

use lumos_kernels::{compiled, exponential};
use pulp::Arch;

use super::config::Distances;
use super::elementwise::sum;

/// Buffers of [`attention`], kept between calls.
#[derive(Default)]
pub(super) struct AttentionScratch {
    keys: Vec<f32>,
    scores: Vec<f32>,
}

/// A layer's projections of relative distances (disentangled attention, He et al. 2021, section 3.1): a key
/// and a query for each distance.
///
/// For every head and every component both tables hold a row over `key - query`, from `1 - longest` to
/// `longest - 1`, so that the part of a row that a query needs is contiguous.
pub(super) struct DistanceTables {
    keys: Vec<f32>,
    queries: Vec<f32>,
    longest: usize,
}

impl DistanceTables {
    /// Lays out the projected embedding of distances. Each of its rows holds queries, keys and values of
    /// `width` each.
    pub(super) fn new(projected: &[f32], width: usize, distances: &Distances, longest: usize) -> Self {
        let spread = 2 * longest - 1;
        let rows: Vec<usize> = (0..spread)
            .map(|place| distances.row((longest - 1).cast_signed() - place.cast_signed()))
            .collect();
        let table = |start: usize| {
            let component =
                |component: usize| rows.iter().map(move |row| projected[row * 3 * width + start + component]);
            (0..width).flat_map(component).collect()
        };
        Self { queries: table(0), keys: table(width), longest }
    }

    /// The part of a component that a query needs for `length` keys.
    #[inline(always)]
    fn part<'a>(&self, table: &'a [f32], component: usize, query: usize, length: usize) -> &'a [f32] {
        &table[component * (2 * self.longest - 1) + self.longest - 1 - query..][..length]
    }
}

/// Attention within one sequence. Each row of `input` has one token's queries, keys and values, all heads of
/// each. `seen` marks the tokens that may be attended to. Only the results of the first tokens are computed,
/// as many as `output` has rows. With distances, the sequence must not be longer than their tables.
pub(super) fn attention(
    arch: Arch,
    input: &[f32],
    seen: &[bool],
    heads: usize,
    distances: Option<&DistanceTables>,
    output: &mut [f32],
    scratch: &mut AttentionScratch,
) {
    let length = seen.len();
    let width = input.len() / length / 3;
    let size = width / heads;
    let addends = if distances.is_some() { 3 } else { 1 };
    let scale = 1.0 / ((size * addends) as f32).sqrt();
    scratch.keys.resize(size * length, 0.0);
    scratch.scores.resize(length, 0.0);
    compiled(
        arch,
        #[inline(always)]
        || {
            for head in 0..heads {
                // Keys are transposed, so that the scores of neighbouring tokens are adjacent.
                for (token, row) in input.chunks_exact(3 * width).enumerate() {
                    let keys = &row[width + head * size..][..size];
                    for (component, key) in keys.iter().enumerate() {
                        scratch.keys[component * length + token] = *key;
                    }
                }
                let rows = input.chunks_exact(3 * width).zip(output.chunks_exact_mut(width));
                for (place, (row, output)) in rows.enumerate() {
                    let query = &row[head * size..][..size];
                    scratch.scores.fill(0.0);
                    let components = query.iter().zip(scratch.keys.chunks_exact(length));
                    match distances {
                        None => {
                            for (component, keys) in components {
                                for (score, key) in scratch.scores.iter_mut().zip(keys) {
                                    *score = component.mul_add(*key, *score);
                                }
                            }
                        }
                        Some(tables) => {
                            for (index, (component, keys)) in (head * size..).zip(components) {
                                let far_keys = tables.part(&tables.keys, index, place, length);
                                let far_queries = tables.part(&tables.queries, index, place, length);
                                let far = far_keys.iter().zip(far_queries);
                                let scores = scratch.scores.iter_mut();
                                for ((score, key), (far_key, far_query)) in scores.zip(keys).zip(far) {
                                    let from_content = component.mul_add(*far_key, *score);
                                    *score = (component + far_query).mul_add(*key, from_content);
                                }
                            }
                        }
                    }
                    let total = weigh(&mut scratch.scores, seen, scale);
                    let output = &mut output[head * size..][..size];
                    output.fill(0.0);
                    for (weight, row) in scratch.scores.iter().zip(input.chunks_exact(3 * width)) {
                        let values = &row[2 * width + head * size..][..size];
                        for (output, value) in output.iter_mut().zip(values) {
                            *output = weight.mul_add(*value, *output);
                        }
                    }
                    for output in output {
                        *output /= total;
                    }
                }
            }
        },
    );
}

/// Replaces scores by unnormalized softmax weights and returns their sum.
#[inline(always)]
fn weigh(scores: &mut [f32], seen: &[bool], scale: f32) -> f32 {
    let mut highest = f32::NEG_INFINITY;
    for (score, seen) in scores.iter_mut().zip(seen) {
        *score *= scale;
        highest = if *seen && *score > highest { *score } else { highest };
    }
    for (score, seen) in scores.iter_mut().zip(seen) {
        let weight = exponential(*score - highest);
        *score = if *seen { weight } else { 0.0 };
    }
    sum(scores, |value| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_has_no_weight() {
        // One head of one component: queries, keys and values are one number each.
        let input = [1.0, 1.0, 4.0, 1.0, 1.0, 8.0, 1.0, 9.0, f32::MAX];
        let mut output = [0.0; 3];
        let mut scratch = AttentionScratch::default();
        attention(Arch::new(), &input, &[true, true, false], 1, None, &mut output, &mut scratch);
        assert_eq!(output, [6.0; 3]);
    }

    #[test]
    fn distances_count_for_queries_and_for_keys() {
        // Rows of the embedding: distances -2 to 1; queries 10, 20, …; keys 1, 2, ….
        let distances = Distances { buckets: 0, furthest: 2, normed: false };
        let projected: Vec<f32> =
            (0..4u8).flat_map(|row| [10.0, 1.0, 0.0].map(|of| of * f32::from(row + 1))).collect();
        let tables = DistanceTables::new(&projected, 1, &distances, 3);
        // Entries are ordered by key - query: the distances 2, 1, 0, -1, -2, clamped to 1.
        assert_eq!(tables.keys, [4.0, 4.0, 3.0, 2.0, 1.0]);
        assert_eq!(tables.queries, [40.0, 40.0, 30.0, 20.0, 10.0]);
        assert_eq!(tables.part(&tables.keys, 0, 1, 3), [4.0, 3.0, 2.0]);
        // Two tokens: scores of the second are q·k + q·K(1) + k·Q(1) of the first and q·k + q·K(0) + k·Q(0)
        // of itself.
        let input = [0.0, 0.01, 1.0, 0.5, 0.02, 2.0];
        let scores: [f32; 2] = [0.5 * 0.01 + 0.5 * 4.0 + 0.01 * 40.0, 0.5 * 0.02 + 0.5 * 3.0 + 0.02 * 30.0];
        let [first, second] = scores.map(|score| (score / 3f32.sqrt()).exp());
        let expected = (first + 2.0 * second) / (first + second);
        let (mut output, mut scratch) = ([0.0; 2], AttentionScratch::default());
        attention(Arch::new(), &input, &[true, true], 1, Some(&tables), &mut output, &mut scratch);
        assert!((output[1] - expected).abs() < 1e-6, "{} {expected}", output[1]);
    }
}
