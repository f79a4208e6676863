//! Faults caused by administrators, disks and networks during a run: nothing is lost, the cause is reported,
//! and the results equal those of an undisturbed run.

use std::path::Path;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, Context};
use serde_json::Value;

use crate::disk::SmallDisk;
use crate::fleet::{Fleet, Process, settled};
use crate::nats::{NatsServer, programs};
use crate::program::{content, expect, lumos};
use crate::proxy::{Proxy, Way};
use crate::rehearsal::Rehearsal;
use crate::runs::{drained, ends_well};

const PATIENCE: Duration = Duration::from_secs(300);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Connects as an administrator.
async fn administrator(nats: &NatsServer) -> Context {
    jetstream::new(async_nats::connect(nats.url()).await.unwrap())
}

/// A rehearsal, and the result of its undisturbed run.
pub(crate) struct Rehearsed {
    pub(crate) folder: tempfile::TempDir,
    arguments: Vec<String>,
    expected: (Value, Value),
}

fn rows(folder: &Path) -> (Value, Value) {
    let (samples, results) = content(folder);
    (serde_json::to_value(samples).unwrap(), results)
}

impl Rehearsed {
    pub(crate) fn new(items: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rehearsal = Rehearsal::write(folder.path(), items);
        let script = format!("script:{}", rehearsal.script.display());
        let data = rehearsal.data.display().to_string();
        let arguments = ["--tasks", "gsm8k", "--model", &script, "--data", &data].map(str::to_owned).to_vec();
        let output = folder.path().to_str().unwrap();
        let mut alone = vec!["run", "--output-path", output, "--name", "alone"];
        alone.extend(arguments.iter().map(String::as_str));
        expect(0, &alone);
        let expected = rows(&folder.path().join("alone"));
        Self { folder, arguments, expected }
    }

    pub(crate) fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.arguments.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }

    pub(crate) fn assert_undisturbed(&self, name: &str) {
        assert_eq!(rows(&self.folder.path().join(name)), self.expected);
    }
}

