//! Model weights in device memory: loading, conversion to the requested type, and size estimates.

use candle_core::{DType as CandleType, Tensor};
use half::{bf16, f16};

use super::accelerator::{Accelerator, DeviceError, Product};
use super::kernels::{Heads, LARGEST_HEAD};
use crate::cache::{KeyValueShape, Storage};
use crate::error::LoadError;
use crate::load::config::ModelConfig;
use crate::load::weights::Weights;
use crate::options::DType;

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

/// One decoder layer.
pub(super) struct Layer<B> {
    pub(super) attention_norm: B,
    pub(super) query_key_value: Matrix<B>,
    pub(super) attention_output: Matrix<B>,
    pub(super) feed_forward_norm: B,
    pub(super) gate_up: Matrix<B>,
    pub(super) down: Matrix<B>,
}

/// A Llama-family model in device memory: matrices and embeddings in the requested type, norms in float32.
pub(crate) struct DeviceLlama<A: Accelerator> {
    pub(super) device: A,
    pub(super) dtype: DType,
    pub(super) hidden: usize,
    pub(super) intermediate: usize,
    pub(super) vocabulary: usize,
    pub(super) epsilon: f32,
    pub(super) heads: Heads,
    /// Sliding window in positions.
    pub(super) window: Option<usize>,
    pub(super) embedding: Matrix<A::Buffer>,
    pub(super) layers: Vec<Layer<A::Buffer>>,
    pub(super) norm: A::Buffer,
    /// `None` if the head is tied to the embedding.
    pub(super) head: Option<Matrix<A::Buffer>>,
}

/// Size of one number in bytes.
pub(crate) fn width(dtype: DType) -> usize {
    match dtype {
        DType::F32 => 4,
        DType::Bf16 | DType::F16 => 2,
    }
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
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let queries = config.heads * config.head_size;
        let keys = config.key_value_heads * config.head_size;
        let stacked =
            |parts: &[(&str, usize)], inputs: usize, dtype: DType| -> Result<A::Buffer, LoadError> {
                let outputs: usize = parts.iter().map(|(_, outputs)| outputs).sum();
                let buffer = device.allocate(outputs * inputs * width(dtype)).map_err(&failed)?;
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
        let vector = |name: &str| stacked(&[(name, 1)], hidden, DType::F32);
        let matrix = |parts: &[(&str, usize)], inputs: usize| -> Result<Matrix<A::Buffer>, LoadError> {
            let outputs = parts.iter().map(|(_, outputs)| outputs).sum();
            Ok(Matrix { weights: stacked(parts, inputs, dtype)?, inputs, outputs })
        };
        let vocabulary = weights.rows("model.embed_tokens.weight", hidden)?;
        let embedding = matrix(&[("model.embed_tokens.weight", vocabulary)], hidden)?;
        let head = if config.tied_embeddings {
            None
        } else {
            Some(matrix(&[("lm_head.weight", vocabulary)], hidden)?)
        };
        let layers = (0..config.layers)
            .map(|index| {
                let name = |part: &str| format!("model.layers.{index}.{part}.weight");
                let [query, key, value] =
                    ["q_proj", "k_proj", "v_proj"].map(|part| name(&format!("self_attn.{part}")));
                let [gate, up] = ["gate_proj", "up_proj"].map(|part| name(&format!("mlp.{part}")));
                Ok(Layer {
                    attention_norm: vector(&name("input_layernorm"))?,
                    query_key_value: matrix(&[(&query, queries), (&key, keys), (&value, keys)], hidden)?,
                    attention_output: matrix(&[(&name("self_attn.o_proj"), hidden)], queries)?,
                    feed_forward_norm: vector(&name("post_attention_layernorm"))?,
                    gate_up: matrix(&[(&gate, intermediate), (&up, intermediate)], hidden)?,
                    down: matrix(&[(&name("mlp.down_proj"), hidden)], intermediate)?,
                })
            })
            .collect::<Result<_, LoadError>>()?;
        let norm = vector("model.norm.weight")?;
        Ok(Self {
            dtype,
            hidden,
            intermediate,
            vocabulary,
            epsilon: config.norm_epsilon as f32,
            heads: Heads {
                query_heads: config.heads,
                key_value_heads: config.key_value_heads,
                head_size: config.head_size,
            },
            window: config.sliding_window,
            embedding,
            layers,
            norm,
            head,
            device,
        })
    }

    /// Shape of the keys and values that the model stores per position.
    pub(crate) fn key_values(&self) -> KeyValueShape {
        let Heads { key_value_heads: heads, head_size, .. } = self.heads;
        KeyValueShape { layers: self.layers.len(), heads, head_size }
    }

    /// Where the pages are stored.
    pub(crate) fn storage(&self) -> Storage {
        Storage::Device { width: width(self.dtype) }
    }

    /// The device that computes.
    pub(crate) fn device(&self) -> &A {
        &self.device
    }
}

/// Size of the weights of such a model with `rows` rows of embeddings, in bytes.
pub(crate) fn weight_bytes(config: &ModelConfig, rows: usize, dtype: DType, matrices: usize) -> u64 {
    let embedding = if config.tied_embeddings { 0 } else { rows * config.hidden_size * width(dtype) };
    let norms = (2 * config.layers + 1) * config.hidden_size * size_of::<f32>();
    (matrices + embedding + norms) as u64
}

/// The tensor's numbers converted to a type, rounded to nearest.
fn bytes(tensor: &Tensor, dtype: DType) -> candle_core::Result<Vec<u8>> {
    let flat = tensor.flatten_all()?;
    Ok(match dtype {
        DType::F32 => {
            let values = flat.to_dtype(CandleType::F32)?.to_vec1::<f32>()?;
            bytemuck::cast_slice(&values).to_vec()
        }
        DType::Bf16 => {
            let values = flat.to_dtype(CandleType::BF16)?.to_vec1::<bf16>()?;
            bytemuck::cast_slice(&values).to_vec()
        }
        DType::F16 => {
            let values = flat.to_dtype(CandleType::F16)?.to_vec1::<f16>()?;
            bytemuck::cast_slice(&values).to_vec()
        }
    })
}
