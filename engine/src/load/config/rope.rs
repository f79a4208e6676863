//! Reads rotary embeddings: `rope_parameters` of transformers 5, or `rope_scaling` and `rope_theta` of earlier
//! versions.

use super::Problem;
use super::raw::{RawConfig, RawRope};
use crate::error::LoadError;
use crate::load::block::{RopeConfig, RopeScaling};

/// What the parameters of a rotary embedding depend on.
pub(crate) struct RopeContext<'a> {
    pub(crate) raw: &'a RawConfig,
    pub(crate) problem: &'a Problem<'a>,
    pub(crate) head_size: usize,
    pub(crate) context_length: usize,
    /// Whether the family can rotate a part of each head.
    pub(crate) partial: bool,
}

/// The parameters in the file, and the field that holds them. As in transformers, a `rope_scaling` that is
/// not empty replaces `rope_parameters`.
pub(crate) fn parameters(raw: &RawConfig) -> Option<(&RawRope, &'static str)> {
    let old = raw.rope_scaling.as_ref().filter(|rope| **rope != RawRope::default());
    let new = || raw.rope_parameters.as_ref().map(|rope| (rope, "rope_parameters"));
    old.map(|rope| (rope, "rope_scaling")).or_else(new)
}

impl RopeContext<'_> {
    /// The rotary embedding that all layers share; `theta` is the family's default.
    pub(crate) fn shared(&self, theta: f64) -> Result<RopeConfig, LoadError> {
        let parameters = parameters(self.raw);
        if let Some((rope, field)) = parameters
            && (rope.full_attention.is_some() || rope.sliding_attention.is_some())
        {
            let reason = "parameters per type of layer are only supported for Gemma 3";
            return Err(self.problem.unsupported(&format!("{field}.full_attention"), reason));
        }
        let theta = self.raw.rope_theta.unwrap_or(theta);
        let replaced = self.raw.rope_parameters.as_ref().and_then(|rope| rope.rope_theta);
        if let Some((RawRope { rope_theta: None, .. }, "rope_scaling")) = parameters
            && let Some(replaced) = replaced.filter(|replaced| *replaced != theta)
        {
            let reason = format!("ignored {replaced} because of `rope_scaling`, using {theta}");
            let hint = "set `rope_theta` in `rope_scaling`";
            self.problem.warn("rope_parameters.rope_theta", format!("{reason}; hint: {hint}"));
        }
        self.rope(parameters, theta)
    }

    /// A rotary embedding with these parameters, in this field; `theta` is used unless they contain one.
    pub(crate) fn rope(
        &self,
        parameters: Option<(&RawRope, &str)>,
        theta: f64,
    ) -> Result<RopeConfig, LoadError> {
        let empty = RawRope::default();
        let (rope, field) = parameters.unwrap_or((&empty, "rope_parameters"));
        let theta = rope.rope_theta.unwrap_or(theta);
        if theta <= 0.0 {
            return Err(self.problem.field("rope_theta", format!("{theta} is not positive")));
        }
        let rotary = self.rotary(rope, field)?;
        Ok(RopeConfig { theta, rotary, scaling: self.scaling(rope, field, rotary)? })
    }

    /// Values of a head that are rotated.
    fn rotary(&self, rope: &RawRope, field: &str) -> Result<usize, LoadError> {
        let (partial, name) = match rope.partial_rotary_factor {
            Some(partial) => (partial, format!("{field}.partial_rotary_factor")),
            None => (self.raw.partial_rotary_factor.unwrap_or(1.0), "partial_rotary_factor".to_owned()),
        };
        if partial == 1.0 {
            return Ok(self.head_size);
        }
        if !self.partial {
            return Err(self.problem.unsupported(&name, format!("{partial} is not 1")));
        }
        let rotary = (self.head_size as f64 * partial) as usize;
        if !(0.0..1.0).contains(&partial) || rotary == 0 || !rotary.is_multiple_of(2) {
            let size = self.head_size;
            let reason = format!("{partial} of a head's {size} values is not a positive even number");
            return Err(self.problem.field(&name, reason));
        }
        Ok(rotary)
    }

    fn scaling(&self, rope: &RawRope, field: &str, rotary: usize) -> Result<RopeScaling, LoadError> {
        let positive = |value: Option<f64>, name: &str| {
            let value = value.filter(|value| *value > 0.0);
            value.ok_or_else(|| self.problem.field(&format!("{field}.{name}"), "expected a positive number"))
        };
        let optional = |value: Option<f64>, name: &str, default: f64| {
            value.map_or(Ok(default), |value| positive(Some(value), name))
        };
        let original = || {
            let own = rope.original_max_position_embeddings;
            let original = own.or(self.raw.original_max_position_embeddings);
            let context = self.context_length as f64;
            optional(original, "original_max_position_embeddings", context)
        };
        match rope.rope_type.as_deref().or(rope.old_type.as_deref()).unwrap_or("default") {
            "default" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor: positive(rope.factor, "factor")? }),
            "llama3" => Ok(RopeScaling::Llama3 {
                factor: positive(rope.factor, "factor")?,
                low_frequency_factor: positive(rope.low_freq_factor, "low_freq_factor")?,
                high_frequency_factor: positive(rope.high_freq_factor, "high_freq_factor")?,
                original_length: positive(
                    rope.original_max_position_embeddings,
                    "original_max_position_embeddings",
                )?,
            }),
            "yarn" => {
                let factor = positive(rope.factor, "factor")?;
                // The magnitude of rotated queries and keys for an extension by `factor`.
                let magnitude =
                    |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
                let attention_factor = match (rope.attention_factor, rope.mscale, rope.mscale_all_dim) {
                    (Some(_), _, _) => positive(rope.attention_factor, "attention_factor")?,
                    (None, Some(scale), Some(all)) if scale != 0.0 && all != 0.0 => {
                        magnitude(scale) / magnitude(all)
                    }
                    _ => magnitude(1.0),
                };
                Ok(RopeScaling::Yarn {
                    factor,
                    original_length: original()?,
                    beta_fast: optional(rope.beta_fast, "beta_fast", 32.0)?,
                    beta_slow: optional(rope.beta_slow, "beta_slow", 1.0)?,
                    attention_factor: attention_factor as f32,
                    truncate: rope.truncate.unwrap_or(true),
                })
            }
            // Phi-3's first versions named it `su`.
            "longrope" | "su" => {
                let factors = |values: &Option<Vec<f64>>, name: &str| {
                    let name = format!("{field}.{name}");
                    let values = values.as_deref().unwrap_or_default();
                    if values.len() != rotary / 2 {
                        let reason = format!("{} numbers instead of {}", values.len(), rotary / 2);
                        return Err(self.problem.field(&name, reason));
                    }
                    if !values.iter().all(|value| *value > 0.0) {
                        return Err(self.problem.field(&name, "expected positive numbers"));
                    }
                    Ok(values.iter().map(|value| *value as f32).collect())
                };
                let original = original()?;
                let scale = optional(rope.factor, "factor", self.context_length as f64 / original)?;
                let magnitude = if scale <= 1.0 { 1.0 } else { (1.0 + scale.ln() / original.ln()).sqrt() };
                let attention_factor = optional(rope.attention_factor, "attention_factor", magnitude)?;
                Ok(RopeScaling::LongRope {
                    short: factors(&rope.short_factor, "short_factor")?,
                    long: factors(&rope.long_factor, "long_factor")?,
                    original_length: original as usize,
                    attention_factor: attention_factor as f32,
                })
            }
            other => {
                let name = if rope.rope_type.is_some() { "rope_type" } else { "type" };
                let expected = "expected default, linear, llama3, yarn or longrope";
                let reason = format!("`{other}` is not supported: {expected}");
                Err(self.problem.unsupported(&format!("{field}.{name}"), reason))
            }
        }
    }
}
