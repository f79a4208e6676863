//! BERT's layers on flattened tokens: sequences follow each other without padding, so that what is computed of one
//! is the same to the bit whatever stands beside it (Devlin et al. 2018; transformers' `modeling_bert.py`).

use candle_core::Tensor;
use pulp::Arch;
use rayon::prelude::*;

use super::config::EncoderConfig;
use super::elementwise::{
    AttentionScratch, add_and_norm, add_bias, add_bias_and_gelu, attention, layer_norm,
};
use crate::error::LoadError;
use crate::load::weights::Weights;
use crate::model::{Execution, Linear, LinearScratch, to_f32};
use crate::options::DType;

/// A linear layer with its bias.
struct Affine {
    linear: Linear,
    bias: Vec<f32>,
}

/// Weight and bias of a layer norm.
struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Norm {
    fn both(&self) -> [&[f32]; 2] {
        [&self.weight, &self.bias]
    }
}

struct Layer {
    query_key_value: Affine,
    attended: Affine,
    attention_norm: Norm,
    intermediate: Affine,
    output: Affine,
    norm: Norm,
}

/// An encoder, read only.
pub(super) struct Bert {
    config: EncoderConfig,
    arch: Arch,
    words: Vec<f32>,
    positions: Vec<f32>,
    /// The embedding of the first token type, which is that of every token.
    kind: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

/// Reads tensors below a name.
struct Reading<'a> {
    weights: &'a Weights,
    below: &'a str,
}

impl Reading<'_> {
    fn name(&self, part: &str) -> String {
        format!("{}.{part}", self.below)
    }

    fn values(&self, part: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let name = self.name(part);
        let tensor = self.weights.get(&name, shape)?;
        to_f32(&tensor).map_err(|error| self.weights.invalid(&name, &error))
    }

    /// Layers stacked along their outputs.
    fn affine(&self, parts: &[String], outputs: usize, inputs: usize) -> Result<Affine, LoadError> {
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
        Ok(Norm {
            weight: self.values(&format!("{part}.weight"), &[width])?,
            bias: self.values(&format!("{part}.bias"), &[width])?,
        })
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

impl Bert {
    /// Reads the encoder's tensors below a name.
    pub(super) fn load(config: &EncoderConfig, weights: &Weights, below: &str) -> Result<Self, LoadError> {
        let (hidden, wide) = (config.hidden_size, config.intermediate_size);
        let reading = Reading { weights, below };
        let words = "embeddings.word_embeddings.weight";
        let rows = weights.rows(&reading.name(words), hidden)?;
        let layers = (0..config.layers)
            .map(|index| {
                let part = |part: &str| format!("encoder.layer.{index}.{part}");
                let projections =
                    ["query", "key", "value"].map(|name| part(&format!("attention.self.{name}")));
                Ok(Layer {
                    query_key_value: reading.affine(&projections, hidden, hidden)?,
                    attended: reading.affine(&[part("attention.output.dense")], hidden, hidden)?,
                    attention_norm: reading.norm(&part("attention.output.LayerNorm"), hidden)?,
                    intermediate: reading.affine(&[part("intermediate.dense")], wide, hidden)?,
                    output: reading.affine(&[part("output.dense")], hidden, wide)?,
                    norm: reading.norm(&part("output.LayerNorm"), hidden)?,
                })
            })
            .collect::<Result<_, LoadError>>()?;
        let mut kind =
            reading.values("embeddings.token_type_embeddings.weight", &[config.token_types, hidden])?;
        kind.truncate(hidden);
        Ok(Self {
            arch: Arch::new(),
            words: reading.values(words, &[rows, hidden])?,
            positions: reading
                .values("embeddings.position_embeddings.weight", &[config.positions, hidden])?,
            kind,
            norm: reading.norm("embeddings.LayerNorm", hidden)?,
            layers,
            config: config.clone(),
        })
    }

    /// Rows of the embedding of words.
    pub(super) fn vocabulary(&self) -> usize {
        self.words.len() / self.config.hidden_size
    }

    /// The hidden states of the first token of each sequence, after the last layer. Sequences hold at least one token,
    /// at most as many as there are positions, and none outside the vocabulary.
    pub(super) fn first_states<'a>(&self, sequences: &[Vec<u32>], scratch: &'a mut Scratch) -> &'a [f32] {
        let hidden = self.config.hidden_size;
        self.embed(sequences, &mut scratch.hidden);
        let seen: Vec<Vec<bool>> =
            sequences.iter().map(|ids| ids.iter().map(|id| *id != self.config.padding).collect()).collect();
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            // After the last layer nobody looks at any but the first token.
            self.layer(layer, &seen, index == last, scratch);
        }
        &scratch.hidden[..sequences.len() * hidden]
    }

    fn embed(&self, sequences: &[Vec<u32>], output: &mut Vec<f32>) {
        let hidden = self.config.hidden_size;
        output.clear();
        for (position, id) in sequences.iter().flat_map(|ids| ids.iter().enumerate()) {
            let word = &self.words[*id as usize * hidden..][..hidden];
            let place = &self.positions[position * hidden..][..hidden];
            output.extend(
                word.iter().zip(&self.kind).zip(place).map(|((word, kind), place)| word + kind + place),
            );
        }
        layer_norm(self.arch, output, self.norm.both(), self.config.norm_epsilon);
    }

    fn layer(&self, layer: &Layer, seen: &[Vec<bool>], first_only: bool, scratch: &mut Scratch) {
        let Scratch { linear, hidden, query_key_value, attended, update, intermediate } = scratch;
        let width = self.config.hidden_size;
        self.affine(&layer.query_key_value, hidden, query_key_value, linear);
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
            attention(self.arch, input, seen, self.config.heads, output, scratch);
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
        self.affine(&layer.attended, attended, update, linear);
        add_bias(self.arch, update, &layer.attended.bias);
        add_and_norm(self.arch, hidden, update, layer.attention_norm.both(), epsilon);
        self.affine(&layer.intermediate, hidden, intermediate, linear);
        add_bias_and_gelu(self.arch, intermediate, &layer.intermediate.bias);
        self.affine(&layer.output, intermediate, update, linear);
        add_bias(self.arch, update, &layer.output.bias);
        add_and_norm(self.arch, hidden, update, layer.norm.both(), epsilon);
    }

    /// The product alone; the bias is added with what follows.
    fn affine(&self, affine: &Affine, input: &[f32], output: &mut Vec<f32>, scratch: &mut LinearScratch) {
        let rows = input.len() / affine.linear.inputs();
        output.resize(rows * affine.linear.outputs(), 0.0);
        let execution = Execution { arch: self.arch, parallel: true };
        affine.linear.forward(execution, input, output, scratch);
    }
}
