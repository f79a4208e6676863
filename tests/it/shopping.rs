//! Shopping end to end: a scripted agent in the in-memory shop, and the shop as a website.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Ended, Serving, content, lumos, scripts};

/// Writes the replies of a shop driver for the first goals.
pub(crate) fn script(data: Option<&Path>, goals: usize, folder: &Path) {
    fs::write(folder.join("cases.jsonl"), scripts::goals(data, goals)).unwrap();
}

/// Runs goals with a script. Returns the samples and the output.
fn run(more: impl AsRef<str>, folder: &Path, name: &str) -> (Vec<Value>, Ended) {
    let model = format!("--model 'script:{}'", folder.join("cases.jsonl").display());
    let run = lumos().args("run --tasks webshop --tool rank=bm25").args(model).output(folder, name);
    let ended = run.args(more).ok();
    (content(&folder.join(name)).0.remove("webshop").unwrap(), ended)
}

#[test]
fn goals_of_the_small_catalogue_are_bought() {
    let folder = tempfile::tempdir().unwrap();
    script(None, 20, folder.path());
    let recorded = folder.path().join("recorded.jsonl");
    let given = format!("--limit 20 --record '{}'", recorded.display());
    let (rows, ended) = run(given, folder.path(), "first");
    assert_eq!(rows.len(), 20);
    assert!(rows.iter().all(|row| row["status"] == "answered"), "{rows:#?}");
    let reward = |row: &Value| row["reward"].as_f64().unwrap();
    assert!(rows.iter().map(reward).sum::<f64>() > 10.0);
    for row in &rows {
        let bound = |name: &str| row[name].as_f64().unwrap();
        assert!(bound("reward_lowest") <= reward(row) && reward(row) <= bound("reward_highest"), "{row:#}");
    }
    ended.prints(["reward", "shop=memory"]);
    assert_eq!(lumos().args("replay").arg(&recorded).ok().stdout, "20 passed, 0 failed\n");
    // Run half of them, then resume the same run to its end.
    let (half, _) = run("--limit 10", folder.path(), "half");
    assert_eq!(half[..], rows[..10]);
    lumos().args("resume").arg(folder.path().join("first")).ok();
}

#[test]
fn nouns_and_exemplars_are_part_of_what_is_run() {
    let folder = tempfile::tempdir().unwrap();
    script(None, 3, folder.path());
    let nouns = folder.path().join("nouns.jsonl");
    fs::write(&nouns, "{\"title\": \"Lamp\", \"nouns\": [\"lamp\"]}\n").unwrap();
    let given = format!("--limit 3 --pos-nouns '{}'", nouns.display());
    run(given, folder.path(), "nouns").1.prints(["nouns="]);
    let exemplars = folder.path().join("exemplars.json");
    fs::write(&exemplars, "{}").unwrap();
    let run = lumos().args("run --tasks webshop --model builtin:tiny --tool rank=bm25 --exemplars");
    run.arg(&exemplars).exits(2).reports(["exemplars.json", "PLAN_EXAMPLARS"]);
}

#[test]
fn goals_of_the_real_catalogue_are_bought() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let data = shared.join("data");
    let folder = tempfile::tempdir().unwrap();
    script(Some(&data), 50, folder.path());
    let given = format!("--limit 50 --data '{}'", data.display());
    let (rows, _) = run(given, folder.path(), "real");
    assert_eq!(rows.len(), 50);
    assert!(rows.iter().all(|row| row["status"] != "faulted"), "{rows:#?}");
    let bought = rows.iter().filter(|row| row["status"] == "answered").count();
    assert!(bought >= 40, "{bought} of 50 bought");
}

#[test]
fn the_shop_opens_for_people() {
    let server = Serving::shop();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let page = runtime.block_on(async {
        let client = reqwest::Client::new();
        let visits = format!("{}visits", server.url);
        client.post(visits).form(&[("goal", "0")]).send().await.unwrap().text().await.unwrap()
    });
    assert!(page.contains("Instruction:") && page.contains("role=\"search\""), "{page}");
}
