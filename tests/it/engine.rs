//! Commands that measure, estimate and verify the engine.

use std::path::{Path, PathBuf};

use crate::support::{files, lumos, rows};

/// Measures a small model and returns the path of the result.
fn measured(folder: &Path) -> PathBuf {
    let path = folder.join("bench.json");
    let bench =
        "bench engine --random-weights 1m --prompt-tokens 32 --new-tokens 4 --batch-sizes 1,2 --output";
    let table = lumos().args(bench).arg(&path).ok().prints(["GB/s", "GFLOP/s"]).stdout;
    assert_eq!(
        table.lines().filter(|line| line.contains(" on ") || line.contains(" off ")).count(),
        4,
        "{table}"
    );
    path
}

#[test]
fn a_bench_feeds_an_estimate() {
    let folder = tempfile::tempdir().unwrap();
    let bench = measured(folder.path());
    let spec = folder.path().join("sweep.toml");
    std::fs::write(
        &spec,
        "tasks = [\"gsm8k\"]\nmodel = \"candle:elsewhere\"\nformulation = [\"iterative\", \"onetime\"]\n",
    )
    .unwrap();
    let estimate = |bench: &Path| lumos().args("estimate").arg(&spec).args("--bench").arg(bench);
    estimate(&bench).ok().prints(["iterative", "onetime", "for one worker"]);
    let json = estimate(&bench).args("--workers 4 --json").ok();
    let estimated = &json.lines()[0];
    assert_eq!(estimated["rows"].as_array().unwrap().len(), 2);
    let (one, wall) =
        (estimated["worker_seconds"].as_f64().unwrap(), estimated["wall_seconds"].as_f64().unwrap());
    assert!(one > 0.0 && (one / wall - 4.0).abs() < 1e-6, "{json}");
    // The two roles share one model.
    assert!(estimated["weight_bytes"].as_u64().unwrap() > 4_000_000, "{json}");
    estimate(&spec).exits(2).reports(["lumos bench engine"]);
}

#[test]
fn weights_are_saved_for_other_programs() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("weights");
    lumos().args("bench engine --random-weights 1m --dtype bf16 --save-weights").arg(&weights).ok();
    for file in ["config.json", "model.safetensors"] {
        assert!(weights.join(file).is_file(), "{file}");
    }
    lumos().args("bench engine --random-weights 1g").exits(2).reports(["llama2-7b"]);
}

#[test]
fn a_run_is_verified_at_another_batch_size() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, more: &str| {
        let run = lumos().args("run --tasks gsm8k --model builtin:tiny --limit 6 -q");
        run.output(folder.path(), name).args(more).ok();
        folder.path().join(name)
    };
    let one = run("one", "");
    let verify = || lumos().args("verify").arg(&one);
    verify().args("--sample 5").ok().prints(["5 units at batch size 1: 5 equal"]);
    let told = verify().args("--sample 100 --batch-size 3 --json").ok().lines();
    assert_eq!(told.len(), 7);
    assert_eq!((told[6]["units"].as_u64(), told[6]["equal"].as_u64()), (Some(6), Some(6)));
    // Results are the same without the prefix cache.
    let two = run("two", "--prefix-cache off");
    let samples = |run: &Path| {
        let files = files(run, "samples_", ".jsonl");
        assert_eq!(files.len(), 1);
        let mut rows = rows(&files[0]);
        rows.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("telemetry")));
        rows
    };
    assert_eq!(samples(&one), samples(&two));
}
