//! OLMo 2.

use super::{DEFAULTS, Defaults, biases, plain};
use crate::error::LoadError;
use crate::load::block::{Biases, Family, ModelConfig, Norms, QueryKeyNorm};
use crate::load::config::{Problem, RawConfig};

/// Norms follow attention and feed-forward, and those of queries and keys are over all heads together.
pub(super) fn olmo2(raw: &RawConfig, problem: &Problem<'_>) -> Result<ModelConfig, LoadError> {
    let defaults = Defaults { norm_epsilon: 1e-5, ..DEFAULTS };
    let mut config = plain(raw, problem, Family::Olmo2, &defaults)?;
    config.block.norms = Norms::After;
    config.block.query_key_norm = QueryKeyNorm::Whole;
    config.block.biases = Biases { feed_forward: false, ..biases(raw) };
    Ok(config)
}
