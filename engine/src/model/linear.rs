//! Linear layers without bias, packed for the kernels.
//!
//! A [`Linear`] consists of one or more parts with consecutive outputs, each stored as floats or in a block
//! format. The parts use the matrix products of `lumos_kernels` for floats and for blocks.

use candle_core::Tensor;
use lumos_kernels::{
    AlignedBuffer, DType, Execution, OutputColumns, PanelWeights, Path, QuantizedPanels, QuantizedPath,
};

use crate::load::weights::{Matrix, to_f32};

/// Scratch space of linear layers, kept between calls.
#[derive(Default)]
pub(crate) struct LinearScratch {
    packed: AlignedBuffer,
    quantized: AlignedBuffer<i32>,
}

/// `output = input · weightᵀ`, accumulated in float32; see [`Path`] for the order and the rounding.
pub(crate) struct Linear {
    /// Consecutive outputs, each part in its own storage format.
    parts: Vec<Part>,
    inputs: usize,
    outputs: usize,
}

enum Part {
    Floats(PanelWeights),
    Blocks(QuantizedPanels),
}

impl Part {
    fn outputs(&self) -> usize {
        match self {
            Self::Floats(weights) => weights.outputs(),
            Self::Blocks(weights) => weights.outputs(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Floats(weights) => weights.bytes(),
            Self::Blocks(weights) => weights.bytes(),
        }
    }
}

impl Linear {
    /// Packs one layer from weights (each `outputs` × `inputs`) stacked along their outputs, for the fastest
    /// path.
    pub(crate) fn new(weights: &[Tensor], dtype: DType) -> candle_core::Result<Self> {
        let weights: Vec<Matrix<'_>> = weights.iter().cloned().map(Matrix::Floats).collect();
        Self::stacked(&weights, dtype)
    }

    /// Packs one layer from numbers and blocks stacked along their outputs. Numbers are stored as `dtype`.
    pub(crate) fn stacked(weights: &[Matrix<'_>], dtype: DType) -> candle_core::Result<Self> {
        let mut inputs = 0;
        let mut parts = Vec::new();
        // Consecutive weights of the same format share panels.
        for run in weights.chunk_by(|one, next| one.format() == next.format()) {
            inputs = run[0].inputs()?;
            parts.push(match &run[0] {
                Matrix::Floats(_) | Matrix::Mapped(_) => Part::Floats(floats(run, inputs, dtype)?),
                Matrix::Blocks(first) => {
                    let blocks: Vec<&[u8]> = run.iter().filter_map(Matrix::blocks).collect();
                    Part::Blocks(QuantizedPanels::new(first.format, inputs, &blocks))
                }
            });
        }
        let outputs = parts.iter().map(Part::outputs).sum();
        Ok(Self { parts, inputs, outputs })
    }

    /// The same layer computed on another path, if it contains only floats and this processor supports the
    /// path for them.
    pub(crate) fn with_path(self, path: Path) -> Option<Self> {
        let Self { parts, inputs, outputs } = self;
        let parts = parts.into_iter().map(|part| match part {
            Part::Floats(weights) => weights.with_path(path).map(Part::Floats),
            Part::Blocks(_) => None,
        });
        Some(Self { parts: parts.collect::<Option<_>>()?, inputs, outputs })
    }

    /// Inputs per row.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Outputs per row.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Size of the packed weights in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).sum()
    }

