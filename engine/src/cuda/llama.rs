//! Model weights in device memory: loading, conversion to the requested type, and size estimates.

use candle_core::{DType as CandleType, Tensor};
use half::{bf16, f16};

use super::accelerator::{Accelerator, DeviceError, Product};
use super::kernels::LARGEST_HEAD;
use crate::cache::Storage;
use crate::error::LoadError;
use crate::load::block::ModelConfig;
use crate::load::tensors::{EMBEDDING, HEAD, NORM};
use crate::load::weights::Weights;
use crate::model::{AttentionShape, Dense, FeedForwardWeights, Layer, LayerNorms, Named, Precision};
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
    DeviceError(reason)
}

/// A Llama-family model in device memory: matrices and embeddings in the requested type, norms in float32.
pub(crate) struct DeviceLlama<A: Accelerator> {
    pub(super) device: A,
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
            return Err(failed(DeviceError(reason)));
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
                let tensor = weights.get(name, &[*outputs, inputs])?;
                let bytes = bytes(&tensor, dtype).map_err(|error| weights.invalid(name, &error))?;
                device.upload(&buffer, offset, &bytes).map_err(&failed)?;
                offset += bytes.len();
            }
            Ok(Matrix { weights: buffer, inputs, outputs })
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
            intermediate: config.layers.iter().map(|layer| layer.feed_forward.width()).max().unwrap_or(0),
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
    let vectors = config.vector_values() * size_of::<f32>();
    (matrices + embedding + vectors) as u64
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
