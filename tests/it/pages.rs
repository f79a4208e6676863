//! Mind2Web end to end: web pages, candidates ranked by their words, and an agent with scripted replies.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lumos_benchmarks::{DataSource, get, replay};
use lumos_tasks::Formulation;
use lumos_tools::ToolSets;
use serde_json::{Value, json};

use crate::support::{content, expect};

#[path = "../../examples/script_pages/author.rs"]
mod author;

/// Writes the replies of an agent that requests the gold elements in their own words.
fn script(source: DataSource, cases: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let benchmark = get("mind2web").unwrap();
    let sets = ToolSets::default();
    let planned = vec![sets.identify("rank", "bm25").unwrap(), sets.identify("web", "native").unwrap()];
    let configuration = Arc::new(replay::configuration(benchmark, Formulation::Iterative, planned));
    let tools = runtime.block_on(sets.of(&configuration)).unwrap();
    let mut written = String::new();
    for item in benchmark.open(source).unwrap() {
        let item = item.unwrap();
        let case = author::case(&item, &configuration, tools.as_ref(), author::gold_words);
        let case = runtime.block_on(case).unwrap();
        assert_eq!(replay::replay(&case).difference, None);
        written += &format!("{}\n", serde_json::to_string(&case).unwrap());
    }
    fs::write(cases, written).unwrap();
}

/// Runs a script in both behaviours. Returns the samples and the output.
fn run(folder: &Path, name: &str, data: &[&str]) -> (Vec<Value>, String) {
    let recorded = folder.join(format!("{name}.jsonl"));
    let model = format!("script:{}", folder.join("cases.jsonl").display());
    let (recorded_path, output) = (recorded.display().to_string(), folder.display().to_string());
    let mut arguments =
        vec!["run", "--tasks", "mind2web", "--behaviour", "paper,corrected", "--model", &model];
    arguments.extend([
        "--tool",
        "rank=bm25",
        "--record",
        &recorded_path,
        "--output-path",
        &output,
        "--name",
        name,
    ]);
    arguments.extend(data);
    let (stdout, _) = expect(0, &arguments);
    let rows = content(&folder.join(name)).0.remove("mind2web").unwrap();
    let (replayed, _) = expect(0, &["replay", recorded.to_str().unwrap()]);
    assert_eq!(replayed, format!("{} passed, 0 failed\n", rows.len()));
    (rows, stdout)
}

#[test]
fn the_samples_are_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    script(DataSource::Samples, &folder.path().join("cases.jsonl"));
    let (rows, stdout) = run(folder.path(), "first", &[]);
    assert_eq!(rows.len(), 20);
    assert!(rows.iter().all(|row| row["status"] == "answered"), "{rows:#?}");
    for told in ["step_success_rate", "website: paperboat", "domain: Travel", "split: samples"] {
        assert!(stdout.contains(told), "{told} in {stdout}");
    }
    let (again, _) = run(folder.path(), "again", &[]);
    assert_eq!(rows, again);
}

#[test]
fn a_real_page_is_worked_on() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let step = fs::read_to_string(shared.join("data/mind2web/step_with_html.json")).unwrap();
    let mut step: Value = serde_json::from_str(&step).unwrap();
    let task = json!([{
        "annotation_id": step["annotation_id"], "website": step["website"], "domain": "Service",
        "confirmed_task": step["confirmed_task"], "action_reprs": ["[button]  Search -> CLICK"],
        "actions": [step["action"].take()],
    }]);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let split = data.join("mind2web/test_domain");
    fs::create_dir_all(&split).unwrap();
    fs::write(split.join("test_domain_0.json"), task.to_string()).unwrap();
    script(DataSource::File(split), &folder.path().join("cases.jsonl"));
    let (rows, stdout) = run(folder.path(), "real", &["--data", data.to_str().unwrap()]);
    assert_eq!(rows.len(), 2);
    assert!(stdout.contains("website: thumbtack"), "{stdout}");
}

#[test]
fn data_that_is_not_there_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let (_, stderr) = expect(
        2,
        &["run", "--tasks", "mind2web", "--data", data, "--tool", "rank=bm25", "--model", "builtin:tiny"],
    );
    assert!(stderr.contains("docs/mind2web.md"), "{stderr}");
    let (_, stderr) = expect(2, &["fetch", "mind2web", "--data", data]);
    assert!(stderr.contains("only its authors distribute the files"), "{stderr}");
}
