//! Products with weights in block formats: panels, threads and the packing of activations around the vector
//! kernels.

use super::kernel::{Execution, Share, for_each_block};
use crate::buffer::AlignedBuffer;
use crate::simd::{
    BLOCK, Columns, OutputColumns, PANEL, QuantizedFormat, QuantizedPath, QuantizedUnit, ROW_WORDS,
    for_each_window, pack_block, pack_rows,
};
use crate::vector::compiled;

/// Inputs per stretch: a panel's weights of a stretch stay in the first-level cache while they are multiplied
/// with all rows.
const STRETCH: usize = 256;

/// Packed weights of a product `activations · weightsᵀ` in a block format.
pub struct QuantizedPanels {
    path: QuantizedPath,
    format: QuantizedFormat,
    inputs: usize,
    outputs: usize,
    /// Panel after panel, each block after block.
    storage: AlignedBuffer<u8>,
}

impl QuantizedPanels {
    /// Packs matrices of one format, stacked along their outputs. Rows consist of blocks as stored by ggml,
    /// with `inputs` values in whole blocks.
    pub fn new(format: QuantizedFormat, inputs: usize, matrices: &[&[u8]]) -> Self {
        assert!(inputs > 0 && inputs.is_multiple_of(format.block_values()));
        let (panel_bytes, row_blocks) = (format.panel_bytes(), inputs / format.block_values());
        let row_bytes = row_blocks * format.block_bytes();
        let outputs = matrices.iter().map(|blocks| blocks.len() / row_bytes).sum::<usize>();
        let mut storage = AlignedBuffer::zeros(outputs.div_ceil(PANEL) * row_blocks * panel_bytes);
        let rows = matrices.iter().flat_map(|blocks| blocks.chunks_exact(row_bytes));
        for (output, row) in rows.enumerate() {
            let panel = &mut storage[output / PANEL * row_blocks * panel_bytes..];
            let blocks = row.chunks_exact(format.block_bytes()).zip(panel.chunks_exact_mut(panel_bytes));
            for (block, panel) in blocks {
                pack_block(format, block, output % PANEL, panel);
            }
        }
        Self { path: QuantizedPath::best(), format, inputs, outputs, storage }
    }

    /// The same weights for another path, if this processor supports it.
    pub fn with_path(mut self, path: QuantizedPath) -> Option<Self> {
        self.path = path;
        path.available().then_some(self)
    }