    /// Computes `rows` × `outputs` from row-major `input` (`rows` × `inputs`).
    ///
    /// If `execution` is parallel and there is enough work, the panels are split over the current rayon pool.
    pub(crate) fn forward(
        &self,
        execution: Execution,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut LinearScratch,
    ) {
        let rows = output.len().checked_div(self.outputs).unwrap_or(0);
        let input = &input[..rows * self.inputs];
        let (mut first, mut rounded) = (0, false);
        for part in &self.parts {
            let columns = first..first + part.outputs();
            first = columns.end;
            let target = OutputColumns { matrix: output, stride: self.outputs, columns };
            match part {
                Part::Floats(weights) => {
                    weights.multiply(execution.parallel, input, target, &mut scratch.packed);
                }
                Part::Blocks(weights) => {
                    if !rounded {
                        weights.pack(execution, input, &mut scratch.quantized);
                        rounded = true;
                    }
                    weights.multiply(execution, &scratch.quantized, target);
                }
            }
        }
    }
}

fn floats(weights: &[Matrix<'_>], inputs: usize, dtype: DType) -> candle_core::Result<PanelWeights> {
    let outputs = weights.iter().map(|weight| match weight {
        Matrix::Floats(weight) => weight.dim(0),
        Matrix::Mapped(matrix) => Ok(matrix.shape[0]),
        Matrix::Blocks(_) => Ok(0),
    });
    let mut packed = PanelWeights::new(dtype, inputs, outputs.sum::<candle_core::Result<_>>()?);
    for weight in weights {
        match weight {
            Matrix::Floats(weight) => packed.add(DType::F32, bytemuck::cast_slice(&to_f32(weight)?)),
            Matrix::Mapped(matrix) => packed.add(matrix.dtype, matrix.bytes),
            Matrix::Blocks(_) => {}
        }
    }
    Ok(packed)
}

/// The name of the path that computes linear layers of `dtype` weights on this processor. `portable`, `neon`,
/// `avx2` and `avx512` give bit-identical results; `avx512bf16` and `amx` (bfloat16 weights only) also round
/// activations to bfloat16 and sum in their own orders.
pub fn linear_path(dtype: DType) -> String {
    Path::best(dtype).to_string()
}

/// The name of the path that computes linear layers of weights in block formats (Q8_0, Q4_K, Q6_K) on this
/// processor: `portable`, `avx2`, `avxvnni` or `avx512vnni`; on ARM `portable`, `neondot` or `neoni8mm`. Their results are
/// bit-identical.
pub fn quantized_path() -> String {
    QuantizedPath::best().to_string()
}

#[cfg(test)]
mod tests {
    use candle_core::{DType as CandleType, Device};
    use half::{bf16, f16};
    use lumos_capabilities::{Capability, skip_part};
    use proptest::prelude::*;
    use pulp::Arch;

    use super::*;
    use crate::load::weights::MappedMatrix;

    fn product(layer: &Linear, input: &[f32], rows: usize, parallel: bool) -> Vec<f32> {
        let execution = Execution { arch: Arch::new(), parallel };
        let mut output = vec![f32::NAN; rows * layer.outputs()];
        layer.forward(execution, input, &mut output, &mut LinearScratch::default());
        output
    }

    fn stored(dtype: DType, value: f32) -> f32 {
        match dtype {
            DType::F32 => value,
            DType::Bf16 => bf16::from_f32(value).to_f32(),
            DType::F16 => f16::from_f32(value).to_f32(),
        }
    }

    const DTYPES: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Every path of this processor, compared with float64 sums of the numbers that the path multiplies;
        /// every row alone, together, and on several threads gives the same bits.
        #[test]
        fn every_path_is_right_and_rows_do_not_depend_on_their_neighbours(
            rows in 1usize..=70, inputs in 1usize..1300, outputs in 1usize..200, seed in any::<u64>(),
        ) {
            let mut random = crate::fixtures::Uniform::new(seed);
            let weight = random.values(inputs * outputs, 1.0);
            let input = random.values(rows * inputs, 1.0);
            let tensor = Tensor::from_slice(&weight, (outputs, inputs), &Device::Cpu).unwrap();
            for dtype in DTYPES {
                let mut exact = None;
                for path in Path::ALL {
                    let layer = Linear::new(std::slice::from_ref(&tensor), dtype).unwrap();
                    let Some(layer) = layer.with_path(path) else { continue };
                    prop_assert!(matches!(&layer.parts[..], [Part::Floats(weights)] if weights.path() == path));
                    let together = product(&layer, &input, rows, false);
                    prop_assert_eq!(&together, &product(&layer, &input, rows, true));
                    for row in [0, rows / 2, rows - 1] {
                        let values = &input[row * inputs..][..inputs];
                        let result = &together[row * outputs..][..outputs];
                        prop_assert_eq!(&product(&layer, values, 1, false)[..], result, "{} {}", path, row);
                        for output in [0, outputs / 2, outputs - 1] {
                            let weights = &weight[output * inputs..][..inputs];
                            let expected: f64 = values
                                .iter()
                                .zip(weights)
                                .map(|(value, weight)| {
                                    let value = if path.rounds() { stored(DType::Bf16, *value) } else { *value };
                                    f64::from(value) * f64::from(stored(dtype, *weight))
                                })
                                .sum();
                            let error = (expected - f64::from(result[output])).abs();
                            prop_assert!(error < 1e-4, "{} {:?}: {} off", path, dtype, error);
                        }
                    }
                    if !path.rounds() {
                        prop_assert_eq!(&together, exact.get_or_insert_with(|| together.clone()), "{}", path);
                    }
                }
            }
        }
    }

    /// From any offset in a file, in one part and in several, on one thread and on several.
    #[test]
    fn mapped_matrices_are_packed_as_their_values_are() {
        let mut random = crate::fixtures::Uniform::new(8);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for (outputs, inputs) in [([3, 1], 5), ([70, 33], 301), ([900, 61], 600)] {
            let input = random.values(3 * inputs, 1.0);
            for (given, dtype) in DTYPES.iter().flat_map(|given| DTYPES.map(|dtype| (*given, dtype))) {
                let parts = outputs.map(|outputs| {
                    let values = random.values(outputs * inputs, 1.0);
                    let values: Vec<f32> = values.into_iter().map(|value| stored(given, value)).collect();
                    let mut bytes = vec![0];
                    for value in &values {
                        match given {
                            DType::F32 => bytes.extend(value.to_le_bytes()),
                            DType::Bf16 => bytes.extend(bf16::from_f32(*value).to_le_bytes()),
                            DType::F16 => bytes.extend(f16::from_f32(*value).to_le_bytes()),
                        }
                    }
                    (Tensor::from_vec(values, (outputs, inputs), &Device::Cpu).unwrap(), bytes)
                });
                let mapped = [0, 1].map(|part| {
                    let shape = [outputs[part], inputs];
                    Matrix::Mapped(MappedMatrix { dtype: given, shape, bytes: &parts[part].1[1..] })
                });
                let expected = Linear::new(&parts.clone().map(|(tensor, _)| tensor), dtype).unwrap();
                let alone = Linear::stacked(&mapped, dtype).unwrap();
                let together = pool.install(|| Linear::stacked(&mapped, dtype)).unwrap();
                let expected = product(&expected, &input, 3, false);
                for (found, threads) in [(alone, "one thread"), (together, "several threads")] {
                    assert!(
                        product(&found, &input, 3, false) == expected,
                        "{given} as {dtype}, {inputs}, {threads}"
                    );
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For any bits in weights and inputs, every path that does not round equals the scalar path.
        #[test]
        fn every_exact_path_equals_the_scalar_one_on_any_bits(
            rows in 1usize..=26, inputs in 1usize..600, outputs in 1usize..80, odd in 0usize..5, seed in any::<u64>(),
        ) {
            let mut random = crate::fixtures::Uniform::new(seed);
            let mut numbers = |count: usize| {
                let mut values = random.values(count, 1e3);
                for _ in 0..odd {
                    let bits = random.below(1 << 16) << 16 | random.below(1 << 16);
                    values[random.below(count)] = f32::from_bits(bits as u32);
                }
                values
            };
            let (weight, input) = (numbers(inputs * outputs), numbers(rows * inputs));
            let tensor = Tensor::from_slice(&weight, (outputs, inputs), &Device::Cpu).unwrap();
            for dtype in DTYPES {
                let of_path = |path| {
                    let layer = Linear::new(std::slice::from_ref(&tensor), dtype).unwrap().with_path(path)?;
                    Some(product(&layer, &input, rows, false))
                };
                let scalar = of_path(Path::Portable).unwrap();
                for path in Path::ALL.into_iter().filter(|path| !path.rounds()) {
                    let Some(found) = of_path(path) else { continue };
                    for (place, (found, scalar)) in found.iter().zip(&scalar).enumerate() {
                        let same = found.to_bits() == scalar.to_bits() || found.is_nan() && scalar.is_nan();
                        prop_assert!(same, "{} {:?}: {} instead of {} at {}", path, dtype, found, scalar, place);
                    }
                }
            }
        }
    }

    /// A row's result at every index of batches of every size that a step may have.
    #[test]
    fn a_row_does_not_depend_on_its_place_in_the_batch() {
        let (inputs, outputs) = (2080, 96);
        let mut random = crate::fixtures::Uniform::new(5);
        let tensor =
            Tensor::from_vec(random.values(inputs * outputs, 1.0), (outputs, inputs), &Device::Cpu).unwrap();
        let row = random.values(inputs, 1.0);
        for dtype in DTYPES {
            for path in Path::ALL {
                let layer = Linear::new(std::slice::from_ref(&tensor), dtype).unwrap();
                let Some(layer) = layer.with_path(path) else {
                    skip_part(Capability::InstructionSet, &format!("{path} for {dtype:?}"));
                    continue;
                };
                let alone = product(&layer, &row, 1, false);
                for rows in (2..=34).chain([47, 48, 49, 64, 65]) {
                    let mut input = random.values(rows * inputs, 1.0);
                    let places = [0, rows / 3, rows - 1];
                    for place in places {
                        input[place * inputs..][..inputs].copy_from_slice(&row);
                    }
                    let together = product(&layer, &input, rows, true);
                    for place in places {
                        assert_eq!(&together[place * outputs..][..outputs], alone, "{path} {rows} {place}");
                    }
                }
            }
        }
    }

    /// The orders of reduction that the module of the kernels documents, written out.
    #[test]
    fn the_documented_orders_are_those_of_the_processor() {
        let (rows, inputs, outputs) = (20, 1100, 40);
        let padded = 1120;
        let mut random = crate::fixtures::Uniform::new(11);
        let weight = random.values(inputs * outputs, 1.0);
        let input = random.values(rows * inputs, 1.0);
        let tensor = Tensor::from_slice(&weight, (outputs, inputs), &Device::Cpu).unwrap();
        for path in Path::ALL {
            let layer = Linear::new(std::slice::from_ref(&tensor), DType::Bf16).unwrap();
            let Some(layer) = layer.with_path(path) else {
                skip_part(Capability::InstructionSet, &path.to_string());
                continue;
            };
            let result = product(&layer, &input, rows, false);
            for (row, values) in input.chunks(inputs).enumerate() {
                for (output, weights) in weight.chunks(inputs).enumerate() {
                    let at = |index: usize| {
                        let value = values.get(index).copied().unwrap_or(0.0);
                        let value = if path.rounds() { stored(DType::Bf16, value) } else { value };
                        (value, stored(DType::Bf16, weights.get(index).copied().unwrap_or(0.0)))
                    };
                    let chain = |indices: &mut dyn Iterator<Item = usize>| {
                        indices.fold(0.0_f32, |sum, index| at(index).0.mul_add(at(index).1, sum))
                    };
                    let stretch = match path {
                        Path::Amx => 32,
                        Path::Avx512Bf16 => 512,
                        _ => 256,
                    };
                    let sums = (0..padded).step_by(stretch).map(|start| {
                        let mut stretch = start..padded.min(start + stretch);
                        match path {
                            Path::Amx => {
                                let odd = chain(&mut stretch.clone().skip(1).step_by(2));
                                chain(&mut stretch.step_by(2)) + odd
                            }
                            Path::Avx512Bf16 => {
                                chain(&mut stretch.step_by(2).flat_map(|index| [index + 1, index]))
                            }
                            _ => chain(&mut stretch),
                        }
                    });
                    let expected = sums.reduce(|total, sum| total + sum).unwrap();
                    assert_eq!(result[row * outputs + output], expected, "{path} {row} {output}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_no_numbers_stay_in_their_row() {
        let tensor = Tensor::ones((40, 70), CandleType::F32, &Device::Cpu).unwrap();
        let mut input = vec![1.0; 3 * 70];
        (input[70], input[71], input[2 * 70]) = (f32::NAN, f32::INFINITY, f32::INFINITY);
        for dtype in DTYPES {
            for path in Path::ALL {
                let layer = Linear::new(std::slice::from_ref(&tensor), dtype).unwrap();
                let Some(layer) = layer.with_path(path) else { continue };
                let output = product(&layer, &input, 3, false);
                assert!(output[..40].iter().all(|value| *value == 70.0), "{path} {dtype:?}");
                assert!(output[40..80].iter().all(|value| value.is_nan()), "{path} {dtype:?}");
                assert!(output[80..].iter().all(|value| *value == f32::INFINITY), "{path} {dtype:?}");
            }
        }
    }

    #[test]
    fn what_an_earlier_product_left_in_scratch_space_is_not_read() {
        let execution = Execution { arch: Arch::new(), parallel: false };
        let ones = |inputs: usize, dtype, path| {
            let weights = Tensor::ones((40, inputs), CandleType::F32, &Device::Cpu).unwrap();
            Linear::new(&[weights], dtype).unwrap().with_path(path)
        };
        for (dtype, path) in DTYPES.iter().flat_map(|dtype| Path::ALL.map(|path| (*dtype, path))) {
            for inputs in [1, 16, 17, 33, 48, 70] {
                let (Some(before), Some(layer)) = (ones(200, dtype, path), ones(inputs, dtype, path)) else {
                    continue;
                };
                let (mut output, mut scratch) = (vec![0.0; 3 * 40], LinearScratch::default());
                before.forward(execution, &[f32::NAN; 3 * 200], &mut output, &mut scratch);
                layer.forward(execution, &vec![1.0; 3 * inputs], &mut output, &mut scratch);
                assert!(output.iter().all(|sum| *sum == inputs as f32), "{path} {dtype} {inputs}");
            }
        }
    }

    #[test]
    fn stacked_weights_follow_each_other() {
        let mut random = crate::fixtures::Uniform::new(9);
        let values = random.values(75 * 48, 1.0);
        let whole = Tensor::from_slice(&values, (75, 48), &Device::Cpu).unwrap();
        let parts = [whole.narrow(0, 0, 33).unwrap(), whole.narrow(0, 33, 42).unwrap()];
        let input = random.values(2 * 48, 1.0);
        for dtype in DTYPES {
            let whole = Linear::new(std::slice::from_ref(&whole), dtype).unwrap();
            let stacked = Linear::new(&parts, dtype).unwrap();
            assert_eq!(stacked.outputs(), 75);
            assert_eq!(stacked.bytes(), whole.bytes());
            assert_eq!(product(&whole, &input, 2, false), product(&stacked, &input, 2, false));
        }
    }
}
