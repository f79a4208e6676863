//! Runs, their files, and resuming them.

use std::fs;

use serde_json::Value;

use crate::support::{content, expect, fed, files, lumos, rows, text};

#[test]
fn the_main_job_leaves_a_report_results_and_samples() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    let arguments = [
        "run",
        "--tasks",
        "gsm8k,svamp",
        "--model",
        "builtin:tiny",
        "--formulation",
        "iterative,onetime",
        "--limit",
        "4",
        "--output_path",
        runs,
        "--name",
        "main",
    ];
    let (stdout, stderr) = expect(0, &arguments);
    let run = folder.path().join("main");
    for part in ["gsm8k iterative paper", "svamp onetime paper", "report.html"] {
        assert!(stdout.contains(part), "{part} is missing from:\n{stdout}");
    }
    assert!(stderr.contains("16 units in 4 configurations"), "{stderr}");
    for file in ["manifest.json", "report.html", "report.md"] {
        assert!(run.join(file).is_file(), "{file}");
    }
    let (samples, results) = content(&run);
    assert_eq!(samples.keys().collect::<Vec<_>>(), ["gsm8k", "svamp"]);
    assert!(samples.values().all(|rows| rows.len() == 8));
    assert!(results["results"].as_object().is_some_and(|tasks| !tasks.is_empty()), "{results}");

    // A complete run is not changed.
    let before = files(&run, "results_", ".json");
    let (_, stderr) = expect(0, &arguments);
    assert!(stderr.contains("16 already settled"), "{stderr}");
    assert_eq!(content(&run), (samples, results));
    assert_eq!(files(&run, "results_", ".json"), before, "the results are not rewritten");
    assert!(fs::read_dir(folder.path()).unwrap().count() == 1, "one folder for one run");
}

#[test]
fn events_are_json_lines() {
    let folder = tempfile::tempdir().unwrap();
    let (stdout, _) = expect(
        0,
        &[
            "run",
            "--tasks",
            "svamp",
            "--model",
            "builtin:tiny",
            "--limit",
            "3",
            "--json",
            "--output-path",
            folder.path().to_str().unwrap(),
        ],
    );
    let events: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["started", "settled", "settled", "settled", "finished"]);
    assert_eq!(events[4]["outstanding"], 0);
}

#[test]
fn the_result_does_not_depend_on_the_batch() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, batch: &str| {
        expect(
            0,
            &[
                "run",
                "--tasks",
                "svamp",
                "--model",
                "builtin:tiny",
                "--limit",
                "8",
                "--name",
                name,
                "--batch-size",
                batch,
                "--output-path",
                folder.path().to_str().unwrap(),
            ],
        );
        content(&folder.path().join(name)).0
    };
    assert_eq!(run("one", "1"), run("many", "16"));
}

#[test]
fn a_recorded_run_replays_green() {
    let folder = tempfile::tempdir().unwrap();
    let cases = folder.path().join("cases.jsonl");
    let cases = cases.to_str().unwrap();
    let runs = folder.path().to_str().unwrap();
    expect(
        0,
        &[
            "run",
            "--tasks",
            "gsm8k,svamp",
            "--model",
            "builtin:tiny",
            "--formulation",
            "iterative,onetime",
            "--behaviour",
            "paper,corrected",
            "--limit",
            "6",
            "--record",
            cases,
            "--output-path",
            runs,
            "--name",
            "recorded",
        ],
    );
    let (stdout, _) = expect(0, &["replay", cases]);
    assert_eq!(stdout, "48 passed, 0 failed\n");

    // The recording serves as a model and as a tool: repeats the run without the originals.
    let script = format!("script:{cases}");
    let tool = format!("maths=recorded:{cases}");
    expect(
        0,
        &[
            "run",
            "--tasks",
            "svamp",
            "--model",
            &script,
            "--tool",
            &tool,
            "--limit",
            "6",
            "--output-path",
            runs,
            "--name",
            "again",
        ],
    );
    let predictions = |name: &str| -> Vec<Value> {
        let rows = content(&folder.path().join(name)).0.remove("svamp").unwrap();
        let iterative = rows.into_iter().filter(|row| row["formulation"] == "iterative");
        iterative.filter(|row| row["behaviour"] == "paper").map(|row| row["filtered_resps"].clone()).collect()
    };
    assert_eq!(predictions("again"), predictions("recorded"));
}

