//! The families of candle-transformers: defaults of transformers, rules, and how a model is built.
//!
//! A [`Family`] is a row of [`FAMILIES`]. Models of the crate have no common trait: [`Cached`] adds the forward pass to
//! each. A model keeps keys and values inside, and some cannot clear them, so every sequence starts from a clone of the
//! loaded model, which shares the weights.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{
    gemma, gemma2, gemma3, granite, llama, mistral, mixtral, olmo, olmo2, phi3, qwen2, qwen2_moe, qwen3,
    qwen3_moe, starcoder2,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::config::{ReferenceConfig, llama3_scaling};

/// A model with the keys and values of one sequence.
pub(super) trait ReferenceModel: Send + Sync {
    /// A copy for another sequence. Call it only on a model that has not computed anything.
    fn fresh(&self) -> Box<dyn ReferenceModel>;

    /// Computes tokens (1 × n) after `position` earlier ones; the logits after the last one.
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor>;
}

/// A family of the crate.
pub(super) struct Family {
    /// Class name in config.json.
    pub(super) architecture: &'static str,
    /// Values of fields that config.json may omit, as in transformers.
    pub(super) defaults: fn() -> Value,
    /// The activation that both compute equally.
    pub(super) activation: &'static str,
    /// Whether rotary frequencies may be scaled as in Llama 3.
    pub(super) llama3_rope: bool,
    /// Whether a part of a head may be rotated.
    pub(super) partial_rotary: bool,
    /// Whether each layer has its own table of rotary embeddings.
    pub(super) rotary_per_layer: bool,
    /// Which configurations are refused.
    pub(super) rules: &'static [Rule],
    /// Whether the crate panics at missing tensors of layers.
    pub(super) panics: bool,
    /// Most tokens computed at once.
    pub(super) chunk: usize,
    prepare: fn(&mut ReferenceConfig),
    build: fn(Value, VarBuilder<'static>) -> Result<Box<dyn ReferenceModel>>,
}

/// A condition on a configuration.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    /// The heads of queries together are as wide as the hidden state.
    WholeHeads,
    /// The field is false or absent.
    Absent(&'static str),
    /// The field is true.
    Set(&'static str),
    /// The list is empty or absent.
    Empty(&'static str),
    /// The field has this value.
    Fixed(&'static str, f64),
    /// The field is 1/sqrt(head size).
    ScaleOfHead(&'static str),
    /// The field is the head size.
    HeadSize(&'static str),
    /// No sequence is longer than the window.
    NoWindow,
    /// No layer has a window.
    FullLayers,
    /// The layers alternate by the pattern.
    PatternedLayers,
}

/// Most tokens computed at once: bounds the memory for scores.
const CHUNK: usize = 128;

impl Family {
    /// The family of an architecture.
    pub(super) fn of(architecture: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.architecture == architecture)
    }

    /// Builds a model. Panics of the crate are not caught here.
    pub(super) fn build(
        &self,
        mut config: ReferenceConfig,
        weights: VarBuilder<'static>,
    ) -> Result<Box<dyn ReferenceModel>> {
        for field in ["rope_scaling", "bos_token_id", "eos_token_id"] {
            config.remove(field);
        }
        (self.prepare)(&mut config);
        (self.build)(config.json(), weights)
    }
}

/// The names of all architectures.
pub(super) fn architectures() -> Vec<&'static str> {
    FAMILIES.iter().map(|family| family.architecture).collect()
}

/// Settings of most families.
const PLAIN: Family = Family {
    architecture: "",
    defaults: || Value::Null,
    activation: "silu",
    llama3_rope: false,
    partial_rotary: false,
    rotary_per_layer: false,
    rules: &[],
    panics: false,
    chunk: CHUNK,
    prepare: |_| {},
    build: |_, _| Err(candle_core::Error::Msg("no model".to_owned())),
};

const FAMILIES: [Family; 15] = [
    Family {
        architecture: "LlamaForCausalLM",
        defaults: || json!({"rms_norm_eps": 1e-6, "rope_theta": 10_000.0}),
        llama3_rope: true,
        rules: &[Rule::WholeHeads, Rule::Absent("attention_bias"), Rule::Absent("mlp_bias")],
        panics: true,
        prepare: |config| {
            if !config.rope_types().is_empty() {
                let scaling = config.rope.as_ref().map(|(_, rope)| llama3_scaling(rope));
                config.set("rope_scaling", scaling.unwrap_or_default());
            }
        },
        build: |config, weights| {
            let config = parsed::<llama::LlamaConfig>(config)?.into_config(false);
            let (dtype, device) = (weights.dtype(), weights.device().clone());
            let cache = llama::Cache::new(true, dtype, &config, &device)?;
            let model = llama::Llama::load(weights, &config)?;
            cached((model, cache), |(model, cache), tokens, position| model.forward(tokens, position, cache))
        },
        ..PLAIN
    },
    Family {
        architecture: "MistralForCausalLM",
        defaults: || {
            json!({"rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "sliding_window": 4096,
                "max_position_embeddings": 131_072})
        },
        rules: &[Rule::NoWindow],
        build: |config, weights| {
            let model = mistral::Model::new(&parsed(config)?, weights)?;
            cached(model, mistral::Model::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "MixtralForCausalLM",
        defaults: || {
            json!({"rms_norm_eps": 1e-5, "rope_theta": 1e6, "max_position_embeddings": 131_072,
                "hidden_act": "silu", "num_local_experts": 8, "num_experts_per_tok": 2})
        },
        rules: &[Rule::NoWindow, Rule::WholeHeads],
        prepare: |config| {
            config.set("sliding_window", config.context_length);
            config.set("use_flash_attn", false);
        },
        build: |config, weights| {
            let model = mixtral::Model::new(&parsed(config)?, weights)?;
            cached(model, mixtral::Model::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "Qwen2ForCausalLM",
        defaults: qwen,
        rules: &[Rule::Absent("use_sliding_window"), Rule::FullLayers, Rule::WholeHeads],
        prepare: |config| config.set("sliding_window", config.context_length),
        build: |config, weights| {
            let model = qwen2::ModelForCausalLM::new(&parsed(config)?, weights)?;
            cached(model, qwen2::ModelForCausalLM::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "Qwen3ForCausalLM",
        defaults: || with(qwen(), &json!({"head_dim": 128, "attention_bias": false})),
        rules: &[Rule::Absent("use_sliding_window"), Rule::FullLayers],
        prepare: |config| config.remove("sliding_window"),
        build: |config, weights| {
            let model = qwen3::ModelForCausalLM::new(&parsed(config)?, weights)?;
            cached(model, qwen3::ModelForCausalLM::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "Qwen3MoeForCausalLM",
        defaults: || {
            let own = json!({"attention_bias": false, "decoder_sparse_step": 1, "moe_intermediate_size": 768,
                "num_experts_per_tok": 8, "norm_topk_prob": false});
            with(qwen(), &own)
        },
        rules: &[Rule::Absent("use_sliding_window"), Rule::FullLayers, Rule::Empty("mlp_only_layers")],
        prepare: |config| {
            config.remove("sliding_window");
            local_experts(config);
        },
        build: |config, weights| {
            let model = qwen3_moe::ModelForCausalLM::new(&parsed(config)?, weights)?;
            cached(model, qwen3_moe::ModelForCausalLM::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "Gemma2ForCausalLM",
        defaults: || {
            let own = json!({"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                "sliding_window": 4096, "max_position_embeddings": 8192, "query_pre_attn_scalar": 256});
            with(gemma_defaults(), &own)
        },
        activation: GELU,
        rules: &[
            Rule::NoWindow,
            Rule::HeadSize("query_pre_attn_scalar"),
            Rule::Absent("use_bidirectional_attention"),
            Rule::Set("tie_word_embeddings"),
        ],
        build: |config, weights| {
            let model = gemma2::Model::new(false, &parsed(config)?, weights)?;
            cached(model, gemma2::Model::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "Gemma3ForCausalLM",
        defaults: || {
            let own = json!({"rope_theta": 1e6, "rope_local_base_freq": 10_000.0, "sliding_window": 4096,
                "max_position_embeddings": 131_072, "query_pre_attn_scalar": 256});
            with(gemma_defaults(), &own)
        },
        activation: GELU,
        rotary_per_layer: true,
        rules: &[
            Rule::HeadSize("query_pre_attn_scalar"),
            Rule::Absent("use_bidirectional_attention"),
            Rule::Set("tie_word_embeddings"),
            Rule::PatternedLayers,
        ],
        // The crate appends values of several tokens to its cache in a layout that the cache rejects, and exceeds the
        // window by one position with several tokens.
        chunk: 1,
        build: |config, weights| {
            let model = gemma3::Model::new(false, &parsed(config)?, weights)?;
            cached(model, gemma3::Model::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "Phi3ForCausalLM",
        defaults: || json!({"rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "max_position_embeddings": 4096}),
        partial_rotary: true,
        rules: &[Rule::NoWindow, Rule::WholeHeads],
        prepare: |config| {
            config.remove("original_max_position_embeddings");
            if config.number("partial_rotary_factor") == Some(1.0) {
                config.remove("partial_rotary_factor");
            }
        },
        build: |config, weights| {
            let model = phi3::Model::new(&parsed(config)?, weights)?;
            cached(model, phi3::Model::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "Olmo2ForCausalLM",
        defaults: || {
            json!({"rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "attention_bias": false,
                "tie_word_embeddings": false, "hidden_act": "silu"})
        },
        rules: &[Rule::WholeHeads, Rule::Absent("clip_qkv")],
        build: |config, weights| {
            let model = olmo2::Model::new(&parsed(config)?, weights)?;
            cached(model, olmo2::Model::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "GraniteForCausalLM",
        defaults: || {
            json!({"rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "embedding_multiplier": 1.0,
                "residual_multiplier": 1.0, "logits_scaling": 1.0, "attention_multiplier": 1.0})
        },
        rules: &[
            Rule::Fixed("embedding_multiplier", 1.0),
            Rule::Fixed("residual_multiplier", 1.0),
            Rule::Fixed("logits_scaling", 1.0),
            Rule::ScaleOfHead("attention_multiplier"),
            Rule::WholeHeads,
            Rule::Absent("attention_bias"),
            Rule::Absent("mlp_bias"),
        ],
        panics: true,
        build: |config, weights| {
            let config = parsed::<granite::GraniteConfig>(config)?.into_config(false);
            let (dtype, device) = (weights.dtype(), weights.device().clone());
            let cache = granite::Cache::new(true, dtype, &config, &device)?;
            let model = granite::Granite::load(weights, &config)?;
            cached((model, cache), |(model, cache), tokens, position| model.forward(tokens, position, cache))
        },
        ..PLAIN
    },
    Family {
        architecture: "GemmaForCausalLM",
        defaults: || with(gemma_defaults(), &json!({"max_position_embeddings": 8192})),
        activation: GELU,
        rules: &[Rule::Absent("use_bidirectional_attention"), Rule::Set("tie_word_embeddings")],
        prepare: |config| config.remove("hidden_act"),
        build: |config, weights| {
            let model = gemma::Model::new(false, &parsed(config)?, weights)?;
            cached(model, gemma::Model::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "OlmoForCausalLM",
        defaults: || {
            json!({"rope_theta": 10_000.0, "attention_bias": false, "tie_word_embeddings": false,
                "hidden_act": "silu"})
        },
        rules: &[Rule::WholeHeads, Rule::Absent("clip_qkv"), Rule::Absent("attention_bias")],
        build: |config, weights| {
            let model = olmo::Model::new(&parsed(config)?, weights)?;
            cached(model, olmo::Model::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "Qwen2MoeForCausalLM",
        defaults: || {
            let own = json!({"decoder_sparse_step": 1, "moe_intermediate_size": 1408, "num_experts": 60,
                "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "norm_topk_prob": false,
                "qkv_bias": true});
            with(qwen(), &own)
        },
        rules: &[
            Rule::Absent("use_sliding_window"),
            Rule::FullLayers,
            Rule::WholeHeads,
            Rule::Empty("mlp_only_layers"),
            Rule::Set("qkv_bias"),
        ],
        prepare: |config| {
            config.set("sliding_window", config.context_length);
            local_experts(config);
        },
        build: |config, weights| {
            let model = qwen2_moe::Model::new(&parsed(config)?, weights)?;
            cached(model, qwen2_moe::Model::forward)
        },
        ..PLAIN
    },
    Family {
        architecture: "Starcoder2ForCausalLM",
        defaults: || {
            json!({"norm_epsilon": 1e-5, "rope_theta": 10_000.0, "hidden_act": GELU, "use_bias": true,
                "tie_word_embeddings": true, "max_position_embeddings": 4096})
        },
        activation: GELU,
        rules: &[Rule::NoWindow, Rule::WholeHeads, Rule::Set("tie_word_embeddings")],
        prepare: |config| config.remove("sliding_window"),
        build: |config, weights| {
            let model = starcoder2::Model::new(&parsed(config)?, weights)?;
            cached(model, starcoder2::Model::forward)
        },
        ..PLAIN
    },
];

const GELU: &str = "gelu_pytorch_tanh";

/// Defaults of Qwen 2 and 3.
fn qwen() -> Value {
    json!({"rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "max_position_embeddings": 32_768, "hidden_act": "silu",
        "use_sliding_window": false, "max_window_layers": 28, "tie_word_embeddings": false})
}

/// Defaults of all Gemmas.
fn gemma_defaults() -> Value {
    json!({"rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "head_dim": 256, "attention_bias": false,
        "hidden_activation": GELU, "tie_word_embeddings": true})
}

/// transformers 5 writes the number of experts under another name.
fn local_experts(config: &mut ReferenceConfig) {
    if let Some(experts) = config.get("num_local_experts").cloned() {
        config.set("num_experts", experts);
    }
}

/// Adds or replaces fields.
fn with(mut fields: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }
    fields
}

fn parsed<T: DeserializeOwned>(config: Value) -> Result<T> {
    serde_json::from_value(config).map_err(|error| candle_core::Error::Msg(error.to_string()))
}

/// A model of the crate and its forward pass.
#[derive(Clone)]
struct Cached<M> {
    model: M,
    forward: Forward<M>,
}

type Forward<M> = fn(&mut M, &Tensor, usize) -> Result<Tensor>;

fn cached<M: Clone + Send + Sync + 'static>(
    model: M,
    forward: Forward<M>,
) -> Result<Box<dyn ReferenceModel>> {
    Ok(Box::new(Cached { model, forward }))
}

impl<M: Clone + Send + Sync + 'static> ReferenceModel for Cached<M> {
    fn fresh(&self) -> Box<dyn ReferenceModel> {
        Box::new(self.clone())
    }

    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        (self.forward)(&mut self.model, tokens, position)
    }
}
