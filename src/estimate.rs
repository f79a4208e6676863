//! Estimates time and memory of a run. Performs no I/O.
//!
//! [`predict`] uses rates measured by `lumos bench engine` and [`TokensPerItem`], which are recorded in a run
//! or, for the published benchmarks, taken from the recorded cases of the original scripts.

use lumos_engine::bench::{BenchCell, BenchReport};
use lumos_tasks::Formulation;
use serde::Serialize;

/// Average number of tokens that an item costs the models of its episode.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct TokensPerItem {
    /// Prompt tokens that are computed, without those from the prefix cache.
    pub(crate) computed: f64,
    /// Generated tokens.
    pub(crate) written: f64,
    /// Tokens of the longest prompt with its reply.
    pub(crate) longest: u32,
    /// Average number of rounds in which its models take turns.
    pub(crate) rounds: f64,
    /// Number of rounds of the longest item.
    pub(crate) most_rounds: u32,
}

/// Means over the recorded cases of the original scripts (40 or 66 per row), in tokens of Llama 2. The
/// beginning of a prompt counts as cached, in pages of 16 tokens, if an earlier turn or item began with the
/// same tokens. The last two columns are the planner's turns: mean and maximum.
const RECORDED: [(&str, Formulation, f64, f64, u32, f64, u32); 16] = [
    ("gsm8k", Formulation::Iterative, 464.8, 110.8, 724, 3.35, 8),
    ("gsm8k", Formulation::OneTime, 237.7, 104.3, 517, 1.0, 1),
    ("gsm8k", Formulation::Cot, 82.1, 10.6, 149, 1.0, 1),
    ("gsm8k", Formulation::Direct, 78.5, 7.6, 187, 1.0, 1),
    ("svamp", Formulation::Iterative, 253.0, 45.9, 374, 1.94, 2),
    ("svamp", Formulation::OneTime, 156.7, 29.1, 315, 1.0, 1),
    ("svamp", Formulation::Cot, 58.4, 10.9, 96, 1.0, 1),
    ("svamp", Formulation::Direct, 61.2, 6.3, 107, 1.0, 1),
    ("hotpotqa", Formulation::Iterative, 592.2, 192.8, 815, 5.0, 5),
    ("hotpotqa", Formulation::OneTime, 134.3, 143.4, 535, 1.0, 1),
    ("hotpotqa", Formulation::Cot, 37.4, 26.4, 103, 1.0, 1),
    ("hotpotqa", Formulation::Direct, 38.1, 4.9, 62, 1.0, 1),
    ("strategyqa", Formulation::Iterative, 500.5, 166.1, 833, 5.0, 5),
    ("strategyqa", Formulation::OneTime, 119.1, 142.4, 515, 1.0, 1),
    ("strategyqa", Formulation::Cot, 28.6, 10.9, 63, 1.0, 1),
    ("strategyqa", Formulation::Direct, 29.4, 6.0, 50, 1.0, 1),
];

/// Returns the tokens per item recorded from the original scripts.
pub(crate) fn recorded(benchmark: &str, formulation: Formulation) -> Option<TokensPerItem> {
    let found = RECORDED.iter().find(|(name, one, ..)| *name == benchmark && *one == formulation);
    found.map(|&(_, _, computed, written, longest, rounds, most_rounds)| TokensPerItem {
        computed,
        written,
        longest,
        rounds,
        most_rounds,
    })
}

/// Estimate for a run or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Prediction {
    /// Time in seconds with one worker.
    pub(crate) seconds: f64,
    /// Size of the weights in bytes.
    pub(crate) weight_bytes: u64,
    /// Size of the KV cache in bytes if all sequences of the batch have their maximum length.
    pub(crate) cache_bytes: u64,
}

/// Returns the measurement for the nearest batch size: the largest that is not above it, otherwise the
/// smallest. Prefers measurements with prefix caching.
pub(crate) fn nearest(report: &BenchReport, batch_size: Option<usize>) -> Option<&BenchCell> {
    let most = batch_size.unwrap_or(usize::MAX);
    let reuse = report.cells.iter().any(|cell| cell.reuse);
    let cells = || report.cells.iter().filter(|cell| cell.reuse == reuse);
    cells()
        .filter(|cell| cell.batch_size <= most)
        .max_by_key(|cell| cell.batch_size)
        .or_else(|| cells().min_by_key(|cell| cell.batch_size))
}

/// Estimates time and memory for a number of items. Prefill and decode alternate on the same processor, so
/// their times are added.
pub(crate) fn predict(
    report: &BenchReport,
    cell: &BenchCell,
    tokens: TokensPerItem,
    items: u64,
    models: u64,
) -> Prediction {
    let per_item =
        tokens.computed / cell.prefill_tokens_per_second + tokens.written / cell.decode_tokens_per_second;
    Prediction {
        seconds: items as f64 * per_item,
        weight_bytes: models * report.weight_bytes,
        cache_bytes: models
            * cell.batch_size as u64
            * u64::from(tokens.longest)
            * report.cache_bytes_per_token,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> BenchReport {
        let cell = |batch_size: usize, reuse: bool| {
            json!({
                "batch_size": batch_size, "reuse": reuse, "prefill_tokens_per_second": 100.0,
                "decode_tokens_per_second": 10.0 * batch_size as f64, "first_token_seconds": 1.0,
                "second_turn_first_token_seconds": 1.0, "second_turn_cached_tokens": 0, "cache_bytes": 1,
                "decode_share_of_bandwidth": 0.5, "decode_share_of_compute": 0.1, "prefill_share_of_compute": 0.5,
            })
        };
        let report = json!({
            "model": {
                "architecture": "LlamaForCausalLM", "parameters": 1, "vocabulary": 1, "dtype": "f32",
                "weight_files": [], "tokenizer_sha256": "", "context_length": 1,
            },
            "threads": 2, "prompt_tokens": 1, "new_tokens": 2, "weight_bytes": 1000, "cache_bytes_per_token": 3,
            "limits": { "read_bytes_per_second": 1.0, "operations_per_second": 1.0 },
            "cells": [cell(1, false), cell(1, true), cell(8, true)],
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn the_nearest_cell_is_not_above_the_batch_size() {
        let report = report();
        let size = |batch_size| nearest(&report, batch_size).map(|cell| (cell.batch_size, cell.reuse));
        assert_eq!(size(None), Some((8, true)));
        assert_eq!(size(Some(7)), Some((1, true)));
        assert_eq!(size(Some(0)), Some((1, true)));
    }

    #[test]
    fn times_add_up_and_memory_is_that_of_a_full_batch() {
        let report = report();
        let cell = nearest(&report, Some(8)).unwrap();
        let tokens =
            TokensPerItem { computed: 200.0, written: 40.0, longest: 50, rounds: 1.0, most_rounds: 1 };
        let prediction = predict(&report, cell, tokens, 10, 2);
        assert!((prediction.seconds - 25.0).abs() < 1e-9, "{prediction:?}");
        assert_eq!((prediction.weight_bytes, prediction.cache_bytes), (2000, 2400));
    }

    #[test]
    fn every_recorded_benchmark_is_one() {
        for (name, formulation, ..) in RECORDED {
            let benchmark = lumos_benchmarks::find(name).unwrap();
            assert!(benchmark.formulations().contains(&formulation), "{name} {formulation}");
        }
        assert!(recorded("gsm8k", Formulation::Integrated).is_none());
    }
}
