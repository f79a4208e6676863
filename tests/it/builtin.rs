//! The built-in agents: `builtin:tiny` picks a pair for each benchmark.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::nats::NatsServer;
use crate::support::{Fleet, content, files, lumos, set_up, settled};

/// A few items of every benchmark, with short replies.
const FEW: &str = "--tasks all --model builtin:tiny --limit 2 --max-new-tokens 48 --batch-size 2";
const FEW_UNITS: u64 = 7 * 2;

/// Solves something on the samples of every benchmark. Greedy decoding is deterministic, so the result does not vary.
/// Replies without an end are cut off early, and expensive items are few, which saves most of the time.
#[test]
fn every_benchmark_has_an_agent_that_solves_something() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, tasks: &str| {
        let run = lumos().args("run --model builtin:tiny --max-new-tokens 96 --tasks").args(tasks);
        run.output(folder.path(), name).ok();
        let (samples, results) = content(&folder.path().join(name));
        assert!(results["results"].is_object(), "{results}");
        samples
    };
    let mut samples = run("cheap", "gsm8k,svamp,mind2web --limit 20");
    samples.extend(run("expensive", "hotpotqa,strategyqa,webshop,intercode_sql --limit 8"));
    assert_eq!(samples.len(), lumos_benchmarks::all().len(), "{:?}", samples.keys());
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
        assert!(samples[benchmark].iter().all(|row| row["status"] != "faulted"), "{benchmark}");
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

/// A run that was killed, and another on two workers, give the samples of one that was not interrupted. To resume, the pair of
/// each benchmark must be found again by its identity: all have the same name, and the first one is that of mathematics.
#[test]
fn every_benchmark_is_resumed_and_shared_between_workers_with_its_own_pair() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |name: &str| lumos().args(format!("run {FEW}")).output(folder, name);
    run("whole").ok();
    let expected = content(&folder.join("whole"));
    assert_eq!(expected.0.len(), 7);

    let mut killed = run("killed").args("--json").follow();
    killed.until("settled", 2);
    killed.signal("-KILL");
    killed.end();
    let killed = folder.join("killed");
    assert!(files(&killed, "results_", ".json").is_empty(), "the run ended before it was killed");
    lumos().args("resume").arg(&killed).ok();
    assert!(content(&killed) == expected, "the run that was killed differs");

    let Some(nats) = NatsServer::start() else { return };
    set_up(&nats);
    let fleet = Fleet::new(folder, &nats.url());
    let workers = [(); 2].map(|()| fleet.worker("--concurrency 2"));
    fleet.until("both workers", |status| status["workers"].as_array().unwrap().len() == 2);
    fleet.coordinator("together", FEW).exits(0);
    fleet.until("all units", |status| settled(status) == FEW_UNITS);
    for worker in workers {
        worker.drained();
    }
    let together = content(&folder.join("together"));
    for (benchmark, rows) in &expected.0 {
        assert!(together.0[benchmark] == *rows, "{benchmark} on two workers differs");
    }
    assert!(together == expected, "the results on two workers differ");
}
