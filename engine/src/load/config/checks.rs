//! Errors that name a file and one of its fields, and the limits of sizes.

use std::fmt::Display;
use std::path::Path;

use crate::error::LoadError;
use crate::load::block::{FeedForward, ModelConfig, RopeScaling};

/// More values, or positions, than any model has: products of sizes up to this limit do not overflow.
const LARGEST_MODEL: f64 = 1e13;
/// More layers than any model has. Bounds the memory of a description.
const MOST_LAYERS: usize = 4096;
/// More experts in all layers together than any model has. Bounds the memory of the list of tensors.
const MOST_EXPERTS: usize = 1 << 16;

/// Builds the errors about one configuration file.
pub(crate) struct Problem<'a> {
    file: &'a Path,
}

impl<'a> Problem<'a> {
    pub(crate) fn new(file: &'a Path) -> Self {
        Self { file }
    }

    /// A field has an invalid value.
    pub(crate) fn field(&self, field: &str, reason: impl Display) -> LoadError {
        LoadError::InvalidConfig { file: self.file.to_owned(), reason: format!("field `{field}`: {reason}") }
    }

    /// A field has a value that the engine does not support.
    pub(crate) fn unsupported(&self, field: &str, reason: impl Display) -> LoadError {
        let hint = "use a model without it, or serve this one with another program and pass \
                    openai-chat:<model>@<base url>";
        LoadError::Unsupported {
            file: self.file.to_owned(),
            reason: format!("field `{field}`: {reason}; hint: {hint}"),
        }
    }

    /// Logs a warning about a field.
    pub(crate) fn warn(&self, field: &str, reason: impl Display) {
        tracing::warn!("{}: field `{field}`: {reason}", self.file.display());
    }

    /// Checks the number of layers, before a description is made of them.
    pub(crate) fn check_layers(&self, layers: usize) -> Result<(), LoadError> {
        match layers {
            0 => Err(self.field("num_hidden_layers", "0 is not positive")),
            1..=MOST_LAYERS => Ok(()),
            _ => {
                Err(self.field("num_hidden_layers", format!("{layers} exceeds the maximum of {MOST_LAYERS}")))
            }
        }
    }
}

impl ModelConfig {
    /// Validates the sizes; `problem` names the file in error messages.
    pub(crate) fn checked(self, problem: &Problem<'_>) -> Result<Self, LoadError> {
        let (heads, key_value_heads) = (self.heads, self.key_value_heads);
        for (size, field) in [
            (self.hidden_size, "hidden_size"),
            (heads, "num_attention_heads"),
            (key_value_heads, "num_key_value_heads"),
            (self.context_length, "max_position_embeddings"),
        ] {
            if size == 0 {
                return Err(problem.field(field, "0 is not positive"));
            }
        }
        if !heads.is_multiple_of(key_value_heads) {
            let reason = format!("num_attention_heads {heads} is not a multiple of {key_value_heads}");
            return Err(problem.field("num_key_value_heads", reason));
        }
        if self.head_size == 0 || !self.head_size.is_multiple_of(2) {
            return Err(problem.field("head_dim", format!("{} is not even and positive", self.head_size)));
        }
        let width = |size: usize| size as f64;
        let attention = width(self.head_size) * (width(heads) + width(key_value_heads)) * 2.0;
        let (mut inputs, mut experts) = (0.0, 0);
        for layer in &self.layers {
            inputs += attention
                + match &layer.feed_forward {
                    FeedForward::Dense { width: size } => width(*size) * 3.0,
                    FeedForward::Experts(config) => {
                        experts = config.count.saturating_add(experts);
                        width(config.count) * (width(config.width) * 3.0 + 1.0)
                    }
                };
            if layer.feed_forward.width() == 0 {
                let dense = matches!(layer.feed_forward, FeedForward::Dense { .. });
                let field = if dense { "intermediate_size" } else { "moe_intermediate_size" };
                return Err(problem.field(field, "0 is not positive"));
            }
        }
        if experts > MOST_EXPERTS {
            return Err(
                problem.field("num_experts", format!("more than {MOST_EXPERTS} experts in all layers"))
            );
        }
        let values = width(self.hidden_size) * inputs;
        if values > LARGEST_MODEL || width(self.context_length) > LARGEST_MODEL {
            let positions = self.context_length;
            let reason = format!("sizes of a model of {values:.0e} values and {positions} positions");
            return Err(problem.field("hidden_size", reason));
        }
        for rope in &self.ropes {
            let factor = match rope.scaling {
                RopeScaling::Yarn { attention_factor, .. }
                | RopeScaling::LongRope { attention_factor, .. } => attention_factor,
                _ => 1.0,
            };
            if !factor.is_finite() {
                let field = "original_max_position_embeddings";
                return Err(problem.field(field, "too small for an attention factor"));
            }
        }
        Ok(self)
    }
}
