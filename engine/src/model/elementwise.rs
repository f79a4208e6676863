//! Norms and activations on rows of floats, each with a fixed order of reduction.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::kernel::Execution;

/// Partial sums of a reduction: element `i` is added to sum `i % LANES` on every machine.
pub(crate) const LANES: usize = 16;

/// Adds partial sums in a fixed order.
#[inline(always)]
pub(crate) fn add_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// eˣ to about one unit in the last place; arguments are clamped to ±87. Vectorizes, and gives the same bits
/// on every machine that has fused multiply-add.
#[inline(always)]
pub(crate) fn exponential(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding it rounds to an integer in the low bits
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 87.0 { 87.0 } else { x };
    let rounded = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let power = rounded - ROUND;
    let rest = power.mul_add(-LN2_LOW, power.mul_add(-LN2_HIGH, x));
    let mut sum = 1.987_569_1e-4;
    sum = rest.mul_add(sum, 1.398_199_9e-3);
    sum = rest.mul_add(sum, 8.333_452e-3);
    sum = rest.mul_add(sum, 4.166_579_6e-2);
    sum = rest.mul_add(sum, 1.666_666_5e-1);
    sum = rest.mul_add(sum, 0.5);
    let value = (rest * rest).mul_add(sum, rest) + 1.0;
    value * f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

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

/// Runs `work` compiled for the processor's instruction set. `work` and everything that it calls must be
/// marked `#[inline(always)]`: code that is not inlined is compiled for the baseline, where each fused
/// multiply-add is a function call.
pub(crate) fn compiled(arch: Arch, work: impl FnMut()) {
    struct Compiled<F>(F);

    impl<F: FnMut()> WithSimd for Compiled<F> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, _: S) {
            // By reference: a closure passed by value is called through a function that is not inlined.
            (self.0)();
        }
    }

    arch.dispatch(Compiled(work));
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
    fn exponential_is_close() {
        let mut x = -87.0f32;
        while x < 87.0 {
            let (value, exact) = (f64::from(exponential(x)), f64::from(x).exp());
            assert!(((value - exact) / exact).abs() < 3e-7, "{x}: {value} against {exact}");
            x += 0.0137;
        }
        assert_eq!(exponential(0.0), 1.0);
        assert!(exponential(f32::NEG_INFINITY) < 1e-37);
    }

    #[test]
    fn norm_of_ones_is_the_weight() {
        let weight: Vec<f32> = (0..37).map(|index| index as f32).collect();
        let mut output = vec![0.0; 37];
        rms_norm(execution(false), &[1.0; 37], &weight, 0.0, &mut output);
        assert_eq!(output, weight);
    }
}