/// Waits until the output of a process contains a text.
fn until_said(process: &Process, text: &str) {
    let began = Instant::now();
    while !process.said().contains(text) {
        assert!(began.elapsed() < PATIENCE, "timed out waiting for `{text}`:\n{}", process.said());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Number of settled units of the only run.
fn progress(fleet: &Fleet) -> u64 {
    fleet.status().map_or(0, |status| settled(&status))
}

/// Waits until a number of further units are settled or the run has ended.
fn until_further(fleet: &Fleet, coordinator: &mut Process, units: u64) {
    let (before, began) = (progress(fleet), Instant::now());
    while progress(fleet) < before + units && coordinator.ended().is_none() {
        assert!(began.elapsed() < PATIENCE, "no progress:\n{}", coordinator.said());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_is_deleted_or_purged_comes_back_and_the_run_goes_on() {
    for program in programs() {
        let rehearsed = Rehearsed::new(600);
        let nats = NatsServer::with_jetstream(&program);
        let fleet = Fleet::new(rehearsed.folder.path(), &nats.url());
        let workers: Vec<_> =
            (0..2).map(|_| fleet.worker(&["--concurrency", "8", "--script-latency", "150"])).collect();
        let mut coordinator = fleet.coordinator("disturbed", &rehearsed.arguments(&[]));
        fleet.until("results", PATIENCE, |status| settled(status) > 10);
        let streams = [
            "lumos-2-work",
            "lumos-2-results",
            "KV_lumos-2-runs",
            "KV_lumos-2-workers",
            "KV_lumos-2-owners",
            "KV_lumos-2-status",
            "OBJ_lumos-2-payloads",
            "OBJ_lumos-2-shared",
        ];
        let said = |what: &str, times: usize| {
            let began = Instant::now();
            // In the line that lists what was recreated.
            let count = |text: &str| {
                let lines = text
                    .lines()
                    .filter(|line| line.contains("recreated what was deleted from the NATS server"));
                lines.filter(|line| line.contains(what)).count()
            };
            while count(&coordinator.said()) < times {
                assert!(began.elapsed() < PATIENCE, "{what} was not recreated:\n{}", coordinator.said());
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        block_on(async {
            let administrator = administrator(&nats).await;
            for stream in streams {
                administrator.delete_stream(stream).await.unwrap();
                said(stream, 1);
            }
            for stream in ["lumos-2-work", "lumos-2-results"] {
                let handle = administrator.get_stream(stream).await.unwrap();
                let names: Vec<String> =
                    futures::TryStreamExt::try_collect(handle.consumer_names()).await.unwrap();
                assert_eq!(names.len(), 1, "{names:?}");
                handle.delete_consumer(&names[0]).await.unwrap();
                said(&format!("{stream}/{}", names[0]), 1);
            }
            for stream in streams {
                administrator.get_stream(stream).await.unwrap().purge().await.unwrap();
            }
            said("the run's notice", 1);
            said("shared data of the units", 1);
        });
        until_further(&fleet, &mut coordinator, 50);
        ends_well(&mut coordinator);
        rehearsed.assert_undisturbed("disturbed");
        for worker in workers {
            drained(worker);
        }
    }
}

#[test]
fn an_interrupted_run_ends_within_its_grace_time_whatever_is_in_the_way() {
    for program in programs() {
        let rehearsed = Rehearsed::new(200);
        let nats = NatsServer::with_jetstream(&program);
        let fleet = Fleet::new(rehearsed.folder.path(), &nats.url());
        let worker = fleet.worker(&["--concurrency", "4", "--script-latency", "200"]);
        let mut coordinator = fleet.coordinator("interrupted", &rehearsed.arguments(&["--grace", "16"]));
        let status = fleet.until("results", PATIENCE, |status| settled(status) > 2);
        let run = status["runs"][0]["run"].as_str().unwrap().to_owned();
        let unit = "0".repeat(64);
        block_on(async {
            let administrator = administrator(&nats).await;
            // A result of a future version, and one that no version has written.
            for (id, protocol) in [(format!("{unit}-1-elsewhere"), "9"), ("nonsense".to_owned(), "2")] {
                let mut headers = async_nats::HeaderMap::new();
                headers.insert("Lumos-Protocol", protocol);
                let subject = format!("lumos.2.results.{run}.{id}");
                let stored =
                    administrator.publish_with_headers(subject, headers, "{\"later\":1}".into()).await;
                stored.unwrap().await.unwrap();
            }
            for stream in ["KV_lumos-2-runs", "lumos-2-work"] {
                administrator.get_stream(stream).await.unwrap().purge().await.unwrap();
            }
        });
        coordinator.signal("-TERM");
        let ended = coordinator.wait(PATIENCE);
        assert_eq!(ended.code(), Some(130), "{}", coordinator.said());
        let kept =
            std::fs::read_to_string(rehearsed.folder.path().join("interrupted/rejected.jsonl")).unwrap();
        let kept: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut ids: Vec<&str> = kept.iter().map(|line| line["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, [&format!("{unit}-1-elsewhere"), "nonsense"]);
        assert!(kept.iter().all(|line| line["body"]["text"] == "{\"later\":1}"), "{kept:?}");
        assert!(coordinator.said().contains("protocol 9"), "{}", coordinator.said());
        // The interrupted run can be continued.
        ends_well(&mut fleet.coordinator("interrupted", &rehearsed.arguments(&[])));
        rehearsed.assert_undisturbed("interrupted");
        drained(worker);
    }
}

#[test]
fn a_full_store_that_is_freed_lets_the_run_go_on() {
    for program in programs() {
        let rehearsed = Rehearsed::new(400);
        let Some(disk) = SmallDisk::mount(&rehearsed.folder.path().join("disk"), 24 << 10) else { return };
        let store = disk.folder().join("store");
        std::fs::create_dir(&store).unwrap();
        std::fs::set_permissions(&store, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        // The server must fill the disk instead of limiting itself to the free space.
        let configuration = disk.folder().join("nats.conf");
        std::fs::write(&configuration, "jetstream { max_file_store: 100GB }\n").unwrap();
        let arguments = ["-c", configuration.to_str().unwrap(), "-sd", store.to_str().unwrap()];
        let nats = NatsServer::with_arguments(&program, &arguments);
        let fleet = Fleet::new(rehearsed.folder.path(), &nats.url());
        let workers: Vec<_> =
            (0..2).map(|_| fleet.worker(&["--concurrency", "8", "--script-latency", "150"])).collect();
        let mut coordinator =
            fleet.coordinator("full", &rehearsed.arguments(&["--stall-warning", "3", "--lease", "5"]));
        fleet.until("results", PATIENCE, |status| settled(status) > 50);
        disk.fill();
        until_said(&coordinator, "hint: ");
        disk.free();
        ends_well(&mut coordinator);
        let said = coordinator.said();
        println!("{}:\n{said}", program.display());
        assert!(!said.contains("no worker has registered"), "wrong reason:\n{said}");
        rehearsed.assert_undisturbed("full");
        for worker in workers {
            drained(worker);
        }
    }
}

#[test]
fn flipped_bits_on_the_wire_change_no_record() {
    for program in programs() {
        let rehearsed = Rehearsed::new(60);
        let nats = NatsServer::with_jetstream(&program);
        let (of_worker, of_coordinator) = (Proxy::before(nats.address()), Proxy::before(nats.address()));
        let workers = Fleet::new(rehearsed.folder.path(), &of_worker.url());
        let fleet = Fleet::new(rehearsed.folder.path(), &of_coordinator.url());
        // Damages units on their way to the server and to the worker, and results on their way to the server
        // and to the coordinator. Long bodies start with the magic number of the compression.
        let compressed = [0x28, 0xb5, 0x2f, 0xfd];
        of_coordinator.flip(Way::ToServer, "pears", 2);
        of_worker.flip(Way::ToClient, "pears", 3);
        of_worker.flip_behind(Way::ToServer, &compressed, 60, 2);
        of_coordinator.flip_behind(Way::ToClient, &compressed, 90, 3);
        let mut coordinator = fleet.coordinator("flipped", &rehearsed.arguments(&[]));
        let worker = workers.worker(&["--concurrency", "4"]);
        ends_well(&mut coordinator);
        rehearsed.assert_undisturbed("flipped");
        assert_eq!((of_coordinator.flipped(), of_worker.flipped()), (5, 5));
        let mismatch = "does not match its checksum";
        assert!(coordinator.said().contains(mismatch), "{}", coordinator.said());
        let said = drained(worker);
        assert!(said.contains(mismatch), "{said}");
    }
}

#[test]
fn a_coordinator_and_a_worker_without_progress_say_what_they_wait_for() {
    let rehearsed = Rehearsed::new(30);
    let Some(mut nats) = NatsServer::start() else { return };
    let fleet = Fleet::new(rehearsed.folder.path(), &nats.url());
    let mut coordinator = fleet.coordinator("stalled", &rehearsed.arguments(&["--stall-warning", "2"]));
    until_said(&coordinator, "waiting for workers: none connected, 30 units queued\nhint: start workers");
    let worker = fleet.worker(&["--concurrency", "2", "--stall-warning", "2", "--script-latency", "600000"]);
    until_said(&coordinator, "waiting for 2 units that workers hold: ");
    until_said(&worker, "waiting for replies to 2 episodes: units ");
    nats.kill();
    until_said(&coordinator, "waiting for a connection to the NATS server\nhint: check that the server runs");
    until_said(&worker, "waiting for a connection to the NATS server\nhint: check that the server runs");
    nats.restart();
    let quick = fleet.worker(&["--concurrency", "8", "--stall-warning", "2"]);
    worker.signal("-KILL");
    ends_well(&mut coordinator);
    until_said(&quick, "waiting for a run: none is active on this queue\nhint: start a run: lumos run");
    drained(quick);

    // A worker without a server, and one whose server was never set up.
    let Some(empty) = NatsServer::start() else { return };
    let early = Fleet::new(rehearsed.folder.path(), &empty.url());
    let waiting = early.worker(&["--stall-warning", "1"]);
    until_said(
        &waiting,
        "waiting for the NATS server to be set up: stream `KV_lumos-2-runs` not found on the NATS server",
    );
    let mut command = lumos();
    command.args(["worker", "--queue", "nats://127.0.0.1:1"]);
    let alone = Process::start(&mut command, &rehearsed.folder.path().join("alone.log"));
    until_said(&alone, "cannot reach a NATS server at nats://127.0.0.1:1");
}
