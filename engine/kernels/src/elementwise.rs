//! Norms and activations on rows of floats, each with a fixed order of reduction.

use std::ops::Range;

use rayon::prelude::*;

use super::kernel::Execution;
use crate::vector::{Activation, LANES, add_lanes, compiled, exponential, tangent};

/// Minimum number of elements for which an operation uses several threads.
const PARALLEL_NUMBERS: usize = 1 << 15;

/// Applies `run` to corresponding rows of `input` and `output`, on several threads if there is enough work.
fn by_rows(
    execution: Execution,
    (input, input_width): (&[f32], usize),
    (output, output_width): (&mut [f32], usize),
    run: impl Fn(&[f32], &mut [f32]) + Sync,
) {
    let rows = output.len().checked_div(output_width).unwrap_or(0);
    if execution.parallel && input.len() >= PARALLEL_NUMBERS && rows > 1 {
        let part = rows.div_ceil(rayon::current_num_threads());
        let parts = output.par_chunks_mut(part * output_width).zip(input.par_chunks(part * input_width));
        parts.for_each(|(output, input)| run(input, output));
    } else {
        run(input, output);
    }
}

/// Applies `run` to rows of `width` elements, on several threads if there is enough work.
fn in_place(execution: Execution, rows: &mut [f32], width: usize, run: impl Fn(&mut [f32]) + Sync) {
    if execution.parallel && rows.len() >= PARALLEL_NUMBERS && rows.len() > width {
        let part = (rows.len() / width).div_ceil(rayon::current_num_threads());
        rows.par_chunks_mut(part * width).for_each(&run);
    } else {
        run(rows);
    }
}

/// The inverse of the root of the mean of squares.
#[inline(always)]
fn norm_scale(input: &[f32], epsilon: f32) -> f32 {
    let (blocks, rest) = input.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] = block[lane].mul_add(block[lane], lanes[lane]);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = value.mul_add(*value, *lane);
    }
    1.0 / (add_lanes(lanes) / input.len() as f32 + epsilon).sqrt()
}

/// Root-mean-square norm of each row of `input`, scaled by `weight`.
pub fn rms_norm(execution: Execution, input: &[f32], weight: &[f32], epsilon: f32, output: &mut [f32]) {
    let width = weight.len();
    by_rows(execution, (input, width), (output, width), |input, output| {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for (input, output) in input.chunks_exact(width).zip(output.chunks_exact_mut(width)) {
                    let scale = norm_scale(input, epsilon);
                    for ((output, input), weight) in output.iter_mut().zip(input).zip(weight) {
                        *output = input * scale * weight;
                    }
                }
            },
        );
    });
}

/// Adds `addend` to `target`, element by element; rows have `width` elements.
pub fn add(execution: Execution, target: &mut [f32], addend: &[f32], width: usize) {
    by_rows(execution, (addend, width), (target, width), |addend, target| {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for (target, addend) in target.iter_mut().zip(addend) {
                    *target += addend;
                }
            },
        );
    });
}

/// Adds `addend` times `scale` to `target`, element by element; rows have `width` elements.
pub fn add_scaled(execution: Execution, target: &mut [f32], addend: &[f32], scale: f32, width: usize) {
    by_rows(execution, (addend, width), (target, width), |addend, target| {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for (target, addend) in target.iter_mut().zip(addend) {
                    *target = addend.mul_add(scale, *target);
                }
            },
        );
    });
}

/// Multiplies rows of `width` elements by a factor.
pub fn scale(execution: Execution, rows: &mut [f32], factor: f32, width: usize) {
    in_place(execution, rows, width, |rows| {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for value in &mut *rows {
                    *value *= factor;
                }
            },
        );
    });
}

/// Adds `bias` to each row.
pub fn add_bias(execution: Execution, rows: &mut [f32], bias: &[f32]) {
    let width = bias.len();
    in_place(execution, rows, width, |rows| {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for row in rows.chunks_exact_mut(width) {
                    for (value, bias) in row.iter_mut().zip(bias) {
                        *value += bias;
                    }
                }
            },
        );
    });
}

/// Root-mean-square norm of the given columns of each row of `stride` elements, in stretches as long as `weight`.
pub fn norm_heads(
    execution: Execution,
    rows: &mut [f32],
    stride: usize,
    columns: Range<usize>,
    weight: &[f32],
    epsilon: f32,
) {
    in_place(execution, rows, stride, |rows| {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for row in rows.chunks_exact_mut(stride) {
                    for head in row[columns.clone()].chunks_exact_mut(weight.len()) {
                        let scale = norm_scale(head, epsilon);
                        for (value, weight) in head.iter_mut().zip(weight) {
                            *value = *value * scale * weight;
                        }
                    }
                }
            },
        );
    });
}

/// `activation(gate) · up`, where each row of `input` holds `width` gates and then `width` values.
pub fn gated(execution: Execution, activation: Activation, input: &[f32], width: usize, output: &mut [f32]) {
    match activation {
        Activation::Silu => gated_by(execution, input, width, output, silu),
        Activation::GeluTanh => gated_by(execution, input, width, output, gelu),
    }
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exponential(-x))
}

/// GELU with the hyperbolic tangent: `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, where the sum of one and the
/// tangent of `t` is `2 / (1 + exp(-2t))`.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    const FACTOR: f32 = -2.0 * 0.797_884_6;
    x / (1.0 + exponential(x * (x * x).mul_add(FACTOR * 0.044_715, FACTOR)))
}

