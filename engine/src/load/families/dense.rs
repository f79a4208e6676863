//! Llama 1 to 3 and Mistral.

use super::{DEFAULTS, biases, plain, set_windows};
use crate::error::LoadError;
use crate::load::block::{Family, ModelConfig};
use crate::load::config::{Problem, RawConfig};

/// The window of Mistral's configuration class.
const MISTRAL_WINDOW: usize = 4096;

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
