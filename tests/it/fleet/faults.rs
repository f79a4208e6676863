//! Faults caused by administrators, disks and networks during a run: nothing is lost, the cause is reported,
//! and the results equal those of an undisturbed run.

use std::time::{Duration, Instant};

use async_nats::jetstream::{self, Context};

use crate::fleet::Rehearsed;
use crate::support::disk::SmallDisk;
use crate::support::nats::{NatsServer, Release, programs_of};
use crate::support::proxy::{Direction, Proxy};
use crate::support::{Fleet, PATIENCE, Process, block_on, lumos, rows, settled};

/// Connects as an administrator.
async fn administrator(nats: &NatsServer) -> Context {
    jetstream::new(async_nats::connect(nats.url()).await.unwrap())
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
    for program in programs_of(Release::Installed) {
        let rehearsed = Rehearsed::new(600);
        let nats = NatsServer::with_jetstream(&program);
        let fleet = Fleet::new(rehearsed.folder.path(), &nats.url());
        let mut workers: Vec<_> =
            (0..2).map(|_| fleet.worker("--concurrency 8 --script-latency 150")).collect();
        let mut coordinator = fleet.coordinator("disturbed", &rehearsed.arguments);
        fleet.until("results", |status| settled(status) > 10);
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
        // In a line that lists what was recreated.
        let mut recreated = |what: &str| {
            coordinator.until(what, |said| {
                let mut lines = said.lines();
                lines.any(|line| {
                    line.contains("recreated what was deleted from the NATS server") && line.contains(what)
                })
            });
        };
        block_on(async {
            let administrator = administrator(&nats).await;
            for stream in streams {
                administrator.delete_stream(stream).await.unwrap();
                recreated(stream);
            }
            for stream in ["lumos-2-work", "lumos-2-results"] {
                let handle = administrator.get_stream(stream).await.unwrap();
                let names: Vec<String> =
                    futures::TryStreamExt::try_collect(handle.consumer_names()).await.unwrap();
                assert_eq!(names.len(), 1, "{names:?}");
                handle.delete_consumer(&names[0]).await.unwrap();
                recreated(&format!("{stream}/{}", names[0]));
            }
            for stream in streams {
                administrator.get_stream(stream).await.unwrap().purge().await.unwrap();
            }
            recreated("the run's notice");
            recreated("shared data of the units");
        });
        until_further(&fleet, &mut coordinator, 50);
        // Completes the rest without latency.
        workers.push(fleet.worker("--concurrency 8"));
        coordinator.exits(0);
        rehearsed.assert_undisturbed("disturbed");
        for worker in workers {
            worker.drained();
        }
    }
}

