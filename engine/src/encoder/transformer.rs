//! The layers of BERT-family encoders on flattened tokens. Sequences follow each other without padding, so a
//! sequence's results are bit-identical whatever else is in the batch. The layers follow transformers'
//! `modeling_bert.py`, `modeling_roberta.py` and `modeling_deberta_v2.py`.

use candle_core::Tensor;
use lumos_kernels::{DType, Execution, arch};
use pulp::Arch;
use rayon::prelude::*;

use super::attention::{AttentionScratch, DistanceTables, attention};
use super::config::{EncoderConfig, Family};
use super::elementwise::{add_and_norm, add_bias, add_bias_and_gelu, layer_norm};
use crate::error::LoadError;
use crate::load::weights::Weights;
use crate::model::{Linear, LinearScratch};

/// The word embedding of an encoder.
const WORDS: &str = "embeddings.word_embeddings.weight";

/// A linear layer with its bias.
pub(super) struct Affine {
    linear: Linear,
    pub(super) bias: Vec<f32>,
}

impl Affine {
    /// The product without the bias, which is added in the next operation.
    pub(super) fn product(
        &self,
        arch: Arch,
        input: &[f32],
        output: &mut Vec<f32>,
        scratch: &mut LinearScratch,
    ) {
        let rows = input.len() / self.linear.inputs();
        output.resize(rows * self.linear.outputs(), 0.0);
        self.linear.forward(Execution { arch, parallel: true }, input, output, scratch);
    }
}

/// Weight and bias of a layer norm.
type Norm = [Vec<f32>; 2];

struct Layer {
    query_key_value: Affine,
    distances: Option<DistanceTables>,
    attended: Affine,
    attention_norm: Norm,
    intermediate: Affine,
    output: Affine,
    norm: Norm,
}

/// An encoder with its weights.
pub(super) struct Encoder {
    config: EncoderConfig,
    arch: Arch,
    words: Vec<f32>,
    /// `None` if the model uses only relative distances.
    positions: Option<Vec<f32>>,
    /// The embedding of the first token type, which every token has.
    kind: Option<Vec<f32>>,
    norm: Norm,
    layers: Vec<Layer>,
}

/// Reads tensors below a name prefix, or from the top if it is empty.
pub(super) struct Reading<'a> {
    weights: &'a Weights,
    below: &'a str,
}

impl<'a> Reading<'a> {
    pub(super) fn new(weights: &'a Weights, below: &'a str) -> Self {
        Self { weights, below }
    }

    fn name(&self, part: &str) -> String {
        if self.below.is_empty() { part.to_owned() } else { format!("{}.{part}", self.below) }
    }

    pub(super) fn values(&self, part: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.weights.values(&self.name(part), shape)
    }

    /// Rows of an encoder's word embedding.
    pub(super) fn words(&self, config: &EncoderConfig) -> Result<usize, LoadError> {
        self.weights.rows(&self.name(WORDS), config.hidden_size)
    }

    /// Reads layers and stacks them along their outputs.
    pub(super) fn affine(
        &self,
        parts: &[String],
        outputs: usize,
        inputs: usize,
    ) -> Result<Affine, LoadError> {
        let (mut tensors, mut bias): (Vec<Tensor>, Vec<f32>) = (Vec::new(), Vec::new());
        for part in parts {
            tensors.push(self.weights.get(&self.name(&format!("{part}.weight")), &[outputs, inputs])?);
            bias.extend(self.values(&format!("{part}.bias"), &[outputs])?);
        }
        let linear = Linear::new(&tensors, DType::F32)
            .map_err(|error| self.weights.invalid(&self.name(&parts[0]), &error))?;
        Ok(Affine { linear, bias })
    }

    fn norm(&self, part: &str, width: usize) -> Result<Norm, LoadError> {
        let values = |name: &str| self.values(&format!("{part}.{name}"), &[width]);
        Ok([values("weight")?, values("bias")?])
    }
}

/// Buffers of one pass, kept between calls.
#[derive(Default)]
pub(super) struct Scratch {
    linear: LinearScratch,
    hidden: Vec<f32>,
    query_key_value: Vec<f32>,
    attended: Vec<f32>,
    update: Vec<f32>,
    intermediate: Vec<f32>,
}

