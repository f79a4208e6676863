//! Commands that measure, estimate and verify the engine.

use std::path::{Path, PathBuf};

use crate::support::{files, lumos, repository, rows};

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
    let estimated = estimate(&bench).ok().prints(["iterative", "onetime", "for one worker"]);
    // By default, at least 16 sequences are computed together.
    estimated.reports(["batch size 2,", "--batch-sizes 2,"]);
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
fn a_short_run_estimates_a_long_one() {
    let folder = tempfile::tempdir().unwrap();
    let run = lumos().args("run --tasks gsm8k --model builtin:tiny --limit 12 --concurrency 4 -q");
    run.output(folder.path(), "pilot").ok();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let spec = file("long.toml", "tasks = [\"gsm8k\"]\nmodel = \"builtin:tiny\"\n");
    let pilot = folder.path().join("pilot");
    let estimate = |spec: &Path| lumos().args("estimate").arg(spec).arg("--like").arg(&pilot);
    let estimated = estimate(&spec).ok().prints(["for one worker", "harness and tools included"]);
    // Twelve units are less than the concurrency of the long run.
    assert!(estimated.stderr.contains("12 units") && estimated.stderr.contains("--limit"), "{estimated}");
    let json = estimate(&spec).args("--json --workers 2").ok();
    let estimated = &json.lines()[0];
    let seconds = |name: &str| estimated[name].as_f64().unwrap();
    let (all, one) = (seconds("worker_seconds"), estimated["rows"][0]["tokens"]["seconds"].as_f64().unwrap());
    let units = estimated["rows"][0]["units"].as_f64().unwrap();
    assert!(one > 0.0 && (all - units * one).abs() < 1e-6 * all, "{json}");
    assert!(seconds("wall_seconds") >= all / 2.0, "{json}");

    // Another model, another kind of episode, and the shape of the models need measurements.
    let other = file("other.toml", "tasks = [\"gsm8k\"]\nmodel = \"candle:elsewhere\"\n");
    estimate(&other).exits(2).reports(["candle:elsewhere", "--bench"]);
    let kind = file("kind.toml", "tasks = [\"svamp\"]\nmodel = \"builtin:tiny\"\n");
    estimate(&kind).exits(2).reports(["svamp", "--like RUN"]);
    estimate(&spec).args("--memory 1GB").exits(2).reports(["--memory", "--bench"]);
    lumos().args("estimate").arg(&spec).exits(2).reports(["--bench"]);

    // Models that are given as paths, which manifests name with their backend.
    let model = repository("models/assets/tiny/maths");
    let run = lumos().args("run --tasks gsm8k --limit 2 --concurrency 1 -q --model").arg(&model);
    run.output(folder.path(), "path").ok();
    let path = file("path.toml", &format!("tasks = ['gsm8k']\nmodel = '{}'\n", model.display()));
    lumos().args("estimate").arg(&path).arg("--like").arg(folder.path().join("path")).ok();
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

/// Greedy and sampled runs with drafts: the same units and the same samples to the byte, except telemetry.
#[test]
fn drafts_do_not_change_a_run() {
    let folder = tempfile::tempdir().unwrap();
    for (sampling, more) in [("greedy", ""), ("sampled", "--temperature 0.7 --seed 3")] {
        let run = |speculation: &str| {
            let name = format!("{sampling}-{speculation}");
            let run = lumos().args(
                "run --tasks gsm8k --model builtin:tiny --limit 6 --formulation iterative,onetime -q --speculate",
            );
            run.arg(speculation).output(folder.path(), &name).args(more).ok();
            folder.path().join(name)
        };
        let (off, lookup, auto) = (run("off"), run("lookup"), run("auto"));
        // The bytes of the samples, and the drafts in their telemetry.
        let samples = |run: &Path| {
            let (mut text, mut drafted, mut accepted) = (String::new(), 0, 0);
            for file in files(run, "samples_", ".jsonl") {
                for line in std::fs::read_to_string(file).unwrap().lines() {
                    let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
                    let telemetry = row.as_object_mut().unwrap().remove("telemetry").unwrap();
                    let telemetry: serde_json::Value =
                        serde_json::from_str(telemetry.as_str().unwrap()).unwrap();
                    let count = |name: &str| telemetry["drafts"][name].as_u64().unwrap_or(0);
                    (drafted, accepted) = (drafted + count("drafted"), accepted + count("accepted"));
                    text.push_str(&row.to_string());
                    text.push('\n');
                }
            }
            assert!(text.lines().count() >= 12, "{text}");
            (text, drafted, accepted)
        };
        let (expected, drafted, _) = samples(&off);
        assert_eq!(drafted, 0);
        let (text, drafted, accepted) = samples(&lookup);
        assert!(text == expected && accepted > 0 && accepted < drafted, "{accepted} of {drafted}");
        assert!(samples(&auto).0 == expected);
        let report = |run: &Path| lumos().args("report").arg(run).ok().stdout;
        assert!(report(&lookup).contains("lookup decoding: "), "{}", report(&lookup));
        assert!(!report(&off).contains("lookup decoding"));
        // The setting is not recorded, so a run can be continued with another one.
        let manifest = |run: &Path| {
            let manifest = std::fs::read_to_string(run.join("manifest.json")).unwrap();
            serde_json::from_str::<serde_json::Value>(&manifest).unwrap()
        };
        for part in ["configurations", "models"] {
            assert_eq!(manifest(&off)[part], manifest(&lookup)[part]);
        }
        if !more.is_empty() {
            continue;
        }
        let again = lumos().args("run --tasks gsm8k --limit 6 --formulation iterative,onetime -q");
        again.args("--model builtin:tiny --speculate lookup").output(folder.path(), "greedy-off").ok();
        // As if it had been interrupted while it was planned.
        let resumed = folder.path().join("resumed");
        std::fs::create_dir(&resumed).unwrap();
        std::fs::copy(off.join("manifest.json"), resumed.join("manifest.json")).unwrap();
        lumos().args("resume -q --speculate lookup --threads 1").arg(&resumed).ok();
        let (text, _, accepted) = samples(&resumed);
        assert!(text == expected && accepted > 0, "{accepted}");
    }
    lumos()
        .args("run --tasks gsm8k --model builtin:tiny --speculate on")
        .exits(2)
        .reports(["off, lookup or auto"]);
}

#[test]
fn a_run_is_compared_with_candle_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, more: &str| {
        let run = lumos().args("run --tasks svamp --model builtin:tiny --limit 2 --max-new-tokens 24 -q");
        run.output(folder.path(), name).args(more)
    };
    run("native", "").ok();
    let native = folder.path().join("native");
    let verify = |run: &Path| lumos().args("verify --reference --sample 2").arg(run);
    verify(&native).ok().prints(["2 units", "compared with candle-transformers", " 0 flips"]);
    let told = verify(&native).args("--json").ok().lines();
    let (totals, replies) = told.split_last().unwrap();
    assert_eq!(totals["replies"].as_u64(), Some(replies.len() as u64));
    assert!(totals["largest_logit_difference"].as_f64().unwrap() < 1e-3, "{totals}");
    assert!(replies.iter().all(|reply| reply["unit"].is_string() && reply["turn"].is_u64()), "{replies:?}");

    // The backend is part of the identity: runs of both have different units and are not mixed.
    run("reference", "--backend candle-transformers").ok();
    let reference = folder.path().join("reference");
    let identities = |run: &Path| {
        let manifest = std::fs::read_to_string(run.join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        let models = manifest["models"].as_array().unwrap().clone();
        models.iter().map(|model| model["dtype"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(identities(&native).iter().all(|dtype| dtype == "f32+full-rotary"));
    assert!(identities(&reference).iter().all(|dtype| dtype == "f32+candle-transformers-0.11.1"));
    run("reference", "--backend native").exits(2).reports(["--backend"]);
    verify(&reference).exits(2).reports(["computed with candle-transformers already"]);
    let replies = |run: &Path| -> Vec<serde_json::Value> {
        let all = rows(&files(run, "samples_", ".jsonl")[0]);
        all.into_iter().map(|row| row["trajectory"].clone()).collect()
    };
    assert_eq!(replies(&native), replies(&reference));
}

#[test]
fn completions_of_both_backends_are_equal() {
    let complete = |more: &str| {
        let tiny = "complete --model builtin:tiny --max-new-tokens 12 --logits 3";
        lumos().args(tiny).args(more).args("'Question: How many pears are left?'")
    };
    let text = complete("--backend native").ok().stdout;
    assert_eq!(complete("--backend candle-transformers").ok().stdout, text);
    assert_eq!(complete("").ok().stdout, text);
    complete("--backend other").exits(2).reports(["unknown backend `other`"]);
    complete("--backend candle-transformers --dtype bf16").exits(2).reports(["--dtype f32"]);
    complete("--backend candle-transformers --device cuda:0")
        .exits(2)
        .reports(["`candle-cuda`", "--device cpu"]);
    complete("--backend candle-transformers --speculate lookup")
        .exits(2)
        .reports(["--speculate auto or off"]);
    assert_eq!(complete("--backend candle-transformers --speculate auto").ok().stdout, text);
    assert_eq!(complete("--backend native --speculate lookup").ok().stdout, text);
    complete("--backend candle-transformers --max-sequence-length 4").exits(2).reports(["fewer than 4"]);
}
