//! Models on devices, and in memory that holds one of them at a time.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Lumos, content, lumos, repository, results as written};

/// The two models of [`run`] need 30 MB each, of which 16 MB are for a sequence of full length.
const ONE_FITS: &str = "37MB";

/// 16 items of each benchmark under two formulations.
const UNITS: usize = 64;

/// A run with a planner and a grounder that are different models, and fast: those for web pages and databases, which know nothing
/// about mathematics.
fn run(folder: &Path, name: &str, limit: usize) -> Lumos {
    let run = lumos().args("run --tasks gsm8k,svamp --max-new-tokens 24");
    let run = [("planner", "web"), ("grounder", "sql")].into_iter().fold(run, |run, (role, model)| {
        run.args(format!("--{role}")).arg(repository("models/assets/tiny").join(model))
    });
    run.args(format!("--limit {limit}")).output(folder, name)
}

/// Returns the results of a run without its computing settings.
fn results(folder: &Path) -> (std::collections::BTreeMap<String, Vec<Value>>, Value) {
    let (samples, mut results) = content(folder);
    let spec = results["lumos"]["spec"].as_object_mut().unwrap();
    for field in ["memory", "swap", "places"] {
        spec.remove(field);
    }
    (samples, results)
}

/// Returns how the sessions of a run computed its models.
fn computing(folder: &Path) -> Value {
    written(folder)["lumos"]["telemetry"]["computing"].take()
}

#[test]
fn models_that_take_turns_give_the_same_results_with_few_loads() {
    let folder = tempfile::tempdir().unwrap();
    let whole = run(folder.path(), "whole", 16).ok().prints(["models computed on cpu"]);
    assert!(!whole.stdout.contains("loaded in turns"), "{whole}");
    let limited = run(folder.path(), "limited", 16).args("--memory").arg(ONE_FITS).ok();
    limited.prints(["loaded in turns, 256 episodes at once"]);
    let (whole, limited) = (folder.path().join("whole"), folder.path().join("limited"));
    assert_eq!(results(&whole), results(&limited));
    let told = &computing(&limited)[0];
    assert_eq!(
        (&told["in_phases"], &told["places"], &told["sessions"]),
        (&true.into(), &256.into(), &1.into())
    );
    // Two before the run starts, then two for each round of the longest episode and one extra round, but not
    // two for each of the 32 items.
    let loads = told["loads"].as_u64().unwrap();
    assert!((4..=2 + 2 * (8 + 1)).contains(&loads), "{told}");
    assert!(told["load_seconds"].as_f64().unwrap() > 0.0, "{told}");
    assert_eq!(computing(&whole)[0]["in_phases"], false);
    for format in ["html", "markdown"] {
        lumos().args("report --format").arg(format).arg(&limited).ok().prints(["loaded in turns"]);
    }
}

#[test]
fn a_memory_that_is_too_small_is_refused_with_sizes_and_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let small = |more: &str| run(folder.path(), "small", 2).args(more);
    small(&format!("--memory {ONE_FITS} --swap never")).exits(2).reports([
        "planner candle:",
        "grounder candle:",
        "omit `--swap never` (each model fits alone)",
    ]);
    small("--memory 8MB").exits(2).reports(["for weights and at least", "raise --memory"]);
    assert!(!folder.path().join("small").exists(), "a rejected run creates no files");
    let ended = small("--memory 72MB --swap never").ok();
    assert!(!ended.stdout.contains("loaded in turns"), "{ended}");
}

#[test]
fn killed_between_phases_it_ends_as_if_nothing_had_happened() {
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| run(folder.path(), name, 16).args("--formulation iterative,onetime");
    start("whole").ok();
    // Settled units that the next session finds.
    let mut recorded = 0..=0;
    for is_killed in [true, false, true, false] {
        // Low concurrency, so that outcomes are recorded while other episodes wait.
        let command = start("killed").args("--concurrency 8 --json --memory").arg(ONE_FITS);
        let mut run = command.follow();
        run.until("settled", 1);
        if is_killed {
            assert!(run.kill(), "the run ended by itself:\n{}", run.said());
        } else {
            run.signal("-INT");
            assert_eq!(run.end(), Some(130), "{}", run.said());
        }
        let before = run.settled_before();
        assert!(recorded.contains(&before), "{before} units are settled, expected {recorded:?}");
        let least = before + run.settled().len();
        // A killed session may have recorded units without an event; an interrupted one tells all.
        recorded = least..=if is_killed { UNITS - 1 } else { least };
        if !is_killed {
            let draining = run.events("draining");
            assert_eq!(draining.len(), 1, "{draining:?}");
            assert_eq!(draining[0]["reason"], "interrupted");
            assert_eq!(draining[0]["at_hand"], 8, "as many episodes as run at the same time");
            let finished = run.events("finished");
            assert_eq!(finished[0]["settled"], least);
            assert_eq!(finished[0]["outstanding"], UNITS - least);
        }
    }
    let killed = folder.path().join("killed");
    // The memory limit is stored in the run.
    let resumed = lumos().args("resume").arg(&killed).ok();
    let resumed = resumed.prints(["loaded in turns, 8 episodes at once"]);
    resumed.reports([format!(", {} already settled", recorded.start())]);
    assert_eq!(results(&folder.path().join("whole")), results(&killed));
    let told = computing(&killed);
    assert_eq!(told.as_array().map(Vec::len), Some(1), "{told}");
    // Two of five sessions were killed.
    assert_eq!((&told[0]["sessions"], &told[0]["ended"]), (&5.into(), &3.into()), "{told}");
}