impl Encoder {
    /// Reads the encoder's tensors below a name prefix. `longest` is the maximum sequence length.
    pub(super) fn load(
        config: &EncoderConfig,
        weights: &Weights,
        below: &str,
        longest: usize,
    ) -> Result<Self, LoadError> {
        let (hidden, wide) = (config.hidden_size, config.intermediate_size);
        let reading = Reading::new(weights, below);
        let rows = reading.words(config)?;
        let arch = arch();
        let suffix = if matches!(config.family, Family::Deberta(_)) { "_proj" } else { "" };
        let distances = match &config.family {
            Family::Bert | Family::Roberta => None,
            Family::Deberta(distances) => {
                let name = "encoder.rel_embeddings.weight";
                let mut embedding = reading.values(name, &[2 * distances.span(), hidden])?;
                if distances.normed {
                    let norm = reading.norm("encoder.LayerNorm", hidden)?;
                    layer_norm(arch, &mut embedding, &norm, config.norm_epsilon);
                }
                Some((distances, embedding))
            }
        };
        let tables = |query_key_value: &Affine| {
            distances.as_ref().map(|(distances, embedding)| {
                let mut projected = Vec::new();
                let mut scratch = LinearScratch::default();
                query_key_value.product(arch, embedding, &mut projected, &mut scratch);
                add_bias(arch, &mut projected, &query_key_value.bias);
                DistanceTables::new(&projected, hidden, distances, longest)
            })
        };
        let layers = (0..config.layers)
            .map(|index| {
                let part = |part: &str| format!("encoder.layer.{index}.{part}");
                let projections =
                    ["query", "key", "value"].map(|name| part(&format!("attention.self.{name}{suffix}")));
                let query_key_value = reading.affine(&projections, hidden, hidden)?;
                Ok(Layer {
                    distances: tables(&query_key_value),
                    query_key_value,
                    attended: reading.affine(&[part("attention.output.dense")], hidden, hidden)?,
                    attention_norm: reading.norm(&part("attention.output.LayerNorm"), hidden)?,
                    intermediate: reading.affine(&[part("intermediate.dense")], wide, hidden)?,
                    output: reading.affine(&[part("output.dense")], hidden, wide)?,
                    norm: reading.norm(&part("output.LayerNorm"), hidden)?,
                })
            })
            .collect::<Result<_, LoadError>>()?;
        let table =
            |name: &str, rows: usize| reading.values(&format!("embeddings.{name}.weight"), &[rows, hidden]);
        let (positions, kind) = match config.family {
            Family::Bert | Family::Roberta => {
                let mut kind = table("token_type_embeddings", config.token_types)?;
                kind.truncate(hidden);
                (Some(table("position_embeddings", config.positions)?), Some(kind))
            }
            Family::Deberta(_) => (None, None),
        };
        Ok(Self {
            arch,
            words: reading.values(WORDS, &[rows, hidden])?,
            positions,
            kind,
            norm: reading.norm("embeddings.LayerNorm", hidden)?,
            layers,
            config: config.clone(),
        })
    }

    /// The hidden states of the first token of each sequence after the last layer. Each sequence has between
    /// one token and the maximum length, and all ids are in the vocabulary.
    pub(super) fn first_states<'a>(&self, sequences: &[&[u32]], scratch: &'a mut Scratch) -> &'a [f32] {
        let hidden = self.config.hidden_size;
        self.embed(sequences, &mut scratch.hidden);
        // The published passage readers treat the padding id as padding at any position.
        let unseen = matches!(self.config.family, Family::Bert).then_some(self.config.padding);
        let seen: Vec<Vec<bool>> =
            sequences.iter().map(|ids| ids.iter().map(|id| Some(*id) != unseen).collect()).collect();
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            // After the last layer only the first token is used.
            self.layer(layer, &seen, index == last, scratch);
        }
        &scratch.hidden[..sequences.len() * hidden]
    }

    fn embed(&self, sequences: &[&[u32]], output: &mut Vec<f32>) {
        let hidden = self.config.hidden_size;
        output.clear();
        for ids in sequences {
            let mut place = 0;
            for (position, id) in ids.iter().enumerate() {
                let start = output.len();
                output.extend(&self.words[*id as usize * hidden..][..hidden]);
                let position = match self.config.family {
                    Family::Bert | Family::Deberta(_) => position,
                    // A padding id inside a text gets the padding's own position and does not advance the
                    // count.
                    Family::Roberta if *id == self.config.padding => self.config.padding as usize,
                    Family::Roberta => {
                        place += 1;
                        self.config.padding as usize + place
                    }
                };
                let position = self.positions.iter().map(|rows| &rows[position * hidden..][..hidden]);
                for addends in self.kind.iter().map(Vec::as_slice).chain(position) {
                    for (value, addend) in output[start..].iter_mut().zip(addends) {
                        *value += addend;
                    }
                }
            }
        }
        layer_norm(self.arch, output, &self.norm, self.config.norm_epsilon);
    }

    fn layer(&self, layer: &Layer, seen: &[Vec<bool>], first_only: bool, scratch: &mut Scratch) {
        let Scratch { linear, hidden, query_key_value, attended, update, intermediate } = scratch;
        let width = self.config.hidden_size;
        layer.query_key_value.product(self.arch, hidden, query_key_value, linear);
        add_bias(self.arch, query_key_value, &layer.query_key_value.bias);
        let kept = |seen: &Vec<bool>| if first_only { 1 } else { seen.len() };
        attended.resize(seen.iter().map(kept).sum::<usize>() * width, 0.0);
        let mut pieces = Vec::with_capacity(seen.len());
        let (mut inputs, mut outputs) = (query_key_value.as_slice(), attended.as_mut_slice());
        for seen in seen {
            let (input, inputs_left) = inputs.split_at(seen.len() * 3 * width);
            let (output, outputs_left) = std::mem::take(&mut outputs).split_at_mut(kept(seen) * width);
            pieces.push((input, seen.as_slice(), output));
            (inputs, outputs) = (inputs_left, outputs_left);
        }
        pieces.into_par_iter().for_each_init(AttentionScratch::default, |scratch, (input, seen, output)| {
            let distances = layer.distances.as_ref();
            attention(self.arch, input, seen, self.config.heads, distances, output, scratch);
        });
        if first_only {
            let mut start = 0;
            for (row, seen) in seen.iter().enumerate() {
                hidden.copy_within(start * width..(start + 1) * width, row * width);
                start += seen.len();
            }
            hidden.truncate(seen.len() * width);
        }
        let epsilon = self.config.norm_epsilon;
        layer.attended.product(self.arch, attended, update, linear);
        add_bias(self.arch, update, &layer.attended.bias);
        add_and_norm(self.arch, hidden, update, &layer.attention_norm, epsilon);
        layer.intermediate.product(self.arch, hidden, intermediate, linear);
        add_bias_and_gelu(self.arch, intermediate, &layer.intermediate.bias);
        layer.output.product(self.arch, intermediate, update, linear);
        add_bias(self.arch, update, &layer.output.bias);
        add_and_norm(self.arch, hidden, update, &layer.norm, epsilon);
    }
}
