//! Model weights in device memory: loading, conversion to the requested type, and size estimates.

use candle_core::{CpuStorage, DType as CandleType, Device, Storage, Tensor};
use lumos_kernels::DType;

use super::accelerator::{Accelerator, DeviceError, Product};
use super::forward::intermediate;
use super::kernels::{self, LARGEST_HEAD};
use crate::error::LoadError;
use crate::load::block::ModelConfig;
use crate::load::tensors::{EMBEDDING, HEAD, NORM};
use crate::load::weights::{Weights, float_type};
use crate::model::{AttentionShape, Dense, FeedForwardWeights, Layer, LayerNorms, Named, Precision};

/// A row-major matrix.
pub(super) struct Matrix<B> {
    weights: B,
    inputs: usize,
    outputs: usize,
    dtype: DType,
}

impl<B> Matrix<B> {
    pub(super) fn buffer(&self) -> &B {
        &self.weights
    }

    /// Multiplies `rows` rows of `input` into `output`, at an offset in bytes. In float32, a row's outputs do not depend on
    /// the other rows; for 16-bit types cuBLAS chooses the order of additions, see [`crate::cuda`].
    pub(super) fn multiply<A: Accelerator<Buffer = B>>(
        &self,
        device: &A,
        rows: usize,
        input: &B,
        output: (&B, usize),
    ) -> Result<(), DeviceError> {
        if self.dtype == DType::F32 {
            let sizes = (rows, self.inputs, self.outputs);
            return kernels::product(device, sizes, &self.weights, input, output);
        }
        device.multiply(&Product::new(rows, self.inputs, self.outputs), &self.weights, input, output)
    }
}

/// A layer of Llama or Mistral.
pub(super) struct PlainLayer<B> {
    pub(super) attention_norm: B,
    pub(super) query_key_value: Matrix<B>,
    pub(super) attention_output: Matrix<B>,
    pub(super) feed_forward_norm: B,
    pub(super) gate_up: Matrix<B>,
    pub(super) down: Matrix<B>,
    pub(super) window: Option<usize>,
}

impl<B> PlainLayer<B> {
    /// `None` if the layer computes anything else.
    fn of(layer: Layer<B, Matrix<B>>) -> Option<Self> {
        let Layer {
            norms:
                LayerNorms {
                    attention: Some(attention_norm),
                    after_attention: None,
                    feed_forward: Some(feed_forward_norm),
                    after_feed_forward: None,
                },
            query_key_value,
            query_key_value_bias: None,
            query_norm: None,
            key_norm: None,
            attention_output,
            attention_output_bias: None,
            feed_forward:
                FeedForwardWeights::Dense(Dense { gate_up, gate_up_bias: None, down, down_bias: None }),
            window,
            rope: 0,
        } = layer
        else {
            return None;
        };
        Some(Self {
            attention_norm,
            query_key_value,
            attention_output,
            feed_forward_norm,
            gate_up,
            down,
            window,
        })
    }
}

/// The error for a model that the kernels do not compute.
fn unsupported(config: &ModelConfig) -> DeviceError {
    let reason = format!(
        "{} with this config.json is not supported on GPUs, which compute Llama and Mistral models without biases; \
         hint: pass `--device cpu`",
        config.architecture
    );
    DeviceError::Failed(reason)
}

