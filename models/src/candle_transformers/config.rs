//! [`ReferenceConfig`]: config.json as transformers reads it, as plain values for candle-transformers.
//!
//! The crate's own configurations expect the fields of older files: transformers 5 writes rotary settings into
//! `rope_parameters`, and both omit fields with defaults. Reading applies the defaults of the family, moves rotary
//! settings to where the crate reads them, and bounds all sizes. [`refuse`](super::refuse) then compares the values with
//! what the crate computes.

use std::path::{Path, PathBuf};

use lumos_engine::{LoadError, ModelCheckpoint};
use serde_json::{Map, Value, json};

/// No model has larger sizes; products of a few sizes up to this one do not overflow.
const LARGEST_SIZE: u64 = 1 << 24;
/// Largest number of layers, heads and experts.
const LARGEST_COUNT: u64 = 4096;
/// Memory for tables of rotary embeddings, in bytes. The crate builds them for the whole context.
const TABLE_BYTES: usize = 256 << 20;
/// Largest context length in tokens.
const LONGEST_CONTEXT: u64 = 1 << 20;
/// Layers from one with full attention to the next in Gemma 3.
const WINDOW_PATTERN: usize = 6;

/// The values of config.json with defaults applied.
#[derive(Debug, Clone)]
pub(super) struct ReferenceConfig {
    file: PathBuf,
    pub(super) architecture: String,
    fields: Map<String, Value>,
    /// Rotary settings: the field of config.json, and its value.
    pub(super) rope: Option<(String, Map<String, Value>)>,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) key_value_heads: usize,
    pub(super) head_size: usize,
    /// Maximum sequence length in tokens.
    pub(super) context_length: usize,
}

impl ReferenceConfig {
    /// Reads the configuration of a checkpoint. `defaults` are those of transformers for the family, `tables` is the
    /// number of tables of rotary embeddings per layer-independent model (or per layer if `per_layer`), and
    /// `limit` bounds the context length.
    pub(super) fn read(
        checkpoint: &ModelCheckpoint,
        defaults: &Value,
        per_layer: bool,
        limit: Option<usize>,
    ) -> Result<Self, LoadError> {
        let given = checkpoint.config().as_object().cloned().unwrap_or_default();
        let mut fields = given.clone();
        for (name, value) in defaults.as_object().into_iter().flatten() {
            // Most fields may be null on purpose; a head size of null means the default.
            if !given.contains_key(name) || (name == "head_dim" && given[name].is_null()) {
                fields.insert(name.clone(), value.clone());
            }
        }
        fields.retain(|_, value| !value.is_null());
        // As in transformers, `rope_scaling` replaces `rope_parameters` unless it is empty.
        let rope = ["rope_scaling", "rope_parameters"].into_iter().find_map(|name| {
            let rope = fields.get(name)?.as_object().filter(|rope| !rope.is_empty())?;
            Some((name.to_owned(), rope.clone()))
        });
        let mut config = Self {
            file: checkpoint.config_file().to_owned(),
            architecture: architecture(checkpoint.config()),
            fields,
            rope,
            layers: 0,
            heads: 0,
            key_value_heads: 0,
            head_size: 0,
            context_length: 0,
        };
        config.check_sizes()?;
        let tables = if per_layer { config.layers } else { 1 };
        // Sines and cosines of half a head.
        let table_bytes = config.head_size * tables * size_of::<f32>();
        let context = config.size("max_position_embeddings", LONGEST_CONTEXT)?.unwrap_or(2048);
        config.context_length =
            context.min(limit.unwrap_or(usize::MAX)).min(TABLE_BYTES / table_bytes).max(1);
        config.set("vocab_size", checkpoint.vocabulary());
        config.set("num_key_value_heads", config.key_value_heads);
        config.set("head_dim", config.head_size);
        // The crate's Llama compares the number of heads with this, too.
        config.set("max_position_embeddings", config.context_length.max(config.heads));
        config.flatten_rope();
        config.set_window_pattern()?;
        Ok(config)
    }

    /// Reads and bounds the sizes.
    fn check_sizes(&mut self) -> Result<(), LoadError> {
        let required = |config: &Self, name: &str, most: u64| {
            config.size(name, most)?.ok_or_else(|| config.invalid(&format!("missing field `{name}`")))
        };
        let hidden = required(self, "hidden_size", LARGEST_SIZE)?;
        required(self, "intermediate_size", LARGEST_SIZE)?;
        self.layers = required(self, "num_hidden_layers", LARGEST_COUNT)?;
        self.heads = required(self, "num_attention_heads", LARGEST_COUNT)?;
        self.key_value_heads = self.size("num_key_value_heads", LARGEST_COUNT)?.unwrap_or(self.heads);
        self.head_size = self.size("head_dim", LARGEST_SIZE)?.unwrap_or(hidden / self.heads);
        for name in ["num_experts", "num_local_experts", "num_experts_per_tok", "decoder_sparse_step"] {
            self.size(name, LARGEST_COUNT)?;
        }
        for name in ["moe_intermediate_size", "shared_expert_intermediate_size", "query_pre_attn_scalar"] {
            self.size(name, LARGEST_SIZE)?;
        }
        for name in ["rope_theta", "rope_local_base_freq", "rms_norm_eps", "norm_epsilon"] {
            if self.fields.contains_key(name) && self.number(name).is_none_or(|value| value <= 0.0) {
                return Err(
                    self.invalid(&format!("{name} is {}: expected a positive number", self.fields[name]))
                );
            }
        }
        if !self.heads.is_multiple_of(self.key_value_heads) {
            return Err(self.invalid("num_attention_heads must be a multiple of num_key_value_heads"));
        }
        if self.head_size == 0 || !self.head_size.is_multiple_of(2) {
            return Err(self.invalid("head_dim must be even and positive"));
        }
        Ok(())
    }

