//! The supported families of models: one row of [`FAMILIES`] and one function each, which writes the description of a
//! model from its config.json.
//!
//! [`plain`] is the description of a Llama; the functions change what their family computes differently. Defaults of
//! missing fields are those of transformers' configuration classes, on which published files rely.

mod dense;
mod gemma;
mod mixture;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::block::{
    Activation, Biases, Block, Family, FeedForward, LayerConfig, ModelConfig, Norms, Projections,
    QueryKeyNorm,
};
use super::config::{Problem, RawConfig, RopeContext};
use crate::error::LoadError;

/// A supported family.
pub(crate) struct FamilyEntry {
    /// Class name in the field `architectures`.
    pub(crate) architecture: &'static str,
    /// The field `model_type`, which is used if the class name is missing.
    pub(crate) model_type: &'static str,
    read: fn(&RawConfig, &Problem<'_>) -> Result<ModelConfig, LoadError>,
}

/// All supported families.
pub(crate) const FAMILIES: &[FamilyEntry] = &[
    FamilyEntry { architecture: "LlamaForCausalLM", model_type: "llama", read: dense::llama },
    FamilyEntry { architecture: "MistralForCausalLM", model_type: "mistral", read: dense::mistral },
    FamilyEntry { architecture: "MixtralForCausalLM", model_type: "mixtral", read: mixture::mixtral },
    FamilyEntry { architecture: "Qwen2ForCausalLM", model_type: "qwen2", read: dense::qwen2 },
    FamilyEntry { architecture: "Qwen3ForCausalLM", model_type: "qwen3", read: dense::qwen3 },
    FamilyEntry { architecture: "Qwen3MoeForCausalLM", model_type: "qwen3_moe", read: mixture::qwen3_moe },
    FamilyEntry { architecture: "Gemma2ForCausalLM", model_type: "gemma2", read: gemma::gemma2 },
    FamilyEntry { architecture: "Gemma3ForCausalLM", model_type: "gemma3_text", read: gemma::gemma3 },
    FamilyEntry { architecture: "Phi3ForCausalLM", model_type: "phi3", read: dense::phi3 },
    FamilyEntry { architecture: "Olmo2ForCausalLM", model_type: "olmo2", read: dense::olmo2 },
    FamilyEntry { architecture: "GraniteForCausalLM", model_type: "granite", read: dense::granite },
];

/// Finds a family by its class name, or by its `model_type` if the class name is missing.
pub(crate) fn entry(architecture: Option<&str>, model_type: Option<&str>) -> Option<&'static FamilyEntry> {
    FAMILIES.iter().find(|entry| match architecture {
        Some(architecture) => entry.architecture == architecture,
        None => model_type == Some(entry.model_type),
    })
}

/// The class names of all families, for messages.
pub(crate) fn names() -> String {
    FAMILIES.iter().map(|entry| entry.architecture).collect::<Vec<_>>().join(", ")
}

/// The description of a model of the family, without its end-of-sequence ids. Errors name `file`.
pub(crate) fn read(entry: &FamilyEntry, raw: &RawConfig, file: &Path) -> Result<ModelConfig, LoadError> {
    let problem = Problem::new(file);
    if let Some(value) = raw.use_bidirectional_attention.as_ref().filter(|value| !is_off(value)) {
        return Err(problem.unsupported("use_bidirectional_attention", value));
    }
    let config = (entry.read)(raw, &problem)?;
    ModelConfig { architecture: entry.architecture.to_owned(), ..config }.checked(&problem)
}

fn is_off(value: &serde_json::Value) -> bool {
    value.is_null() || *value == serde_json::Value::Bool(false)
}

/// Values of fields that a file may omit.
struct Defaults {
    /// Size of a head; the hidden size divided by the heads if `None`.
    head_size: Option<usize>,
    /// Key-value heads; as many as heads if `None`.
    key_value_heads: Option<usize>,
    norm_epsilon: f64,
    context_length: usize,
    rope_theta: f64,
    tied_embeddings: bool,
    /// Whether the family can rotate a part of each head.
    partial_rotary: bool,
}

const DEFAULTS: Defaults = Defaults {
    head_size: None,
    key_value_heads: None,
    norm_epsilon: 1e-6,
    context_length: 2048,
    rope_theta: 10_000.0,
    tied_embeddings: false,
    partial_rotary: false,
};

