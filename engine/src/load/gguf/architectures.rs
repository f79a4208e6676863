//! The supported architectures of GGUF files: one row of [`ARCHITECTURES`] each, with the function that reads the
//! keys of the architecture.
//!
//! Keys and defaults are those of llama.cpp's converters (`conversion/`) and loaders (`src/models/`).

use super::metadata::ModelKeys;
use crate::error::LoadError;
use crate::load::config::{RawConfig, RawRope};

/// A supported architecture.
pub(super) struct Architecture {
    /// The value of `general.architecture`.
    pub(super) name: &'static str,
    /// Whether the converter interleaves the two halves of each head of queries and keys that are rotated together.
    pub(super) interleaved: bool,
    /// Adds the keys of this architecture. Returns Hugging Face's class name of the model.
    pub(super) read: fn(&ModelKeys<'_>, &Found, &mut RawConfig) -> Result<&'static str, LoadError>,
}

/// What the tensors of a file tell about the model.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Whether the embedding is also the output matrix, because the file has none of its own.
    pub(super) tied_embeddings: bool,
    /// Whether all projections of attention have biases.
    pub(super) attention_biases: bool,
    /// Whether all projections of the feed-forward have biases.
    pub(super) feed_forward_biases: bool,
    /// Divisors of the rotary frequencies, one per pair.
    pub(super) frequency_factors: Option<Vec<f32>>,
    /// LongRoPE's divisors for short and for long sequences.
    pub(super) long_rope: Option<[Vec<f32>; 2]>,
}

const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "llama", interleaved: true, read: llama },
    Architecture { name: "qwen2", interleaved: false, read: |keys, _, _| dense(keys, "Qwen2ForCausalLM") },
    Architecture { name: "qwen3", interleaved: false, read: |keys, _, _| dense(keys, "Qwen3ForCausalLM") },
    Architecture { name: "qwen3moe", interleaved: false, read: qwen3moe },
    Architecture { name: "gemma2", interleaved: false, read: gemma2 },
    Architecture { name: "gemma3", interleaved: false, read: gemma3 },
    Architecture { name: "phi3", interleaved: false, read: phi3 },
    Architecture { name: "olmo2", interleaved: false, read: olmo2 },
    Architecture { name: "granite", interleaved: true, read: granite },
];

impl Architecture {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        ARCHITECTURES.iter().find(|architecture| architecture.name == name)
    }

    /// The names of all architectures, for messages.
    pub(super) fn names() -> String {
        ARCHITECTURES.iter().map(|architecture| architecture.name).collect::<Vec<_>>().join(", ")
    }
}

/// Fails if the file has experts, for architectures without them.
fn dense(keys: &ModelKeys<'_>, class: &'static str) -> Result<&'static str, LoadError> {
    match keys.number("expert_count")? {
        None | Some(0) => Ok(class),
        Some(count) => Err(keys.unsupported("expert_count", format!("{count} is not supported"))),
    }
}

/// The numbers of experts, if the file has any.
fn experts(keys: &ModelKeys<'_>, raw: &mut RawConfig) -> Result<bool, LoadError> {
    let count = keys.number("expert_count")?.filter(|count| *count > 0);
    if count.is_some() {
        raw.num_local_experts = count;
        raw.num_experts_per_tok = Some(keys.size("expert_used_count")?);
    }
    Ok(count.is_some())
}

