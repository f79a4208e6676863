//! Tests of workers with and without a browser.

use std::fs;
use std::time::Duration;

use lumos_capabilities::has_browser;

use crate::fleet::Fleet;
use crate::nats::NatsServer;
use crate::program::{content, expect, lumos};
use crate::scripts::goals;

const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn a_worker_without_a_browser_leaves_the_shop_to_others_and_says_why() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let cases = folder.path().join("cases.jsonl");
    fs::write(&cases, goals(2)).unwrap();
    let model = format!("script:{}", cases.display());
    let arguments = ["--tasks", "webshop", "--model", &model, "--tool", "rank=bm25", "--limit", "2"];
    let output = folder.path().to_str().unwrap();
    expect(0, &[&["run", "--output-path", output, "--name", "memory"], &arguments[..]].concat());

    let fleet = Fleet::new(folder.path(), &nats.url());
    let mut lacking = lumos();
    lacking.env("LUMOS_CHROMEDRIVER", "/no/chromedriver");
    let lacking = fleet.worker_with(lacking, &[]);
    let in_browser = [&arguments[..], &["--browser", "chromedriver"]].concat();
    let mut coordinator = fleet.coordinator("browser", &in_browser);
    fleet.until("a refusal", PATIENCE, |status| status.to_string().contains("/no/chromedriver not found"));

    let pictures = folder.path().join("pictures");
    let mut having = lumos();
    having.env("TMPDIR", folder.path());
    let mut having =
        fleet.worker_with(having, &["--screenshots", pictures.to_str().unwrap(), "--idle-exit", "60"]);
    let status = coordinator.wait(PATIENCE);
    assert_eq!(status.code(), Some(0), "{}", coordinator.said());
    let rewards = |name: &str| -> Vec<serde_json::Value> {
        let rows = content(&folder.path().join(name)).0.remove("webshop").unwrap();
        rows.into_iter().map(|row| row["scores"].clone()).collect()
    };
    assert_eq!(rewards("browser"), rewards("memory"));
    assert_eq!(fs::read_dir(&pictures).unwrap().count(), 2, "one folder per unit");
    assert!(lacking.said().contains("/no/chromedriver"), "{}", lacking.said());
    having.signal("-TERM");
    assert_eq!(having.wait(PATIENCE).code(), Some(0), "{}", having.said());
}