#[test]
fn devices_are_named_for_all_or_by_role() {
    let folder = tempfile::tempdir().unwrap();
    let with = |device: &str| run(folder.path(), "run", 1).args("--dry-run --device").arg(device);
    with("planner=cpu,grounder=auto").ok();
    for (device, said) in [
        ("planner=gpu", "unknown device `gpu`: expected cpu, auto, or cuda:0"),
        ("planer=cpu", "unknown role `planer`: expected planner"),
        ("planner=cpu,planner=auto", "duplicate device of the planner"),
    ] {
        with(device).exits(2).reports([said]);
    }
    let complete = lumos().args("complete --model builtin:tiny --device planner=tpu text");
    complete.exits(2).reports(["unknown device `tpu`"]);
    let file = folder.path().join("run.toml");
    std::fs::write(&file, "[device]\nplanner = 'cpu'\nothers = 'auto'\n").unwrap();
    with("cpu").args("--config").arg(&file).ok();
    // `auto` is the CPU on a machine without a GPU; which device computes is part of an identity only if it is a GPU.
    run(folder.path(), "one", 4).args("--device cpu").ok();
    let two = run(folder.path(), "two", 4).args("--device grounder=auto").ok();
    two.prints(["models computed: planner on cpu, grounder on auto"]);
    let samples = |name: &str| content(&folder.path().join(name)).0;
    assert_eq!(samples("one"), samples("two"));
}

#[test]
fn an_estimate_says_which_way_a_pair_fits() {
    let folder = tempfile::tempdir().unwrap();
    let bench = folder.path().join("bench.json");
    let cell = json!({
        "batch_size": 32, "reuse": true, "prefill_tokens_per_second": 3000.0, "decode_tokens_per_second": 600.0,
        "first_token_seconds": 1.0, "second_turn_first_token_seconds": 1.0, "second_turn_cached_tokens": 0,
        "cache_bytes": 1, "decode_share_of_bandwidth": 0.5, "decode_share_of_compute": 0.1,
        "prefill_share_of_compute": 0.5,
    });
    let mut report = json!({
        "model": {
            "architecture": "LlamaForCausalLM", "parameters": 6_738_415_616_u64, "vocabulary": 32_000, "dtype": "f16",
            "weight_files": [], "tokenizer_sha256": "", "context_length": 4096,
        },
        "threads": 2, "prompt_tokens": 256, "new_tokens": 32, "weight_bytes": 13_740_000_000_u64,
        "cache_bytes_per_token": 1_048_576, "cells": [cell],
        "limits": { "read_bytes_per_second": 1.0, "operations_per_second": 1.0 },
    });
    std::fs::write(&bench, report.to_string()).unwrap();
    let spec = folder.path().join("run.toml");
    std::fs::write(&spec, "tasks = ['gsm8k']\nmodel = 'lumos:maths'\n").unwrap();
    let estimate =
        |more: &str| lumos().args("estimate").arg(&spec).args("--bench").arg(&bench).args(more).ok().stdout;
    assert!(!estimate("").contains("recommended"));
    insta::assert_snapshot!("estimate_7b_pair_24gb", estimate("--memory 24GB"));
    let told: Value = serde_json::from_str(&estimate("--memory 24GB --json")).unwrap();
    let fits: Vec<_> =
        told["memory"]["candidates"].as_array().unwrap().iter().map(|one| &one["fits"]).collect();
    assert_eq!(fits, [false, true, true, true]);
    assert!(estimate("--memory 40GB").contains("recommended: together"));
    // The logits of drafts need 66 MB per model.
    assert!(!estimate("--memory 36.1GB").contains("recommended: together"));
    assert!(estimate("--memory 36.1GB --speculate off").contains("recommended: together"));
    // Each model on its own GPU.
    std::fs::write(&spec, "tasks = ['gsm8k']\nmodel = 'lumos:maths'\n[device]\nplanner = 'cuda:0'\n")
        .unwrap();
    assert!(estimate("--memory 24GB").contains("recommended: together"));
    // The GPU also needs memory for buffers, whose size is missing in files of earlier versions.
    let on_gpu = || lumos().args("estimate --memory 19GB").arg(&spec).arg("--bench").arg(&bench).ok();
    let missing = "memory for the buffers of a GPU is not counted";
    let uncounted = on_gpu().prints(["recommended: together"]).reports([missing]);
    assert!(!uncounted.stdout.contains("Q8_0"), "{uncounted}");
    report["gpu_buffer_bytes"] = json!(1_700_000_000);
    std::fs::write(&bench, report.to_string()).unwrap();
    // A GPU widens quantized weights, so that quantizing saves no memory.
    let counted = on_gpu().prints(["recommended: none of these"]);
    assert!(!counted.stderr.contains(missing) && !counted.stdout.contains("Q8_0"), "{counted}");
}
