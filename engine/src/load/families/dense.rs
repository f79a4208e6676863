//! Llama, and the families that differ from it in a few fields: Mistral, Qwen2 and Qwen3, Phi-3, OLMo 2 and Granite.

use super::{DEFAULTS, Defaults, biases, factor, plain, set_windows};
use crate::error::LoadError;
use crate::load::block::{Biases, Family, ModelConfig, Norms, Projections, QueryKeyNorm};
use crate::load::config::{Problem, RawConfig};

/// The window of Mistral's configuration class.
const MISTRAL_WINDOW: usize = 4096;
/// The window of Qwen's configuration classes.
const QWEN_WINDOW: usize = 4096;
/// The first layer with a window in Qwen's configuration classes.
const QWEN_FIRST_WINDOW: usize = 28;

/// Llama 1 to 3.
pub(super) fn llama(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let mut config = plain(raw, problem, Family::Llama, &DEFAULTS)?;
    config.block.biases = biases(raw);
    let window = raw.sliding_window.flatten().filter(|window| *window > 0);
    set_windows(&mut config, raw, problem, window, |_| true)?;
    Ok(config)
}

pub(super) fn mistral(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let mut config = plain(raw, problem, Family::Mistral, &DEFAULTS)?;
    let window = raw.sliding_window.unwrap_or(Some(MISTRAL_WINDOW)).filter(|window| *window > 0);
    set_windows(&mut config, raw, problem, window, |_| true)?;
    Ok(config)
}

/// Qwen2 and Qwen2.5. Queries, keys and values always have biases; no field says so.
pub(super) fn qwen2(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let mut config = plain(raw, problem, Family::Qwen2, &DEFAULTS)?;
    config.block.biases = Biases { query_key_value: true, ..Biases::default() };
    qwen_windows(&mut config, raw, problem)?;
    Ok(config)
}

pub(super) fn qwen3(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let mut config = plain(raw, problem, Family::Qwen3, &Defaults { head_size: Some(128), ..DEFAULTS })?;
    config.block.biases = Biases { feed_forward: false, ..biases(raw) };
    config.block.query_key_norm = QueryKeyNorm::PerHead;
    qwen_windows(&mut config, raw, problem)?;
    Ok(config)
}

/// Windows are off unless `use_sliding_window` is set, and then start with `max_window_layers`.
fn qwen_windows(config: &mut ModelConfig, raw: &RawConfig, problem: &Problem<'_>) -> Result<(), LoadError> {
    let first = raw.max_window_layers.unwrap_or(QWEN_FIRST_WINDOW);
    set_windows(config, raw, problem, qwen_window(raw), |layer| layer >= first)
}

/// The window, if `use_sliding_window` is set.
pub(super) fn qwen_window(raw: &RawConfig) -> Option<usize> {
    let used = raw.use_sliding_window.unwrap_or(false);
    raw.sliding_window.unwrap_or(Some(QWEN_WINDOW)).filter(|_| used)
}

/// Phi-3, Phi-3.5, Phi-4 and Phi-4-mini.
pub(super) fn phi3(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let defaults = Defaults { norm_epsilon: 1e-5, context_length: 4096, partial_rotary: true, ..DEFAULTS };
    let mut config = plain(raw, problem, Family::Phi3, &defaults)?;
    config.block.projections = Projections::Fused;
    // Files of Phi-3.5 and Phi-4-mini have a window of 262,144 for a context of 131,072; it has no effect.
    let window = raw.sliding_window.flatten().filter(|window| (1..config.context_length).contains(window));
    set_windows(&mut config, raw, problem, window, |_| true)?;
    Ok(config)
}

/// OLMo 2. Norms follow attention and feed-forward, and those of queries and keys are over all heads together.
pub(super) fn olmo2(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let defaults = Defaults { norm_epsilon: 1e-5, ..DEFAULTS };
    let mut config = plain(raw, problem, Family::Olmo2, &defaults)?;
    config.block.norms = Norms::After;
    config.block.query_key_norm = QueryKeyNorm::Whole;
    config.block.biases = Biases { feed_forward: false, ..biases(raw) };
    Ok(config)
}

/// Granite 3: a Llama whose embeddings, residual updates, scores and logits are scaled.
pub(super) fn granite(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let mut config = plain(raw, problem, Family::Granite, &DEFAULTS)?;
    config.block.biases = biases(raw);
    config.block.attention_scale =
        factor(raw.attention_multiplier, problem, "attention_multiplier")?.unwrap_or(1.0);
    config.block.residual_scale = factor(raw.residual_multiplier, problem, "residual_multiplier")?;
    config.embedding_scale = factor(raw.embedding_multiplier, problem, "embedding_multiplier")?;
    config.logit_divisor = factor(raw.logits_scaling, problem, "logits_scaling")?;
    Ok(config)
}