/// A Llama-family model in device memory: matrices and embeddings in the requested type, norms in float32.
pub(crate) struct DeviceLlama<A: Accelerator> {
    pub(super) dtype: DType,
    pub(super) hidden: usize,
    /// The largest intermediate width of a layer.
    pub(super) intermediate: usize,
    pub(super) vocabulary: usize,
    pub(super) epsilon: f32,
    pub(super) shape: AttentionShape,
    pub(super) embedding: Matrix<A::Buffer>,
    pub(super) layers: Vec<PlainLayer<A::Buffer>>,
    pub(super) norm: A::Buffer,
    /// `None` if the head is tied to the embedding.
    pub(super) head: Option<Matrix<A::Buffer>>,
    /// Dropped last, because it waits until all buffers are freed.
    pub(super) device: A,
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
        if !config.is_plain() {
            return Err(failed(unsupported(config)));
        }
        if config.head_size > LARGEST_HEAD {
            let reason = format!("head size {} exceeds the maximum of {LARGEST_HEAD}", config.head_size);
            return Err(failed(DeviceError::Failed(reason)));
        }
        let hidden = config.hidden_size;
        let vector = |parts: &[Named], offset: f32| -> Result<A::Buffer, LoadError> {
            let values = weights.vector(parts, offset)?;
            let buffer = device.allocate(size_of_val(&values[..])).map_err(&failed)?;
            device.upload(&buffer, 0, bytemuck::cast_slice(&values)).map_err(&failed)?;
            Ok(buffer)
        };
        let matrix = |parts: &[Named], inputs: usize, precision: Precision| {
            let dtype = if precision == Precision::Full { DType::F32 } else { dtype };
            let outputs: usize = parts.iter().map(|(_, outputs)| outputs).sum();
            let buffer = device.allocate(outputs * inputs * dtype.width()).map_err(&failed)?;
            let mut offset = 0;
            for (name, outputs) in parts {
                let shape = [*outputs, inputs];
                if let Some((stored, bytes)) = weights.mapped(name, &shape)?
                    && float_type(stored) == Some(dtype)
                {
                    device.upload(&buffer, offset, bytes).map_err(&failed)?;
                } else {
                    let tensor = weights.get(name, &shape)?;
                    let upload = |bytes: &[u8]| device.upload(&buffer, offset, bytes);
                    with_bytes(&tensor, dtype, upload)
                        .map_err(|error| weights.invalid(name, &error))?
                        .map_err(&failed)?;
                }
                offset += outputs * inputs * dtype.width();
            }
            Ok(Matrix { weights: buffer, inputs, outputs, dtype })
        };
        let vocabulary = weights.rows(EMBEDDING, hidden)?;
        let table = |name: &str| matrix(&[(name.to_owned(), vocabulary)], hidden, Precision::Weights);
        let embedding = table(EMBEDDING)?;
        let head = if config.tied_embeddings { None } else { Some(table(HEAD)?) };
        let layers = Layer::load_all(config, vector, matrix)?.into_iter().map(PlainLayer::of);
        let layers = layers.collect::<Option<_>>().ok_or_else(|| failed(unsupported(config)))?;
        let norm = vector(&[(NORM.to_owned(), hidden)], 0.0)?;
        Ok(Self {
            dtype,
            hidden,
            intermediate: intermediate(config),
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

    /// The device that computes.
    pub(crate) fn device(&self) -> &A {
        &self.device
    }
}

/// Size of the weights of such a model with `rows` rows of embeddings, in bytes.
pub(crate) fn weight_bytes(config: &ModelConfig, rows: usize, dtype: DType, matrices: usize) -> u64 {
    let embedding = if config.tied_embeddings { 0 } else { rows * config.hidden_size * dtype.width() };
    let vectors = config.vector_values() * size_of::<f32>();
    (matrices + embedding + vectors) as u64
}

/// Passes the bytes of the tensor's numbers, converted to a type and rounded to nearest.
fn with_bytes<R>(tensor: &Tensor, dtype: DType, pass: impl FnOnce(&[u8]) -> R) -> candle_core::Result<R> {
    let wanted = match dtype {
        DType::F32 => CandleType::F32,
        DType::Bf16 => CandleType::BF16,
        DType::F16 => CandleType::F16,
    };
    let tensor = tensor.to_device(&Device::Cpu)?.to_dtype(wanted)?.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    let range = layout.start_offset()..layout.start_offset() + tensor.elem_count();
    match &*storage {
        Storage::Cpu(CpuStorage::F32(numbers)) => Ok(pass(bytemuck::cast_slice(&numbers[range]))),
        Storage::Cpu(CpuStorage::BF16(numbers)) => Ok(pass(bytemuck::cast_slice(&numbers[range]))),
        Storage::Cpu(CpuStorage::F16(numbers)) => Ok(pass(bytemuck::cast_slice(&numbers[range]))),
        _ => candle_core::bail!("expected a tensor of {wanted:?} in host memory"),
    }
}
