//! The built-in agents: `builtin:tiny` picks a pair for each benchmark.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{content, files, lumos};

/// Solves something on the samples of every benchmark. Greedy decoding is deterministic, so the result does not vary.
#[test]
fn every_benchmark_has_an_agent_that_solves_something() {
    let folder = tempfile::tempdir().unwrap();
    let run = lumos().args("run --tasks all --model builtin:tiny --max-new-tokens 96 -q");
    run.output(folder.path(), "all").ok();
    let (samples, _) = content(&folder.path().join("all"));
    let metrics = [
        ("gsm8k", "exact_match"),
        ("svamp", "exact_match"),
        ("hotpotqa", "exact_match"),
        ("strategyqa", "accuracy"),
        ("mind2web", "step_success_rate"),
        ("webshop", "reward"),
        ("intercode_sql", "success_rate"),
    ];
    for (benchmark, metric) in metrics {
        let solved =
            samples[benchmark].iter().filter(|row| row[metric].as_f64().is_some_and(|value| value > 0.0));
        assert!(solved.count() > 0, "{benchmark}");
    }
}

#[test]
fn benchmarks_have_different_models_of_one_name() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        lumos().args("run --tasks svamp,strategyqa,intercode_sql,webshop --model builtin:tiny --limit 1 -q");
    run.output(folder.path(), "four").ok();
    let manifest = folder.path().join("four").join("manifest.json");
    let manifest: Value = serde_json::from_str(&std::fs::read_to_string(manifest).unwrap()).unwrap();
    let planners: BTreeSet<String> = manifest["configurations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|planned| planned["configuration"]["models"]["planner"].to_string())
        .collect();
    assert_eq!(planners.len(), 4, "{planners:?}");
    assert!(planners.iter().all(|planner| planner.contains("builtin:tiny")), "{planners:?}");
    assert_eq!(files(&folder.path().join("four"), "samples_", ".jsonl").len(), 4);
}
