//! [`Llama`]: weights and forward pass of a Llama-family model on the CPU.
//!
//! The model is immutable and shared by all compute threads; the runner keeps [`Scratch`] buffers for each
//! thread. [`Matrices`] counts the values and bytes that one token's forward pass reads.

use pulp::Arch;

use super::Chunk;
use super::attention::{AttentionRows, AttentionShape, attention};
use super::elementwise::{add, gated, rms_norm};
use super::kernel::Execution;
use super::linear::{Linear, LinearScratch};
use super::rope::RotaryTable;
use crate::error::LoadError;
use crate::load::config::{EMBEDDING, HEAD, ModelConfig, NORM};
use crate::load::weights::{Matrix, Weights};
use crate::simd::{DType, QuantizedFormat};

/// One decoder layer, with vectors `V` and matrices `M`.
pub(crate) struct Layer<V, M> {
    pub(crate) attention_norm: V,
    pub(crate) query_key_value: M,
    pub(crate) attention_output: M,
    pub(crate) feed_forward_norm: V,
    pub(crate) gate_up: M,
    pub(crate) down: M,
}

impl<V, M> Layer<V, M> {
    /// Loads all layers. `vector` reads a tensor of the hidden size; `matrix` reads tensors, each with its number of
    /// outputs, and stacks them along their outputs.
    pub(crate) fn load_all(
        config: &ModelConfig,
        vector: impl Fn(&str) -> Result<V, LoadError>,
        matrix: impl Fn(&[(String, usize)], usize) -> Result<M, LoadError>,
    ) -> Result<Vec<Self>, LoadError> {
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let (queries, keys) = config.widths();
        let load = |index: usize| {
            let name = |part: &str| format!("model.layers.{index}.{part}.weight");
            let query_key_value = [
                (name("self_attn.q_proj"), queries),
                (name("self_attn.k_proj"), keys),
                (name("self_attn.v_proj"), keys),
            ];
            let gate_up = [(name("mlp.gate_proj"), intermediate), (name("mlp.up_proj"), intermediate)];
            Ok(Self {
                attention_norm: vector(&name("input_layernorm"))?,
                query_key_value: matrix(&query_key_value, hidden)?,
                attention_output: matrix(&[(name("self_attn.o_proj"), hidden)], queries)?,
                feed_forward_norm: vector(&name("post_attention_layernorm"))?,
                gate_up: matrix(&gate_up, hidden)?,
                down: matrix(&[(name("mlp.down_proj"), hidden)], intermediate)?,
            })
        };
        (0..config.layers).map(load).collect()
    }
}

/// A Llama-family model: immutable, shared by the threads that compute with it.
pub(crate) struct Llama {
    arch: Arch,
    hidden: usize,
    intermediate: usize,
    epsilon: f32,
    shape: AttentionShape,
    embedding: Vec<f32>,
    layers: Vec<Layer<Vec<f32>, Linear>>,
    norm: Vec<f32>,
    head: Linear,
}

/// Buffers of one forward pass, kept between calls.
#[derive(Default)]
pub(crate) struct Scratch {
    linear: LinearScratch,
    hidden: Vec<f32>,
    normed: Vec<f32>,
    query_key_value: Vec<f32>,
    attended: Vec<f32>,
    gate_up: Vec<f32>,
    product: Vec<f32>,
    update: Vec<f32>,
}

/// Sizes of the matrices that are read and multiplied for one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrices {
    /// Number of values in all layers' matrices.
    pub(crate) layers: usize,
    /// Number of values in the output matrix.
    pub(crate) head: usize,
    /// Bytes of both.
    pub(crate) bytes: usize,
    /// The block format of most values, if any are quantized.
    pub(crate) format: Option<QuantizedFormat>,
}

impl Matrices {
    /// The sizes for a model with `rows` rows of embeddings.
    pub(crate) fn new(config: &ModelConfig, rows: usize, dtype: DType) -> Self {
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let (queries, keys) = config.widths();
        let layers = config.layers * hidden * (2 * queries + 2 * keys + 3 * intermediate);
        let head = rows * hidden;
        Self { layers, head, bytes: (layers + head) * dtype.width(), format: None }
    }
}

impl Llama {
    /// Loads the weights, converted to `dtype`; the files are not needed afterwards.
    pub(crate) fn load(config: &ModelConfig, weights: &Weights, dtype: DType) -> Result<Self, LoadError> {
        let hidden = config.hidden_size;
        let vector = |name: &str| weights.values(name, &[hidden]);
        let linear = |parts: &[(String, usize)], inputs: usize| -> Result<Linear, LoadError> {
            let matrices: Vec<Matrix<'_>> = parts
                .iter()
                .map(|(name, outputs)| weights.matrix(name, [*outputs, inputs]))
                .collect::<Result<_, _>>()?;
            Linear::stacked(&matrices, dtype).map_err(|error| weights.invalid(&parts[0].0, &error))
        };
        let rows = weights.rows(EMBEDDING, hidden)?;
        let embedding = weights.values(EMBEDDING, &[rows, hidden])?;
        let head = if config.tied_embeddings { EMBEDDING } else { HEAD };
        Ok(Self {
            arch: Arch::new(),
            hidden,
            intermediate: config.intermediate_size,
            epsilon: config.norm_epsilon as f32,
            shape: AttentionShape::of(config),
            embedding,
            head: linear(&[(head.to_owned(), rows)], hidden)?,
            layers: Layer::load_all(config, vector, linear)?,
            norm: vector(NORM)?,
        })
    }

