//! Reads the shape of a model from GGUF metadata
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#llm>).

use super::metadata::Metadata;
use super::{invalid, unsupported};
use crate::error::LoadError;
use crate::load::block::{ModelConfig, RopeScaling};
use crate::load::config::RawConfig;
use crate::load::families;

/// The only supported architecture: llama.cpp's name for Llama and Mistral.
const ARCHITECTURE: &str = "llama";
/// Its name in Hugging Face's config.json.
const HUGGING_FACE: &str = "LlamaForCausalLM";
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
/// The type of control tokens in `tokenizer.ggml.token_type`.
pub(super) const CONTROL: usize = 3;

/// Rejects files that do not contain a whole Llama-family model.
pub(super) fn check_kind(metadata: &Metadata<'_>) -> Result<(), LoadError> {
    let refuse = |reason: String| Err(unsupported(metadata.file, reason));
    let architecture = metadata.required("general.architecture", Metadata::text)?;
    if architecture != ARCHITECTURE {
        return refuse(format!("general.architecture {architecture:?} is not supported"));
    }
    if let Some(kind) = metadata.text("general.type")?.filter(|kind| *kind != "model") {
        return refuse(format!("general.type is {kind:?}, not \"model\""));
    }
    if let Some(parts) = metadata.number("split.count")?.filter(|parts| *parts > 1) {
        return refuse(format!(
            "one of {parts} parts of a model (split.count): join them with `llama-gguf-split --merge` of \
             llama.cpp"
        ));
    }
    if let Some(experts) = metadata.number("llama.expert_count")?.filter(|experts| *experts > 0) {
        return refuse(format!("mixture of {experts} experts (llama.expert_count)"));
    }
    if metadata.flag("llama.attention.causal")? == Some(false) {
        return refuse("its attention is not causal (llama.attention.causal)".to_owned());
    }
    Ok(())
}

/// Reads the shape. `factors` are divisors of the rotary frequencies, one per pair.
///
/// As in llama.cpp, a Mistral's attention window is ignored, because files of this architecture do not
/// contain it.
pub(super) fn config(
    metadata: &Metadata<'_>,
    tied_embeddings: bool,
    factors: Option<Vec<f32>>,
) -> Result<ModelConfig, LoadError> {
    let hidden_size = metadata.required("llama.embedding_length", Metadata::number)?;
    let heads = metadata.required("llama.attention.head_count", Metadata::number)?;
    let key_value_heads = metadata.number("llama.attention.head_count_kv")?.unwrap_or(heads);
    let default_size = hidden_size.checked_div(heads).unwrap_or_default();
    let head_size = metadata.number("llama.attention.key_length")?.unwrap_or(default_size);
    for key in ["llama.attention.value_length", "llama.rope.dimension_count"] {
        let found = metadata.number(key)?.unwrap_or(head_size);
        if found != head_size {
            let reason = format!("{key} is {found}, but heads have {head_size} values");
            return Err(unsupported(metadata.file, reason));
        }
    }
    let theta = metadata.float("llama.rope.freq_base")?.unwrap_or(10_000.0);
    let not_positive = || invalid(metadata.file, "llama.rope.freq_base is not positive");
    let raw = RawConfig {
        hidden_size,
        intermediate_size: Some(metadata.required("llama.feed_forward_length", Metadata::number)?),
        num_hidden_layers: metadata.required("llama.block_count", Metadata::number)?,
        num_attention_heads: heads,
        num_key_value_heads: Some(key_value_heads),
        head_dim: Some(head_size),
        rms_norm_eps: Some(metadata.required("llama.attention.layer_norm_rms_epsilon", Metadata::float)?),
        rope_theta: Some(Some(theta).filter(|theta| *theta > 0.0).ok_or_else(not_positive)?),
        tie_word_embeddings: Some(tied_embeddings),
        max_position_embeddings: Some(metadata.required("llama.context_length", Metadata::number)?),
        ..RawConfig::default()
    };
    let scaling = scaling(metadata, head_size, factors)?;
    let end_of_sequence = ends(metadata)?;
    let unknown = || unsupported(metadata.file, format!("architecture {HUGGING_FACE} is not supported"));
    let entry = families::entry(Some(HUGGING_FACE), None).ok_or_else(unknown)?;
    let mut config = families::read(entry, &raw, metadata.file)?;
    config.ropes[0].scaling = scaling;
    Ok(ModelConfig { end_of_sequence, ..config })
}

fn scaling(
    metadata: &Metadata<'_>,
    head_size: usize,
    factors: Option<Vec<f32>>,
) -> Result<RopeScaling, LoadError> {
    let factor = match metadata.float("llama.rope.scaling.factor")? {
        Some(factor) => Some(factor),
        // Files from before August 2023.
        None => metadata.float("llama.rope.scale_linear")?,
    };
    let factor = factor.filter(|factor| *factor != 0.0).unwrap_or(1.0);
    if factor < 0.0 {
        return Err(invalid(metadata.file, "llama.rope.scaling.factor is negative"));
    }
    let linear = match metadata.text("llama.rope.scaling.type")? {
        Some("none") => 1.0,
        None | Some("linear") => factor,
        Some(other) => {
            let reason = format!("llama.rope.scaling.type {other:?} is not supported");
            return Err(unsupported(metadata.file, reason));
        }
    };
    match factors {
        Some(factors) if 2 * factors.len() != head_size => {
            let (found, expected) = (factors.len(), head_size / 2);
            Err(invalid(metadata.file, &format!("rope_freqs.weight has {found} factors, not {expected}")))
        }
        Some(factors) => {
            let divisors = factors.into_iter().map(|divisor| divisor * linear as f32).collect();
            Ok(RopeScaling::Divisors(divisors))
        }
        None if linear == 1.0 => Ok(RopeScaling::None),
        None => Ok(RopeScaling::Linear { factor: linear }),
    }
}

/// The ids that end a reply: those in the metadata, and known control tokens.
fn ends(metadata: &Metadata<'_>) -> Result<Vec<u32>, LoadError> {
    let mut ids = Vec::new();
    for key in ["eos", "eot", "eom"] {
        ids.extend(metadata.number(&format!("tokenizer.ggml.{key}_token_id"))?);
    }
    let tokens = metadata.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
    let kinds = metadata.numbers("tokenizer.ggml.token_type")?.unwrap_or_default();
    let known = tokens.iter().zip(kinds).enumerate();
    ids.extend(known.filter(|(_, (text, kind))| *kind == CONTROL && ENDS.contains(text)).map(|(id, _)| id));
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter()
        .map(|id| u32::try_from(id).map_err(|_| invalid(metadata.file, &format!("token {id} not found"))))
        .collect()
}