#[test]
fn a_module_can_be_scripted_alone_and_faults_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let cases = folder.path().join("cases.jsonl");
    let runs = folder.path().to_str().unwrap();
    let base = ["run", "--tasks", "svamp", "--output-path", runs, "--planner", "builtin:tiny"];
    expect(
        0,
        &[
            &base[..],
            &[
                "--grounder",
                "builtin:tiny",
                "--limit",
                "3",
                "--name",
                "first",
                "--record",
                cases.to_str().unwrap(),
            ],
        ]
        .concat(),
    );
    // Five items with a recording of three: two have no recorded reply, which is a fault and not the agent's
    // error.
    let grounder = format!("script:{}", cases.display());
    let arguments = [
        &base[..],
        &["--grounder", &grounder, "--limit", "5", "--name", "scripted", "--retry-on-error", "1"],
    ]
    .concat();
    let (code, stdout, stderr) = text(&lumos().args(&arguments).output().unwrap());
    assert_eq!(code, 5, "{stdout}\n{stderr}");
    assert!(stderr.contains("0 units are outstanding and 2 faulted"), "{stderr}");
    let rows = content(&folder.path().join("scripted")).0.remove("svamp").unwrap();
    let faulted: Vec<_> = rows.iter().filter(|row| row["status"] == "faulted").collect();
    assert_eq!((rows.len(), faulted.len()), (5, 2));
    // The same command retries only the faulted items.
    let (code, _, stderr) = text(&lumos().args(&arguments).output().unwrap());
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("3 already settled"), "{stderr}");
    // With `--fail-on-error` it stops at the first fault.
    let arguments =
        [&base[..], &["--grounder", &grounder, "--limit", "5", "--name", "strict", "--fail-on-error"]]
            .concat();
    let (code, _, stderr) = text(&lumos().args(&arguments).output().unwrap());
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("--fail-on-error"), "{stderr}");
}

#[test]
fn recorded_cases_of_the_original_replay() {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/maths.jsonl");
    let (stdout, _) = expect(0, &["replay", own]);
    assert!(stdout.contains(" passed, 0 failed"), "{stdout}");

    let Some(shared) = lumos_capabilities::shared("") else { return };
    let golden = shared.join("golden");
    let cases: Vec<String> = ["gsm8k", "svamp"]
        .iter()
        .flat_map(|benchmark| {
            ["iterative", "onetime", "cot", "direct"]
                .map(|formulation| format!("{benchmark}_{formulation}.jsonl.gz"))
        })
        .map(|name| golden.join(name).display().to_string())
        .collect();
    let mut arguments = vec!["replay", "--json"];
    arguments.extend(cases.iter().map(String::as_str));
    let output = lumos().args(&arguments).output().unwrap();
    let (_, stdout, stderr) = text(&output);
    let verdicts: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(verdicts.len(), 640, "{stderr}");
    let failed: Vec<_> = verdicts.iter().filter(|verdict| verdict["passed"] != true).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn the_reference_checkpoints_complete_as_transformers_does() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    for model in ["llama-mha", "llama-gqa-tied", "llama3-rope"] {
        let folder = shared.join("golden/engine").join(model);
        let cases = rows(&folder.join("cases.jsonl.gz"));
        let input: String = cases
            .iter()
            .map(|case| format!("{}\n", serde_json::json!({ "prompt": case["prompt"] })))
            .collect();
        for concurrency in ["1", "24"] {
            let model = format!("candle:{}", folder.display());
            let arguments = [
                "complete",
                "--model",
                &model,
                "--jsonl",
                "--concurrency",
                concurrency,
                "--max-new-tokens",
                "48",
                "--ignore-eos",
                "--stop",
                "",
                "--logits",
                "8",
            ];
            let (code, stdout, stderr) = fed(&arguments, &input);
            assert_eq!(code, 0, "{stderr}");
            let replies: Vec<Value> =
                stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(replies.len(), cases.len());
            for (case, reply) in cases.iter().zip(&replies) {
                assert_eq!(reply["prompt_tokens"], case["ids"], "{model}");
                let safe = usize::try_from(case["safe_tokens"].as_u64().unwrap()).unwrap();
                let tokens = |value: &Value| value.as_array().unwrap()[..safe].to_vec();
                assert_eq!(
                    tokens(&reply["tokens"]),
                    tokens(&case["greedy"]),
                    "{model}, {concurrency} at once"
                );
                for (found, expected) in
                    reply["logits"].as_array().unwrap().iter().zip(case["first_top8"].as_array().unwrap())
                {
                    let difference = found[1].as_f64().unwrap() - expected[1].as_f64().unwrap();
                    assert!(difference.abs() < 1e-3, "{model}: {found} {expected}");
                }
            }
        }
    }
}