    /// Outputs per row.
    #[inline]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes that one product reads.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.storage.len()
    }

    /// Computes `target` (rows × outputs) from activations packed by [`pack`](Self::pack).
    pub fn multiply(&self, execution: Execution, packed: &[i32], target: OutputColumns<'_>) {
        assert_eq!(target.columns.len(), self.outputs);
        let Share { group, parallel } =
            Share::of(execution.parallel, target.rows(), self.inputs, self.outputs);
        for_each_window(target, group * PANEL, parallel, |index, mut window| {
            self.panels(index * group, packed, &mut window);
        });
    }

    /// Computes the panels of one window, starting with `first`.
    fn panels(&self, first: usize, packed: &[i32], window: &mut Columns<'_>) {
        let (block_inputs, block_bytes) = (self.format.block_values(), self.format.panel_bytes());
        let panel_bytes = self.inputs / block_inputs * block_bytes;
        for stretch in (0..self.inputs).step_by(STRETCH) {
            let inputs = STRETCH.min(self.inputs - stretch);
            let start = stretch / block_inputs * block_bytes;
            let length = inputs / block_inputs * block_bytes;
            for panel in 0..window.width().div_ceil(PANEL) {
                let weights = &self.storage[(first + panel) * panel_bytes + start..][..length];
                let output = window.narrow(panel * PANEL, PANEL);
                self.path.multiply(QuantizedUnit {
                    format: self.format,
                    weights,
                    activations: packed,
                    first_block: stretch / BLOCK,
                    output,
                });
            }
        }
    }

    /// Quantizes rows of activations (each with as many floats as there are inputs) for this path; all
    /// formats share this layout.
    pub fn pack(&self, execution: Execution, input: &[f32], packed: &mut AlignedBuffer<i32>) {
        let inputs = self.inputs;
        let words = inputs / BLOCK * ROW_WORDS;
        packed.resize(input.len() / inputs * words);
        if packed.is_empty() {
            return;
        }
        let run = |(packed, input): (&mut [i32], &[f32])| {
            compiled(
                execution.arch,
                #[inline(always)]
                || pack_rows(input, inputs, packed),
            );
        };
        let block = |rest: usize| {
            let rows = self.path.next_block(rest / inputs);
            (rows * words, rows * inputs)
        };
        for_each_block(execution.parallel, packed, input, block, run);
    }
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::{GgmlDType, QTensor};
    use candle_core::{Device, Tensor};
    use proptest::prelude::*;
    use pulp::Arch;

    use super::*;

    const FORMATS: [(QuantizedFormat, GgmlDType); 3] = [
        (QuantizedFormat::Q8_0, GgmlDType::Q8_0),
        (QuantizedFormat::Q4K, GgmlDType::Q4K),
        (QuantizedFormat::Q6K, GgmlDType::Q6K),
    ];

    /// Weights in blocks, and their values.
    fn quantized(dtype: GgmlDType, values: &[f32], inputs: usize) -> (Vec<u8>, Vec<f32>) {
        let tensor = Tensor::from_slice(values, (values.len() / inputs, inputs), &Device::Cpu).unwrap();
        let quantized = QTensor::quantize(&tensor, dtype).unwrap();
        let values = quantized.dequantize(&Device::Cpu).unwrap();
        (quantized.data().unwrap().into_owned(), values.flatten_all().unwrap().to_vec1().unwrap())
    }

    fn product(layer: &QuantizedPanels, input: &[f32], rows: usize, parallel: bool) -> Vec<f32> {
        let execution = Execution { arch: Arch::new(), parallel };
        let mut packed = AlignedBuffer::default();
        layer.pack(execution, input, &mut packed);
        let mut output = vec![f32::NAN; rows * layer.outputs()];
        layer.multiply(execution, &packed, OutputColumns::whole(&mut output, layer.outputs()));
        output
    }

    /// The values that activations are rounded to.
    fn rounded(values: &[f32]) -> Vec<f64> {
        let (blocks, _) = values.as_chunks::<BLOCK>();
        let round = |block: &[f32; BLOCK]| {
            let scale = block.iter().fold(0.0f32, |largest, value| largest.max(value.abs())) / 127.0;
            block.map(|value| f64::from(scale) * f64::from((value / scale).round_ties_even()))
        };
        blocks.iter().flat_map(round).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Every path of this processor, compared with float64 sums of the numbers that are multiplied, and
        /// bit by bit with the other paths; every row alone, together, and on several threads gives the same
        /// bits.
        #[test]
        fn every_path_is_right_and_rows_do_not_depend_on_their_neighbours(
            rows in 1usize..=40, blocks in 1usize..5, outputs in 1usize..100, seed in any::<u64>(),
        ) {
            let inputs = 256 * blocks;
            let mut random = crate::uniform::Uniform::new(seed);
            let weights = random.values(inputs * outputs, 1.0);
            let input = random.values(rows * inputs, 1.0);
            for (format, dtype) in FORMATS {
                let (stored, values) = quantized(dtype, &weights, inputs);
                let mut first = None;
                for path in QuantizedPath::ALL {
                    let layer = QuantizedPanels::new(format, inputs, &[&stored]);
                    prop_assert_eq!(layer.outputs(), outputs);
                    let Some(layer) = layer.with_path(path) else { continue };
                    let together = product(&layer, &input, rows, false);
                    prop_assert_eq!(&together, &product(&layer, &input, rows, true));
                    prop_assert_eq!(&together, first.get_or_insert_with(|| together.clone()), "{}", path);
                    for row in [0, rows / 2, rows - 1] {
                        let activations = &input[row * inputs..][..inputs];
                        let result = &together[row * outputs..][..outputs];
                        prop_assert_eq!(&product(&layer, activations, 1, false)[..], result, "{} {}", path, row);
                        let activations = rounded(activations);
                        for (result, weights) in result.iter().zip(values.chunks(inputs)) {
                            let terms = activations.iter().zip(weights);
                            let expected: f64 = terms.map(|(one, other)| one * f64::from(*other)).sum();
                            // If rounding of the quotient breaks a tie the other way, one activation differs
                            // by one step.
                            let error = (expected - f64::from(*result)).abs();
                            prop_assert!(error < 0.02, "{path} {format:?}: {error} off");
                        }
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// For any bytes in a file and any inputs, every path equals the scalar path.
        #[test]
        fn every_path_equals_the_scalar_one_on_any_bits(
            rows in 1usize..=13, blocks in 1usize..4, outputs in 1usize..70, seed in any::<u64>(),
        ) {
            let inputs = 256 * blocks;
            let mut random = crate::uniform::Uniform::new(seed);
            let mut input = random.values(rows * inputs, 1e4);
            for _ in 0..random.below(4) {
                let bits = random.below(1 << 16) << 16 | random.below(1 << 16);
                input[random.below(rows * inputs)] = f32::from_bits(bits as u32);
            }
            for (format, dtype) in FORMATS {
                let bytes = outputs * inputs / dtype.block_size() * dtype.type_size();
                let stored: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
                let of_path = |path| {
                    let layer = QuantizedPanels::new(format, inputs, &[&stored]).with_path(path)?;
                    Some(product(&layer, &input, rows, false))
                };
                let scalar = of_path(QuantizedPath::Portable).unwrap();
                for path in QuantizedPath::ALL {
                    let Some(found) = of_path(path) else { continue };
                    for (place, (found, scalar)) in found.iter().zip(&scalar).enumerate() {
                        let same = found.to_bits() == scalar.to_bits() || found.is_nan() && scalar.is_nan();
                        prop_assert!(same, "{} {:?}: {} instead of {} at {}", path, format, found, scalar, place);
                    }
                }
            }
        }
    }

    /// The largest weights and activations, all of one sign and with both: the bounds of the kernels' sums of 16 bits.
    #[test]
    fn the_largest_values_do_not_overflow() {
        let (inputs, outputs, rows) = (512, 40, 13);
        for (format, dtype) in FORMATS {
            let mut block = vec![0xff; format.block_bytes()];
            let one = [0x00, 0x3c];
            match format {
                QuantizedFormat::Q8_0 => block[2..].fill(0x80),
                QuantizedFormat::Q4K => block[2..4].copy_from_slice(&one),
                QuantizedFormat::Q6K => {
                    block[192..208].fill(127);
                    block[208..].copy_from_slice(&one);
                }
            }
            if format != QuantizedFormat::Q6K {
                block[..2].copy_from_slice(&one);
            }
            let stored = block.repeat(outputs * inputs / dtype.block_size());
            for signs in [[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]] {
                let input: Vec<f32> = signs.into_iter().cycle().take(rows * inputs).collect();
                let of_path = |path| {
                    let layer = QuantizedPanels::new(format, inputs, &[&stored]).with_path(path)?;
                    Some(product(&layer, &input, rows, false))
                };
                let scalar = of_path(QuantizedPath::Portable).unwrap();
                let weight = match format {
                    QuantizedFormat::Q8_0 => -128.0,
                    // 6 bits of scale and minimum.
                    QuantizedFormat::Q4K => 15.0 * 63.0 - 63.0,
                    QuantizedFormat::Q6K => 31.0 * 127.0,
                };
                let expected = weight * signs.iter().sum::<f32>() / 2.0 * inputs as f32;
                assert!(scalar.iter().all(|value| (value - expected).abs() <= expected.abs() * 1e-5 + 0.5));
                for path in QuantizedPath::ALL {
                    let found = of_path(path);
                    assert!(found.is_none_or(|found| found == scalar), "{path} {format:?} {signs:?}");
                }
            }
        }
    }

    #[test]
    fn stretches_of_short_blocks_and_stacked_matrices_agree_with_whole_ones() {
        // 288 inputs: a stretch of eight blocks of Q8_0 and one of a single block.
        let (inputs, outputs, rows) = (288, 70, 13);
        let mut random = crate::uniform::Uniform::new(3);
        let (stored, _) = quantized(GgmlDType::Q8_0, &random.values(inputs * outputs, 1.0), inputs);
        let input = random.values(rows * inputs, 1.0);
        let whole = QuantizedPanels::new(QuantizedFormat::Q8_0, inputs, &[&stored]);
        let (first, second) = stored.split_at(stored.len() / outputs * 33);
        let stacked = QuantizedPanels::new(QuantizedFormat::Q8_0, inputs, &[first, second]);
        assert_eq!(product(&whole, &input, rows, false), product(&stacked, &input, rows, false));
    }

    #[test]
    fn numbers_that_are_no_numbers_stay_in_their_row() {
        let inputs = 256;
        let mut input = vec![1.0; 3 * inputs];
        (input[inputs], input[2 * inputs + 40]) = (f32::NAN, f32::INFINITY);
        for (format, dtype) in FORMATS {
            let (stored, values) = quantized(dtype, &vec![1.0; inputs * 40], inputs);
            let expected: f32 = values[..inputs].iter().sum();
            for path in QuantizedPath::ALL {
                let layer = QuantizedPanels::new(format, inputs, &[&stored]);
                let Some(layer) = layer.with_path(path) else { continue };
                let output = product(&layer, &input, 3, false);
                assert!(output[..40].iter().all(|value| (value - expected).abs() < 0.5), "{path} {format:?}");
                assert!(output[40..].iter().all(|value| value.is_nan()), "{path} {format:?}");
            }
        }
    }
}
