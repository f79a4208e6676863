//! Which way the models of a run fit into a limited memory, and what each way costs. Pure.

use lumos_engine::bench::BenchReport;
use lumos_tasks::Swap;
use lumos_worker::model::{Arrangement, Need, arrange};
use serde::Serialize;

/// Swapping is recommended where loading takes at most this share of the time that models compute.
const LOADING_SHARE: f64 = 0.1;

/// How models could be computed in a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// All of them loaded.
    Together,
    /// One loaded at a time, all waiting turns of one and then all of the next: the same results.
    InPhases,
    /// All loaded, as GGUF with blocks of 8 bits: 8.5 bits a weight. Other weights, so other results.
    Q8_0,
    /// All loaded, as GGUF with blocks of 4 bits: 4.5 bits a weight. Other weights, so other results.
    Q4K,
}

impl Way {
    const ALL: [Self; 4] = [Self::Together, Self::InPhases, Self::Q8_0, Self::Q4K];

    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::InPhases => "in phases",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
        }
    }

    /// Bits that one weight takes; `None` for those of its own type.
    pub(crate) fn bits(self) -> Option<f64> {
        match self {
            Self::Together | Self::InPhases => None,
            Self::Q8_0 => Some(8.5),
            Self::Q4K => Some(4.5),
        }
    }
}

/// One way, looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Candidate {
    /// The way.
    pub(crate) way: Way,
    /// Whether it fits.
    pub(crate) fits: bool,
    /// Bytes that are needed at once: weights, and keys and values of one sequence of full length for each model.
    pub(crate) bytes: u64,
    /// How often models are loaded, where they take turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) loads: Option<u64>,
    /// Seconds that this takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load_seconds: Option<f64>,
}

/// What is known of the models and of their use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Use {
    /// Models that share the memory, all of one size.
    pub(crate) models: u64,
    /// Bytes of the memory.
    pub(crate) memory: u64,
    /// Times that a model of each kind has its turns while the run lasts.
    pub(crate) cycles: u64,
    /// Bytes of weights loaded in a second.
    pub(crate) load_rate: u64,
    /// Seconds that the models compute.
    pub(crate) seconds: f64,
}

/// Every way and the one that is recommended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Fitting {
    /// Bytes of the memory.
    pub(crate) memory: u64,
    /// Tokens that the keys and values of each model have room for at least.
    pub(crate) context_length: usize,
    /// Bytes loaded in a second.
    pub(crate) load_rate: u64,
    /// All ways.
    pub(crate) candidates: Vec<Candidate>,
    /// The best of those that fit; `None` where none does.
    pub(crate) recommended: Option<Way>,
}

/// How often each model has its turns: every episode side by side goes one round in a cycle, and there are at least as
/// many as the longest episode has rounds.
pub(crate) fn cycles(rounds: f64, longest: u32, places: usize) -> u64 {
    let cycles = (rounds / places.max(1) as f64).ceil();
    // Counts of rounds lie far below 2^53.
    (cycles as u64).max(u64::from(longest))
}

/// Looks at every way.
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
    // One model has nobody to take turns with.
    let ways = Way::ALL.into_iter().filter(|way| *way != Way::InPhases || case.models > 1);
    let candidates: Vec<Candidate> = ways.map(candidate).collect();
    let recommended = recommend(&candidates, case.seconds);
    Fitting { memory: case.memory, context_length, load_rate: case.load_rate, candidates, recommended }
}

/// All together where they fit; in phases where loading is cheap; else the larger of the quantised ones that fit; else in
/// phases at whatever cost.
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
        // GSM8K: 1,319 items of 3.35 rounds, the longest of 8, 256 at once.
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
        // Where the models compute for a few minutes only, loading them over and over does not pay.
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
