//! Compares the vector kernels with the scalar ones, for a fuzz target.

use candle_core::{Device, Tensor};
use lumos_kernels::{
    AlignedBuffer, DType, Execution, OutputColumns, Path, QuantizedFormat, QuantizedPanels, QuantizedPath,
};
use pulp::Arch;

use super::linear::{Linear, LinearScratch};

/// A matrix product of arbitrary numbers.
#[derive(Clone, Copy, Debug)]
pub struct MatrixProduct<'a> {
    /// Rows of activations; at least one.
    pub rows: usize,
    /// Inputs of a row, at least one; in block formats, the number of blocks of 256.
    pub inputs: usize,
    /// Outputs of a row; at least one.
    pub outputs: usize,
    /// Selects the format of the weights.
    pub format: u8,
    /// Bits of weights and activations, repeated as often as necessary.
    pub bits: &'a [u8],
}

/// Computes a product on every path of this processor that does not round. Panics if a result differs from
/// the scalar path.
pub fn check_kernels(product: &MatrixProduct<'_>) {
    const FLOATS: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];
    const BLOCKS: [QuantizedFormat; 3] = [QuantizedFormat::Q8_0, QuantizedFormat::Q4K, QuantizedFormat::Q6K];
    let format = usize::from(product.format) % (FLOATS.len() + BLOCKS.len());
    match FLOATS.get(format) {
        Some(dtype) => product.check_floats(*dtype),
        None => product.check_blocks(BLOCKS[format - FLOATS.len()]),
    }
}

impl MatrixProduct<'_> {
    fn check_floats(&self, dtype: DType) {
        let Self { rows, inputs, outputs, .. } = *self;
        let weights = Tensor::from_vec(self.floats(0, inputs * outputs), (outputs, inputs), &Device::Cpu)
            .expect("the number of values matches the shape");
        let activations = self.floats(1, rows * inputs);
        let of_path = |path| {
            let layer = Linear::new(std::slice::from_ref(&weights), dtype).expect("a matrix of floats");
            let mut output = vec![f32::NAN; rows * outputs];
            layer.with_path(path)?.forward(
                execution(),
                &activations,
                &mut output,
                &mut LinearScratch::default(),
            );
            Some(output)
        };
        compare(Path::ALL.into_iter().filter(|path| !path.rounds()), of_path);
    }

    fn check_blocks(&self, format: QuantizedFormat) {
        let Self { rows, outputs, .. } = *self;
        let inputs = 256 * self.inputs;
        let bytes = outputs * inputs / format.block_values() * format.block_bytes();
        let weights: Vec<u8> = self.bits.iter().copied().cycle().take(bytes).collect();
        let activations = self.floats(1, rows * inputs);
        let of_path = |path| {
            let layer = QuantizedPanels::new(format, inputs, &[&weights]).with_path(path)?;
            let (mut packed, mut output) = (AlignedBuffer::default(), vec![f32::NAN; rows * outputs]);
            layer.pack(execution(), &activations, &mut packed);
            layer.multiply(execution(), &packed, OutputColumns::whole(&mut output, outputs));
            Some(output)
        };
        compare(QuantizedPath::ALL.into_iter(), of_path);
    }

    /// Numbers decoded from the bits, after `skipped` numbers.
    fn floats(&self, skipped: usize, count: usize) -> Vec<f32> {
        let mut bytes = self.bits.iter().copied().cycle().skip(skipped);
        let mut next = || bytes.next().unwrap_or_default();
        (0..count).map(|_| f32::from_le_bytes([next(), next(), next(), next()])).collect()
    }
}

fn execution() -> Execution {
    Execution { arch: Arch::new(), parallel: false }
}

/// Compares the results of all paths, of which the first is the scalar one.
fn compare<P: std::fmt::Display + Copy>(
    mut paths: impl Iterator<Item = P>,
    of_path: impl Fn(P) -> Option<Vec<f32>>,
) {
    let scalar = paths.next().and_then(&of_path).expect("every processor has the scalar path");
    for (path, found) in paths.filter_map(|path| Some((path, of_path(path)?))) {
        for (place, (found, scalar)) in found.iter().zip(&scalar).enumerate() {
            let same = found.to_bits() == scalar.to_bits() || found.is_nan() && scalar.is_nan();
            assert!(same, "{path}: {found} instead of {scalar} at {place}");
        }
    }
}