fn gated_by(
    execution: Execution,
    input: &[f32],
    width: usize,
    output: &mut [f32],
    activation: impl Fn(f32) -> f32 + Sync,
) {
    by_rows(execution, (input, 2 * width), (output, width), |input, output| {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for (input, output) in input.chunks_exact(2 * width).zip(output.chunks_exact_mut(width)) {
                    let (gates, values) = input.split_at(width);
                    for ((output, gate), value) in output.iter_mut().zip(gates).zip(values) {
                        *output = activation(*gate) * value;
                    }
                }
            },
        );
    });
}

/// Soft caps: `cap · tanh(value / cap)`.
pub fn soft_cap(execution: Execution, values: &mut [f32], cap: f32) {
    in_place(execution, values, 1, |values| {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for value in &mut *values {
                    *value = cap * tangent(*value / cap);
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use pulp::Arch;

    use super::*;

    fn execution(parallel: bool) -> Execution {
        Execution { arch: Arch::new(), parallel }
    }

    #[test]
    fn rows_are_the_same_on_all_threads() {
        let (rows, width) = (300, 132);
        let mut random = crate::uniform::Uniform::new(3);
        let input = random.values(rows * 2 * width, 3.0);
        let weight = random.values(width, 1.0);
        let all = |activation: Activation, parallel: bool| {
            let execution = execution(parallel);
            let (mut product, mut normed) = (vec![0.0; rows * width], vec![0.0; rows * width]);
            gated(execution, activation, &input, width, &mut product);
            rms_norm(execution, &product, &weight, 1e-5, &mut normed);
            add(execution, &mut normed, &product, width);
            add_scaled(execution, &mut normed, &product, 0.3, width);
            add_bias(execution, &mut normed, &weight);
            scale(execution, &mut normed, 1.7, width);
            norm_heads(execution, &mut normed, width, 44..132, &weight[..22], 1e-5);
            soft_cap(execution, &mut normed, 2.5);
            (product, normed)
        };
        for (activation, plain) in [
            (Activation::Silu, (|x: f64| x / (1.0 + (-x).exp())) as fn(f64) -> f64),
            (Activation::GeluTanh, |x| {
                x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }),
        ] {
            let (product, normed) = all(activation, true);
            assert_eq!((&product, &normed), (&all(activation, false).0, &all(activation, false).1));
            // Vector results equal scalar results, and the formula in double precision.
            for (place, &product) in product.iter().enumerate() {
                let (row, column) = (place / width, place % width);
                let (gate, value) =
                    (input[2 * width * row + column], input[2 * width * row + width + column]);
                let scalar = if activation == Activation::Silu { silu(gate) } else { gelu(gate) };
                assert_eq!(product, scalar * value);
                let exact = plain(f64::from(gate)) * f64::from(value);
                assert!((f64::from(product) - exact).abs() < 3e-6, "{gate} {value}");
            }
        }
    }

    /// Each operation in double precision.
    #[test]
    fn operations_on_rows_are_those_of_their_formulas() {
        let (rows, width) = (3, 40);
        let mut random = crate::uniform::Uniform::new(4);
        let (input, addend, weight) =
            (random.values(rows * width, 3.0), random.values(rows * width, 3.0), random.values(width, 1.0));
        let check = |found: &[f32], expected: &dyn Fn(usize) -> f64| {
            for (place, found) in found.iter().enumerate() {
                let expected = expected(place);
                assert!(
                    (f64::from(*found) - expected).abs() < 2e-6,
                    "{place}: {found} instead of {expected}"
                );
            }
        };
        let execution = execution(false);
        let at = |values: &[f32], place: usize| f64::from(values[place]);
        let mut found = input.clone();
        add_scaled(execution, &mut found, &addend, 0.25, width);
        check(&found, &|place| at(&input, place) + at(&addend, place) * 0.25);
        let mut found = input.clone();
        add_bias(execution, &mut found, &weight);
        check(&found, &|place| at(&input, place) + at(&weight, place % width));
        let mut found = input.clone();
        scale(execution, &mut found, 0.5, width);
        check(&found, &|place| at(&input, place) * 0.5);
        let mut found = input.clone();
        soft_cap(execution, &mut found, 1.5);
        check(&found, &|place| 1.5 * (at(&input, place) / 1.5).tanh());
        // Two heads of ten columns in the middle; the other columns stay.
        let mut found = input.clone();
        norm_heads(execution, &mut found, width, 10..30, &weight[..10], 1e-5);
        check(&found, &|place| {
            let (row, column) = (place / width, place % width);
            if !(10..30).contains(&column) {
                return at(&input, place);
            }
            let head = row * width + column / 10 * 10;
            let mean = (head..head + 10).map(|place| at(&input, place).powi(2)).sum::<f64>() / 10.0;
            at(&input, place) / (mean + 1e-5).sqrt() * at(&weight, column % 10)
        });
    }

    #[test]
    fn norm_of_ones_is_the_weight() {
        let weight: Vec<f32> = (0..37).map(|index| index as f32).collect();
        let mut output = vec![0.0; 37];
        rms_norm(execution(false), &[1.0; 37], &weight, 0.0, &mut output);
        assert_eq!(output, weight);
    }
}
