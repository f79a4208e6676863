//! Norms, activations and attention of encoders on rows of floats, each with one fixed order of reduction.

use pulp::Arch;

use crate::model::{LANES, add_lanes, compiled, exponential};

/// `output = norm(input + addend) · weight + bias`, row by row, into `input`.
pub(super) fn add_and_norm(
    arch: Arch,
    input: &mut [f32],
    addend: &[f32],
    [weight, bias]: [&[f32]; 2],
    epsilon: f32,
) {
    compiled(
        arch,
        #[inline(always)]
        || {
            let width = weight.len();
            for (row, addend) in input.chunks_exact_mut(width).zip(addend.chunks_exact(width)) {
                for (value, addend) in row.iter_mut().zip(addend) {
                    *value += addend;
                }
                norm(row, weight, bias, epsilon);
            }
        },
    );
}

/// Layer norm of each row.
pub(super) fn layer_norm(arch: Arch, rows: &mut [f32], [weight, bias]: [&[f32]; 2], epsilon: f32) {
    compiled(
        arch,
        #[inline(always)]
        || {
            for row in rows.chunks_exact_mut(weight.len()) {
                norm(row, weight, bias, epsilon);
            }
        },
    );
}

#[inline(always)]
fn norm(row: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    let width = row.len() as f32;
    let mean = sum(row, |value| value) / width;
    let variance = sum(row, |value| (value - mean) * (value - mean)) / width;
    let scale = 1.0 / (variance + epsilon).sqrt();
    for ((value, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
        *value = ((*value - mean) * scale).mul_add(*weight, *bias);
    }
}

#[inline(always)]
fn sum(values: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] += of(block[lane]);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += of(*value);
    }
    add_lanes(lanes)
}

/// Adds `bias` to each row.
pub(super) fn add_bias(arch: Arch, rows: &mut [f32], bias: &[f32]) {
    compiled(
        arch,
        #[inline(always)]
        || {
            for row in rows.chunks_exact_mut(bias.len()) {
                for (value, bias) in row.iter_mut().zip(bias) {
                    *value += bias;
                }
            }
        },
    );
}

/// Adds `bias` to each row and takes the Gaussian error linear unit of it, `x · Φ(x)`.
pub(super) fn add_bias_and_gelu(arch: Arch, rows: &mut [f32], bias: &[f32]) {
    compiled(
        arch,
        #[inline(always)]
        || {
            for row in rows.chunks_exact_mut(bias.len()) {
                for (value, bias) in row.iter_mut().zip(bias) {
                    let x = *value + bias;
                    *value = 0.5 * x * (1.0 + error_function(x * std::f32::consts::FRAC_1_SQRT_2));
                }
            }
        },
    );
}

/// The error function to about 3e-7 (Abramowitz and Stegun, 7.1.26).
#[inline(always)]
fn error_function(x: f32) -> f32 {
    let size = x.abs();
    let t = 1.0 / 0.327_591_1f32.mul_add(size, 1.0);
    let mut polynomial = 1.061_405_4f32;
    polynomial = t.mul_add(polynomial, -1.453_152);
    polynomial = t.mul_add(polynomial, 1.421_413_7);
    polynomial = t.mul_add(polynomial, -0.284_496_74);
    polynomial = t.mul_add(polynomial, 0.254_829_6);
    (1.0 - polynomial * t * exponential(-size * size)).copysign(x)
}

/// Buffers of [`attention`], kept between calls.
#[derive(Default)]
pub(super) struct AttentionScratch {
    keys: Vec<f32>,
    scores: Vec<f32>,
}

/// Attention within one sequence. `input` has for each token its queries, keys and values, all heads of each;
/// `seen` says which tokens may be attended to. Only the first tokens' results are computed, as many as `output`
/// has rows.
pub(super) fn attention(
    arch: Arch,
    input: &[f32],
    seen: &[bool],
    heads: usize,
    output: &mut [f32],
    scratch: &mut AttentionScratch,
) {
    let length = seen.len();
    let width = input.len() / length / 3;
    let size = width / heads;
    let scale = 1.0 / (size as f32).sqrt();
    scratch.keys.resize(size * length, 0.0);
    scratch.scores.resize(length, 0.0);
    compiled(
        arch,
        #[inline(always)]
        || {
            for head in 0..heads {
                // Keys transposed, so that the scores of neighbouring tokens are neighbours.
                for (token, row) in input.chunks_exact(3 * width).enumerate() {
                    let keys = &row[width + head * size..][..size];
                    for (component, key) in keys.iter().enumerate() {
                        scratch.keys[component * length + token] = *key;
                    }
                }
                let rows = input.chunks_exact(3 * width).zip(output.chunks_exact_mut(width));
                for (row, output) in rows {
                    let query = &row[head * size..][..size];
                    scratch.scores.fill(0.0);
                    for (component, keys) in query.iter().zip(scratch.keys.chunks_exact(length)) {
                        for (score, key) in scratch.scores.iter_mut().zip(keys) {
                            *score = component.mul_add(*key, *score);
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

/// Makes weights of scores; their sum.
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
    fn the_error_function_is_close() {
        // Values of the error function to seven digits.
        for (x, exact) in [
            (0.0, 0.0),
            (0.1, 0.112_462_9),
            (0.5, 0.520_499_9),
            (1.0, 0.842_700_8),
            (2.0, 0.995_322_3),
            (4.0, 1.0),
        ] {
            assert!((error_function(x) - exact).abs() < 4e-7, "{x}");
            assert!((error_function(-x) + exact).abs() < 4e-7, "{x}");
        }
    }

    #[test]
    fn rows_are_normed() {
        let mut rows = vec![1.0, 3.0, 1.0, 3.0, 5.0, 5.0, 5.0, 5.0];
        let (weight, bias) = ([2.0; 4], [1.0; 4]);
        layer_norm(Arch::new(), &mut rows, [&weight, &bias], 1e-12);
        assert_eq!(rows, [-1.0, 3.0, -1.0, 3.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn what_is_not_seen_has_no_weight() {
        // One head of one component: queries, keys and values are one number each.
        let input = [1.0, 1.0, 4.0, 1.0, 1.0, 8.0, 1.0, 9.0, f32::MAX];
        let mut output = [0.0; 3];
        let mut scratch = AttentionScratch::default();
        attention(Arch::new(), &input, &[true, true, false], 1, &mut output, &mut scratch);
        assert_eq!(output, [6.0; 3]);
    }
}
