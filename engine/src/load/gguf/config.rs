//! Reads the description of a model from GGUF metadata
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#llm>).
//!
//! The keys that all architectures share become a [`RawConfig`]; [`architectures`](super::architectures) adds those
//! of one architecture. The families then write the description as they do from config.json.

use super::architectures::{Architecture, Found};
use super::metadata::{Metadata, ModelKeys};
use super::{invalid, unsupported};
use crate::error::LoadError;
use crate::load::block::{ModelConfig, RopeScaling};
use crate::load::config::{RawConfig, RawRope};
use crate::load::families;

/// Texts of tokens that end a reply even if the metadata do not list them; llama.cpp uses them too
/// (`llama-vocab.cpp`).
const ENDS: [&str; 7] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<end_of_turn>",
];

/// The architecture. Rejects files that do not contain a whole model of a supported one.
pub(super) fn architecture(metadata: &Metadata<'_>) -> Result<&'static Architecture, LoadError> {
    let refuse = |reason: String| Err(unsupported(metadata.file, reason));
    let key = "general.architecture";
    let name = metadata.required(key, Metadata::text)?;
    let Some(architecture) = Architecture::find(name) else {
        let known = Architecture::names();
        return refuse(format!("{key} {name:?} is not supported: expected one of {known}"));
    };
    if let Some(kind) = metadata.text("general.type")?.filter(|kind| *kind != "model") {
        return refuse(format!("general.type is {kind:?}, not \"model\""));
    }
    if let Some(parts) = metadata.number("split.count")?.filter(|parts| *parts > 1) {
        return refuse(format!(
            "one of {parts} parts of a model (split.count): join them with `llama-gguf-split --merge` of \
             llama.cpp"
        ));
    }
    let key = format!("{name}.attention.causal");
    if metadata.flag(&key)? == Some(false) {
        return refuse(format!("its attention is not causal ({key})"));
    }
    Ok(architecture)
}

/// Reads the description. `found` is what the tensors tell about the model.
///
/// As in llama.cpp, a Mistral's attention window is ignored, because files of this architecture do not
/// contain it.
pub(super) fn config(
    metadata: &Metadata<'_>,
    architecture: &Architecture,
    found: &Found,
) -> Result<ModelConfig, LoadError> {
    let keys = ModelKeys { metadata, architecture: architecture.name };
    let (mut raw, rotary) = raw(&keys, found)?;
    let class = (architecture.read)(&keys, found, &mut raw)?;
    let entry = families::entry(Some(class), None)
        .ok_or_else(|| unsupported(metadata.file, format!("architecture {class} is not supported")))?;
    let mut config = families::read(entry, &raw, metadata.file)?;
    for rope in &mut config.ropes {
        if rope.rotary != rotary {
            let reason = format!("is {rotary}, but heads have {} rotated values", rope.rotary);
            return Err(keys.unsupported("rope.dimension_count", reason));
        }
    }
    if let (Some(factors), [rope, ..]) = (&found.frequency_factors, &mut config.ropes[..]) {
        rope.scaling = divided(metadata, factors, rotary, &rope.scaling)?;
    }
    // The converter has added it to the weights.
    config.block.norm_offset = 0.0;
    config.end_of_sequence = ends(metadata)?;
    Ok(config)
}

/// The keys that all architectures share, and the number of rotated values of a head.
fn raw(keys: &ModelKeys<'_>, found: &Found) -> Result<(RawConfig, usize), LoadError> {
    let hidden_size = keys.size("embedding_length")?;
    let heads = keys.size("attention.head_count")?;
    let default_size = hidden_size.checked_div(heads).unwrap_or_default();
    let head_size = keys.number("attention.key_length")?.unwrap_or(default_size);
    let values = keys.number("attention.value_length")?.unwrap_or(head_size);
    if values != head_size {
        let reason = format!("is {values}, but heads have {head_size} values");
        return Err(keys.unsupported("attention.value_length", reason));
    }
    let theta = keys.float("rope.freq_base")?.unwrap_or(10_000.0);
    if theta <= 0.0 {
        let reason = format!("{} is not positive", keys.key("rope.freq_base"));
        return Err(invalid(keys.metadata.file, &reason));
    }
    let raw = RawConfig {
        hidden_size,
        num_hidden_layers: keys.size("block_count")?,
        num_attention_heads: heads,
        intermediate_size: Some(keys.size("feed_forward_length")?),
        num_key_value_heads: Some(keys.number("attention.head_count_kv")?.unwrap_or(heads)),
        head_dim: Some(head_size),
        rms_norm_eps: Some(
            keys.metadata.required(&keys.key("attention.layer_norm_rms_epsilon"), Metadata::float)?,
        ),
        max_position_embeddings: Some(keys.size("context_length")?),
        tie_word_embeddings: Some(found.tied_embeddings),
        attention_bias: Some(found.attention_biases),
        mlp_bias: Some(found.feed_forward_biases),
        rope_theta: Some(theta),
        rope_scaling: scaling(keys)?,
        ..RawConfig::default()
    };
    Ok((raw, keys.number("rope.dimension_count")?.unwrap_or(head_size)))
}

/// The scaling of rotary frequencies, except by tensors.
fn scaling(keys: &ModelKeys<'_>) -> Result<Option<RawRope>, LoadError> {
    let factor = match keys.float("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        // Files from before August 2023.
        None => keys.float("rope.scale_linear")?,
    };
    let factor = factor.filter(|factor| *factor != 0.0).unwrap_or(1.0);
    if factor < 0.0 {
        return Err(invalid(keys.metadata.file, &format!("{} is negative", keys.key("rope.scaling.factor"))));
    }
    let kind = keys.metadata.text(&keys.key("rope.scaling.type"))?;
    let rope =
        |kind: &str| RawRope { rope_type: Some(kind.to_owned()), factor: Some(factor), ..RawRope::default() };
    match kind {
        Some("none" | "longrope") => Ok(None),
        None | Some("linear") => Ok((factor != 1.0).then(|| rope("linear"))),
        Some("yarn") => Ok(Some(RawRope {
            original_max_position_embeddings: keys.float("rope.scaling.original_context_length")?,
            attention_factor: keys.float("rope.scaling.yarn_attn_factor")?,
            beta_fast: keys.float("rope.scaling.yarn_beta_fast")?,
            beta_slow: keys.float("rope.scaling.yarn_beta_slow")?,
            ..rope("yarn")
        })),
        Some(other) => Err(keys.unsupported("rope.scaling.type", format!("{other:?} is not supported"))),
    }
}

/// Frequencies divided by the tensor of factors, one for each pair of values.
fn divided(
    metadata: &Metadata<'_>,
    factors: &[f32],
    rotary: usize,
    scaling: &RopeScaling,
) -> Result<RopeScaling, LoadError> {
    let linear = match scaling {
        RopeScaling::None => 1.0,
        RopeScaling::Linear { factor } => *factor,
        _ => return Err(unsupported(metadata.file, "rope_freqs.weight with YaRN".to_owned())),
    };
    if 2 * factors.len() != rotary {
        let (found, expected) = (factors.len(), rotary / 2);
        let reason = format!("rope_freqs.weight has {found} factors, not {expected}");
        return Err(invalid(metadata.file, &reason));
    }
    Ok(RopeScaling::Divisors(factors.iter().map(|divisor| divisor * linear as f32).collect()))
}

/// The ids that end a reply: those in the metadata, and [`ENDS`], whatever their type is. Older files have them as
/// user-defined tokens.
fn ends(metadata: &Metadata<'_>) -> Result<Vec<u32>, LoadError> {
    let mut ids = Vec::new();
    for key in ["eos", "eot", "eom"] {
        ids.extend(metadata.number(&format!("tokenizer.ggml.{key}_token_id"))?);
    }
    let tokens = metadata.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
    ids.extend(tokens.iter().enumerate().filter(|(_, text)| ENDS.contains(text)).map(|(id, _)| id));
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter()
        .map(|id| u32::try_from(id).map_err(|_| invalid(metadata.file, &format!("token {id} not found"))))
        .collect()
}
