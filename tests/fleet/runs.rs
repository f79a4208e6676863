//! Runs over a queue have the same results as on one machine, even if processes are killed.

use std::path::Path;
use std::time::Duration;

use lumos_queue::nats::{Access, Connecting, Layout, Server};
use lumos_tasks::fleet::PROTOCOL;
use serde_json::Value;

use crate::fleet::{Fleet, Process, settled};
use crate::nats::{NatsServer, programs};
use crate::program::{content, expect, files, lumos, text};
use crate::rehearsal::Rehearsal;

const PATIENCE: Duration = Duration::from_secs(300);

fn path(folder: &Path) -> &str {
    folder.to_str().unwrap()
}

pub(crate) fn ends_well(process: &mut Process) {
    let status = process.wait(PATIENCE);
    assert_eq!(status.code(), Some(0), "{}", process.said());
}

pub(crate) fn drained(mut worker: Process) -> String {
    worker.signal("-TERM");
    ends_well(&mut worker);
    worker.said()
}

/// Sets up a server as a coordinator does, so that workers can register before the first run.
fn set_up(nats: &NatsServer) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let layout = Layout { protocol: PROTOCOL, ..Layout::default() };
        let connecting = Connecting { name: "test".to_owned(), patience: Some(PATIENCE), layout };
        let server = Server::connect(&Access::new(&nats.url()).unwrap(), connecting).await.unwrap();
        server.ensure().await.unwrap();
        server.close().await;
    });
}

#[test]
fn two_workers_do_the_real_job_as_one_machine_does() {
    for program in programs() {
        let folder = tempfile::tempdir().unwrap();
        let tasks =
            ["--tasks", "gsm8k,svamp", "--model", "builtin:tiny", "--formulation", "iterative,onetime"];
        let mut alone = vec!["run", "--output-path", path(folder.path()), "--name", "alone"];
        alone.extend(tasks);
        expect(0, &alone);
        let nats = NatsServer::with_jetstream(&program);
        set_up(&nats);
        let fleet = Fleet::new(folder.path(), &nats.url());
        // In the second worker's memory each model fits, but not both.
        let workers = [
            fleet.worker(&["--concurrency", "8"]),
            fleet.worker(&["--concurrency", "8", "--memory", "16MB"]),
        ];
        // Otherwise the first one may have done everything before the second one is known.
        let are_known = |status: &Value| status["workers"].as_array().unwrap().len() == 2;
        fleet.until("both workers", PATIENCE, are_known);
        let mut coordinator = fleet.coordinator("together", &tasks);
        ends_well(&mut coordinator);
        let status = fleet.until("all units", PATIENCE, |status| settled(status) == 120);
        assert_eq!(status["runs"][0]["duplicates"], 0, "every item is executed once: {status}");
        assert_eq!(status["runs"][0]["recovered"], 0);
        let finished = |status: &Value| -> Vec<u64> {
            let workers = status["workers"].as_array().unwrap();
            workers.iter().map(|worker| worker["finished"].as_u64().unwrap()).collect()
        };
        // A worker's notice is updated one heartbeat later.
        let are_counted = |status: &Value| finished(status).iter().sum::<u64>() == 120;
        let finished = finished(&fleet.until("all results", PATIENCE, are_counted));
        assert!(finished.iter().all(|count| *count > 0), "both workers execute items: {finished:?}");
        for worker in workers {
            drained(worker);
        }
        assert_eq!(content(&folder.path().join("alone")), content(&folder.path().join("together")));
        assert_devices_are_told(&folder.path().join("together"), &coordinator.said());
        let results = written(&folder.path().join("together"));
        // The same command finds everything settled and needs no worker.
        ends_well(&mut fleet.coordinator("together", &tasks));
        assert_eq!(results, written(&folder.path().join("together")), "the results changed");
    }
}

/// Returns the results of a run as written.
fn written(run: &Path) -> Value {
    let results = files(run, "results_", ".json");
    serde_json::from_slice(&std::fs::read(&results[0]).unwrap()).unwrap()
}

