//! Linear layers without bias, packed for the kernel.

use candle_core::{DType as CandleType, Device, Tensor};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use pulp::Arch;
use rayon::prelude::*;

use super::aligned::AlignedBuffer;
use super::kernel::{DEPTH, Execution, PANEL, PanelProduct, pack_rows};
use crate::options::DType;

/// Multiply-adds from which a product is worth waking other threads for.
const PARALLEL_WORK: usize = 1 << 20;

/// Scratch space of linear layers, kept between calls.
#[derive(Default)]
pub(crate) struct LinearScratch {
    packed: AlignedBuffer,
    panels: AlignedBuffer,
}

/// Weights panel by panel: `panels` × `inputs` × [`PANEL`].
enum Panels {
    F32(AlignedBuffer),
    Bf16(Vec<bf16>),
    F16(Vec<f16>),
}

/// `output = input · weightᵀ`, computed in float32.
pub(crate) struct Linear {
    inputs: usize,
    outputs: usize,
    panels: Panels,
}

impl Linear {
    /// Packs one layer out of weights (each `outputs` × `inputs`) stacked along their outputs.
    pub(crate) fn new(weights: &[Tensor], dtype: DType) -> candle_core::Result<Self> {
        let inputs = weights.first().map_or(Ok(0), |weight| weight.dim(1))?;
        let mut outputs = 0;
        for weight in weights {
            outputs += weight.dim(0)?;
        }
        let length = outputs.div_ceil(PANEL) * PANEL * inputs;
        let mut packer = Packer { inputs, output: 0 };
        let panels = match dtype {
            DType::F32 => {
                let mut panels = AlignedBuffer::zeros(length);
                for weight in weights {
                    packer.add(&to_f32(weight)?, &mut panels, |value| value);
                }
                Panels::F32(panels)
            }
            DType::Bf16 => {
                let mut panels = vec![bf16::ZERO; length];
                for weight in weights {
                    packer.add(&to_f32(weight)?, &mut panels, bf16::from_f32);
                }
                Panels::Bf16(panels)
            }
            DType::F16 => {
                let mut panels = vec![f16::ZERO; length];
                for weight in weights {
                    packer.add(&to_f32(weight)?, &mut panels, f16::from_f32);
                }
                Panels::F16(panels)
            }
        };
        Ok(Self { inputs, outputs, panels })
    }

    /// Outputs of one row.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes of the packed weights.
    pub(crate) fn bytes(&self) -> usize {
        match &self.panels {
            Panels::F32(panels) => panels.len() * 4,
            Panels::Bf16(panels) => panels.len() * 2,
            Panels::F16(panels) => panels.len() * 2,
        }
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
        let rows = output.len() / self.outputs;
        if rows == 0 {
            return;
        }
        scratch.packed.resize(rows * self.inputs);
        pack_rows(input, self.inputs, &mut scratch.packed);
        let panel_size = rows * PANEL;
        scratch.panels.resize(self.outputs.div_ceil(PANEL) * panel_size);
        let packed: &[f32] = &scratch.packed;
        let run =
            |(panel, output): (usize, &mut [f32])| self.panel(execution.arch, panel, rows, packed, output);
        if execution.parallel && rows * self.inputs * self.outputs >= PARALLEL_WORK {
            scratch.panels.par_chunks_mut(panel_size).enumerate().for_each(run);
        } else {
            scratch.panels.chunks_mut(panel_size).enumerate().for_each(run);
        }
        for (panel, values) in scratch.panels.chunks(panel_size).enumerate() {
            let first = panel * PANEL;
            let width = PANEL.min(self.outputs - first);
            for (output, values) in output.chunks_exact_mut(self.outputs).zip(values.as_chunks::<PANEL>().0) {
                output[first..first + width].copy_from_slice(&values[..width]);
            }
        }
    }

