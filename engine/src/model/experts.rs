//! Mixtures of experts: each token is computed by the experts that its router prefers.
//!
//! The rows of a step are grouped by expert, so that an expert's weights are read once per step. Every row adds the
//! outputs of its experts in ascending order of their numbers. The sum therefore depends on the row only, not on the
//! other rows of the step.

use lumos_kernels::{Execution, add_scaled, compiled, exponential, gated};
use pulp::Arch;

use super::layer::Experts;
use super::linear::{Linear, LinearScratch};
use crate::load::block::Activation;

/// Buffers of one mixture, kept between calls.
#[derive(Default)]
pub(super) struct ExpertScratch {
    logits: Vec<f32>,
    order: Vec<u32>,
    choices: Vec<Choice>,
    gathered: Vec<f32>,
    gate_up: Vec<f32>,
    product: Vec<f32>,
    update: Vec<f32>,
}

/// An expert that computes a row, and the weight of its output.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    expert: u32,
    row: u32,
    weight: f32,
}

impl Experts<Linear> {
    /// Computes `output` from `input`; both are rows × the hidden size.
    pub(super) fn forward(
        &self,
        execution: Execution,
        activation: Activation,
        input: &[f32],
        output: &mut [f32],
        linear: &mut LinearScratch,
        scratch: &mut ExpertScratch,
    ) {
        let ExpertScratch { logits, order, choices, gathered, gate_up, product, update } = scratch;
        let hidden = self.router.inputs();
        let count = self.router.outputs();
        logits.resize(input.len() / hidden * count, 0.0);
        self.router.forward(execution, input, logits, linear);
        choices.clear();
        for (row, logits) in logits.chunks_exact_mut(count).enumerate() {
            route(execution.arch, logits, self.active, self.normalised, order);
            let choice =
                |expert: &u32| Choice { expert: *expert, row: row as u32, weight: logits[*expert as usize] };
            choices.extend(order.iter().map(choice));
        }
        choices.sort_unstable_by_key(|choice| (choice.expert, choice.row));
        output.fill(0.0);
        for group in choices.chunk_by(|one, next| one.expert == next.expert) {
            let expert = &self.experts[group[0].expert as usize];
            let (rows, width) = (group.len(), expert.down.inputs());
            gathered.clear();
            gathered.extend(group.iter().flat_map(|choice| &input[choice.row as usize * hidden..][..hidden]));
            gate_up.resize(rows * 2 * width, 0.0);
            product.resize(rows * width, 0.0);
            update.resize(rows * hidden, 0.0);
            expert.gate_up.forward(execution, gathered, gate_up, linear);
            gated(execution, activation, gate_up, width, product);
            expert.down.forward(execution, product, update, linear);
            for (choice, update) in group.iter().zip(update.chunks_exact(hidden)) {
                let output = &mut output[choice.row as usize * hidden..][..hidden];
                add_scaled(execution, output, update, choice.weight, hidden);
            }
        }
    }
}