/// Asserts that the report lists the devices of both workers, and that one worker's models took turns.
fn assert_devices_are_told(run: &Path, said: &str) {
    let results = written(run);
    let workers = results["lumos"]["telemetry"]["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 2, "{workers:?}");
    let mut all = 0;
    for in_turns in [false, true] {
        let engines =
            |worker: &&Value| worker["engines"][0]["in_turns"].as_bool().unwrap_or(false) == in_turns;
        let worker = workers.iter().find(engines).unwrap_or_else(|| panic!("{workers:?}"));
        let engines = worker["engines"].as_array().unwrap();
        assert!(engines.iter().all(|one| one["device"] == "cpu" && one["weights"] == "f32"), "{engines:?}");
        let loads: Vec<u64> = engines.iter().map(|one| one["loads"].as_u64().unwrap()).collect();
        // If all models fit, each is loaded once.
        assert!(loads.len() > 1 && loads.iter().all(|count| if in_turns { *count > 0 } else { *count == 1 }));
        let sum: u64 = loads.iter().sum();
        assert!(!in_turns || sum > loads.len() as u64, "{engines:?}");
        all += sum;
    }
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("loaded in turns, 8 episodes at once: "), "{said}");
    assert!(said.contains(&format!("all 2 workers together: {all} loads in ")), "{said}");
}

/// Returns the arguments of a rehearsed run.
fn rehearsed(folder: &Path, items: u64) -> Vec<String> {
    let rehearsal = Rehearsal::write(folder, items);
    let script = format!("script:{}", rehearsal.script.display());
    ["--tasks", "gsm8k", "--model", &script, "--data", path(&rehearsal.data)].map(str::to_owned).to_vec()
}

fn borrowed(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// Adds leases that do not expire during a test.
fn with_long_leases(arguments: &[String]) -> Vec<&str> {
    [&borrowed(arguments)[..], &["--lease", "900"]].concat()
}

fn in_use(status: &Value) -> u64 {
    status["workers"].as_array().unwrap().iter().map(|worker| worker["in_use"].as_u64().unwrap()).sum()
}

#[test]
fn what_a_killed_worker_held_is_in_work_again_before_its_leases_run_out() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let arguments = rehearsed(folder.path(), 16);
    let fleet = Fleet::new(folder.path(), &nats.url());
    // Every item takes five minutes, so the first worker holds all of them when it is killed.
    let slow = ["--concurrency", "16", "--script-latency", "60000"];
    let mut victim = fleet.worker(&slow);
    let mut coordinator = fleet.coordinator("killed", &with_long_leases(&arguments));
    let status = fleet.until("the first worker's work", PATIENCE, |status| in_use(status) == 16);
    assert_eq!(settled(&status), 0);
    victim.kill();
    let second = fleet.worker(&["--concurrency", "16", "--script-latency", "10"]);
    fleet.until("the second worker's work", PATIENCE, |status| settled(status) == 16);
    ends_well(&mut coordinator);
    drained(second);
}

#[test]
fn a_worker_that_is_asked_to_stop_gives_back_what_it_cannot_finish() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let arguments = rehearsed(folder.path(), 8);
    let fleet = Fleet::new(folder.path(), &nats.url());
    let slow = fleet.worker(&["--concurrency", "8", "--script-latency", "120000", "--grace", "1"]);
    let mut coordinator = fleet.coordinator("graceful", &with_long_leases(&arguments));
    fleet.until("work", PATIENCE, |status| in_use(status) == 8);
    drained(slow);
    let status = fleet.until("the status", PATIENCE, |_| true);
    assert_eq!(settled(&status), 0, "no item ends within the grace time: {status}");
    let quick = fleet.worker(&["--concurrency", "8", "--idle-exit", "60"]);
    ends_well(&mut coordinator);
    drained(quick);
}

#[test]
fn an_interrupted_run_waits_for_the_episodes_in_progress_and_takes_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let arguments = rehearsed(folder.path(), 60);
    let fleet = Fleet::new(folder.path(), &nats.url());
    let worker = fleet.worker(&["--concurrency", "4", "--script-latency", "1500"]);
    let waiting = [&borrowed(&arguments)[..], &["--grace", "120"]].concat();
    let mut coordinator = fleet.coordinator("interrupted", &waiting);
    let status = fleet.until("episodes in progress", PATIENCE, |status| in_use(status) == 4);
    assert_eq!(settled(&status), 0);
    coordinator.signal("-TERM");
    let ended = coordinator.wait(PATIENCE);
    assert_eq!(ended.code(), Some(130), "{}", coordinator.said());
    // None are known if the interrupt arrives before the worker's first notice.
    let said = coordinator.said();
    assert!(
        ["waiting for 4 episodes in progress", "waiting for 0 episodes in progress"]
            .iter()
            .any(|text| said.contains(text)),
        "{said}"
    );
    let (rows, _) = content(&folder.path().join("interrupted"));
    assert_eq!(rows["gsm8k"].len(), 4, "{}", coordinator.said());
    let quick = fleet.worker(&["--concurrency", "16"]);
    ends_well(&mut fleet.coordinator("interrupted", &borrowed(&arguments)));
    drained(quick);
    drained(worker);
}