    fn panel(&self, arch: Arch, panel: usize, rows: usize, packed: &[f32], output: &mut [f32]) {
        let range = panel * self.inputs * PANEL..(panel + 1) * self.inputs * PANEL;
        let inputs = self.inputs;
        match &self.panels {
            Panels::F32(panels) => {
                arch.dispatch(PanelProduct {
                    weights: &panels[range],
                    start: 0,
                    packed,
                    inputs,
                    rows,
                    output,
                });
            }
            Panels::Bf16(panels) => {
                widen(arch, &panels[range], packed, inputs, rows, output);
            }
            Panels::F16(panels) => {
                widen(arch, &panels[range], packed, inputs, rows, output);
            }
        }
    }
}

/// The product for weights of half width: each block is widened into a buffer that stays in the cache.
fn widen<T>(arch: Arch, weights: &[T], packed: &[f32], inputs: usize, rows: usize, output: &mut [f32])
where
    [T]: HalfFloatSliceExt,
{
    thread_local! {
        static WIDENED: std::cell::RefCell<AlignedBuffer> = std::cell::RefCell::default();
    }
    WIDENED.with_borrow_mut(|widened| {
        for (block, weights) in weights.chunks(DEPTH * PANEL).enumerate() {
            widened.resize(weights.len());
            weights.convert_to_f32_slice(widened);
            let start = block * DEPTH;
            arch.dispatch(PanelProduct { weights: widened, start, packed, inputs, rows, output });
        }
    });
}

/// The values of a tensor of any float type, row by row.
pub(crate) fn to_f32(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    tensor.to_device(&Device::Cpu)?.to_dtype(CandleType::F32)?.flatten_all()?.to_vec1::<f32>()
}

struct Packer {
    inputs: usize,
    output: usize,
}

impl Packer {
    fn add<T>(&mut self, weight: &[f32], panels: &mut [T], convert: impl Fn(f32) -> T) {
        for values in weight.chunks_exact(self.inputs.max(1)) {
            let panel = &mut panels[self.output / PANEL * self.inputs * PANEL..][..self.inputs * PANEL];
            let column = self.output % PANEL;
            for (slot, value) in panel.chunks_exact_mut(PANEL).zip(values) {
                slot[column] = convert(*value);
            }
            self.output += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn product(layer: &Linear, input: &[f32], rows: usize, parallel: bool) -> Vec<f32> {
        let mut output = vec![0.0; rows * layer.outputs];
        layer.forward(
            Execution { arch: Arch::new(), parallel },
            input,
            &mut output,
            &mut LinearScratch::default(),
        );
        output
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn rows_do_not_depend_on_their_neighbours(
            rows in 1usize..40, inputs in 1usize..700, outputs in 1usize..200, seed in any::<u64>(),
        ) {
            let mut random = crate::fixtures::Uniform::new(seed);
            let weight = random.values(inputs * outputs, 1.0);
            let input = random.values(rows * inputs, 1.0);
            let tensor = Tensor::from_slice(&weight, (outputs, inputs), &Device::Cpu).unwrap();
            for dtype in [DType::F32, DType::Bf16, DType::F16] {
                let layer = Linear::new(std::slice::from_ref(&tensor), dtype).unwrap();
                let together = product(&layer, &input, rows, false);
                prop_assert_eq!(&together, &product(&layer, &input, rows, true));
                for row in 0..rows {
                    let alone = product(&layer, &input[row * inputs..][..inputs], 1, false);
                    prop_assert_eq!(&alone[..], &together[row * outputs..][..outputs]);
                }
                let tolerance = if dtype == DType::F32 { 1e-3 } else { 0.3 };
                for (row, output) in [(0, 0), (rows - 1, outputs - 1)] {
                    let expected: f64 = (0..inputs)
                        .map(|index| f64::from(input[row * inputs + index]) * f64::from(weight[output * inputs + index]))
                        .sum();
                    prop_assert!((expected - f64::from(together[row * outputs + output])).abs() < tolerance);
                }
            }
        }
    }
}
