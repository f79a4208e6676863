//! Shopping end to end: a scripted agent in the in-memory shop, and the shop as a website.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use lumos_benchmarks::{DataSource, replay};
use lumos_tasks::Formulation;
use lumos_tools::ToolSets;
use lumos_tools::sessions::catalogue::ShopFiles;
use serde_json::Value;

use crate::support::{content, expect, lumos};

#[path = "../../examples/script_shopping/author.rs"]
mod author;

/// Writes the replies of a shop driver for the first goals.
pub(crate) fn script(data: Option<&Path>, goals: usize, cases: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let benchmark = lumos_benchmarks::get("webshop").unwrap();
    let sets = ToolSets::default();
    let folder = data.map(|data| data.join("webshop"));
    let shop = ShopFiles { folder, nouns: None }.backend();
    let tools = vec![sets.identify("rank", "bm25").unwrap(), sets.identify("shop", &shop).unwrap()];
    let configuration = Arc::new(replay::configuration(benchmark, Formulation::Iterative, tools));
    let tools = runtime.block_on(sets.of(&configuration)).unwrap();
    let source = data.map_or(DataSource::Samples, |data| DataSource::in_folder(data, benchmark));
    let mut written = String::new();
    for item in benchmark.open(source).unwrap().take(goals) {
        let case = runtime.block_on(author::case(&item.unwrap(), &configuration, tools.as_ref())).unwrap();
        written += &format!("{}\n", serde_json::to_string(&case).unwrap());
    }
    fs::write(cases, written).unwrap();
}

/// Runs goals with a script. Returns the samples and the output.
fn run(more: &[&str], folder: &Path, name: &str) -> (Vec<Value>, String) {
    let model = format!("script:{}", folder.join("cases.jsonl").display());
    let output = folder.display().to_string();
    let base = ["run", "--tasks", "webshop", "--model", &model, "--tool", "rank=bm25"];
    let base = [&base[..], &["--output-path", &output, "--name", name], more].concat();
    let (stdout, _) = expect(0, &base);
    (content(&folder.join(name)).0.remove("webshop").unwrap(), stdout)
}

#[test]
fn goals_of_the_small_catalogue_are_bought() {
    let folder = tempfile::tempdir().unwrap();
    script(None, 20, &folder.path().join("cases.jsonl"));
    let recorded = folder.path().join("recorded.jsonl");
    let given = ["--limit", "20", "--record", recorded.to_str().unwrap()];
    let (rows, stdout) = run(&given, folder.path(), "first");
    assert_eq!(rows.len(), 20);
    assert!(rows.iter().all(|row| row["status"] == "answered"), "{rows:#?}");
    let reward = |row: &Value| row["reward"].as_f64().unwrap();
    assert!(rows.iter().map(reward).sum::<f64>() > 10.0);
    for row in &rows {
        let bound = |name: &str| row[name].as_f64().unwrap();
        assert!(bound("reward_lowest") <= reward(row) && reward(row) <= bound("reward_highest"), "{row:#}");
    }
    assert!(stdout.contains("reward") && stdout.contains("shop=memory"), "{stdout}");
    let (replayed, _) = expect(0, &["replay", recorded.to_str().unwrap()]);
    assert_eq!(replayed, "20 passed, 0 failed\n");
    // Run half of them, then resume the same run to its end.
    let (half, _) = run(&["--limit", "10"], folder.path(), "half");
    assert_eq!(half[..], rows[..10]);
    let run_folder = folder.path().join("first").display().to_string();
    expect(0, &["resume", &run_folder]);
}

#[test]
fn nouns_and_exemplars_are_part_of_what_is_run() {
    let folder = tempfile::tempdir().unwrap();
    script(None, 3, &folder.path().join("cases.jsonl"));
    let nouns = folder.path().join("nouns.jsonl");
    fs::write(&nouns, "{\"title\": \"Lamp\", \"nouns\": [\"lamp\"]}\n").unwrap();
    let (_, stdout) = run(&["--limit", "3", "--pos-nouns", nouns.to_str().unwrap()], folder.path(), "nouns");
    assert!(stdout.contains("nouns="), "{stdout}");
    let exemplars = folder.path().join("exemplars.json");
    fs::write(&exemplars, "{}").unwrap();
    let base = ["run", "--tasks", "webshop", "--model", "builtin:tiny", "--tool", "rank=bm25", "--exemplars"];
    let (_, stderr) = expect(2, &[&base[..], &[exemplars.to_str().unwrap()]].concat());
    assert!(stderr.contains("exemplars.json") && stderr.contains("PLAN_EXAMPLARS"), "{stderr}");
}

#[test]
fn goals_of_the_real_catalogue_are_bought() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let data = shared.join("data");
    let folder = tempfile::tempdir().unwrap();
    script(Some(&data), 50, &folder.path().join("cases.jsonl"));
    let given = ["--limit", "50", "--data", data.to_str().unwrap()];
    let (rows, _) = run(&given, folder.path(), "real");
    assert_eq!(rows.len(), 50);
    assert!(rows.iter().all(|row| row["status"] != "faulted"), "{rows:#?}");
    let bought = rows.iter().filter(|row| row["status"] == "answered").count();
    assert!(bought >= 40, "{bought} of 50 bought");
}

#[test]
fn the_shop_opens_for_people() {
    let mut server = lumos().args(["serve", "shop", "--port", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let page = runtime.block_on(async {
        let client = reqwest::Client::new();
        let visits = format!("{}visits", address.trim());
        client.post(visits).form(&[("goal", "0")]).send().await.unwrap().text().await.unwrap()
    });
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(page.contains("Instruction:") && page.contains("role=\"search\""), "{page}");
}