#[test]
fn a_second_coordinator_is_refused_and_a_dead_one_succeeded() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let arguments = rehearsed(folder.path(), 40);
    let fleet = Fleet::new(folder.path(), &nats.url());
    let mut first = fleet.coordinator("twice", &borrowed(&arguments));
    fleet.until("the run", PATIENCE, |status| !status["runs"].as_array().unwrap().is_empty());
    // The same run folder on another host, simulated by a copy, which sled's lock does not cover.
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let copied = std::process::Command::new("cp")
        .args(["-r", path(&folder.path().join("twice")), path(&elsewhere)])
        .status()
        .unwrap();
    assert!(copied.success());
    let copy = elsewhere.join("twice");
    let output = lumos().args(["resume", path(&copy)]).args(&fleet.queue).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let owner = format!("another coordinator owns this run: process {} on ", first.id());
    assert!(said.contains(&owner), "{said}");
    assert_eq!(first.ended(), None, "the refused coordinator stopped the owner: {}", first.said());
    first.kill();
    let worker = fleet.worker(&["--concurrency", "8", "--script-latency", "5"]);
    // The coordinator with the original folder continues the run.
    let mut second = fleet.coordinator("twice", &borrowed(&arguments));
    ends_well(&mut second);
    drained(worker);
    assert!(!second.said().contains("waiting up to "), "a dead owner is not waited for: {}", second.said());
    let (rows, _) = content(&folder.path().join("twice"));
    assert_eq!(rows["gsm8k"].len(), 40, "{}", second.said());
}

#[test]
fn a_cancelled_run_stops_and_can_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let arguments = rehearsed(folder.path(), 200);
    let fleet = Fleet::new(folder.path(), &nats.url());
    // Four items take five seconds, so the run is cancelled long before it could end.
    let worker = fleet.worker(&["--concurrency", "4", "--script-latency", "1000"]);
    let mut coordinator = fleet.coordinator("cancelled", &borrowed(&arguments));
    fleet.until("some results", PATIENCE, |status| settled(status) > 0);
    let (code, stdout, stderr) =
        text(&lumos().args(["cancel", "cancelled"]).args(&fleet.queue).output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("cancelled run cancelled: removed "), "{stdout}");
    let status = coordinator.wait(PATIENCE);
    assert_eq!(status.code(), Some(130), "{}", coordinator.said());
    assert!(coordinator.said().contains("the run was cancelled\n"), "{}", coordinator.said());
    let rows = || content(&folder.path().join("cancelled")).0["gsm8k"].len();
    let recorded = rows();
    assert!((1..200).contains(&recorded), "{recorded} of 200 items");
    fleet.until("idle workers", PATIENCE, |status| in_use(status) == 0);
    let quick = fleet.worker(&["--concurrency", "16"]);
    let mut second = fleet.coordinator("cancelled", &borrowed(&arguments));
    ends_well(&mut second);
    assert!(second.said().contains(&format!(", {recorded} already settled")), "{}", second.said());
    assert_eq!(rows(), 200);
    drained(quick);
    drained(worker);
}

#[test]
fn parts_made_without_a_queue_merge_into_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = rehearsed(folder.path(), 60);
    let run = |name: &str, partition: Option<&str>| {
        let mut all = vec!["run", "--output-path", path(folder.path()), "--name", name];
        all.extend(borrowed(&arguments));
        all.extend(partition.into_iter().flat_map(|partition| ["--partition", partition]));
        expect(0, &all);
    };
    run("whole", None);
    let parts: Vec<_> = (1..=3)
        .map(|part| {
            let name = format!("part-{part}");
            run(&name, Some(&format!("hash:{part}/3")));
            folder.path().join(name)
        })
        .collect();
    let into = folder.path().join("merged");
    let merge = |parts: &[&Path]| {
        let mut all = vec!["merge", "--into", path(&into)];
        all.extend(parts.iter().map(|part| path(part)));
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let (_, said) = expect(2, &borrowed(&merge(&[&parts[0], &parts[2]])));
    assert!(said.contains("2/3"), "the missing part is named: {said}");
    let (_, said) = expect(2, &borrowed(&merge(&[&parts[0], &parts[1], &parts[1]])));
    assert!(said.contains("2/3"), "{said}");
    expect(0, &borrowed(&merge(&[&parts[0], &parts[1], &parts[2]])));
    assert_eq!(content(&folder.path().join("whole")), content(&into));
}