    /// Sets the number of layers up to the first full one, which the crate expects for models whose layers alternate.
    /// transformers 5 lists the layers instead.
    fn set_window_pattern(&mut self) -> Result<(), LoadError> {
        let named = self.size("sliding_window_pattern", LARGEST_COUNT)?;
        let private = self.size("_sliding_window_pattern", LARGEST_COUNT)?;
        let listed =
            self.layer_types().and_then(|types| types.iter().position(|layer| layer == "full_attention"));
        let pattern = named.or(private).or(listed.map(|first| first + 1)).unwrap_or(WINDOW_PATTERN);
        self.set("sliding_window_pattern", pattern);
        Ok(())
    }

    /// The kind of attention of each layer, where the file lists it.
    pub(super) fn layer_types(&self) -> Option<&Vec<Value>> {
        self.get("layer_types")?.as_array()
    }

    /// Moves rotary settings to the top level.
    fn flatten_rope(&mut self) {
        let Some((_, rope)) = self.rope.clone() else { return };
        let part = |name: &str| rope.get(name).and_then(Value::as_object);
        let global = part("full_attention").unwrap_or(&rope);
        for name in ["rope_theta", "partial_rotary_factor"] {
            if let Some(value) = global.get(name).filter(|value| !value.is_null()) {
                self.fields.insert(name.to_owned(), value.clone());
            }
        }
        let local = part("sliding_attention").and_then(|local| local.get("rope_theta"));
        if let Some(theta) = local {
            self.fields.insert("rope_local_base_freq".to_owned(), theta.clone());
        }
    }

    /// The names and types of rotary embeddings other than the default one: `rope_scaling.type` and `yarn`.
    pub(super) fn rope_types(&self) -> Vec<(String, String)> {
        let Some((field, rope)) = &self.rope else { return Vec::new() };
        let type_of = |path: String, rope: &Map<String, Value>| {
            let (name, value) =
                ["rope_type", "type"].into_iter().find_map(|name| Some((name, rope.get(name)?.as_str()?)))?;
            (value != "default").then(|| (format!("{path}.{name}"), value.to_owned()))
        };
        let parts = ["full_attention", "sliding_attention"]
            .into_iter()
            .filter_map(|name| type_of(format!("{field}.{name}"), rope.get(name)?.as_object()?));
        type_of(field.clone(), rope).into_iter().chain(parts).collect()
    }

    /// A value; `None` if it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.fields.remove(name);
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64().filter(|value| value.is_finite())
    }

    /// A positive integer up to `most`; `None` if it is absent.
    pub(super) fn size(&self, name: &str, most: u64) -> Result<Option<usize>, LoadError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let size = value.as_u64().filter(|size| (1..=most).contains(size));
        let size = size.and_then(|size| usize::try_from(size).ok());
        let wrong = || self.invalid(&format!("{name} is {value}: expected an integer from 1 to {most}"));
        size.map(Some).ok_or_else(wrong)
    }

    /// The window of attention; `None` for all positions.
    pub(super) fn window(&self) -> Option<usize> {
        let window = self.get("sliding_window").and_then(Value::as_u64).filter(|window| *window > 0)?;
        usize::try_from(window).ok()
    }

    /// All values, for the crate.
    pub(super) fn json(&self) -> Value {
        Value::Object(self.fields.clone())
    }

    /// Bytes of the keys and values of one position, in float32.
    pub(super) fn cache_bytes_per_token(&self) -> u64 {
        (2 * self.layers * self.key_value_heads * self.head_size * size_of::<f32>()) as u64
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    fn invalid(&self, reason: &str) -> LoadError {
        LoadError::InvalidConfig { file: self.file.clone(), reason: reason.to_owned() }
    }
}

/// The class name of a configuration.
pub(super) fn architecture(config: &Value) -> String {
    config["architectures"][0].as_str().unwrap_or_default().to_owned()
}

/// The rotary settings of Llama 3, as the crate reads them.
pub(super) fn llama3_scaling(rope: &Map<String, Value>) -> Value {
    let value = |name: &str| rope.get(name).cloned().unwrap_or_default();
    json!({
        "rope_type": "llama3",
        "factor": value("factor"),
        "low_freq_factor": value("low_freq_factor"),
        "high_freq_factor": value("high_freq_factor"),
        "original_max_position_embeddings": value("original_max_position_embeddings"),
    })
}
