//! Content of results, and comparisons that are rejected because they would be misleading.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{expect, files, run, text};

/// Returns the arguments of a run of the built-in agent on a few items.
fn arguments<'a>(folder: &'a str, name: &'a str, limit: &'a str) -> Vec<&'a str> {
    let tasks = ["run", "--tasks", "gsm8k", "--model", "builtin:tiny", "--limit", limit];
    [&tasks[..], &["--output-path", folder, "--name", name]].concat()
}

fn results(folder: &Path) -> Value {
    let path = &files(folder, "results_", ".json")[0];
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_few_items_are_not_compared_with_a_published_figure() {
    let folder = tempfile::tempdir().unwrap();
    let (stdout, _) = expect(0, &arguments(folder.path().to_str().unwrap(), "few", "3"));
    assert!(stdout.contains("3 of 1,319 items"), "{stdout}");
    assert!(!stdout.contains("inside") && !stdout.contains("outside"), "{stdout}");
    let (tables, _) = stdout.split_once("\nreport: ").unwrap();
    assert!(tables.lines().all(|line| line.chars().count() <= 80), "{stdout}");
    for said in ["wall time ", " items/s, ", "models: planner builtin:tiny, grounder builtin:tiny"] {
        assert!(stdout.contains(said), "{said} is missing from:\n{stdout}");
    }
    let run = folder.path().join("few");
    let results = results(&run);
    assert_eq!(results["model_name"], "planner=builtin:tiny,grounder=builtin:tiny");
    let seconds: f64 = results["total_evaluation_time_seconds"].as_str().unwrap().parse().unwrap();
    assert!(seconds > 0.0, "{seconds}");
    let published = &results["lumos"]["configurations"]["gsm8k"]["scores"][0]["metrics"][0]["published"][0];
    assert_eq!((&published["points"], &published["inside"]), (&Value::Null, &Value::Null), "{published}");
    assert_eq!(published["not_compared"][0], "3 of 1,319 items");
    assert!(fs::read_to_string(run.join("report.md")).unwrap().contains("3 of 1,319 items"));
    // A report from the checkpoint is equal, and the duration of a complete run does not increase.
    let (again, _) = expect(0, &["report", run.to_str().unwrap()]);
    assert!(stdout.starts_with(&again), "{stdout}\n{again}");
}

#[test]
fn another_setting_under_the_same_name_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    expect(0, &arguments(runs, "same", "3"));
    let (_, stderr) = expect(2, &arguments(runs, "same", "4"));
    assert!(stderr.contains("\n  --limit 4 instead of 3\n"), "{stderr}");
    assert!(!stderr.contains("its content has changed") && !stderr.contains("delete"), "{stderr}");
    assert!(stderr.contains("\nhint: choose another name with --name"), "{stderr}");
    assert_eq!(stderr.lines().count(), 3, "one setting, one line: {stderr}");
}

#[test]
fn the_paper_preset_takes_no_samples_for_the_published_items() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    let arguments = ["run", "--preset", "paper", "--tasks", "gsm8k,svamp", "--model", "builtin:tiny"];
    let (_, stderr) = expect(2, &[&arguments[..], &["--output-path", runs]].concat());
    assert!(stderr.contains("missing gsm8k/test.jsonl, svamp/test.json"), "{stderr}");
    assert!(stderr.contains("hint: download it with `lumos fetch gsm8k svamp --data data`"), "{stderr}");
    let (_, stderr) = expect(2, &[&arguments[..], &["--output-path", runs, "--data", runs]].concat());
    assert!(stderr.contains("test.jsonl") && stderr.contains("lumos fetch gsm8k"), "{stderr}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no files are created");
}

#[test]
fn seeds_without_sampling_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    for repetitions in [["--seed", "0,1,2"], ["--epochs", "3"]] {
        let (_, stderr) = expect(2, &[&arguments(runs, "seeds", "2")[..], &repetitions].concat());
        assert!(stderr.contains("greedy decoding gives the same episodes of gsm8k"), "{stderr}");
        assert!(stderr.contains("--temperature"), "{stderr}");
    }
    let sampled = ["--seed", "0,1", "--temperature", "0.7", "--max-new-tokens", "8"];
    let (_, stderr) = expect(0, &[&arguments(runs, "seeds", "2")[..], &sampled].concat());
    assert!(stderr.contains("4 units in 2 configurations"), "{stderr}");
}

#[test]
fn turns_are_no_percentage() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = ["run", "--tasks", "intercode_sql", "--model", "builtin:tiny", "--limit", "2"];
    let output = run(&[&tasks[..], &["--output-path", folder.path().to_str().unwrap()]].concat());
    let (code, stdout, stderr) = text(&output);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert!(stdout.contains(" turns "), "{stdout}");
    let run = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let (csv, _) = expect(0, &["report", run.to_str().unwrap(), "--format", "csv"]);
    let line = csv.lines().find(|line| line.contains(",paper,turns,,")).unwrap();
    assert!(line.contains(",turns,,bounded_mean,turns,"), "{line}");
}
