//! [`Decoder`]: weights and forward pass of a model on the CPU.
//!
//! The model is immutable and shared by all compute threads; the runner keeps [`Scratch`] buffers for each
//! thread. One decoder computes all families: an operation that the model's [`Block`] does not ask for is skipped.
//! [`Matrices`] counts the values and bytes that one token's forward pass reads.

use lumos_kernels::{
    DType, Execution, QuantizedFormat, add, add_bias, add_scaled, arch, gated, norm_heads, rms_norm, scale,
    soft_cap,
};
use pulp::Arch;

use super::Chunk;
use super::attention::{AttentionLayer, AttentionRows, AttentionShape, attention};
use super::embedding::Embedding;
use super::experts::ExpertScratch;
use super::key_value::{KeyValuePlace, rotate_and_store};
use super::layer::{FeedForwardWeights, Layer, Named, Precision};
use super::linear::{Linear, LinearScratch};
use super::rope::RotaryTables;
use crate::error::LoadError;
use crate::load::block::{Block, FeedForward, ModelConfig};
use crate::load::tensors::{EMBEDDING, HEAD, NORM};
use crate::load::weights::{Matrix, Weights};

/// A model: immutable, shared by the threads that compute with it.
pub(crate) struct Decoder {
    arch: Arch,
    hidden: usize,
    epsilon: f32,
    shape: AttentionShape,
    block: Block,
    embedding_scale: Option<f32>,
    logit_divisor: Option<f32>,
    logit_cap: Option<f32>,
    embedding: Embedding,
    layers: Vec<Layer<Vec<f32>, Linear>>,
    norm: Vec<f32>,
    head: Linear,
    /// Bytes of the matrices of all layers and of the head.
    bytes: usize,
}

/// Buffers of one forward pass, kept between calls. They only grow.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Rows of the residual stream.
    rows: usize,
    linear: LinearScratch,
    experts: ExpertScratch,
    hidden: Vec<f32>,
    normed: Vec<f32>,
    query_key_value: Vec<f32>,
    attended: Vec<f32>,
    gate_up: Vec<f32>,
    product: Vec<f32>,
    update: Vec<f32>,
}

/// The first `length` numbers of a buffer, which grows to have them.
fn first(buffer: &mut Vec<f32>, length: usize) -> &mut [f32] {
    if buffer.len() < length {
        buffer.resize(length, 0.0);
    }
    &mut buffer[..length]
}

/// Sizes of the matrices that are read and multiplied for one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrices {
    /// Number of values in all layers' matrices; of experts only the active ones.
    pub(crate) layers: usize,
    /// Of these, the values that only tokens with a prediction need: the last layer's behind its keys and values.
    pub(crate) predicted: usize,
    /// Number of values in the output matrix.
    pub(crate) head: usize,
    /// Bytes of both.
    pub(crate) bytes: usize,
    /// Bytes of both with all experts.
    pub(crate) total_bytes: usize,
    /// Bytes of the vectors of the tokens on a CPU, beside the matrices.
    pub(crate) embedding: usize,
    /// The block format of most values, if any are quantized.
    pub(crate) format: Option<QuantizedFormat>,
}

impl Matrices {
    /// The sizes for a model with `rows` rows of embeddings.
    pub(crate) fn new(config: &ModelConfig, rows: usize, dtype: DType) -> Self {
        let hidden = config.hidden_size;
        let (queries, keys) = config.widths();
        let head = rows * hidden;
        // Values of the requested type that are read, values of routers, and values that are not read.
        let (mut read, mut routers, mut unread) = (0, 0, 0);
        let mut predicted = 0;
        for layer in &config.layers {
            read += hidden * (queries + 2 * keys);
            let before = read + routers;
            read += hidden * queries;
            match &layer.feed_forward {
                FeedForward::Dense { width } => read += hidden * 3 * width,
                FeedForward::Experts(experts) => {
                    read += experts.active * hidden * 3 * experts.width;
                    unread += (experts.count - experts.active) * hidden * 3 * experts.width;
                    routers += experts.count * hidden;
                }
            }
            predicted = read + routers - before;
        }
        let bytes = (read + head) * dtype.width() + routers * size_of::<f32>();
        let total_bytes = bytes + unread * dtype.width();
        let embedding = head * size_of::<f32>();
        Self { layers: read + routers, predicted, head, bytes, total_bytes, embedding, format: None }
    }
}

