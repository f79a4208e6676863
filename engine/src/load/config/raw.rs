//! The fields of config.json and generation_config.json that the engine reads. Other fields are ignored.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// config.json. Where a missing field and `null` differ, `None` is missing and `Some(None)` is `null`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct RawConfig {
    pub(crate) hidden_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) intermediate_size: Option<usize>,
    pub(crate) num_key_value_heads: Option<usize>,
    pub(crate) head_dim: Option<usize>,
    pub(crate) rms_norm_eps: Option<f64>,
    pub(crate) max_position_embeddings: Option<usize>,
    pub(crate) original_max_position_embeddings: Option<f64>,
    pub(crate) tie_word_embeddings: Option<bool>,
    pub(crate) eos_token_id: Option<Value>,
    pub(crate) hidden_act: Option<String>,
    pub(crate) hidden_activation: Option<String>,
    pub(crate) attention_bias: Option<bool>,
    pub(crate) mlp_bias: Option<bool>,
    pub(crate) use_bidirectional_attention: Option<Value>,
    // Positions.
    pub(crate) rope_theta: Option<f64>,
    pub(crate) rope_local_base_freq: Option<f64>,
    pub(crate) rope_scaling: Option<RawRope>,
    pub(crate) rope_parameters: Option<RawRope>,
    pub(crate) partial_rotary_factor: Option<f64>,
    // Windows.
    #[serde(default, deserialize_with = "present")]
    pub(crate) sliding_window: Option<Option<usize>>,
    pub(crate) use_sliding_window: Option<bool>,
    pub(crate) max_window_layers: Option<usize>,
    pub(crate) sliding_window_pattern: Option<usize>,
    #[serde(rename = "_sliding_window_pattern")]
    pub(crate) private_window_pattern: Option<usize>,
    pub(crate) layer_types: Option<Vec<String>>,
    // Scales and caps.
    pub(crate) query_pre_attn_scalar: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) attn_logit_softcapping: Option<Option<f64>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) final_logit_softcapping: Option<Option<f64>>,
    pub(crate) attention_multiplier: Option<f64>,
    pub(crate) embedding_multiplier: Option<f64>,
    pub(crate) residual_multiplier: Option<f64>,
    pub(crate) logits_scaling: Option<f64>,
    // Experts.
    pub(crate) num_experts: Option<usize>,
    pub(crate) num_local_experts: Option<usize>,
    pub(crate) num_experts_per_tok: Option<usize>,
    pub(crate) moe_intermediate_size: Option<usize>,
    pub(crate) norm_topk_prob: Option<bool>,
    pub(crate) decoder_sparse_step: Option<usize>,
    pub(crate) mlp_only_layers: Option<Vec<usize>>,
}

/// `rope_parameters` or `rope_scaling`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct RawRope {
    pub(crate) rope_type: Option<String>,
    /// The old name of `rope_type`.
    #[serde(rename = "type")]
    pub(crate) old_type: Option<String>,
    pub(crate) rope_theta: Option<f64>,
    pub(crate) factor: Option<f64>,
    pub(crate) low_freq_factor: Option<f64>,
    pub(crate) high_freq_factor: Option<f64>,
    pub(crate) original_max_position_embeddings: Option<f64>,
    pub(crate) partial_rotary_factor: Option<f64>,
    pub(crate) attention_factor: Option<f64>,
    pub(crate) beta_fast: Option<f64>,
    pub(crate) beta_slow: Option<f64>,
    pub(crate) mscale: Option<f64>,
    pub(crate) mscale_all_dim: Option<f64>,
    pub(crate) truncate: Option<bool>,
    pub(crate) short_factor: Option<Vec<f64>>,
    pub(crate) long_factor: Option<Vec<f64>>,
    /// Parameters of layers without a window.
    pub(crate) full_attention: Option<Box<RawRope>>,
    /// Parameters of layers with a window.
    pub(crate) sliding_attention: Option<Box<RawRope>>,
}

/// generation_config.json.
#[derive(Deserialize)]
pub(super) struct RawGenerationConfig {
    pub(super) eos_token_id: Option<Value>,
}

/// A field that is in the file, possibly `null`.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}
