//! Determines how the models of a run fit in limited memory, and the cost of each option. Performs no I/O.
//!
//! [`fit`] evaluates every [`Way`] for measured rates and returns a [`Fitting`] with the recommended one, for
//! `lumos estimate`.

use lumos_engine::bench::BenchReport;
use lumos_models::{Arrangement, Need, arrange};
use lumos_tasks::Swap;
use serde::Serialize;

/// Swapping is recommended if loading takes at most this fraction of the compute time.
const LOADING_SHARE: f64 = 0.1;

/// Option for computing models in limited memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// All models are loaded.
    Together,
    /// One model is loaded at a time and computes all its waiting requests before the next is loaded. Same
    /// results.
    InPhases,
    /// All models are loaded, as GGUF with 8-bit blocks: 8.5 bits per weight. Different weights, so different
    /// results.
    Q8_0,
    /// All models are loaded, as GGUF with 4-bit blocks: 4.5 bits per weight. Different weights, so different
    /// results.
    Q4K,
}

impl Way {
    const ALL: [Self; 4] = [Self::Together, Self::InPhases, Self::Q8_0, Self::Q4K];

    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::InPhases => "in phases",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
        }
    }

    /// Returns the bits per weight; `None` for the model's own data type.
    pub(crate) fn bits(self) -> Option<f64> {
        match self {
            Self::Together | Self::InPhases => None,
            Self::Q8_0 => Some(8.5),
            Self::Q4K => Some(4.5),
        }
    }
}

/// Evaluation of one option.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Candidate {
    /// The option.
    pub(crate) way: Way,
    /// Whether it fits.
    pub(crate) fits: bool,
    /// Required memory in bytes: weights, and the KV cache of one sequence of full length per model.
    pub(crate) bytes: u64,
    /// Number of model loads, if models take turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) loads: Option<u64>,
    /// Seconds spent on loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load_seconds: Option<f64>,
}

/// Properties of the models and the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Use {
    /// Number of models that share the memory, all of the same size.
    pub(crate) models: u64,
    /// Memory in bytes.
    pub(crate) memory: u64,
    /// Number of times that each model is loaded during the run.
    pub(crate) cycles: u64,
    /// Bytes of weights loaded per second.
    pub(crate) load_rate: u64,
    /// Compute time of the models in seconds.
    pub(crate) seconds: f64,
}

/// All options and the recommended one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Fitting {
    /// Memory in bytes.
    pub(crate) memory: u64,
    /// Minimum number of tokens for which each model's KV cache has room.
    pub(crate) context_length: usize,
    /// Bytes loaded per second.
    pub(crate) load_rate: u64,
    /// All options.
    pub(crate) candidates: Vec<Candidate>,
    /// The best option that fits; `None` if none fits.
    pub(crate) recommended: Option<Way>,
}

/// Number of times that each model is loaded. In one cycle every concurrent episode completes one round, and
/// there are at least as many cycles as the longest episode has rounds.
pub(crate) fn cycles(rounds: f64, longest: u32, concurrency: usize) -> u64 {
    let cycles = (rounds / concurrency.max(1) as f64).ceil();
    // Numbers of rounds are far below 2^53.
    (cycles as u64).max(u64::from(longest))
}

/// Evaluates every option.
pub(crate) fn fit(report: &BenchReport, case: Use) -> Fitting {
    let context_length = report.model.context_length;
    let cache_bytes = report.cache_bytes_per_token.saturating_mul(context_length as u64);
    let candidate = |way: Way| {
        let weight_bytes = match way.bits() {
            None => report.weight_bytes,
            Some(bits) => (report.model.parameters as f64 * bits / 8.0) as u64,
        };
        let need = |number: u64| Need { name: format!("model {}", number + 1), weight_bytes, cache_bytes };
        let needs: Vec<Need> = (0..case.models).map(need).collect();
        let arrangement = arrange(&needs, Some(case.memory), Swap::Auto).ok();
        let in_phases = way == Way::InPhases;
        let at_once = if in_phases { 1 } else { case.models };
        let loads = in_phases.then(|| case.cycles.saturating_mul(case.models));
        Candidate {
            way,
            fits: if in_phases { arrangement.is_some() } else { arrangement == Some(Arrangement::Together) },
            bytes: at_once.saturating_mul(weight_bytes.saturating_add(cache_bytes)),
            loads,
            load_seconds: loads
                .map(|loads| loads as f64 * weight_bytes as f64 / case.load_rate.max(1) as f64),
        }
    };
    // A single model does not take turns.
    let ways = Way::ALL.into_iter().filter(|way| *way != Way::InPhases || case.models > 1);
    let candidates: Vec<Candidate> = ways.map(candidate).collect();
    let recommended = recommend(&candidates, case.seconds);
    Fitting { memory: case.memory, context_length, load_rate: case.load_rate, candidates, recommended }
}

