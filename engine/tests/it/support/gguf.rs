//! GGUF files of random models, in the layout of llama.cpp's `convert_hf_to_gguf.py`.

use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::gguf_families::gguf_name;
use super::{NamedTensor, Shape, pieces};

/// Metadata and tensors of a file, which tests change before it is written.
pub(crate) struct GgufModel {
    pub(crate) metadata: Vec<(String, Value)>,
    pub(crate) tensors: Vec<(String, QTensor)>,
}

impl GgufModel {
    /// Creates the model of a shape, with its matrices in `dtype` and the tests' tokenizer.
    pub(crate) fn new(shape: &Shape, seed: u64, dtype: GgmlDType) -> Self {
        Self::of(shape, &shape.tensors(seed), dtype)
    }

    /// Creates a model with the given weights.
    pub(crate) fn of(shape: &Shape, weights: &[NamedTensor], dtype: GgmlDType) -> Self {
        let mut model = Self { metadata: metadata(shape), tensors: tensors(shape, weights, dtype) };
        model.sentencepiece(&pieces(), true);
        model
    }

    /// Adds or replaces a value.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.metadata.retain(|(known, _)| known != key);
        self.metadata.push((key.to_owned(), value));
    }

    /// Removes a value.
    pub(crate) fn unset(&mut self, key: &str) {
        self.metadata.retain(|(known, _)| known != key);
    }

    /// Sets a SentencePiece vocabulary.
    pub(crate) fn sentencepiece(&mut self, pieces: &[(String, f32)], prefix: bool) {
        self.set("tokenizer.ggml.model", text("llama"));
        self.set("tokenizer.ggml.pre", text("default"));
        self.set("tokenizer.ggml.add_space_prefix", Value::Bool(prefix));
        self.vocabulary(pieces.iter().map(|(piece, _)| (piece.as_str(), kind(piece))));
        let scores = pieces.iter().map(|(_, score)| Value::F32(*score)).collect();
        self.set("tokenizer.ggml.scores", Value::Array(scores));
    }

    /// Sets the pieces with their types.
    pub(crate) fn vocabulary<'a>(&mut self, pieces: impl Iterator<Item = (&'a str, i32)>) {
        let (tokens, kinds) = pieces.map(|(piece, kind)| (text(piece), Value::I32(kind))).unzip();
        self.set("tokenizer.ggml.tokens", Value::Array(tokens));
        self.set("tokenizer.ggml.token_type", Value::Array(kinds));
        self.unset("tokenizer.ggml.scores");
    }

    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) {
        let metadata: Vec<(&str, &Value)> =
            self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<(&str, &QTensor)> =
            self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        gguf_file::write(&mut std::fs::File::create(path).unwrap(), &metadata, &tensors).unwrap();
    }
}

/// Returns a string value.
pub(crate) fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// Returns GGUF's number for the type of a piece.
pub(crate) fn kind(piece: &str) -> i32 {
    match piece {
        "<unk>" => 2,
        "<s>" | "</s>" => 3,
        _ if piece.starts_with("<0x") => 6,
        _ => 1,
    }
}

fn metadata(shape: &Shape) -> Vec<(String, Value)> {
    let number = |value: usize| Value::U32(value as u32);
    let values = [
        ("general.architecture", text("llama")),
        ("general.type", text("model")),
        ("llama.context_length", number(2048)),
        ("llama.embedding_length", number(shape.hidden)),
        ("llama.block_count", number(shape.layers)),
        ("llama.feed_forward_length", number(shape.intermediate)),
        ("llama.attention.head_count", number(shape.heads)),
        ("llama.attention.head_count_kv", number(shape.key_value_heads)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("llama.rope.dimension_count", number(shape.head_size())),
        ("tokenizer.ggml.bos_token_id", Value::U32(1)),
        ("tokenizer.ggml.eos_token_id", Value::U32(2)),
    ];
    values.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

fn tensors(shape: &Shape, tensors: &[NamedTensor], dtype: GgmlDType) -> Vec<(String, QTensor)> {
    let convert = |(name, dims, values): &NamedTensor| {
        let mut tensor = Tensor::from_slice(values, dims.clone(), &Device::Cpu).unwrap();
        if name.contains("q_proj") {
            tensor = interleaved(&tensor, shape.heads);
        } else if name.contains("k_proj") {
            tensor = interleaved(&tensor, shape.key_value_heads);
        }
        let dtype = if dims.len() > 1 { dtype } else { GgmlDType::F32 };
        (gguf_name("llama", name), QTensor::quantize(&tensor, dtype).unwrap())
    };
    tensors.iter().map(convert).collect()
}

/// Interleaves the rows of the two halves of each head, of a matrix or of a vector.
pub(crate) fn interleaved(tensor: &Tensor, heads: usize) -> Tensor {
    let rows = tensor.dim(0).unwrap();
    let halves = tensor.reshape((heads, 2, rows / heads / 2, tensor.elem_count() / rows)).unwrap();
    halves.transpose(1, 2).unwrap().reshape(tensor.dims()).unwrap()
}
