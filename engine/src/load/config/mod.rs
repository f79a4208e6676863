//! Parses and validates `config.json`.
//!
//! [`ModelConfig::parse`] finds the family by the architecture's name and lets it write the description
//! ([`families`](super::families)); `checks` rejects sizes whose products could overflow. [`RawConfig`] has the fields
//! of the file, `rope` reads rotary embeddings, and a [`Problem`] is the source of errors that name file and field.

mod checks;
mod raw;
mod rope;

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::block::ModelConfig;
use super::families;
use super::files::read;
use super::folder::ModelFolder;
use crate::error::LoadError;

pub(crate) use checks::Problem;
pub(crate) use raw::{RawConfig, RawRope};
pub(crate) use rope::{RopeContext, parameters};

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
        let architecture = kind.architectures.and_then(|names| names.into_iter().next());
        let Some(family) = families::entry(architecture.as_deref(), kind.model_type.as_deref()) else {
            return Err(LoadError::UnsupportedFamily {
                file: file.to_owned(),
                architecture: architecture.or(kind.model_type).unwrap_or_default(),
                supported: families::names(),
            });
        };
        let raw: RawConfig = serde_json::from_slice(config).map_err(LoadError::json(file))?;
        let read = |(bytes, path)| -> Result<(raw::RawGenerationConfig, &Path), LoadError> {
            Ok((serde_json::from_slice(bytes).map_err(LoadError::json(path))?, path))
        };
        let generation = generation.map(read).transpose()?;
        let own = generation.as_ref().and_then(|(ids, path)| Some((ids.eos_token_id.as_ref()?, *path)));
        let end_of_sequence = end_of_sequence(own, raw.eos_token_id.as_ref().map(|ids| (ids, file)))?;
        Ok(Self { end_of_sequence, ..families::read(family, &raw, file)? })
    }
}

/// The ids that end a sequence: `eos_token_id` of generation_config.json, or else that of config.json, each with its file.
pub(super) fn end_of_sequence(
    generation: Option<(&Value, &Path)>,
    config: Option<(&Value, &Path)>,
) -> Result<Vec<u32>, LoadError> {
    let given = [generation, config].into_iter().flatten().find(|(value, _)| !value.is_null());
    let Some((value, file)) = given else { return Ok(Vec::new()) };
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids = match value {
        Value::Array(ids) => ids.iter().map(id).collect(),
        one => id(one).map(|id| vec![id]),
    };
    ids.ok_or_else(|| LoadError::InvalidConfig {
        file: file.to_owned(),
        reason: format!("eos_token_id is {value}: expected a token id or a list of ids"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::block::RopeScaling;

    const BASE: &str = r#""hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "rms_norm_eps": 1e-5"#;

    fn parse(extra: &str) -> Result<ModelConfig, LoadError> {
        ModelConfig::parse(format!("{{{BASE}{extra}}}").as_bytes(), None, Path::new("config.json"))
    }

    #[test]
    fn defaults_follow_the_original() {
        let config = parse(r#", "model_type": "llama""#).unwrap();
        assert_eq!((config.key_value_heads, config.head_size, config.ropes[0].theta), (4, 16, 10_000.0));
        assert_eq!(config.ropes[0].scaling, RopeScaling::None);
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
        assert_eq!(new.ropes[0].scaling, RopeScaling::Linear { factor: 2.0 });
    }

    #[test]
    fn rope_scaling_replaces_rope_parameters() {
        let rope = |scaling: &str| {
            let extra = format!(
                r#", "model_type": "llama", "rope_scaling": {scaling},
                "rope_parameters": {{"rope_type": "linear", "factor": 2, "rope_theta": 1e6}}"#
            );
            parse(&extra).unwrap().ropes.remove(0)
        };
        let yarn = rope(r#"{"type": "yarn", "factor": 4}"#);
        assert!(matches!(yarn.scaling, RopeScaling::Yarn { factor: 4.0, .. }), "{yarn:?}");
        // The default, as in transformers.
        assert_eq!(yarn.theta, 10_000.0);
        assert_eq!(rope(r#"{"type": "yarn", "factor": 4, "rope_theta": 5e5}"#).theta, 5e5);
        for empty in ["{}", "null"] {
            let kept = rope(empty);
            assert_eq!((kept.theta, kept.scaling), (1e6, RopeScaling::Linear { factor: 2.0 }));
        }
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
            (llama1.tied_embeddings, llama1.layers[0].window, llama1.ropes[0].theta),
            (false, None, 10_000.0)
        );
        let tiny = parse(
            r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "eos_token_id": 2,
            "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 2048,
            "num_attention_heads": 32, "num_hidden_layers": 22, "num_key_value_heads": 4, "rms_norm_eps": 1e-05,
            "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 32000}"#,
        );
        assert_eq!((tiny.heads, tiny.key_value_heads, tiny.head_size), (32, 4, 64));
        assert_eq!(tiny.ropes[0].scaling, RopeScaling::None);
        let llama32 = parse(
            r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "mlp_bias": false, "head_dim": 64,
            "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 2048,
            "intermediate_size": 8192, "max_position_embeddings": 131072, "num_attention_heads": 32,
            "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
            "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "tie_word_embeddings": true}"#,
        );
        assert_eq!((llama32.tied_embeddings, llama32.ropes[0].theta), (true, 500_000.0));
        assert_eq!(llama32.end_of_sequence, [128_001, 128_008, 128_009]);
        let scaling = RopeScaling::Llama3 {
            factor: 32.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_length: 8192.0,
        };
        assert_eq!(llama32.ropes[0].scaling, scaling);
        let mistral = |window: &str| {
            parse(&format!(
                r#"{{"architectures": ["MistralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
                "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
                "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
                "sliding_window": {window}}}"#
            ))
        };
        assert_eq!((mistral("4096").layers[31].window, mistral("null").layers[0].window), (Some(4096), None));
        assert_eq!((mistral("4096").key_value_heads, mistral("4096").head_size), (8, 128));
    }

    #[test]
    fn foreign_models_are_refused_by_name() {
        let error = parse(r#", "architectures": ["GPT2LMHeadModel"]"#).unwrap_err();
        assert!(matches!(error, LoadError::UnsupportedFamily { .. }), "{error}");
        for (extra, words) in [
            (r#", "model_type": "llama", "hidden_act": "gelu""#, ["hidden_act", "gelu"]),
            (
                r#", "model_type": "llama", "rope_scaling": {"type": "ntk", "factor": 2}"#,
                ["rope_scaling.type", "ntk"],
            ),
            (
                r#", "model_type": "gemma3_text", "rope_scaling": {"type": "linear", "factor": 8},
                "rope_parameters": {"full_attention": {"rope_type": "default"}}"#,
                ["rope_scaling", "rope_parameters"],
            ),
            (r#", "model_type": "qwen2", "partial_rotary_factor": 0.5"#, ["partial_rotary_factor", "0.5"]),
            (
                r#", "model_type": "gemma2", "use_bidirectional_attention": true"#,
                ["use_bidirectional", "true"],
            ),
        ] {
            let error = parse(extra).unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, LoadError::Unsupported { .. }), "{message}");
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
        let error = parse(r#", "model_type": "llama", "num_key_value_heads": 3"#).unwrap_err();
        assert!(matches!(error, LoadError::InvalidConfig { .. }), "{error}");
    }
}