/// Recommends, in this order: all models together if they fit; phases if loading is cheap; the larger
/// quantization that fits; phases at any cost.
fn recommend(candidates: &[Candidate], seconds: f64) -> Option<Way> {
    let fitting = |way: Way| candidates.iter().find(|one| one.way == way && one.fits);
    let cheap = |one: &&Candidate| one.load_seconds.is_some_and(|loading| loading <= LOADING_SHARE * seconds);
    fitting(Way::Together)
        .or_else(|| fitting(Way::InPhases).filter(cheap))
        .or_else(|| fitting(Way::Q8_0))
        .or_else(|| fitting(Way::Q4K))
        .or_else(|| fitting(Way::InPhases))
        .map(|one| one.way)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Llama 2 with 7 billion parameters in half precision.
    fn seven_billion() -> BenchReport {
        let report = json!({
            "model": {
                "architecture": "LlamaForCausalLM", "parameters": 6_738_415_616_u64, "vocabulary": 32_000,
                "dtype": "f16", "weight_files": [], "tokenizer_sha256": "", "context_length": 4096,
            },
            "threads": 2, "prompt_tokens": 1, "new_tokens": 2, "weight_bytes": 13_740_000_000_u64,
            "cache_bytes_per_token": 1_048_576,
            "limits": { "read_bytes_per_second": 1.0, "operations_per_second": 1.0 },
            "cells": [],
        });
        serde_json::from_value(report).unwrap()
    }

    fn pair(memory: u64, seconds: f64) -> Use {
        // GSM8K: 1,319 items with 3.35 rounds on average and 8 at most; 256 concurrent episodes.
        let cycles = cycles(1319.0 * 3.35, 8, 256);
        Use { models: 2, memory, cycles, load_rate: 500_000_000, seconds }
    }

    fn fits(fitting: &Fitting) -> Vec<(Way, bool, u64)> {
        let tenths = |one: &Candidate| (one.way, one.fits, one.bytes / 100_000_000);
        fitting.candidates.iter().map(tenths).collect()
    }

    #[test]
    fn two_of_seven_billion_do_not_fit_into_24_gigabytes_and_take_turns() {
        let fitting = fit(&seven_billion(), pair(24_000_000_000, 20_000.0));
        assert_eq!(
            fits(&fitting),
            [
                (Way::Together, false, 360),
                (Way::InPhases, true, 180),
                (Way::Q8_0, true, 229),
                (Way::Q4K, true, 161),
            ]
        );
        let phases = &fitting.candidates[1];
        // 18 cycles of two loads, each of 27.48 s.
        assert_eq!(phases.loads, Some(36));
        assert!((phases.load_seconds.unwrap() - 989.28).abs() < 0.01, "{phases:?}");
        assert_eq!(fitting.recommended, Some(Way::InPhases));
        // If the models compute for only a few minutes, repeated loading is not worth its time.
        let hasty = fit(&seven_billion(), pair(24_000_000_000, 600.0));
        assert_eq!(hasty.recommended, Some(Way::Q8_0));
    }

    #[test]
    fn other_memories_have_other_ways() {
        let recommended = |memory: u64| fit(&seven_billion(), pair(memory, 600.0)).recommended;
        assert_eq!(recommended(40_000_000_000), Some(Way::Together));
        assert_eq!(recommended(20_000_000_000), Some(Way::Q4K));
        assert_eq!(recommended(15_000_000_000), None);
        let alone = fit(&seven_billion(), Use { models: 1, ..pair(24_000_000_000, 600.0) });
        assert_eq!(alone.recommended, Some(Way::Together));
        assert!(alone.candidates.iter().all(|one| one.way != Way::InPhases));
    }

    #[test]
    fn cycles_are_those_of_the_longest_episode_at_least() {
        assert_eq!(cycles(10.0, 8, 256), 8);
        assert_eq!(cycles(4418.65, 8, 256), 18);
        assert_eq!(cycles(3.0, 1, 0), 3);
    }
}
