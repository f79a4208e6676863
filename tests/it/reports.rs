//! Content of results, and comparisons that are rejected because they would be misleading.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Lumos, lumos, results};

/// Returns the command of a run of the built-in agent on a few items.
fn run(folder: &Path, name: &str, limit: usize) -> Lumos {
    let run = lumos().args("run --tasks gsm8k --model builtin:tiny");
    run.args(format!("--limit {limit}")).output(folder, name)
}

#[test]
fn a_few_items_are_not_compared_with_a_published_figure() {
    let folder = tempfile::tempdir().unwrap();
    let few = run(folder.path(), "few", 3).ok().prints([
        "3 of 1,319 items",
        "wall time ",
        " items/s, ",
        "models: planner builtin:tiny, grounder builtin:tiny",
    ]);
    let stdout = few.stdout;
    assert!(!stdout.contains("inside") && !stdout.contains("outside"), "{stdout}");
    let (tables, _) = stdout.split_once("\nreport: ").unwrap();
    assert!(tables.lines().all(|line| line.chars().count() <= 80), "{stdout}");
    let run = folder.path().join("few");
    let results = results(&run);
    assert_eq!(results["model_name"], "lumos/tiny");
    let seconds: f64 = results["total_evaluation_time_seconds"].as_str().unwrap().parse().unwrap();
    assert!(seconds > 0.0, "{seconds}");
    let published = &results["lumos"]["configurations"]["gsm8k"]["scores"][0]["metrics"][0]["published"][0];
    assert_eq!((&published["points"], &published["inside"]), (&Value::Null, &Value::Null), "{published}");
    assert_eq!(published["not_compared"][0], "3 of 1,319 items");
    assert!(fs::read_to_string(run.join("report.md")).unwrap().contains("3 of 1,319 items"));
    // A report from the checkpoint is equal, and the duration of a complete run does not increase.
    let again = lumos().args("report").arg(&run).ok().stdout;
    assert!(stdout.starts_with(&again), "{stdout}\n{again}");
}

#[test]
fn another_setting_under_the_same_name_is_named() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "same", 3).ok();
    let other = run(folder.path(), "same", 4).exits(2);
    let other = other.reports(["\n  --limit 4 instead of 3\n", "\nhint: choose another name with --name"]);
    let stderr = other.stderr;
    assert!(!stderr.contains("its content has changed") && !stderr.contains("delete"), "{stderr}");
    assert_eq!(stderr.lines().count(), 3, "one setting, one line: {stderr}");
}

#[test]
fn the_paper_preset_takes_no_samples_for_the_published_items() {
    let folder = tempfile::tempdir().unwrap();
    let paper = || {
        let run = lumos().args("run --preset paper --tasks gsm8k,svamp --model builtin:tiny --output-path");
        run.arg(folder.path())
    };
    paper().exits(2).reports([
        "missing gsm8k/test.jsonl, svamp/test.json",
        "hint: download it with `lumos fetch gsm8k svamp --data data`",
    ]);
    let fetch = format!("`lumos fetch gsm8k --data {}`", folder.path().display());
    paper().args("--data").arg(folder.path()).exits(2).reports(["test.jsonl", &fetch]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no files are created");
}

#[test]
fn seeds_without_sampling_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = |more: &str| run(folder.path(), "seeds", 2).args(more);
    for repetitions in ["--seed 0,1,2", "--epochs 3"] {
        seeds(repetitions)
            .exits(2)
            .reports(["greedy decoding gives the same episodes of gsm8k", "--temperature"]);
    }
    seeds("--seed 0,1 --temperature 0.7 --max-new-tokens 8").ok().reports(["4 units in 2 configurations"]);
}

#[test]
fn turns_are_no_percentage() {
    let folder = tempfile::tempdir().unwrap();
    let run = lumos().args("run -v --tasks intercode_sql --model builtin:tiny --limit 2 --output-path");
    run.arg(folder.path()).ok().prints([" turns "]);
    let run = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let csv = lumos().args("report --format csv").arg(run).ok().stdout;
    let line = csv.lines().find(|line| line.contains(",paper,turns,,")).unwrap();
    assert!(line.contains(",turns,,bounded_mean,turns,"), "{line}");
}
