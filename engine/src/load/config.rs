//! Parses and validates `config.json` of the Llama family.
//!
//! [`ModelConfig`] is the shape of a model: sizes, heads, context length, end-of-sequence ids and the scaling
//! of rotary frequencies. Validation rejects unsupported architectures and sizes whose products could
//! overflow.

use std::path::Path;

use serde::Deserialize;

use super::files::read;
use super::folder::ModelFolder;
use crate::cache::KeyValueShape;
use crate::error::LoadError;

/// Architectures with Llama's forward pass.
const ARCHITECTURES: [&str; 2] = ["LlamaForCausalLM", "MistralForCausalLM"];

/// More values, or positions, than any model has: products of sizes up to this limit do not overflow.
const LARGEST_MODEL: f64 = 1e13;

/// Names of the tensors outside of the layers.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(crate) const NORM: &str = "model.norm.weight";
pub(crate) const HEAD: &str = "lm_head.weight";

/// The shape of a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelConfig {
    pub(crate) architecture: String,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) key_value_heads: usize,
    pub(crate) head_size: usize,
    pub(crate) norm_epsilon: f64,
    pub(crate) rope_theta: f64,
    pub(crate) rope_scaling: RopeScaling,
    pub(crate) sliding_window: Option<usize>,
    pub(crate) tied_embeddings: bool,
    /// Maximum sequence length in tokens.
    pub(crate) context_length: usize,
    /// Ids that end a sequence.
    pub(crate) end_of_sequence: Vec<u32>,
}

/// How rotary frequencies are scaled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RopeScaling {
    None,
    Linear {
        factor: f64,
    },
    Llama3 {
        factor: f64,
        low_frequency_factor: f64,
        high_frequency_factor: f64,
        original_length: f64,
    },
    /// The divisor of each pair's frequency.
    Divisors(Vec<f32>),
}

#[derive(Deserialize)]
struct RawConfig {
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RawRope>,
    rope_parameters: Option<RawRope>,
    sliding_window: Option<usize>,
    #[serde(default)]
    tie_word_embeddings: bool,
    max_position_embeddings: Option<usize>,
    eos_token_id: Option<Ids>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
}

#[derive(Deserialize)]
struct RawRope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

