//! Norms and activations of encoders on rows of floats, each with a fixed order of reduction.

use lumos_kernels::{LANES, add_lanes, compiled, exponential};
use pulp::Arch;

/// `output = norm(input + addend) · weight + bias`, row by row, into `input`.
pub(super) fn add_and_norm(
    arch: Arch,
    input: &mut [f32],
    addend: &[f32],
    norm_weights: &[Vec<f32>; 2],
    epsilon: f32,
) {
    let [weight, bias] = norm_weights.each_ref().map(Vec::as_slice);
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
pub(super) fn layer_norm(arch: Arch, rows: &mut [f32], norm_weights: &[Vec<f32>; 2], epsilon: f32) {
    let [weight, bias] = norm_weights.each_ref().map(Vec::as_slice);
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

/// The sum of `of` over all values.
#[inline(always)]
pub(super) fn sum(values: &[f32], of: impl Fn(f32) -> f32) -> f32 {
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

/// One number per row: its dot product with `weight`, plus `bias`.
pub(super) fn scores(rows: &[f32], weight: &[f32], bias: f32) -> Vec<f32> {
    let score = |row: &[f32]| {
        let products = row.iter().zip(weight);
        products.fold(0.0f32, |sum, (value, weight)| value.mul_add(*weight, sum)) + bias
    };
    rows.chunks_exact(weight.len()).map(score).collect()
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

/// Adds `bias` to each row and applies the Gaussian error linear unit, `x · Φ(x)`.
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

/// Adds `bias` to each row and applies the hyperbolic tangent.
pub(super) fn add_bias_and_tanh(_: Arch, rows: &mut [f32], bias: &[f32]) {
    for row in rows.chunks_exact_mut(bias.len()) {
        for (value, bias) in row.iter_mut().zip(bias) {
            *value = (*value + bias).tanh();
        }
    }
}

/// The error function with an error of about 3e-7 (Abramowitz and Stegun, 7.1.26).
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
        layer_norm(Arch::new(), &mut rows, &[vec![2.0; 4], vec![1.0; 4]], 1e-12);
        assert_eq!(rows, [-1.0, 3.0, -1.0, 3.0, 1.0, 1.0, 1.0, 1.0]);
    }
}
