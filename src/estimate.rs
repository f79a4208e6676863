//! Estimates time and memory of a run, and determines how its models fit in limited memory. Performs no I/O.
//!
//! [`predict`] uses rates measured by `lumos bench engine` and [`TokensPerItem`], which are recorded in a run
//! or, for the published benchmarks, taken from the recorded cases of the original scripts.
//!
//! [`fit`] evaluates every [`MemoryOption`] for measured rates and returns a [`Fitting`] with the recommended one.

use lumos_engine::bench::{BenchCell, BenchReport};
use lumos_engine::{DeviceName, LoadOptions};
use lumos_models::{Arrangement, Need, arrange};
use lumos_tasks::{Formulation, Swap};
use serde::Serialize;

/// Average number of tokens that an item costs the models of its episode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
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
    /// Cost of models on servers with a price, in US dollars; 0 without a price, or if it is unknown.
    pub(crate) dollars: f64,
    /// Seconds of one worker, harness and tools included, if measured in a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
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
        dollars: 0.0,
        seconds: None,
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

/// If a batch is more than this many times as large as the measured one, a warning is logged.
const MOST_TIMES_MEASURED: usize = 4;

/// Returns the number of sequences that a run may compute together, if it is so far above the measured batch size that the
/// run takes less time than estimated. The number is `concurrency`, or that of sequences with `longest` tokens that
/// fit in memory in addition to the weights and the buffers of one model.
pub(crate) fn far_larger_batch(
    report: &BenchReport,
    cell: &BenchCell,
    concurrency: usize,
    memory: Option<u64>,
    buffer_bytes: u64,
    longest: u32,
) -> Option<usize> {
    let bytes = u64::from(longest).saturating_mul(report.cache_bytes_per_token).max(1);
    let taken = report.weight_bytes.saturating_add(buffer_bytes);
    let room = memory.map_or(u64::MAX, |memory| memory.saturating_sub(taken) / bytes);
    let batch_size = usize::try_from(room).map_or(concurrency, |room| room.min(concurrency));
    (batch_size > cell.batch_size.saturating_mul(MOST_TIMES_MEASURED)).then_some(batch_size)
}

/// Estimates time and memory for a number of items from measured rates of the engine. Prefill and decode alternate
/// on the same processor, so their times are added. The time of the harness and of tools is not included.
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

/// Returns the size of a model's buffers in bytes: on a GPU that of the report, if it has one; on the CPU that of the
/// logits of drafts. The device of `options` must be resolved.
pub(crate) fn buffer_bytes(report: &BenchReport, options: &LoadOptions) -> Option<u64> {
    match options.device {
        DeviceName::Cuda(_) => report.gpu_buffer_bytes,
        DeviceName::Auto | DeviceName::Cpu => Some(options.draft_logit_bytes(report.model.vocabulary)),
    }
}

/// Swapping is recommended if loading takes at most this fraction of the compute time.
const LOADING_SHARE: f64 = 0.1;

/// Option for computing models in limited memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MemoryOption {
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

impl MemoryOption {
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
    pub(crate) option: MemoryOption,
    /// Whether it fits.
    pub(crate) fits: bool,
    /// Required memory in bytes: weights, buffers, and the KV cache of one sequence of full length per model.
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
    /// Size of a model's buffers in bytes, as returned by [`buffer_bytes`].
    pub(crate) buffer_bytes: u64,
    /// Whether the memory is that of a GPU.
    pub(crate) on_gpu: bool,
    /// Memory in bytes.
    pub(crate) memory: u64,
    /// Number of times that each model is loaded during the run.
    pub(crate) cycles: u64,
    /// Bytes of weights loaded per second.
    pub(crate) load_rate: u64,
    /// Compute time of the models in seconds.
    pub(crate) seconds: f64,
}

/// The evaluated options and the recommended one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Fitting {
    /// Memory in bytes.
    pub(crate) memory: u64,
    /// Minimum number of tokens for which each model's KV cache has room.
    pub(crate) context_length: usize,
    /// Bytes loaded per second.
    pub(crate) load_rate: u64,
    /// The evaluated options.
    pub(crate) candidates: Vec<Candidate>,
    /// The best option that fits; `None` if none fits.
    pub(crate) recommended: Option<MemoryOption>,
}

