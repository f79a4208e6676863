//! Tests of workers with and without a browser.

use std::fs;

use lumos_capabilities::has_browser;

use crate::shopping::script;
use crate::support::nats::NatsServer;
use crate::support::{Fleet, content, lumos};

#[test]
fn a_worker_without_a_browser_leaves_the_shop_to_others_and_says_why() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    script(None, 2, folder.path());
    let cases = folder.path().join("cases.jsonl");
    let arguments =
        format!("--tasks webshop --tool rank=bm25 --limit 2 --model 'script:{}'", cases.display());
    lumos().args("run").args(&arguments).output(folder.path(), "memory").ok();

    let fleet = Fleet::new(folder.path(), &nats.url());
    let lacking = fleet.worker_with(lumos().env("LUMOS_CHROMEDRIVER", "/no/chromedriver"), "");
    let mut coordinator = fleet.coordinator("browser", format!("{arguments} --browser chromedriver"));
    fleet.until("a refusal", |status| status.to_string().contains("/no/chromedriver not found"));

    let pictures = folder.path().join("pictures");
    let having = lumos().env("TMPDIR", folder.path());
    let screenshots = format!("--screenshots '{}' --idle-exit 60", pictures.display());
    let having = fleet.worker_with(having, screenshots);
    coordinator.exits(0);
    let rewards = |name: &str| -> Vec<serde_json::Value> {
        let rows = content(&folder.path().join(name)).0.remove("webshop").unwrap();
        rows.into_iter().map(|row| row["scores"].clone()).collect()
    };
    assert_eq!(rewards("browser"), rewards("memory"));
    assert_eq!(fs::read_dir(&pictures).unwrap().count(), 2, "one folder per unit");
    assert!(lacking.said().contains("/no/chromedriver"), "{}", lacking.said());
    having.drained();
}
