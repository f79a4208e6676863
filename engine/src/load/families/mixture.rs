//! Mixtures of experts: Mixtral and Qwen3-MoE.

use super::dense::qwen_window;
use super::{DEFAULTS, Defaults, biases, plain, set_windows};
use crate::error::LoadError;
use crate::load::block::{Biases, ExpertConfig, ExpertNames, Family, FeedForward, ModelConfig, QueryKeyNorm};
use crate::load::config::{Problem, RawConfig};

pub(super) fn mixtral(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let defaults = Defaults { norm_epsilon: 1e-5, rope_theta: 1e6, ..DEFAULTS };
    let mut config = plain(raw, problem, Family::Mixtral, &defaults)?;
    let window = raw.sliding_window.flatten().filter(|window| *window > 0);
    set_windows(&mut config, raw, problem, window, |_| true)?;
    let (count, active) = experts(raw, problem, 8, 2)?;
    for layer in &mut config.layers {
        let width = layer.feed_forward.width();
        let names = ExpertNames::Mixtral;
        layer.feed_forward =
            FeedForward::Experts(ExpertConfig { count, active, width, normalised: true, names });
    }
    Ok(config)
}

pub(super) fn qwen3_moe(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let mut config = plain(raw, problem, Family::Qwen3Moe, &DEFAULTS)?;
    config.block.biases = Biases { feed_forward: false, ..biases(raw) };
    config.block.query_key_norm = QueryKeyNorm::PerHead;
    // Unlike in Qwen2 and Qwen3, `max_window_layers` has no effect.
    set_windows(&mut config, raw, problem, qwen_window(raw), |_| true)?;
    let (count, active) = experts(raw, problem, 128, 8)?;
    let width = raw.moe_intermediate_size.unwrap_or(768);
    let normalised = raw.norm_topk_prob.unwrap_or(false);
    let step = raw.decoder_sparse_step.unwrap_or(1);
    if step == 0 {
        return Err(problem.field("decoder_sparse_step", "0 is not positive"));
    }
    let dense = raw.mlp_only_layers.as_deref().unwrap_or_default();
    for (index, layer) in config.layers.iter_mut().enumerate() {
        if (index + 1).is_multiple_of(step) && !dense.contains(&index) {
            let names = ExpertNames::Qwen;
            layer.feed_forward =
                FeedForward::Experts(ExpertConfig { count, active, width, normalised, names });
        }
    }
    Ok(config)
}

/// Experts of a layer, and those that compute each token. Files name the former `num_experts` or `num_local_experts`.
fn experts(
    raw: &RawConfig,
    problem: &Problem<'_>,
    count: usize,
    active: usize,
) -> Result<(usize, usize), LoadError> {
    let (count, field) = match (raw.num_local_experts, raw.num_experts) {
        (Some(count), _) => (count, "num_local_experts"),
        (None, Some(count)) => (count, "num_experts"),
        (None, None) => (count, "num_experts"),
    };
    if count == 0 {
        return Err(problem.field(field, "0 is not positive"));
    }
    let active = raw.num_experts_per_tok.unwrap_or(active);
    if active == 0 || active > count {
        let reason = format!("{active} is not between 1 and the {count} experts of `{field}`");
        return Err(problem.field("num_experts_per_tok", reason));
    }
    Ok((count, active))
}