impl Decoder {
    /// Loads the weights, converted to `dtype`; the files are not needed afterwards.
    pub(crate) fn load(config: &ModelConfig, weights: &Weights, dtype: DType) -> Result<Self, LoadError> {
        let hidden = config.hidden_size;
        let vector = |parts: &[Named], offset: f32| weights.vector(parts, offset);
        let linear = |parts: &[Named], inputs: usize, precision: Precision| -> Result<Linear, LoadError> {
            let matrices: Vec<Matrix<'_>> = parts
                .iter()
                .map(|(name, outputs)| weights.matrix(name, [*outputs, inputs]))
                .collect::<Result<_, _>>()?;
            let dtype = if precision == Precision::Full { DType::F32 } else { dtype };
            Linear::stacked(&matrices, dtype).map_err(|error| weights.invalid(&parts[0].0, &error))
        };
        let rows = weights.rows(EMBEDDING, hidden)?;
        let embedding = Embedding::load(weights, rows, hidden)?;
        let head = if config.tied_embeddings { EMBEDDING } else { HEAD };
        weights.check_head(config.tied_embeddings)?;
        let head = linear(&[(head.to_owned(), rows)], hidden, Precision::Weights)?;
        let layers = Layer::load_all(config, vector, linear)?;
        let matrices = layers.iter().flat_map(Layer::matrices).map(Linear::bytes);
        Ok(Self {
            bytes: head.bytes() + matrices.sum::<usize>(),
            arch: arch(),
            hidden,
            epsilon: config.norm_epsilon as f32,
            shape: AttentionShape::of(config),
            block: config.block.clone(),
            embedding_scale: config.embedding_scale,
            logit_divisor: config.logit_divisor,
            logit_cap: config.logit_cap,
            embedding,
            head,
            layers,
            norm: vector(&[(NORM.to_owned(), hidden)], config.block.norm_offset)?,
        })
    }

    /// Number of logits, which equals the number of embedding rows.
    pub(crate) fn vocabulary(&self) -> usize {
        self.head.outputs()
    }

    /// Bytes of the matrices of all layers and of the head.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Advances the sequences. Their caches and `rotary` must already have room. Writes the requested logits
    /// to `logits`, row after row.
    pub(crate) fn forward(
        &self,
        chunks: &mut [Chunk<'_>],
        rotary: &RotaryTables,
        parallel: bool,
        scratch: &mut Scratch,
        logits: &mut [f32],
    ) {
        let execution = Execution { arch: self.arch, parallel };
        self.embed(chunks, execution, scratch);
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            self.store_keys_and_values(index, layer, chunks, rotary, execution, scratch);
            if index == last {
                self.keep_predicted(chunks, scratch);
            }
            if scratch.rows > 0 {
                self.attend(index, layer, chunks, execution, scratch);
                self.feed_forward(layer, execution, scratch);
            }
        }
        for chunk in &mut *chunks {
            chunk.cache.advance(chunk.tokens.len());
        }
        let Scratch { rows, linear, hidden, normed, .. } = scratch;
        let normed = first(normed, *rows * self.hidden);
        rms_norm(execution, &hidden[..normed.len()], &self.norm, self.epsilon, normed);
        self.head.forward(execution, normed, logits, linear);
        if let Some(divisor) = self.logit_divisor {
            for logit in &mut *logits {
                *logit /= divisor;
            }
        }
        if let Some(cap) = self.logit_cap {
            soft_cap(execution, logits, cap);
        }
    }

