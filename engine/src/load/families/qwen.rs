//! Qwen2, Qwen2.5 and Qwen3.

use super::{DEFAULTS, Defaults, biases, plain, set_windows};
use crate::error::LoadError;
use crate::load::block::{Biases, Family, ModelConfig, QueryKeyNorm};
use crate::load::config::{Problem, RawConfig};

/// The window of Qwen's configuration classes.
const WINDOW: usize = 4096;
/// The first layer with a window in Qwen's configuration classes.
const FIRST_WINDOW: usize = 28;

/// Queries, keys and values always have biases; no field says so.
pub(super) fn qwen2(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let mut config = plain(raw, problem, Family::Qwen2, &DEFAULTS)?;
    config.block.biases = Biases { query_key_value: true, ..Biases::default() };
    windows(&mut config, raw, problem, FIRST_WINDOW)?;
    Ok(config)
}

pub(super) fn qwen3(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let mut config = plain(raw, problem, Family::Qwen3, &Defaults { head_size: Some(128), ..DEFAULTS })?;
    config.block.biases = Biases { feed_forward: false, ..biases(raw) };
    config.block.query_key_norm = QueryKeyNorm::PerHead;
    windows(&mut config, raw, problem, FIRST_WINDOW)?;
    Ok(config)
}

/// Windows are off unless `use_sliding_window` is set, and then start with `max_window_layers`.
pub(super) fn windows(
    config: &mut ModelConfig,
    raw: &RawConfig,
    problem: &Problem<'_>,
    first: usize,
) -> Result<(), LoadError> {
    let used = raw.use_sliding_window.unwrap_or(false);
    let window = raw.sliding_window.unwrap_or(Some(WINDOW)).filter(|_| used);
    let first = raw.max_window_layers.unwrap_or(first);
    set_windows(config, raw, problem, window, |layer| layer >= first)
}