#[derive(Deserialize)]
struct RawGenerationConfig {
    eos_token_id: Option<Ids>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Ids {
    fn into_vec(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}

impl ModelConfig {
    /// Reads config.json and, for the end-of-sequence ids, generation_config.json if it exists.
    pub(super) fn from_folder(folder: &ModelFolder) -> Result<Self, LoadError> {
        let remedy = match folder.optional("adapter_config.json") {
            Some(_) => "it contains an adapter: load it together with its base model",
            None => "copy it from where the model was published",
        };
        let file = folder.required("config.json", remedy)?;
        let generation = folder.optional("generation_config.json");
        let config = read(&file)?;
        let generation = generation.map(|path| Ok::<_, LoadError>((read(&path)?, path))).transpose()?;
        Self::parse(&config, generation.as_ref().map(|(bytes, path)| (&bytes[..], &**path)), &file)
    }

    /// Parses and validates a configuration.
    pub(crate) fn parse(
        config: &[u8],
        generation: Option<(&[u8], &Path)>,
        file: &Path,
    ) -> Result<Self, LoadError> {
        // Checks the architecture first, because an unsupported configuration may have other fields.
        #[derive(Deserialize)]
        struct Kind {
            architectures: Option<Vec<String>>,
            model_type: Option<String>,
        }
        let kind: Kind = serde_json::from_slice(config).map_err(LoadError::json(file))?;
        let architecture = kind
            .architectures
            .and_then(|names| names.into_iter().next())
            .or(kind.model_type.map(|name| match name.as_str() {
                "llama" => ARCHITECTURES[0].to_owned(),
                "mistral" => ARCHITECTURES[1].to_owned(),
                _ => name,
            }))
            .unwrap_or_default();
        let unsupported = |reason: String| Err(LoadError::Unsupported { file: file.to_owned(), reason });
        if !ARCHITECTURES.contains(&architecture.as_str()) {
            return Err(LoadError::UnsupportedFamily { file: file.to_owned(), architecture });
        }
        let raw: RawConfig = serde_json::from_slice(config).map_err(LoadError::json(file))?;
        if raw.attention_bias == Some(true) || raw.mlp_bias == Some(true) {
            return unsupported("attention_bias or mlp_bias is true".to_owned());
        }
        if let Some(activation) = raw.hidden_act.as_deref().filter(|name| *name != "silu") {
            return unsupported(format!("hidden_act is {activation:?}, not \"silu\""));
        }
        let generation: Option<RawGenerationConfig> = generation
            .map(|(bytes, path)| serde_json::from_slice(bytes).map_err(LoadError::json(path)))
            .transpose()?;
        let end_of_sequence = generation.and_then(|generation| generation.eos_token_id).or(raw.eos_token_id);
        let rope = raw.rope_parameters.or(raw.rope_scaling);
        let rope_theta =
            rope.as_ref().and_then(|rope| rope.rope_theta).or(raw.rope_theta).unwrap_or(10_000.0);
        let invalid =
            |reason: &str| LoadError::InvalidConfig { file: file.to_owned(), reason: reason.to_owned() };
        let rope_scaling = match rope {
            None => RopeScaling::None,
            Some(rope) => {
                let value = |value: Option<f64>, name: &str| {
                    value
                        .filter(|value| *value > 0.0)
                        .ok_or_else(|| invalid(&format!("rope scaling needs a positive {name}")))
                };
                match rope.rope_type.as_deref().unwrap_or("default") {
                    "default" => RopeScaling::None,
                    "linear" => RopeScaling::Linear { factor: value(rope.factor, "factor")? },
                    "llama3" => RopeScaling::Llama3 {
                        factor: value(rope.factor, "factor")?,
                        low_frequency_factor: value(rope.low_freq_factor, "low_freq_factor")?,
                        high_frequency_factor: value(rope.high_freq_factor, "high_freq_factor")?,
                        original_length: value(
                            rope.original_max_position_embeddings,
                            "original_max_position_embeddings",
                        )?,
                    },
                    other => return unsupported(format!("rope scaling {other:?} is not supported")),
                }
            }
        };
        let heads = raw.num_attention_heads;
        if heads > 0 && raw.head_dim.is_none() && !raw.hidden_size.is_multiple_of(heads) {
            return Err(invalid("hidden_size must be a multiple of num_attention_heads"));
        }
        let config = Self {
            architecture,
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            layers: raw.num_hidden_layers,
            heads,
            key_value_heads: raw.num_key_value_heads.unwrap_or(heads),
            head_size: raw.head_dim.unwrap_or(raw.hidden_size.checked_div(heads).unwrap_or_default()),
            norm_epsilon: raw.rms_norm_eps.unwrap_or(1e-6),
            rope_theta,
            rope_scaling,
            sliding_window: raw.sliding_window.filter(|window| *window > 0),
            tied_embeddings: raw.tie_word_embeddings,
            context_length: raw.max_position_embeddings.unwrap_or(2048),
            end_of_sequence: end_of_sequence.map_or(Vec::new(), Ids::into_vec),
        };
        config.checked(file)
    }

    /// Numbers in a position's queries of all heads, and in its keys (or values) of all heads.
    pub(crate) fn widths(&self) -> (usize, usize) {
        (self.heads * self.head_size, self.key_value_heads * self.head_size)
    }

    /// Shape of the keys and values that the model stores per position.
    pub(crate) fn key_values(&self) -> KeyValueShape {
        KeyValueShape { layers: self.layers, heads: self.key_value_heads, head_size: self.head_size }
    }

    /// Names and shapes of all tensors, in the order of the layers. The rows of the embedding and of the head are a
    /// parameter, because a configuration does not fix them.
    pub(super) fn tensors(&self, rows: usize) -> Vec<(String, Vec<usize>)> {
        let (hidden, intermediate, (queries, keys)) =
            (self.hidden_size, self.intermediate_size, self.widths());
        let mut tensors = vec![(EMBEDDING.to_owned(), vec![rows, hidden])];
        for layer in 0..self.layers {
            for (part, shape) in [
                ("input_layernorm", vec![hidden]),
                ("self_attn.q_proj", vec![queries, hidden]),
                ("self_attn.k_proj", vec![keys, hidden]),
                ("self_attn.v_proj", vec![keys, hidden]),
                ("self_attn.o_proj", vec![hidden, queries]),
                ("post_attention_layernorm", vec![hidden]),
                ("mlp.gate_proj", vec![intermediate, hidden]),
                ("mlp.up_proj", vec![intermediate, hidden]),
                ("mlp.down_proj", vec![hidden, intermediate]),
            ] {
                tensors.push((format!("model.layers.{layer}.{part}.weight"), shape));
            }
        }
        tensors.push((NORM.to_owned(), vec![hidden]));
        if !self.tied_embeddings {
            tensors.push((HEAD.to_owned(), vec![rows, hidden]));
        }
        tensors
    }

    /// Validates the sizes; `file` is the path in error messages.
    pub(super) fn checked(self, file: &Path) -> Result<Self, LoadError> {
        let invalid =
            |reason: &str| Err(LoadError::InvalidConfig { file: file.to_owned(), reason: reason.to_owned() });
        let (heads, key_value_heads) = (self.heads, self.key_value_heads);
        if [self.hidden_size, self.intermediate_size, self.layers, heads, key_value_heads].contains(&0) {
            return invalid("sizes, layers and heads must be positive");
        }
        if !heads.is_multiple_of(key_value_heads) {
            return invalid("the number of heads must be a multiple of that of keys and values");
        }
        if self.head_size == 0 || !self.head_size.is_multiple_of(2) {
            return invalid("the size of a head must be even and positive");
        }
        let width = |size: usize| size as f64;
        let inputs = width(self.head_size) * (width(heads) + width(key_value_heads)) * 2.0
            + width(self.intermediate_size) * 3.0;
        let values = width(self.layers) * width(self.hidden_size) * inputs;
        if values > LARGEST_MODEL || width(self.context_length) > LARGEST_MODEL {
            return invalid(&format!(
                "sizes of a model of {values:.0e} values and {} positions",
                self.context_length
            ));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#""hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "rms_norm_eps": 1e-5"#;

    fn parse(extra: &str) -> Result<ModelConfig, LoadError> {
        ModelConfig::parse(format!("{{{BASE}{extra}}}").as_bytes(), None, Path::new("config.json"))
    }

    #[test]
    fn defaults_follow_the_original() {
        let config = parse(r#", "model_type": "llama""#).unwrap();
        assert_eq!((config.key_value_heads, config.head_size, config.rope_theta), (4, 16, 10_000.0));
        assert_eq!(config.rope_scaling, RopeScaling::None);
        assert!(config.end_of_sequence.is_empty());
    }

    #[test]
    fn rope_is_read_in_old_and_new_places() {
        let old = parse(
            r#", "model_type": "llama", "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}"#,
        );
        let new = parse(
            r#", "model_type": "llama", "rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 500000.0}"#,
        );
        let (old, new) = (old.unwrap(), new.unwrap());
        assert_eq!(old, new);
        assert_eq!(new.rope_scaling, RopeScaling::Linear { factor: 2.0 });
    }

    #[test]
    fn end_of_sequence_prefers_the_generation_config() {
        let text = format!(r#"{{{BASE}, "model_type": "mistral", "eos_token_id": 2}}"#);
        let generation = (&br#"{"eos_token_id": [7, 9]}"#[..], Path::new("generation_config.json"));
        let config = ModelConfig::parse(text.as_bytes(), Some(generation), Path::new("config.json")).unwrap();
        assert_eq!(config.end_of_sequence, [7, 9]);
        assert_eq!(config.architecture, "MistralForCausalLM");
    }

    /// The published config.json files.
    #[test]
    fn published_shapes_are_understood() {
        let parse = |text: &str| ModelConfig::parse(text.as_bytes(), None, Path::new("config.json")).unwrap();
        let llama1 = parse(
            r#"{"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
            "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 2048, "model_type": "llama",
            "num_attention_heads": 32, "num_hidden_layers": 32, "rms_norm_eps": 1e-06, "vocab_size": 32000}"#,
        );
        assert_eq!((llama1.key_value_heads, llama1.head_size, llama1.context_length), (32, 128, 2048));
        assert_eq!(
            (llama1.tied_embeddings, llama1.sliding_window, llama1.rope_theta),
            (false, None, 10_000.0)
        );
        let tiny = parse(
            r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "eos_token_id": 2,
            "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 2048,
            "num_attention_heads": 32, "num_hidden_layers": 22, "num_key_value_heads": 4, "rms_norm_eps": 1e-05,
            "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 32000}"#,
        );
        assert_eq!((tiny.heads, tiny.key_value_heads, tiny.head_size), (32, 4, 64));
        assert_eq!(tiny.rope_scaling, RopeScaling::None);
        let llama32 = parse(
            r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "mlp_bias": false, "head_dim": 64,
            "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 2048,
            "intermediate_size": 8192, "max_position_embeddings": 131072, "num_attention_heads": 32,
            "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
            "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "tie_word_embeddings": true}"#,
        );
        assert_eq!((llama32.tied_embeddings, llama32.rope_theta), (true, 500_000.0));
        assert_eq!(llama32.end_of_sequence, [128_001, 128_008, 128_009]);
        let scaling = RopeScaling::Llama3 {
            factor: 32.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_length: 8192.0,
        };
        assert_eq!(llama32.rope_scaling, scaling);
        let mistral = |window: &str| {
            parse(&format!(
                r#"{{"architectures": ["MistralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
                "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
                "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
                "sliding_window": {window}}}"#
            ))
        };
        assert_eq!((mistral("4096").sliding_window, mistral("null").sliding_window), (Some(4096), None));
        assert_eq!((mistral("4096").key_value_heads, mistral("4096").head_size), (8, 128));
    }

    #[test]
    fn foreign_models_are_refused_by_name() {
        for (extra, word) in [
            (r#", "architectures": ["GPT2LMHeadModel"]"#, "GPT2LMHeadModel"),
            (r#", "model_type": "llama", "attention_bias": true"#, "attention_bias"),
            (r#", "model_type": "llama", "hidden_act": "gelu""#, "gelu"),
            (r#", "model_type": "llama", "rope_scaling": {"type": "yarn", "factor": 2}"#, "yarn"),
        ] {
            let error = parse(extra).unwrap_err();
            assert!(
                matches!(error, LoadError::Unsupported { .. }) && error.to_string().contains(word),
                "{error}"
            );
        }
        let error = parse(r#", "model_type": "llama", "num_key_value_heads": 3"#).unwrap_err();
        assert!(matches!(error, LoadError::InvalidConfig { .. }), "{error}");
    }
}
