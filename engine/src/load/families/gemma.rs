//! Gemma 2 and the text models of Gemma 3.

use super::{DEFAULTS, Defaults, biases, factor, plain, set_windows};
use crate::error::LoadError;
use crate::load::block::{Activation, Biases, Family, ModelConfig, Norms, QueryKeyNorm, RopeConfig};
use crate::load::config::{Problem, RawConfig, RawRope, RopeContext, parameters};

/// The window of Gemma's configuration classes.
const WINDOW: usize = 4096;
/// One of so many layers of Gemma 3 has no window.
const PATTERN: usize = 6;
/// Base frequencies of Gemma 3's layers without and with a window.
const THETAS: (f64, f64) = (1e6, 10_000.0);

const GEMMA: Defaults = Defaults {
    head_size: Some(256),
    key_value_heads: Some(4),
    context_length: 8192,
    tied_embeddings: true,
    ..DEFAULTS
};

pub(super) fn gemma2(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let mut config = gemma(raw, problem, Family::Gemma2, &GEMMA)?;
    config.block.attention_cap =
        cap(raw.attn_logit_softcapping, Some(50.0), problem, "attn_logit_softcapping")?;
    config.logit_cap = cap(raw.final_logit_softcapping, Some(30.0), problem, "final_logit_softcapping")?;
    let window = raw.sliding_window.unwrap_or(Some(WINDOW));
    set_windows(&mut config, raw, problem, window, |layer| layer.is_multiple_of(2))?;
    Ok(config)
}

pub(super) fn gemma3(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let defaults = Defaults { context_length: 131_072, ..GEMMA };
    // Layers differ in their rotary embeddings, which `ropes` reads.
    let shared = RawConfig { rope_parameters: None, rope_scaling: None, ..raw.clone() };
    let mut config = gemma(&shared, problem, Family::Gemma3, &defaults)?;
    config.block.query_key_norm = QueryKeyNorm::PerHead;
    config.block.attention_cap = cap(raw.attn_logit_softcapping, None, problem, "attn_logit_softcapping")?;
    config.logit_cap = cap(raw.final_logit_softcapping, None, problem, "final_logit_softcapping")?;
    let window = raw.sliding_window.unwrap_or(Some(WINDOW));
    let pattern = raw.sliding_window_pattern.or(raw.private_window_pattern).unwrap_or(PATTERN);
    if pattern == 0 {
        return Err(problem.field("sliding_window_pattern", "0 is not positive"));
    }
    set_windows(&mut config, raw, problem, window, |layer| !(layer + 1).is_multiple_of(pattern))?;
    config.ropes = ropes(raw, problem, &config)?.into();
    for layer in &mut config.layers {
        layer.rope = usize::from(layer.window.is_some());
    }
    Ok(config)
}

/// What both have in common.
fn gemma(
    raw: &RawConfig,
    problem: &Problem<'_>,
    family: Family,
    defaults: &Defaults,
) -> Result<ModelConfig, LoadError> {
    // Published files name the exact form of GELU, but the models were trained with the approximation.
    let named =
        raw.hidden_activation.is_some() || raw.hidden_act.as_deref().is_some_and(|name| name != "gelu");
    let raw = if named { raw.clone() } else { RawConfig { hidden_act: None, ..raw.clone() } };
    let mut config = plain(&raw, problem, family, defaults)?;
    if !named {
        config.block.activation = Activation::GeluTanh;
    }
    config.block.norms = Norms::BeforeAndAfter;
    config.block.norm_offset = 1.0;
    config.block.biases = Biases { feed_forward: false, ..biases(&raw) };
    let scalar = raw.query_pre_attn_scalar.unwrap_or(256.0);
    if scalar <= 0.0 {
        return Err(problem.field("query_pre_attn_scalar", format!("{scalar} is not positive")));
    }
    config.block.attention_scale = 1.0 / (scalar as f32).sqrt();
    config.embedding_scale = Some((raw.hidden_size as f32).sqrt());
    Ok(config)
}

/// The rotary embeddings of layers without and with a window.
fn ropes(raw: &RawConfig, problem: &Problem<'_>, config: &ModelConfig) -> Result<[RopeConfig; 2], LoadError> {
    let (head_size, context_length) = (config.head_size, config.context_length);
    let context = RopeContext { raw, problem, head_size, context_length, partial: false };
    let global = raw.rope_theta.unwrap_or(THETAS.0);
    let local = raw.rope_local_base_freq.unwrap_or(THETAS.1);
    let Some((rope, field)) = parameters(raw) else {
        return Ok([context.rope(None, global)?, context.rope(None, local)?]);
    };
    if field == "rope_scaling" && raw.rope_parameters.is_some() {
        return Err(problem.unsupported(field, "not supported together with `rope_parameters`"));
    }
    let of_type = |rope: &Option<Box<RawRope>>, name: &str, theta: f64| {
        let field = format!("{field}.{name}");
        context.rope(rope.as_deref().map(|rope| (rope, field.as_str())), theta)
    };
    if rope.full_attention.is_some() || rope.sliding_attention.is_some() {
        let global = of_type(&rope.full_attention, "full_attention", global)?;
        return Ok([global, of_type(&rope.sliding_attention, "sliding_attention", local)?]);
    }
    // In earlier files the scaling is that of layers without a window.
    Ok([context.rope(Some((rope, field)), global)?, context.rope(None, local)?])
}

/// A soft cap: the file's, or the default if the field is missing.
fn cap(
    value: Option<Option<f64>>,
    default: Option<f64>,
    problem: &Problem<'_>,
    field: &str,
) -> Result<Option<f32>, LoadError> {
    match value.unwrap_or(default) {
        // A factor of 1 changes nothing, a cap of 1 does.
        Some(1.0) => Ok(Some(1.0)),
        value => factor(value, problem, field),
    }
}
