//! Granite 3.

use super::{DEFAULTS, biases, factor, plain};
use crate::error::LoadError;
use crate::load::block::{Family, ModelConfig};
use crate::load::config::{Problem, RawConfig};

/// A Llama whose embeddings, residual updates, scores and logits are scaled.
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
