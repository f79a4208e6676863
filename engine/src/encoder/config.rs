//! config.json of BERT encoders, checked.

use std::path::Path;

use serde::Deserialize;

use crate::error::LoadError;

/// The shape of an encoder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EncoderConfig {
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) norm_epsilon: f32,
    /// Longest sequence in tokens.
    pub(super) positions: usize,
    pub(super) token_types: usize,
    /// The id that fills sequences up; nothing attends to it.
    pub(super) padding: u32,
}

#[derive(Deserialize)]
struct RawConfig {
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    #[serde(default = "usual_epsilon")]
    layer_norm_eps: f64,
    max_position_embeddings: usize,
    #[serde(default = "usual_token_types")]
    type_vocab_size: usize,
    #[serde(default)]
    pad_token_id: u32,
    hidden_act: Option<String>,
    position_embedding_type: Option<String>,
    #[serde(default)]
    projection_dim: usize,
}

fn usual_epsilon() -> f64 {
    1e-12
}

fn usual_token_types() -> usize {
    2
}

impl EncoderConfig {
    /// Reads config.json; `file` is what errors name.
    pub(super) fn parse(bytes: &[u8], file: &Path) -> Result<Self, LoadError> {
        let raw: RawConfig = serde_json::from_slice(bytes)
            .map_err(|error| LoadError::InvalidJson { file: file.to_owned(), reason: error.to_string() })?;
        let invalid = |reason: String| LoadError::InvalidConfig { file: file.to_owned(), reason };
        for (name, value) in [
            ("hidden_size", raw.hidden_size),
            ("intermediate_size", raw.intermediate_size),
            ("num_hidden_layers", raw.num_hidden_layers),
            ("num_attention_heads", raw.num_attention_heads),
            ("max_position_embeddings", raw.max_position_embeddings),
            ("type_vocab_size", raw.type_vocab_size),
        ] {
            if value == 0 || value > 1 << 20 {
                return Err(invalid(format!("{name} is {value}")));
            }
        }
        if !raw.hidden_size.is_multiple_of(raw.num_attention_heads) {
            let (hidden, heads) = (raw.hidden_size, raw.num_attention_heads);
            return Err(invalid(format!("hidden_size {hidden} is no multiple of {heads} heads")));
        }
        if !matches!(raw.hidden_act.as_deref(), None | Some("gelu")) {
            return Err(invalid("hidden_act is not gelu".to_owned()));
        }
        if !matches!(raw.position_embedding_type.as_deref(), None | Some("absolute")) {
            return Err(invalid("position_embedding_type is not absolute".to_owned()));
        }
        if raw.projection_dim != 0 {
            return Err(invalid("projection_dim is not 0, which no published reader has".to_owned()));
        }
        if !(raw.layer_norm_eps.is_finite() && raw.layer_norm_eps > 0.0) {
            return Err(invalid(format!("layer_norm_eps is {}", raw.layer_norm_eps)));
        }
        #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
        let norm_epsilon = raw.layer_norm_eps as f32;
        Ok(Self {
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            layers: raw.num_hidden_layers,
            heads: raw.num_attention_heads,
            norm_epsilon,
            positions: raw.max_position_embeddings,
            token_types: raw.type_vocab_size,
            padding: raw.pad_token_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#""hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
        "num_attention_heads":4,"max_position_embeddings":512"#;

    fn parse(more: &str) -> Result<EncoderConfig, LoadError> {
        EncoderConfig::parse(format!("{{{BASE}{more}}}").as_bytes(), Path::new("config.json"))
    }

    #[test]
    fn what_is_not_computed_is_refused() {
        let config = parse("").unwrap();
        assert_eq!((config.token_types, config.padding, config.norm_epsilon), (2, 0, 1e-12));
        for more in [
            r#","hidden_act":"relu""#,
            r#","position_embedding_type":"relative_key""#,
            r#","projection_dim":128"#,
            r#","layer_norm_eps":0"#,
            r#","type_vocab_size":0"#,
        ] {
            let error = parse(more).unwrap_err().to_string();
            assert!(error.contains("config.json"), "{error}");
        }
    }
}