/// The description of a Llama with this configuration: no biases, no windows, one rotary embedding.
fn plain(
    raw: &RawConfig,
    problem: &Problem<'_>,
    family: Family,
    defaults: &Defaults,
) -> Result<ModelConfig, LoadError> {
    let (hidden_size, heads) = (raw.hidden_size, raw.num_attention_heads);
    problem.check_layers(raw.num_hidden_layers)?;
    if heads == 0 {
        return Err(problem.field("num_attention_heads", "0 is not positive"));
    }
    let head_size = match raw.head_dim.or(defaults.head_size) {
        Some(size) => size,
        None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
        None => {
            let reason = format!("{hidden_size} is not a multiple of num_attention_heads {heads}");
            return Err(problem.field("hidden_size", reason));
        }
    };
    let context_length = raw.max_position_embeddings.unwrap_or(defaults.context_length);
    let partial = defaults.partial_rotary;
    let rope =
        RopeContext { raw, problem, head_size, context_length, partial }.shared(defaults.rope_theta)?;
    let width = raw.intermediate_size.ok_or_else(|| problem.field("intermediate_size", "missing"))?;
    let layer = LayerConfig { window: None, rope: 0, feed_forward: FeedForward::Dense { width } };
    Ok(ModelConfig {
        architecture: String::new(),
        family,
        hidden_size,
        heads,
        key_value_heads: raw.num_key_value_heads.or(defaults.key_value_heads).unwrap_or(heads),
        head_size,
        norm_epsilon: raw.rms_norm_eps.unwrap_or(defaults.norm_epsilon),
        block: Block {
            norms: Norms::Before,
            norm_offset: 0.0,
            query_key_norm: QueryKeyNorm::None,
            biases: Biases::default(),
            projections: Projections::Separate,
            attention_scale: Block::usual_scale(head_size),
            attention_cap: None,
            residual_scale: None,
            activation: activation(raw, problem)?,
        },
        layers: vec![layer; raw.num_hidden_layers],
        ropes: vec![rope],
        embedding_scale: None,
        logit_divisor: None,
        logit_cap: None,
        tied_embeddings: raw.tie_word_embeddings.unwrap_or(defaults.tied_embeddings),
        context_length,
        end_of_sequence: Vec::new(),
    })
}

/// The activation that the file names; SiLU if it names none.
fn activation(raw: &RawConfig, problem: &Problem<'_>) -> Result<Activation, LoadError> {
    let (name, field) = match (&raw.hidden_activation, &raw.hidden_act) {
        (Some(name), _) => (name, "hidden_activation"),
        (None, Some(name)) => (name, "hidden_act"),
        (None, None) => return Ok(Activation::Silu),
    };
    match name.as_str() {
        "silu" => Ok(Activation::Silu),
        "gelu_pytorch_tanh" | "gelu_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
        other => {
            let reason = format!("`{other}` is not supported: expected silu or gelu_pytorch_tanh");
            Err(problem.unsupported(field, reason))
        }
    }
}

/// Biases of all projections, for families whose file says whether they have them.
fn biases(raw: &RawConfig) -> Biases {
    let attention = raw.attention_bias.unwrap_or(false);
    let feed_forward = raw.mlp_bias.unwrap_or(false);
    Biases { query_key_value: attention, attention_output: attention, feed_forward }
}

/// Sets the window of the layers that have one: those that `layer_types` names, or otherwise those for which `has`
/// returns true. `window` is the window's size, if there is one.
fn set_windows(
    config: &mut ModelConfig,
    raw: &RawConfig,
    problem: &Problem<'_>,
    window: Option<usize>,
    has: impl Fn(usize) -> bool,
) -> Result<(), LoadError> {
    let types = raw.layer_types.as_deref();
    if let Some(types) = types.filter(|types| types.len() != config.layers.len()) {
        let reason = format!("{} entries for {} layers", types.len(), config.layers.len());
        return Err(problem.field("layer_types", reason));
    }
    for (index, layer) in config.layers.iter_mut().enumerate() {
        let windowed = match types.map(|types| types[index].as_str()) {
            None => window.is_some() && has(index),
            Some("full_attention") => false,
            Some("sliding_attention") => true,
            Some(other) => {
                let expected = "expected full_attention or sliding_attention";
                return Err(
                    problem.unsupported("layer_types", format!("`{other}` is not supported: {expected}"))
                );
            }
        };
        if windowed {
            let missing =
                || problem.field("sliding_window", "missing, but layer_types has sliding_attention");
            layer.window = Some(window.ok_or_else(missing)?);
        }
    }
    let windowed = config.layers.iter().find_map(|layer| layer.window);
    match (windowed, raw.sliding_window.flatten()) {
        (Some(0), _) => Err(problem.field("sliding_window", "0 is not positive")),
        (Some(window), Some(_)) if window > config.context_length => {
            let reason = format!("{window} exceeds max_position_embeddings {}", config.context_length);
            Err(problem.field("sliding_window", reason))
        }
        _ => Ok(()),
    }
}

/// A scale of the file as a factor, if it changes anything.
fn factor(value: Option<f64>, problem: &Problem<'_>, field: &str) -> Result<Option<f32>, LoadError> {
    match value {
        None => Ok(None),
        Some(1.0) => Ok(None),
        Some(value) if value > 0.0 && (value as f32).is_finite() && value as f32 > 0.0 => {
            Ok(Some(value as f32))
        }
        Some(value) => Err(problem.field(field, format!("{value} is not a positive number"))),
    }
}
