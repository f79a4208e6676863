//! Mind2Web end to end: web pages, candidates ranked by their words, and an agent with scripted replies.

use std::fs;
use std::path::Path;

use lumos_benchmarks::DataSource;
use serde_json::{Value, json};

use crate::support::{Ended, content, lumos, read_json, scripts};

/// Runs a script in both behaviours. Returns the samples and the output.
fn run(folder: &Path, name: &str, data: Option<&Path>) -> (Vec<Value>, Ended) {
    let recorded = folder.join(format!("{name}.jsonl"));
    let model = format!("--model 'script:{}'", folder.join("cases.jsonl").display());
    let run =
        lumos().args("run -v --tasks mind2web --behaviour paper,corrected --tool rank=bm25").args(model);
    let run = data.iter().fold(run, |run, data| run.args("--data").arg(data));
    let ended = run.output(folder, name).args("--record").arg(&recorded).ok();
    let rows = content(&folder.join(name)).0.remove("mind2web").unwrap();
    let replayed = lumos().args("replay").arg(&recorded).ok();
    assert_eq!(replayed.stdout, format!("{} passed, 0 failed\n", rows.len()));
    (rows, ended)
}

#[test]
fn the_samples_are_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cases.jsonl"), scripts::pages(DataSource::Samples)).unwrap();
    let (rows, ended) = run(folder.path(), "first", None);
    assert_eq!(rows.len(), 20);
    assert!(rows.iter().all(|row| row["status"] == "answered"), "{rows:#?}");
    ended.prints(["step_success_rate", "website: paperboat", "domain: Travel", "split: samples"]);
    let (again, _) = run(folder.path(), "again", None);
    assert_eq!(rows, again);
}

#[test]
fn a_real_page_is_worked_on() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let mut step = read_json(&shared.join("data/mind2web/step_with_html.json"));
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
    fs::write(folder.path().join("cases.jsonl"), scripts::pages(DataSource::File(split))).unwrap();
    let (rows, ended) = run(folder.path(), "real", Some(&data));
    assert_eq!(rows.len(), 2);
    ended.prints(["website: thumbtack"]);
}

#[test]
fn data_that_is_not_there_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = lumos().args("run --tasks mind2web --tool rank=bm25 --model builtin:tiny --data");
    run.arg(folder.path()).exits(2).reports(["docs/mind2web.md"]);
    let fetch = lumos().args("fetch mind2web --data").arg(folder.path());
    fetch.exits(2).reports(["only its authors distribute the files"]);
}