/// Number of times that each model is loaded. In one cycle every concurrent episode completes one round, and
/// there are at least as many cycles as the longest episode has rounds.
pub(crate) fn cycles(rounds: f64, longest: u32, concurrency: usize) -> u64 {
    let cycles = (rounds / concurrency.max(1) as f64).ceil();
    // Numbers of rounds are far below 2^53.
    (cycles as u64).max(u64::from(longest))
}

/// Evaluates every option that the device and the number of models allow.
pub(crate) fn fit(report: &BenchReport, case: Use) -> Fitting {
    let context_length = report.model.context_length;
    let cache_bytes = report.cache_bytes_per_token.saturating_mul(context_length as u64);
    let candidate = |option: MemoryOption| {
        let weight_bytes = match option.bits() {
            None => report.weight_bytes,
            Some(bits) => (report.model.parameters as f64 * bits / 8.0) as u64,
        };
        let with_buffers = weight_bytes.saturating_add(case.buffer_bytes);
        let need = |number: u64| Need {
            name: format!("model {}", number + 1),
            weight_bytes: with_buffers,
            cache_bytes,
        };
        let needs: Vec<Need> = (0..case.models).map(need).collect();
        let arrangement = arrange(&needs, Some(case.memory), Swap::Auto).ok();
        let in_phases = option == MemoryOption::InPhases;
        let at_once = if in_phases { 1 } else { case.models };
        let loads = in_phases.then(|| case.cycles.saturating_mul(case.models));
        Candidate {
            option,
            fits: if in_phases { arrangement.is_some() } else { arrangement == Some(Arrangement::Together) },
            bytes: at_once.saturating_mul(with_buffers.saturating_add(cache_bytes)),
            loads,
            load_seconds: loads
                .map(|loads| loads as f64 * weight_bytes as f64 / case.load_rate.max(1) as f64),
        }
    };
    let options = MemoryOption::ALL.into_iter().filter(|option| match option {
        MemoryOption::Together => true,
        // A single model does not take turns.
        MemoryOption::InPhases => case.models > 1,
        // On a GPU, weights in blocks are widened when they are loaded.
        MemoryOption::Q8_0 | MemoryOption::Q4K => !case.on_gpu,
    });
    let candidates: Vec<Candidate> = options.map(candidate).collect();
    let recommended = recommend(&candidates, case.seconds);
    Fitting { memory: case.memory, context_length, load_rate: case.load_rate, candidates, recommended }
}

