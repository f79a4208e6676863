//! Norms and activations on rows of floats, each with a fixed order of reduction.

use rayon::prelude::*;

use super::kernel::Execution;
use crate::vector::{LANES, add_lanes, compiled, exponential};

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

/// Root-mean-square norm of each row of `input`, scaled by `weight`.
pub(crate) fn rms_norm(
    execution: Execution,
    input: &[f32],
    weight: &[f32],
    epsilon: f32,
    output: &mut [f32],
) {
    let width = weight.len();
    by_rows(execution, (input, width), (output, width), |input, output| {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for (input, output) in input.chunks_exact(width).zip(output.chunks_exact_mut(width)) {
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
                    let scale = 1.0 / (add_lanes(lanes) / width as f32 + epsilon).sqrt();
                    for ((output, input), weight) in output.iter_mut().zip(input).zip(weight) {
                        *output = input * scale * weight;
                    }
                }
            },
        );
    });
}

/// Adds `addend` to `target`, element by element; rows have `width` elements.
pub(crate) fn add(execution: Execution, target: &mut [f32], addend: &[f32], width: usize) {
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

/// `silu(gate) · up`, where each row of `input` holds `width` gates and then `width` values.
pub(crate) fn gated(execution: Execution, input: &[f32], width: usize, output: &mut [f32]) {
    by_rows(execution, (input, 2 * width), (output, width), |input, output| {
        compiled(
            execution.arch,
            #[inline(always)]
            || {
                for (input, output) in input.chunks_exact(2 * width).zip(output.chunks_exact_mut(width)) {
                    let (gates, values) = input.split_at(width);
                    for ((output, gate), value) in output.iter_mut().zip(gates).zip(values) {
                        *output = gate / (1.0 + exponential(-gate)) * value;
                    }
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
        let (rows, width) = (300, 131);
        let mut random = crate::fixtures::Uniform::new(3);
        let input = random.values(rows * 2 * width, 3.0);
        let weight = random.values(width, 1.0);
        let all = |parallel: bool| {
            let execution = execution(parallel);
            let (mut product, mut normed) = (vec![0.0; rows * width], vec![0.0; rows * width]);
            gated(execution, &input, width, &mut product);
            rms_norm(execution, &product, &weight, 1e-5, &mut normed);
            add(execution, &mut normed, &product, width);
            (product, normed)
        };
        assert_eq!(all(true), all(false));
        // Vector results equal scalar results.
        let (product, _) = all(true);
        let (gate, value) = (input[2 * width * 7 + 9], input[2 * width * 7 + width + 9]);
        assert_eq!(product[7 * width + 9], gate / (1.0 + exponential(-gate)) * value);
    }

    #[test]
    fn norm_of_ones_is_the_weight() {
        let weight: Vec<f32> = (0..37).map(|index| index as f32).collect();
        let mut output = vec![0.0; 37];
        rms_norm(execution(false), &[1.0; 37], &weight, 0.0, &mut output);
        assert_eq!(output, weight);
    }
}