/// Llama and Mistral, or Mixtral if there are experts.
fn llama(keys: &ModelKeys<'_>, _: &Found, raw: &mut RawConfig) -> Result<&'static str, LoadError> {
    Ok(if experts(keys, raw)? { "MixtralForCausalLM" } else { "LlamaForCausalLM" })
}

/// Every layer has experts, and llama.cpp always normalises their weights.
fn qwen3moe(keys: &ModelKeys<'_>, _: &Found, raw: &mut RawConfig) -> Result<&'static str, LoadError> {
    if !experts(keys, raw)? {
        return Err(keys.unsupported("expert_count", "is missing or 0"));
    }
    raw.moe_intermediate_size = Some(keys.size("expert_feed_forward_length")?);
    let key = keys.key("expert_weights_norm");
    raw.norm_topk_prob = Some(keys.metadata.flag(&key)?.unwrap_or(true));
    Ok("Qwen3MoeForCausalLM")
}

/// The window of Gemma, and the scale of its scores. Files do not contain the scale: it depends on the size of a head,
/// except that the model with `largest` layers uses the hidden size divided by the heads.
fn gemma(keys: &ModelKeys<'_>, raw: &mut RawConfig, largest: usize) -> Result<(), LoadError> {
    let scalar = match raw.head_dim {
        Some(size) if raw.num_hidden_layers != largest => size,
        _ => raw.hidden_size.checked_div(raw.num_attention_heads).unwrap_or_default(),
    };
    raw.query_pre_attn_scalar = Some(scalar as f64);
    raw.final_logit_softcapping = keys.float("final_logit_softcapping")?.map(Some);
    Ok(())
}

fn gemma2(keys: &ModelKeys<'_>, _: &Found, raw: &mut RawConfig) -> Result<&'static str, LoadError> {
    gemma(keys, raw, 46)?;
    raw.attn_logit_softcapping = keys.float("attn_logit_softcapping")?.map(Some);
    raw.sliding_window = keys.number("attention.sliding_window")?.map(Some);
    dense(keys, "Gemma2ForCausalLM")
}

/// Without a window in the file, no layer has one. The scaling of rotary frequencies is that of layers without one.
fn gemma3(keys: &ModelKeys<'_>, _: &Found, raw: &mut RawConfig) -> Result<&'static str, LoadError> {
    gemma(keys, raw, 62)?;
    raw.sliding_window = Some(keys.number("attention.sliding_window")?.filter(|window| *window > 0));
    raw.rope_local_base_freq = keys.float("rope.freq_base_swa")?;
    let pattern = "attention.sliding_window_pattern";
    match keys.metadata.flags(&keys.key(pattern))? {
        Some(windowed) => {
            let named = |windowed| if windowed { "sliding_attention" } else { "full_attention" };
            raw.layer_types = Some(windowed.into_iter().map(|windowed| named(windowed).to_owned()).collect());
        }
        None => raw.sliding_window_pattern = keys.number(pattern)?,
    }
    dense(keys, "Gemma3ForCausalLM")
}

/// Unlike llama.cpp, applies the window, as transformers does.
fn phi3(keys: &ModelKeys<'_>, found: &Found, raw: &mut RawConfig) -> Result<&'static str, LoadError> {
    raw.sliding_window = keys.number("attention.sliding_window")?.map(Some);
    if let (Some(rotary), Some(head)) = (keys.number("rope.dimension_count")?, raw.head_dim)
        && rotary != head
    {
        raw.partial_rotary_factor = Some(rotary as f64 / head as f64);
    }
    if let Some([short, long]) = &found.long_rope {
        let wide = |factors: &[f32]| factors.iter().copied().map(f64::from).collect();
        raw.rope_scaling = Some(RawRope {
            rope_type: Some("longrope".to_owned()),
            original_max_position_embeddings: keys.float("rope.scaling.original_context_length")?,
            attention_factor: keys.float("rope.scaling.attn_factor")?,
            short_factor: Some(wide(short)),
            long_factor: Some(wide(long)),
            ..RawRope::default()
        });
    }
    dense(keys, "Phi3ForCausalLM")
}

fn olmo2(keys: &ModelKeys<'_>, _: &Found, _: &mut RawConfig) -> Result<&'static str, LoadError> {
    if keys.number("attention.sliding_window")?.is_some() {
        return Err(keys.unsupported("attention.sliding_window", "is not supported (OLMo 3)"));
    }
    dense(keys, "Olmo2ForCausalLM")
}

fn granite(keys: &ModelKeys<'_>, _: &Found, raw: &mut RawConfig) -> Result<&'static str, LoadError> {
    let scale = "attention.scale";
    let missing = || keys.unsupported(scale, "is missing");
    raw.attention_multiplier = Some(keys.float(scale)?.ok_or_else(missing)?);
    raw.embedding_multiplier = keys.float("embedding_scale")?;
    raw.residual_multiplier = keys.float("residual_scale")?;
    raw.logits_scaling = keys.float("logit_scale")?;
    dense(keys, "GraniteForCausalLM")
}
