//! Commands that measure, estimate and verify the engine.

use serde_json::Value;

use crate::support::expect;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Measures a small model and returns the path of the result.
fn measured(folder: &std::path::Path) -> String {
    let path = folder.join("bench.json").display().to_string();
    let arguments =
        ["bench", "engine", "--random-weights", "1m", "--prompt-tokens", "32", "--new-tokens", "4"];
    let (table, _) = expect(0, &[&arguments[..], &["--batch-sizes", "1,2", "--output", &path]].concat());
    assert!(table.contains("GB/s") && table.contains("GFLOP/s"), "{table}");
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
    let spec = spec.display().to_string();
    let (text, _) = expect(0, &["estimate", &spec, "--bench", &bench]);
    assert!(
        text.contains("iterative") && text.contains("onetime") && text.contains("for one worker"),
        "{text}"
    );
    let (json, _) = expect(0, &["estimate", &spec, "--bench", &bench, "--workers", "4", "--json"]);
    let estimate = &lines(&json)[0];
    assert_eq!(estimate["rows"].as_array().unwrap().len(), 2);
    let (one, wall) =
        (estimate["worker_seconds"].as_f64().unwrap(), estimate["wall_seconds"].as_f64().unwrap());
    assert!(one > 0.0 && (one / wall - 4.0).abs() < 1e-6, "{json}");
    // The two roles share one model.
    assert!(estimate["weight_bytes"].as_u64().unwrap() > 4_000_000, "{json}");
    let (_, stderr) = expect(2, &["estimate", &spec, "--bench", &spec]);
    assert!(stderr.contains("lumos bench engine"), "{stderr}");
}

#[test]
fn weights_are_saved_for_other_programs() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("weights").display().to_string();
    expect(0, &["bench", "engine", "--random-weights", "1m", "--dtype", "bf16", "--save-weights", &weights]);
    for file in ["config.json", "model.safetensors"] {
        assert!(folder.path().join("weights").join(file).is_file(), "{file}");
    }
    let (_, stderr) = expect(2, &["bench", "engine", "--random-weights", "1g"]);
    assert!(stderr.contains("llama2-7b"), "{stderr}");
}

#[test]
fn a_run_is_verified_at_another_batch_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let run = |name: &str, more: &[&str]| {
        let what = ["run", "--tasks", "gsm8k", "--model", "builtin:tiny", "--limit", "6", "-q"];
        expect(0, &[&what[..], &["--output-path", &path, "--name", name], more].concat());
    };
    run("one", &[]);
    let one = folder.path().join("one").display().to_string();
    let (text, _) = expect(0, &["verify", &one, "--sample", "5"]);
    assert!(text.contains("5 units at batch size 1: 5 equal"), "{text}");
    let (json, _) = expect(0, &["verify", &one, "--sample", "100", "--batch-size", "3", "--json"]);
    let told = lines(&json);
    assert_eq!(told.len(), 7);
    assert_eq!((told[6]["units"].as_u64(), told[6]["equal"].as_u64()), (Some(6), Some(6)));
    // Results are the same without the prefix cache.
    run("two", &["--prefix-cache", "off"]);
    let samples = |name: &str| {
        let files = crate::support::files(&folder.path().join(name), "samples", ".jsonl");
        assert_eq!(files.len(), 1);
        let text = std::fs::read_to_string(&files[0]).unwrap();
        let mut lines = lines(&text);
        for line in &mut lines {
            line.as_object_mut().unwrap().retain(|key, _| key != "telemetry");
        }
        lines
    };
    assert_eq!(samples("one"), samples("two"));
}
