//! Model weights in device memory: loading, conversion to the requested type, and size estimates.

use candle_core::{DType as CandleType, Tensor};
use half::{bf16, f16};

use super::accelerator::{Accelerator, DeviceError, Product};
use super::kernels::LARGEST_HEAD;
use crate::cache::Storage;
use crate::error::LoadError;
use crate::load::config::{EMBEDDING, HEAD, ModelConfig, NORM};
use crate::load::weights::Weights;
use crate::model::{AttentionShape, Layer};
use crate::simd::DType;

/// A row-major matrix.
pub(super) struct Matrix<B> {
    weights: B,
    inputs: usize,
    outputs: usize,
}

impl<B> Matrix<B> {
    pub(super) fn buffer(&self) -> &B {
        &self.weights
    }

    /// Multiplies `rows` rows of `input` into `output`, at an offset in bytes.
    pub(super) fn multiply<A: Accelerator<Buffer = B>>(
        &self,
        device: &A,
        rows: usize,
        input: &B,
        output: (&B, usize),
    ) -> Result<(), DeviceError> {
        device.multiply(&Product::new(rows, self.inputs, self.outputs), &self.weights, input, output)
    }
}

/// A Llama-family model in device memory: matrices and embeddings in the requested type, norms in float32.
pub(crate) struct DeviceLlama<A: Accelerator> {
    pub(super) device: A,
    pub(super) dtype: DType,
    pub(super) hidden: usize,
    pub(super) intermediate: usize,
    pub(super) vocabulary: usize,
    pub(super) epsilon: f32,
    pub(super) shape: AttentionShape,
    pub(super) embedding: Matrix<A::Buffer>,
    pub(super) layers: Vec<Layer<A::Buffer, Matrix<A::Buffer>>>,
    pub(super) norm: A::Buffer,
    /// `None` if the head is tied to the embedding.
    pub(super) head: Option<Matrix<A::Buffer>>,
}

impl<A: Accelerator> DeviceLlama<A> {
    /// Copies the weights to the device, tensor by tensor. `failed` converts a device error.
    pub(crate) fn load(
        device: A,
        config: &ModelConfig,
        weights: &Weights,
        dtype: DType,
        failed: impl Fn(DeviceError) -> LoadError,
    ) -> Result<Self, LoadError> {
        if config.head_size > LARGEST_HEAD {
            let reason = format!("head size {} exceeds the maximum of {LARGEST_HEAD}", config.head_size);
            return Err(failed(DeviceError(reason)));
        }
        let hidden = config.hidden_size;
        let stacked =
            |parts: &[(String, usize)], inputs: usize, dtype: DType| -> Result<A::Buffer, LoadError> {
                let outputs: usize = parts.iter().map(|(_, outputs)| outputs).sum();
                let buffer = device.allocate(outputs * inputs * dtype.width()).map_err(&failed)?;
                let mut offset = 0;
                for (name, outputs) in parts {
                    let tensor = if *outputs == 1 {
                        weights.get(name, &[inputs])
                    } else {
                        weights.get(name, &[*outputs, inputs])
                    };
                    let bytes = bytes(&tensor?, dtype).map_err(|error| weights.invalid(name, &error))?;
                    device.upload(&buffer, offset, &bytes).map_err(&failed)?;
                    offset += bytes.len();
                }
                Ok(buffer)
            };
        let vector = |name: &str| stacked(&[(name.to_owned(), 1)], hidden, DType::F32);
        let matrix = |parts: &[(String, usize)], inputs: usize| -> Result<Matrix<A::Buffer>, LoadError> {
            let outputs = parts.iter().map(|(_, outputs)| outputs).sum();
            Ok(Matrix { weights: stacked(parts, inputs, dtype)?, inputs, outputs })
        };
        let vocabulary = weights.rows(EMBEDDING, hidden)?;
        let table = |name: &str| matrix(&[(name.to_owned(), vocabulary)], hidden);
        let embedding = table(EMBEDDING)?;
        let head = if config.tied_embeddings { None } else { Some(table(HEAD)?) };
        let layers = Layer::load_all(config, vector, matrix)?;
        let norm = vector(NORM)?;
        Ok(Self {
            dtype,
            hidden,
            intermediate: config.intermediate_size,
            vocabulary,
            epsilon: config.norm_epsilon as f32,
            shape: AttentionShape::of(config),
            embedding,
            layers,
            norm,
            head,
            device,
        })
    }

    /// Where the pages are stored.
    pub(crate) fn storage(&self) -> Storage {
        Storage::Device { width: self.dtype.width() }
    }

    /// The device that computes.
    pub(crate) fn device(&self) -> &A {
        &self.device
    }
}

/// Size of the weights of such a model with `rows` rows of embeddings, in bytes.
pub(crate) fn weight_bytes(config: &ModelConfig, rows: usize, dtype: DType, matrices: usize) -> u64 {
    let embedding = if config.tied_embeddings { 0 } else { rows * config.hidden_size * dtype.width() };
    let norms = (2 * config.layers + 1) * config.hidden_size * size_of::<f32>();
    (matrices + embedding + norms) as u64
}

/// The tensor's numbers converted to a type, rounded to nearest.
fn bytes(tensor: &Tensor, dtype: DType) -> candle_core::Result<Vec<u8>> {
    let flat = |dtype: CandleType| tensor.flatten_all()?.to_dtype(dtype);
    Ok(match dtype {
        DType::F32 => bytemuck::cast_slice(&flat(CandleType::F32)?.to_vec1::<f32>()?).to_vec(),
        DType::Bf16 => bytemuck::cast_slice(&flat(CandleType::BF16)?.to_vec1::<bf16>()?).to_vec(),
        DType::F16 => bytemuck::cast_slice(&flat(CandleType::F16)?.to_vec1::<f16>()?).to_vec(),
    })
}
