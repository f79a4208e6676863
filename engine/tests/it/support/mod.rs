//! Small random models, generated from a seed.

pub(crate) mod adapter;
pub(crate) mod families;
pub(crate) mod gguf;
pub(crate) mod gguf_families;
pub(crate) mod pickle;
#[allow(dead_code, reason = "used by the integration tests only")]
pub(crate) mod plain;
pub(crate) mod tokenizer;
mod uniform;

use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

pub(crate) use tokenizer::{byte_tokenizer, pieces};
pub(crate) use uniform::Uniform;

/// A tensor's name, shape and values.
pub(crate) type NamedTensor = (String, Vec<usize>, Vec<f32>);

/// The shape of a random model.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The field `model_type` of config.json.
    pub(crate) family: &'static str,
    pub(crate) hidden: usize,
    pub(crate) intermediate: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) key_value_heads: usize,
    pub(crate) vocabulary: usize,
    pub(crate) tied: bool,
    /// Added to config.json.
    pub(crate) extra: Value,
}

impl Shape {
    /// A tiny shape with grouped heads and with sizes that are not multiples of a vector.
    pub(crate) fn tiny() -> Self {
        Self {
            family: "llama",
            hidden: 48,
            intermediate: 100,
            layers: 2,
            heads: 6,
            key_value_heads: 2,
            vocabulary: 300,
            tied: false,
            extra: json!({}),
        }
    }

    /// About 2 M parameters, the size of the built-in model.
    #[allow(dead_code, reason = "used by the benches")]
    pub(crate) fn small() -> Self {
        Self {
            family: "llama",
            hidden: 224,
            intermediate: 256,
            layers: 5,
            heads: 7,
            key_value_heads: 7,
            vocabulary: 2048,
            tied: true,
            extra: json!({}),
        }
    }

    /// About 10 M parameters.
    #[allow(dead_code, reason = "used by the benches")]
    pub(crate) fn medium() -> Self {
        Self {
            family: "llama",
            hidden: 384,
            intermediate: 1024,
            layers: 5,
            heads: 6,
            key_value_heads: 6,
            vocabulary: 2048,
            tied: false,
            extra: json!({}),
        }
    }

    pub(crate) fn head_size(&self) -> usize {
        self.hidden / self.heads
    }

    pub(crate) fn config(&self) -> Value {
        let mut config = json!({
            "architectures": [families::architecture(self.family)],
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_value_heads,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": self.tied,
            "eos_token_id": 2,
        });
        for extra in [&families::fields(self), &self.extra] {
            if let (Some(config), Some(extra)) = (config.as_object_mut(), extra.as_object()) {
                config.extend(extra.clone());
            }
        }
        config
    }

    /// Returns names, shapes and values of all tensors.
    pub(crate) fn tensors(&self, seed: u64) -> Vec<NamedTensor> {
        let mut random = Uniform::new(seed);
        let mut tensors = Vec::new();
        let (matrices, vectors) = families::tensors(self);
        for (name, rows, columns) in matrices {
            let scale = 3.0 / (columns as f32).sqrt();
            tensors.push((name, vec![rows, columns], random.values(rows * columns, scale)));
        }
        for (name, length, center) in vectors {
            let values = random.values(length, 0.2).iter().map(|value| center + value).collect();
            tensors.push((name, vec![length], values));
        }
        tensors
    }

    /// Returns the files of a model.
    pub(crate) fn files(&self, seed: u64) -> Files {
        Files {
            config: self.config().to_string().into_bytes(),
            tokenizer: byte_tokenizer().to_string().into_bytes(),
            weights: safetensors(&self.tensors(seed)),
        }
    }
}

/// config.json, tokenizer.json and model.safetensors.
#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) config: Vec<u8>,
    pub(crate) tokenizer: Vec<u8>,
    pub(crate) weights: Vec<u8>,
}

impl Files {
    /// Writes the files to a folder.
    pub(crate) fn write(&self, folder: &Path) {
        std::fs::write(folder.join("config.json"), &self.config).unwrap();
        std::fs::write(folder.join("tokenizer.json"), &self.tokenizer).unwrap();
        std::fs::write(folder.join("model.safetensors"), &self.weights).unwrap();
    }
}

/// Serializes float32 tensors.
pub(crate) fn safetensors(tensors: &[NamedTensor]) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, _, values)| values.iter().flat_map(|value| value.to_le_bytes()).collect())
        .collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}
