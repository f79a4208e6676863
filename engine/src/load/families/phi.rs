//! Phi-3, Phi-3.5, Phi-4 and Phi-4-mini.

use super::{DEFAULTS, Defaults, plain, set_windows};
use crate::error::LoadError;
use crate::load::block::{Family, ModelConfig, Projections};
use crate::load::config::{Problem, RawConfig};

pub(super) fn phi3(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let defaults = Defaults { norm_epsilon: 1e-5, context_length: 4096, partial_rotary: true, ..DEFAULTS };
    let mut config = plain(raw, problem, Family::Phi3, &defaults)?;
    config.block.projections = Projections::Fused;
    // Files of Phi-3.5 and Phi-4-mini have a window of 262,144 for a context of 131,072; it has no effect.
    let window = raw.sliding_window.flatten().filter(|window| (1..config.context_length).contains(window));
    set_windows(&mut config, raw, problem, window, |_| true)?;
    Ok(config)
}
