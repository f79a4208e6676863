//! Linear layers without bias, packed for the kernel.

use candle_core::{DType as CandleType, Device, Tensor};

use super::aligned::AlignedBuffer;
use super::kernel::{Execution, PanelWeights};
use super::simd::{Element, Path};
use crate::options::DType;

/// Scratch space of linear layers, kept between calls.
#[derive(Default)]
pub(crate) struct LinearScratch {
    packed: AlignedBuffer,
}

/// `output = input · weightᵀ`, accumulated in float32; see [`Path`] for the order and for what is rounded.
pub(crate) struct Linear {
    weights: PanelWeights,
}

impl Linear {
    /// Packs one layer out of weights (each `outputs` × `inputs`) stacked along their outputs, for the fastest path.
    pub(crate) fn new(weights: &[Tensor], dtype: DType) -> candle_core::Result<Self> {
        let inputs = weights.first().map_or(Ok(0), |weight| weight.dim(1))?;
        let mut outputs = 0;
        for weight in weights {
            outputs += weight.dim(0)?;
        }
        let mut packed = PanelWeights::new(element(dtype), inputs, outputs);
        for weight in weights {
            packed.add(&to_f32(weight)?);
        }
        Ok(Self { weights: packed })
    }

    /// The same layer computed on another path, if this processor has it for the weights.
    #[allow(dead_code)] // tests run every path
    pub(crate) fn with_path(self, path: Path) -> Option<Self> {
        Some(Self { weights: self.weights.with_path(path)? })
    }

    /// What computes the layer.
    #[allow(dead_code)] // tests check it
    pub(crate) fn path(&self) -> Path {
        self.weights.path()
    }

    /// Inputs of one row.
    pub(crate) fn inputs(&self) -> usize {
        self.weights.inputs()
    }

    /// Outputs of one row.
    pub(crate) fn outputs(&self) -> usize {
        self.weights.outputs()
    }

    /// Bytes of the packed weights.
    pub(crate) fn bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Computes `rows` × `outputs` from row-major `input` (`rows` × `inputs`).
    ///
    /// When `execution` is parallel the panels are shared out over the current rayon pool when there is enough to do.
    pub(crate) fn forward(
        &self,
        execution: Execution,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut LinearScratch,
    ) {
        self.weights.multiply(execution.parallel, input, output, &mut scratch.packed);
    }
}

/// The name of what computes linear layers of such weights on this processor: `portable`, `avx2` and `avx512` agree to
/// the bit; `avx512bf16` and `amx` (bfloat16 weights only) also round what they multiply with to bfloat16 and
/// add up in orders of their own.
pub fn linear_path(dtype: DType) -> String {
    Path::best(element(dtype)).to_string()
}

fn element(dtype: DType) -> Element {
    match dtype {
        DType::F32 => Element::F32,
        DType::Bf16 => Element::Bf16,
        DType::F16 => Element::F16,
    }
}

/// The values of a tensor of any float type, row by row.
pub(crate) fn to_f32(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    tensor.to_device(&Device::Cpu)?.to_dtype(CandleType::F32)?.flatten_all()?.to_vec1::<f32>()
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;
    use pulp::Arch;

    use super::*;

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

        /// Every path of this processor, against sums in float64 of the numbers that the path multiplies; every row
        /// alone, together, and on several threads, to the bit.
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
                    prop_assert_eq!(layer.path(), path);
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

    /// A row's result at every place of batches of every size that a step may have.
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
                    println!("skipped: {path} is not there for {dtype:?}");
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

    /// The orders of reduction that the module of the kernels describes, written out.
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
                println!("skipped: {path} is not there");
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
