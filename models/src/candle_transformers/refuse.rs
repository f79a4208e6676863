//! Refuses configurations with which candle-transformers computes something else than transformers.
//!
//! Each rule names the field. The differences were found by running the reference folders of all families with this
//! version of the crate; `tests/it/candle_transformers.rs` shows them, so that a corrected crate fails a test and its
//! rule can be removed.

use std::fmt::Display;

use lumos_engine::LoadError;
use serde_json::Value;

use super::config::ReferenceConfig;
use super::families::{Family, Rule};

const NATIVE: &str = "pass --backend native if the engine supports this architecture";

impl ReferenceConfig {
    /// Checks the rules of a family.
    ///
    /// # Errors
    /// [`LoadError::UnsupportedByBackend`] with the field, its value and the difference.
    pub(super) fn check(&self, family: &Family) -> Result<(), LoadError> {
        if self.get("quantization_config").is_some() {
            return Err(self.refuse("quantization_config", "is set", "quantized weights are not read"));
        }
        self.check_rope(family)?;
        let activation = family.activation;
        for field in ["hidden_act", "hidden_activation"] {
            let found = self.get(field).and_then(Value::as_str);
            if let Some(found) = found.filter(|found| *found != activation) {
                return Err(self.refuse_value(field, found, &format!("only {activation} is verified")));
            }
        }
        family.rules.iter().try_for_each(|rule| self.check_rule(*rule))
    }

    fn check_rope(&self, family: &Family) -> Result<(), LoadError> {
        for (field, kind) in self.rope_types() {
            if !(family.llama3_rope && kind == "llama3") {
                return Err(self.refuse_value(
                    &field,
                    &kind,
                    "the crate ignores it or computes it differently",
                ));
            }
        }
        if !family.partial_rotary && self.number("partial_rotary_factor").is_some_and(|factor| factor < 1.0) {
            return Err(self.refuse("partial_rotary_factor", "is below 1", "the crate rotates whole heads"));
        }
        Ok(())
    }

    fn check_rule(&self, rule: Rule) -> Result<(), LoadError> {
        match rule {
            Rule::WholeHeads => {
                let hidden = self.number("hidden_size").unwrap_or_default();
                let whole = (self.head_size * self.heads) as f64 == hidden;
                self.when(!whole, "head_dim", "the crate uses hidden_size / num_attention_heads")
            }
            Rule::Absent(field) => {
                let set = self.flag(field) || self.number(field).is_some();
                self.when(set, field, "the crate ignores it")
            }
            Rule::NoWindow => match self.window() {
                Some(window) if window < self.context_length => Err(self.window_refused(window)),
                _ => Ok(()),
            },
            Rule::Fixed(field, expected) => {
                let differs = self.number(field).is_some_and(|value| (value - expected).abs() > 1e-12);
                self.when(differs, field, &format!("the crate computes as if it were {expected}"))
            }
            Rule::ScaleOfHead(field) => {
                let usual = (self.head_size as f64).powf(-0.5);
                let differs = self.number(field).is_some_and(|value| (value - usual).abs() > 1e-9);
                self.when(differs, field, &format!("the crate scales by 1/sqrt(head_dim), which is {usual}"))
            }
            Rule::HeadSize(field) => {
                let differs = self.number(field).is_some_and(|value| value != self.head_size as f64);
                self.when(differs, field, "the crate scales by head_dim instead")
            }
            Rule::Empty(field) => {
                let set = self.get(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
                self.when(set, field, "the crate ignores it")
            }
            Rule::Set(field) => self.when(!self.flag(field), field, "the crate computes as if it were true"),
            Rule::FullLayers => {
                let windowed = |layer: &Value| layer != "full_attention";
                let any = self.layer_types().is_some_and(|types| types.iter().any(windowed));
                self.when(any, "layer_types", "the crate has no windows in single layers")
            }
            Rule::PatternedLayers => {
                let pattern = self.number("sliding_window_pattern").map_or(1, |pattern| pattern as usize);
                let usual = |layer: usize| match (layer + 1).is_multiple_of(pattern) {
                    true => "full_attention",
                    false => "sliding_attention",
                };
                let differs = self.layer_types().is_some_and(|types| {
                    types.len() != self.layers || (0..self.layers).any(|layer| types[layer] != usual(layer))
                });
                self.when(differs, "layer_types", &format!("the crate has one full layer in each {pattern}"))
            }
        }
    }

    fn when(&self, refused: bool, field: &str, why: &str) -> Result<(), LoadError> {
        if !refused {
            return Ok(());
        }
        Err(match self.get(field) {
            Some(value) if !value.is_array() && !value.is_object() => self.refuse_value(field, value, why),
            Some(_) => self.refuse(field, "is unusual", why),
            None => self.refuse(field, "has its default", why),
        })
    }

    fn window_refused(&self, window: usize) -> LoadError {
        LoadError::UnsupportedByBackend {
            file: self.file().to_owned(),
            reason: format!(
                "sliding_window is {window}, shorter than sequences of {} tokens: candle-transformers ignores it for \
                 single tokens and exceeds it in prompts",
                self.context_length
            ),
            hint: format!("pass --max-sequence-length {window} to `lumos complete`, or {}", &NATIVE[5..]),
        }
    }

    fn refuse_value(&self, field: &str, value: impl Display, why: &str) -> LoadError {
        self.refuse(field, &format!("is {value}"), why)
    }

    fn refuse(&self, field: &str, state: &str, why: &str) -> LoadError {
        LoadError::UnsupportedByBackend {
            file: self.file().to_owned(),
            reason: format!(
                "{field} {state}: candle-transformers does not compute {} like transformers; {why}",
                self.architecture
            ),
            hint: NATIVE.to_owned(),
        }
    }
}
