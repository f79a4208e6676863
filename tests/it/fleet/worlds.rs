//! Episodes with an environment (shop, web pages, databases), on one machine and on two workers, which may
//! have a browser.

use std::fs;
use std::path::Path;

use lumos_benchmarks::DataSource;
use lumos_capabilities::has_browser;
use lumos_tasks::Formulation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::shopping::script;
use crate::support::nats::{NatsServer, Release, programs_of};
use crate::support::{Fleet, content, lumos, scripts, settled};

/// Writes the samples of Mind2Web with the first task's pages enlarged beyond the maximum message size, even
/// if compressed.
fn grown_pages(folder: &Path) {
    let samples = include_str!("../../../benchmarks/samples/mind2web.json");
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
    let folder = tempfile::tempdir().unwrap();
    let tasks = folder.path().join("data/mind2web/test_domain");
    grown_pages(&tasks);
    let cases = folder.path().join("cases.jsonl");
    let pages = scripts::pages(DataSource::File(tasks));
    let queries = scripts::queries(&DataSource::Samples, &[Formulation::Iterative]);
    fs::write(&cases, [scripts::goals(None, 20), pages, queries].concat()).unwrap();
    let common = format!("--tool rank=bm25 --model 'script:{}'", cases.display());
    let pages = format!("{common} --tasks mind2web --data '{}'", folder.path().join("data").display());
    let others = format!("{common} --tasks webshop,intercode_sql --limit 20");
    let runs = [("pages", pages, 10), ("others", others, 40)];
    for (name, arguments, _) in &runs {
        lumos().args("run").args(arguments).output(folder.path(), name).ok();
    }
    for program in programs_of(Release::Current) {
        let nats = NatsServer::with_jetstream(&program);
        let below = tempfile::tempdir().unwrap();
        let fleet = Fleet::new(below.path(), &nats.url());
        let worker = format!("--concurrency 4 --allow-path '{}'", folder.path().display());
        let workers = [fleet.worker(&worker), fleet.worker(&worker)];
        for (name, arguments, items) in &runs {
            fleet.coordinator(name, arguments).exits(0);
            let status = fleet.until("all items", |status| settled(status) >= *items);
            let run = status["runs"].as_array().unwrap().iter().find(|run| run["name"] == *name);
            assert_eq!(run.unwrap()["duplicates"], 0, "every item is executed once: {status}");
            let together = content(&below.path().join(name));
            assert_eq!(content(&folder.path().join(name)), together);
            for row in together.0.values().flatten() {
                assert_eq!(row["status"], "answered", "{row:#}");
            }
        }
        for worker in workers {
            worker.drained();
        }
    }
}

#[test]
fn a_worker_without_a_browser_leaves_the_shop_to_others_and_says_why() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    script(None, 1, folder.path());
    let cases = folder.path().join("cases.jsonl");
    let arguments =
        format!("--tasks webshop --tool rank=bm25 --limit 1 --model 'script:{}'", cases.display());
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
    let rewards = |name: &str| -> Vec<Value> {
        let rows = content(&folder.path().join(name)).0.remove("webshop").unwrap();
        rows.into_iter().map(|row| row["scores"].clone()).collect()
    };
    assert_eq!(rewards("browser"), rewards("memory"));
    assert_eq!(fs::read_dir(&pictures).unwrap().count(), 1, "a folder of the unit");
    assert!(lacking.said().contains("/no/chromedriver"), "{}", lacking.said());
    having.drained();
}