    /// Copies the embeddings of the tokens to the residual stream.
    fn embed(&self, chunks: &[Chunk<'_>], execution: Execution, scratch: &mut Scratch) {
        scratch.rows = chunks.iter().map(|chunk| chunk.tokens.len()).sum();
        let hidden = first(&mut scratch.hidden, scratch.rows * self.hidden);
        let tokens = chunks.iter().flat_map(|chunk| chunk.tokens);
        for (hidden, token) in hidden.chunks_exact_mut(self.hidden).zip(tokens) {
            self.embedding.read(*token, hidden);
        }
        if let Some(factor) = self.embedding_scale {
            scale(execution, hidden, factor, self.hidden);
        }
    }

    /// The first part of a layer: the rows' queries, and their keys and values, which the caches get.
    fn store_keys_and_values(
        &self,
        index: usize,
        layer: &Layer<Vec<f32>, Linear>,
        chunks: &mut [Chunk<'_>],
        rotary: &RotaryTables,
        execution: Execution,
        scratch: &mut Scratch,
    ) {
        let size = self.shape.head_size;
        let queries = self.shape.query_heads * size;
        let keys = self.shape.key_value_heads * size;
        let stride = self.shape.stride();
        let Scratch { rows, linear, hidden, normed, query_key_value, .. } = scratch;
        let hidden = &hidden[..*rows * self.hidden];
        let query_key_value = first(query_key_value, *rows * stride);
        let input = match &layer.norms.attention {
            Some(norm) => {
                let normed = first(normed, hidden.len());
                rms_norm(execution, hidden, norm, self.epsilon, normed);
                &*normed
            }
            None => hidden,
        };
        layer.query_key_value.forward(execution, input, query_key_value, linear);
        if let Some(bias) = &layer.query_key_value_bias {
            add_bias(execution, query_key_value, bias);
        }
        for (norm, columns) in [(&layer.query_norm, 0..queries), (&layer.key_norm, queries..queries + keys)] {
            if let Some(norm) = norm {
                norm_heads(execution, query_key_value, stride, columns, norm, self.epsilon);
            }
        }
        let place = KeyValuePlace { shape: &self.shape, layer: index, rope: layer.rope };
        rotate_and_store(execution, place, chunks, rotary, query_key_value);
    }

    /// Removes the rows without a prediction. After the last layer's keys and values, nothing else needs them.
    fn keep_predicted(&self, chunks: &[Chunk<'_>], scratch: &mut Scratch) {
        let Scratch { rows, hidden, query_key_value, .. } = scratch;
        let (mut end, mut kept) = (0, 0);
        for chunk in chunks {
            end += chunk.tokens.len();
            for (buffer, width) in [(&mut *hidden, self.hidden), (query_key_value, self.shape.stride())] {
                buffer.copy_within((end - chunk.predictions) * width..end * width, kept * width);
            }
            kept += chunk.predictions;
        }
        *rows = kept;
    }

    /// The second part of a layer: attention, in the last layer that of the rows with a prediction.
    fn attend(
        &self,
        index: usize,
        layer: &Layer<Vec<f32>, Linear>,
        chunks: &[Chunk<'_>],
        execution: Execution,
        scratch: &mut Scratch,
    ) {
        let queries = self.shape.query_heads * self.shape.head_size;
        let Scratch { rows, linear, hidden, normed, query_key_value, attended, update, .. } = scratch;
        let hidden = &mut hidden[..*rows * self.hidden];
        let update = first(update, hidden.len());
        let attended = first(attended, *rows * queries);
        let last = index + 1 == self.layers.len();
        let places = chunks.iter().map(|chunk| {
            let count = if last { chunk.predictions } else { chunk.tokens.len() };
            let position = chunk.cache.length() + chunk.tokens.len() - count;
            AttentionRows { cache: chunk.cache, position, count }
        });
        let attended_layer = AttentionLayer {
            index,
            window: layer.window,
            scale: self.block.attention_scale,
            cap: self.block.attention_cap,
        };
        attention(execution, &self.shape, attended_layer, places, query_key_value, attended);
        layer.attention_output.forward(execution, attended, update, linear);
        if let Some(bias) = &layer.attention_output_bias {
            add_bias(execution, update, bias);
        }
        self.add_update(execution, layer.norms.after_attention.as_deref(), hidden, update, normed);
    }

    /// The third part of a layer.
    fn feed_forward(&self, layer: &Layer<Vec<f32>, Linear>, execution: Execution, scratch: &mut Scratch) {
        let Scratch {
            rows, linear, experts: expert_scratch, hidden, normed, gate_up, product, update, ..
        } = scratch;
        let hidden = &mut hidden[..*rows * self.hidden];
        let update = first(update, hidden.len());
        let input = match &layer.norms.feed_forward {
            Some(norm) => {
                let normed = first(normed, hidden.len());
                rms_norm(execution, hidden, norm, self.epsilon, normed);
                &*normed
            }
            None => &*hidden,
        };
        let activation = self.block.activation;
        match &layer.feed_forward {
            FeedForwardWeights::Dense(dense) => {
                let width = dense.down.inputs();
                let (gate_up, product) = (first(gate_up, *rows * 2 * width), first(product, *rows * width));
                dense.gate_up.forward(execution, input, gate_up, linear);
                if let Some(bias) = &dense.gate_up_bias {
                    add_bias(execution, gate_up, bias);
                }
                gated(execution, activation, gate_up, width, product);
                dense.down.forward(execution, product, update, linear);
                if let Some(bias) = &dense.down_bias {
                    add_bias(execution, update, bias);
                }
            }
            FeedForwardWeights::Experts(experts) => {
                experts.forward(execution, activation, input, update, linear, expert_scratch);
            }
        }
        self.add_update(execution, layer.norms.after_feed_forward.as_deref(), hidden, update, normed);
    }

    /// Adds an update to the residual stream, normed if there is a norm after it. `normed` is scratch space.
    fn add_update(
        &self,
        execution: Execution,
        norm: Option<&[f32]>,
        hidden: &mut [f32],
        update: &[f32],
        normed: &mut Vec<f32>,
    ) {
        let update = match norm {
            Some(norm) => {
                let normed = first(normed, update.len());
                rms_norm(execution, update, norm, self.epsilon, normed);
                &*normed
            }
            None => update,
        };
        match self.block.residual_scale {
            Some(scale) => add_scaled(execution, hidden, update, scale, self.hidden),
            None => add(execution, hidden, update, self.hidden),
        }
    }
}