/// Recommends, in this order: all models together if they fit; phases if loading is cheap; the larger
/// quantization that fits; phases at any cost.
fn recommend(candidates: &[Candidate], seconds: f64) -> Option<MemoryOption> {
    let fitting = |option: MemoryOption| candidates.iter().find(|one| one.option == option && one.fits);
    let cheap = |one: &&Candidate| one.load_seconds.is_some_and(|loading| loading <= LOADING_SHARE * seconds);
    fitting(MemoryOption::Together)
        .or_else(|| fitting(MemoryOption::InPhases).filter(cheap))
        .or_else(|| fitting(MemoryOption::Q8_0))
        .or_else(|| fitting(MemoryOption::Q4K))
        .or_else(|| fitting(MemoryOption::InPhases))
        .map(|one| one.option)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lumos_models::EngineSettings;
    use lumos_tasks::Device;
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
    fn a_batch_of_more_than_four_times_the_measured_size_is_far_larger() {
        let report = report();
        let cell = nearest(&report, None).unwrap();
        let far = |concurrency, memory| far_larger_batch(&report, cell, concurrency, memory, 0, 50);
        assert_eq!((far(32, None), far(33, None)), (None, Some(33)));
        // Each sequence needs 150 bytes in addition to 1000 bytes of weights.
        assert_eq!((far(256, Some(4000)), far(256, Some(7000)), far(256, Some(500))), (None, Some(40), None));
        // Buffers take the room of seven or eight sequences.
        let with = |buffer_bytes| far_larger_batch(&report, cell, 256, Some(7000), buffer_bytes, 50);
        assert_eq!((with(1050), with(1200)), (Some(33), None));
    }

    #[test]
    fn times_add_up_and_memory_is_that_of_a_full_batch() {
        let report = report();
        let cell = nearest(&report, Some(8)).unwrap();
        let tokens = TokensPerItem {
            computed: 200.0,
            written: 40.0,
            longest: 50,
            rounds: 1.0,
            most_rounds: 1,
            dollars: 0.0,
            seconds: None,
        };
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
        Use { models: 2, buffer_bytes: 0, on_gpu: false, memory, cycles, load_rate: 500_000_000, seconds }
    }

    fn fits(fitting: &Fitting) -> Vec<(MemoryOption, bool, u64)> {
        let tenths = |one: &Candidate| (one.option, one.fits, one.bytes / 100_000_000);
        fitting.candidates.iter().map(tenths).collect()
    }

    #[test]
    fn two_of_seven_billion_do_not_fit_into_24_gigabytes_and_take_turns() {
        let fitting = fit(&seven_billion(), pair(24_000_000_000, 20_000.0));
        assert_eq!(
            fits(&fitting),
            [
                (MemoryOption::Together, false, 360),
                (MemoryOption::InPhases, true, 180),
                (MemoryOption::Q8_0, true, 229),
                (MemoryOption::Q4K, true, 161),
            ]
        );
        let phases = &fitting.candidates[1];
        // 18 cycles of two loads, each of 27.48 s.
        assert_eq!(phases.loads, Some(36));
        assert!((phases.load_seconds.unwrap() - 989.28).abs() < 0.01, "{phases:?}");
        assert_eq!(fitting.recommended, Some(MemoryOption::InPhases));
        // If the models compute for only a few minutes, repeated loading is not worth its time.
        let hasty = fit(&seven_billion(), pair(24_000_000_000, 600.0));
        assert_eq!(hasty.recommended, Some(MemoryOption::Q8_0));
    }

    #[test]
    fn other_memories_have_other_ways() {
        let recommended = |memory: u64| fit(&seven_billion(), pair(memory, 600.0)).recommended;
        assert_eq!(recommended(40_000_000_000), Some(MemoryOption::Together));
        assert_eq!(recommended(20_000_000_000), Some(MemoryOption::Q4K));
        assert_eq!(recommended(15_000_000_000), None);
        let alone = fit(&seven_billion(), Use { models: 1, ..pair(24_000_000_000, 600.0) });
        assert_eq!(alone.recommended, Some(MemoryOption::Together));
        assert!(alone.candidates.iter().all(|one| one.option != MemoryOption::InPhases));
    }

    #[test]
    fn quantized_weights_are_not_suggested_for_a_gpu() {
        let case = |on_gpu, memory| fit(&seven_billion(), Use { on_gpu, ..pair(memory, 600.0) });
        let fitting = case(true, 24_000_000_000);
        let options: Vec<_> = fitting.candidates.iter().map(|one| one.option).collect();
        assert_eq!(options, [MemoryOption::Together, MemoryOption::InPhases]);
        assert_eq!(fitting.recommended, Some(MemoryOption::InPhases));
        assert_eq!(case(true, 17_000_000_000).recommended, None);
        assert_eq!(case(false, 17_000_000_000).recommended, Some(MemoryOption::Q4K));
    }

    #[test]
    fn every_loaded_model_needs_its_buffers() {
        let case = |buffer_bytes| Use { buffer_bytes, ..pair(40_000_000_000, 600.0) };
        let (without, with) = (fit(&seven_billion(), case(0)), fit(&seven_billion(), case(1000)));
        let pairs = with.candidates.iter().zip(&without.candidates);
        let more: Vec<u64> = pairs.map(|(with, without)| with.bytes - without.bytes).collect();
        assert_eq!(more, [2000, 1000, 2000, 2000]);
        let memory = without.candidates[0].bytes;
        let exact = |buffer_bytes| fit(&seven_billion(), Use { memory, ..case(buffer_bytes) });
        assert!(exact(0).candidates[0].fits && !exact(1).candidates[0].fits);
    }

    #[test]
    fn buffers_of_a_gpu_are_those_of_the_report() {
        let earlier = seven_billion();
        let report = BenchReport { gpu_buffer_bytes: Some(1_700_000_000), ..earlier.clone() };
        let bytes = |report: &BenchReport, device| {
            buffer_bytes(report, &EngineSettings { device, ..EngineSettings::default() }.options())
        };
        assert_eq!(bytes(&report, Device::Cuda(0)), Some(1_700_000_000));
        assert_eq!(bytes(&earlier, Device::Cuda(0)), None);
        // 512 rows of logits.
        for report in [&report, &earlier] {
            assert_eq!(bytes(report, Device::Cpu), Some(512 * 32_000 * 4));
        }
    }

    #[test]
    fn cycles_are_those_of_the_longest_episode_at_least() {
        assert_eq!(cycles(10.0, 8, 256), 8);
        assert_eq!(cycles(4418.65, 8, 256), 18);
        assert_eq!(cycles(3.0, 1, 0), 3);
    }
}