#[test]
fn an_interrupted_run_ends_within_its_grace_time_whatever_is_in_the_way() {
    for program in programs_of(Release::Current) {
        let rehearsed = Rehearsed::new(60);
        let nats = NatsServer::with_jetstream(&program);
        let fleet = Fleet::new(rehearsed.folder.path(), &nats.url());
        let worker = fleet.worker("--concurrency 4 --script-latency 200");
        let mut coordinator = fleet.coordinator("interrupted", rehearsed.with("--grace 16"));
        let status = fleet.until("results", |status| settled(status) > 2);
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
        coordinator.exits(130);
        let kept = rows(&rehearsed.folder.path().join("interrupted/rejected.jsonl"));
        let mut ids: Vec<&str> = kept.iter().map(|line| line["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, [&format!("{unit}-1-elsewhere"), "nonsense"]);
        assert!(kept.iter().all(|line| line["body"]["text"] == "{\"later\":1}"), "{kept:?}");
        assert!(coordinator.said().contains("protocol 9"), "{}", coordinator.said());
        // The interrupted run can be continued.
        let quick = fleet.worker("--concurrency 8");
        fleet.coordinator("interrupted", &rehearsed.arguments).exits(0);
        rehearsed.assert_undisturbed("interrupted");
        worker.drained();
        quick.drained();
    }
}

#[test]
fn a_full_store_that_is_freed_lets_the_run_go_on() {
    for program in programs_of(Release::Current) {
        let rehearsed = Rehearsed::new(300);
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
        let workers: Vec<_> = (0..2).map(|_| fleet.worker("--concurrency 8 --script-latency 150")).collect();
        let mut coordinator = fleet.coordinator("full", rehearsed.with("--stall-warning 3 --lease 5"));
        fleet.until("results", |status| settled(status) > 50);
        // The server frees space while it runs: it deletes what has been delivered. On a slow machine a warning may
        // have come before.
        let earlier = coordinator.said().matches("hint: ").count();
        coordinator.until("another hint: ", |said| {
            disk.fill();
            said.matches("hint: ").count() > earlier
        });
        disk.free();
        coordinator.exits(0);
        let said = coordinator.said();
        assert!(!said.contains("no worker has registered"), "wrong reason:\n{said}");
        rehearsed.assert_undisturbed("full");
        for worker in workers {
            worker.drained();
        }
    }
}

#[test]
fn flipped_bits_on_the_wire_change_no_record() {
    for program in programs_of(Release::Installed) {
        let rehearsed = Rehearsed::new(60);
        let nats = NatsServer::with_jetstream(&program);
        let (of_worker, of_coordinator) = (Proxy::before(nats.address()), Proxy::before(nats.address()));
        let workers = Fleet::new(rehearsed.folder.path(), &of_worker.url());
        let fleet = Fleet::new(rehearsed.folder.path(), &of_coordinator.url());
        // Damages units on their way to the server and to the worker, and results on their way to the server
        // and to the coordinator. Long bodies start with the magic number of the compression.
        let compressed = [0x28, 0xb5, 0x2f, 0xfd];
        of_coordinator.flip(Direction::ToServer, "pears", 2);
        of_worker.flip(Direction::ToClient, "pears", 3);
        of_worker.flip_behind(Direction::ToServer, &compressed, 60, 2);
        of_coordinator.flip_behind(Direction::ToClient, &compressed, 90, 3);
        let mut coordinator = fleet.coordinator("flipped", &rehearsed.arguments);
        let worker = workers.worker("--concurrency 4");
        coordinator.exits(0);
        rehearsed.assert_undisturbed("flipped");
        assert_eq!((of_coordinator.flipped(), of_worker.flipped()), (5, 5));
        let mismatch = "does not match its checksum";
        assert!(coordinator.said().contains(mismatch), "{}", coordinator.said());
        let said = worker.drained();
        assert!(said.contains(mismatch), "{said}");
    }
}

#[test]
fn a_coordinator_and_a_worker_without_progress_say_what_they_wait_for() {
    let rehearsed = Rehearsed::new(30);
    let Some(mut nats) = NatsServer::start() else { return };
    let fleet = Fleet::new(rehearsed.folder.path(), &nats.url());
    let mut coordinator = fleet.coordinator("stalled", rehearsed.with("--stall-warning 2"));
    coordinator.until_said("waiting for workers: none connected, 30 units queued\nhint: start workers");
    let mut worker = fleet.worker("--concurrency 2 --stall-warning 2 --script-latency 600000");
    coordinator.until_said("waiting for 2 units that workers hold: ");
    worker.until_said("waiting for replies to 2 episodes: units ");
    nats.kill();
    coordinator.until_said("waiting for a connection to the NATS server\nhint: check that the server runs");
    worker.until_said("waiting for a connection to the NATS server\nhint: check that the server runs");
    nats.restart();
    let mut quick = fleet.worker("--concurrency 8 --stall-warning 2");
    worker.signal("-KILL");
    coordinator.exits(0);
    quick.until_said("waiting for a run: none is active on this queue\nhint: start a run: lumos run");
    quick.drained();

    // A worker without a server, and one whose server was never set up.
    let Some(empty) = NatsServer::start() else { return };
    let early = Fleet::new(rehearsed.folder.path(), &empty.url());
    let mut waiting = early.worker("--stall-warning 1");
    waiting.until_said(
        "waiting for the NATS server to be set up: stream `KV_lumos-2-runs` not found on the NATS server",
    );
    let alone = lumos().args("worker --queue nats://127.0.0.1:1");
    let mut alone = alone.start(&rehearsed.folder.path().join("alone.log"));
    alone.until_said("cannot reach a NATS server at nats://127.0.0.1:1");
}
