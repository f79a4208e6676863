//! Episodes with an environment (shop, web pages, databases), on one machine and on two workers.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lumos_benchmarks::DataSource;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::fleet::{Fleet, settled};
use crate::nats::{NatsServer, programs};
use crate::program::{content, expect};
use crate::runs::{drained, ends_well};
use crate::scripts;

const PATIENCE: Duration = Duration::from_secs(300);

/// Writes the samples of Mind2Web with the first task's pages enlarged beyond the maximum message size, even
/// if compressed.
fn grown_pages(folder: &Path) {
    let samples = include_str!("../../benchmarks/samples/mind2web.json");
    let mut tasks: Vec<Value> = serde_json::from_str(samples).unwrap();
    let mut random = StdRng::seed_from_u64(8);
    for action in tasks[0]["actions"].as_array_mut().unwrap() {
        let page = action["cleaned_html"].as_str().unwrap();
        let mut padding = String::new();
        for number in 0..12_000 {
            padding += &format!(
                "<p backend_node_id=\"9{number}\"><text backend_node_id=\"8{number}\">{:0>32x}{:0>32x}</text></p>",
                random.random::<u128>(),
                random.random::<u128>()
            );
        }
        action["cleaned_html"] = page.replace("</body>", &format!("{padding}</body>")).into();
    }
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("test_domain_0.json"), serde_json::to_vec(&tasks).unwrap()).unwrap();
}

#[test]
fn two_workers_keep_worlds_apart_as_one_machine_does() {
    for program in programs() {
        let folder = tempfile::tempdir().unwrap();
        let tasks = folder.path().join("data/mind2web/test_domain");
        grown_pages(&tasks);
        let cases = folder.path().join("cases.jsonl");
        let pages = scripts::pages(DataSource::File(tasks.clone()));
        fs::write(&cases, [scripts::goals(20), pages, scripts::queries()].concat()).unwrap();
        let model = format!("script:{}", cases.display());
        let data = folder.path().join("data").display().to_string();
        let pages = ["--tasks", "mind2web", "--model", &model, "--data", &data, "--tool", "rank=bm25"];
        let others =
            ["--tasks", "webshop,intercode_sql", "--model", &model, "--limit", "20", "--tool", "rank=bm25"];
        let nats = NatsServer::with_jetstream(&program);
        let fleet = Fleet::new(folder.path(), &nats.url());
        let workers = [fleet.worker(&["--concurrency", "4"]), fleet.worker(&["--concurrency", "4"])];
        for (name, arguments, items) in [("pages", &pages[..], 10), ("others", &others[..], 40)] {
            let alone = format!("{name}-alone");
            let output = folder.path().display().to_string();
            expect(0, &[&["run", "--output-path", &output, "--name", &alone], arguments].concat());
            ends_well(&mut fleet.coordinator(name, arguments));
            let status = fleet.until("all items", PATIENCE, |status| settled(status) >= items);
            let run = status["runs"].as_array().unwrap().iter().find(|run| run["name"] == name);
            assert_eq!(run.unwrap()["duplicates"], 0, "every item is executed once: {status}");
            let (alone, together) = (content(&folder.path().join(alone)), content(&folder.path().join(name)));
            assert_eq!(alone, together);
            for row in together.0.values().flatten() {
                assert_eq!(row["status"], "answered", "{row:#}");
            }
        }
        for worker in workers {
            drained(worker);
        }
    }
}