    /// Number of logits, which equals the number of embedding rows.
    pub(crate) fn vocabulary(&self) -> usize {
        self.head.outputs()
    }

    /// Bytes of weights that one token's forward pass reads.
    pub(crate) fn bytes(&self) -> usize {
        let layer = |layer: &Layer<_, Linear>| {
            [&layer.query_key_value, &layer.attention_output, &layer.gate_up, &layer.down].map(Linear::bytes)
        };
        self.head.bytes() + self.layers.iter().flat_map(layer).sum::<usize>()
    }

    /// Advances the sequences. Their caches and `rotary` must already have room. Writes the requested logits
    /// to `logits`, row after row.
    pub(crate) fn forward(
        &self,
        chunks: &mut [Chunk<'_>],
        rotary: &RotaryTable,
        parallel: bool,
        scratch: &mut Scratch,
        logits: &mut [f32],
    ) {
        let execution = Execution { arch: self.arch, parallel };
        let size = self.shape.head_size;
        let queries = self.shape.query_heads * size;
        let keys = self.shape.key_value_heads * size;
        let stride = self.shape.stride();
        let rows: usize = chunks.iter().map(|chunk| chunk.tokens.len()).sum();
        let Scratch { linear, hidden, normed, query_key_value, attended, gate_up, product, update } = scratch;
        for (buffer, width) in [
            (&mut *hidden, self.hidden),
            (&mut *normed, self.hidden),
            (&mut *update, self.hidden),
            (&mut *query_key_value, stride),
            (&mut *attended, queries),
            (&mut *gate_up, 2 * self.intermediate),
            (&mut *product, self.intermediate),
        ] {
            buffer.resize(rows * width, 0.0);
        }
        let tokens = chunks.iter().flat_map(|chunk| chunk.tokens);
        for (hidden, token) in hidden.chunks_exact_mut(self.hidden).zip(tokens) {
            hidden.copy_from_slice(&self.embedding[*token as usize * self.hidden..][..self.hidden]);
        }
        for (index, layer) in self.layers.iter().enumerate() {
            rms_norm(execution, hidden, &layer.attention_norm, self.epsilon, normed);
            layer.query_key_value.forward(execution, normed, query_key_value, linear);
            let mut remaining = query_key_value.chunks_exact_mut(stride);
            for chunk in chunks.iter_mut() {
                let start = chunk.cache.length();
                for (row, position) in remaining.by_ref().take(chunk.tokens.len()).zip(start..) {
                    let (turned, values) = row.split_at_mut(queries + keys);
                    for head in turned.chunks_exact_mut(size) {
                        rotary.rotate(head, position);
                    }
                    let turned = turned[queries..].chunks_exact(size);
                    for (head, (key, value)) in turned.zip(values.chunks_exact(size)).enumerate() {
                        chunk.cache.store(index, head, position, key, value);
                    }
                }
            }
            let places = chunks.iter().map(|chunk| AttentionRows {
                cache: chunk.cache,
                position: chunk.cache.length(),
                count: chunk.tokens.len(),
            });
            attention(execution, &self.shape, index, places, query_key_value, stride, attended);
            layer.attention_output.forward(execution, attended, update, linear);
            add(execution, hidden, update, self.hidden);
            rms_norm(execution, hidden, &layer.feed_forward_norm, self.epsilon, normed);
            layer.gate_up.forward(execution, normed, gate_up, linear);
            gated(execution, gate_up, self.intermediate, product);
            layer.down.forward(execution, product, update, linear);
            add(execution, hidden, update, self.hidden);
        }
        let mut wanted = 0;
        let mut row = 0;
        for chunk in chunks.iter_mut() {
            row += chunk.tokens.len();
            chunk.cache.advance(chunk.tokens.len());
            if chunk.logits {
                let last = &hidden[(row - 1) * self.hidden..row * self.hidden];
                update[wanted * self.hidden..(wanted + 1) * self.hidden].copy_from_slice(last);
                wanted += 1;
            }
        }
        let update = &update[..wanted * self.hidden];
        let normed = &mut normed[..wanted * self.hidden];
        rms_norm(execution, update, &self.norm, self.epsilon, normed);
        self.head.forward(execution, normed, logits, linear);
    }
}