/// Replaces one row's logits with the experts' weights, and `order` with the `active` experts of the highest logits;
/// of equal ones those with the lowest numbers. Logits that are not numbers give weights that are not numbers.
fn route(arch: Arch, logits: &mut [f32], active: usize, normalised: bool, order: &mut Vec<u32>) {
    order.clear();
    order.extend(0..logits.len() as u32);
    let highest_first = |one: &u32, other: &u32| {
        logits[*other as usize].total_cmp(&logits[*one as usize]).then(one.cmp(other))
    };
    if active < order.len() {
        order.select_nth_unstable_by(active - 1, highest_first);
        order.truncate(active);
    }
    order.sort_unstable_by(highest_first);
    let highest = logits[order[0] as usize];
    compiled(
        arch,
        #[inline(always)]
        || {
            for logit in logits.iter_mut() {
                *logit = exponential(*logit - highest);
            }
        },
    );
    let total: f32 = if normalised {
        order.iter().map(|expert| logits[*expert as usize]).sum()
    } else {
        logits.iter().sum()
    };
    for expert in order.iter() {
        logits[*expert as usize] /= total;
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};
    use lumos_kernels::DType;

    use super::*;
    use crate::fixtures::Uniform;
    use crate::model::layer::Expert;

    fn routed(logits: &[f32], active: usize, normalised: bool) -> (Vec<u32>, Vec<f32>) {
        let (mut weights, mut order) = (logits.to_vec(), Vec::new());
        route(Arch::new(), &mut weights, active, normalised, &mut order);
        let chosen = order.iter().map(|expert| weights[*expert as usize]).collect();
        (order, chosen)
    }

    #[test]
    fn the_highest_experts_are_chosen_with_their_weights() {
        let logits = [0.0, 2.0f32.ln(), 5.0f32.ln(), 0.0];
        let (order, weights) = routed(&logits, 2, false);
        assert_eq!(order, [2, 1]);
        assert!((weights[0] - 5.0 / 9.0).abs() < 1e-6 && (weights[1] - 2.0 / 9.0).abs() < 1e-6);
        let (_, weights) = routed(&logits, 2, true);
        assert!((weights[0] - 5.0 / 7.0).abs() < 1e-6 && (weights[1] - 2.0 / 7.0).abs() < 1e-6);
        // Ties, and all experts.
        assert_eq!(routed(&[1.0; 6], 3, true), (vec![0, 1, 2], vec![1.0 / 3.0; 3]));
        assert_eq!(routed(&[1.0, 3.0, 2.0], 3, false).0, [1, 2, 0]);
        for broken in [f32::NAN, f32::INFINITY] {
            let (order, weights) = routed(&[0.0, broken, 1.0], 2, true);
            assert_eq!(order.len(), 2);
            assert!(weights.iter().any(|weight| weight.is_nan()), "{broken}: {weights:?}");
        }
    }

    fn mixture(seed: u64, hidden: usize, width: usize, count: usize, active: usize) -> Experts<Linear> {
        let mut random = Uniform::new(seed);
        let mut matrix = |outputs: usize, inputs: usize| {
            let values = random.values(outputs * inputs, 2.0 / (inputs as f32).sqrt());
            let tensor = Tensor::from_vec(values, (outputs, inputs), &Device::Cpu).unwrap();
            Linear::new(&[tensor], DType::F32).unwrap()
        };
        let router = matrix(count, hidden);
        let expert = |_| Expert { gate_up: matrix(2 * width, hidden), down: matrix(hidden, width) };
        Experts { router, experts: (0..count).map(expert).collect(), active, normalised: true }
    }

    /// A row alone, in a batch, and on several threads gives the same bits; and they are the sum over its experts.
    #[test]
    fn rows_do_not_depend_on_their_neighbours() {
        let (hidden, width, rows) = (48, 36, 33);
        let mixture = mixture(3, hidden, width, 8, 3);
        let input = Uniform::new(4).values(rows * hidden, 2.0);
        let run = |input: &[f32], parallel: bool| {
            let execution = Execution { arch: Arch::new(), parallel };
            let mut output = vec![f32::NAN; input.len()];
            let mut linear = LinearScratch::default();
            let mut scratch = ExpertScratch::default();
            mixture.forward(execution, Activation::Silu, input, &mut output, &mut linear, &mut scratch);
            // Buffers of an earlier step change nothing.
            let first = output.clone();
            mixture.forward(execution, Activation::Silu, input, &mut output, &mut linear, &mut scratch);
            assert_eq!(first, output);
            output
        };
        let together = run(&input, false);
        assert_eq!(together, run(&input, true));
        for (input, output) in input.chunks(hidden).zip(together.chunks(hidden)) {
            assert_eq!(run(input, false), output);
        }
        let execution = Execution { arch: Arch::new(), parallel: false };
        let row = &input[..hidden];
        let product = |linear: &Linear, input: &[f32]| {
            let mut output = vec![0.0; linear.outputs()];
            linear.forward(execution, input, &mut output, &mut LinearScratch::default());
            output
        };
        let (order, weights) = routed(&product(&mixture.router, row), 3, true);
        let mut expected = vec![0.0; hidden];
        for (expert, weight) in order.iter().zip(weights) {
            let expert = &mixture.experts[*expert as usize];
            let gate_up = product(&expert.gate_up, row);
            let (gate, up) = gate_up.split_at(width);
            let inner: Vec<f32> =
                gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
            for (sum, value) in expected.iter_mut().zip(product(&expert.down, &inner)) {
                *sum += weight * value;
            }
        }
        for (found, expected) in together.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{found} instead of {expected}");
        }
    }
}
