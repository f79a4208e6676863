//! Runs over a queue have the same results as on one machine, even if processes are killed; commands on a
//! server without runs.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::nats::{NatsServer, Release, programs, programs_of};
use crate::support::rehearsal::Rehearsal;
use crate::support::{Fleet, content, lumos, repository, results, set_up, settled, unwrapped};

#[test]
fn two_workers_do_the_real_job_as_one_machine_does() {
    // Planner and grounder are different models, so that every unit needs both; those for web pages and
    // databases are fast.
    let pair = repository("models/assets/tiny");
    let tasks = format!(
        "--tasks gsm8k,svamp --formulation iterative,onetime --limit 8 --max-new-tokens 24 --planner '{0}/web' \
         --grounder '{0}/sql'",
        pair.display()
    );
    let alone = tempfile::tempdir().unwrap();
    lumos().args("run").args(&tasks).output(alone.path(), "alone").ok();
    for program in programs_of(Release::Installed) {
        let folder = tempfile::tempdir().unwrap();
        let nats = NatsServer::with_jetstream(&program);
        set_up(&nats);
        let fleet = Fleet::new(folder.path(), &nats.url());
        // In the second worker's memory each model fits, but not both.
        let workers = ["", "--memory 37MB"].map(|memory| {
            fleet.worker(format!("--concurrency 8 --allow-path '{}' {memory}", pair.display()))
        });
        // Otherwise the first one may have done everything before the second one is known.
        let are_known = |status: &Value| status["workers"].as_array().unwrap().len() == 2;
        fleet.until("both workers", are_known);
        let mut coordinator = fleet.coordinator("together", &tasks);
        coordinator.exits(0);
        let status = fleet.until("all units", |status| settled(status) == 32);
        assert_eq!(status["runs"][0]["duplicates"], 0, "every item is executed once: {status}");
        assert_eq!(status["runs"][0]["recovered"], 0);
        let finished = |status: &Value| -> Vec<u64> {
            let workers = status["workers"].as_array().unwrap();
            workers.iter().map(|worker| worker["finished"].as_u64().unwrap()).collect()
        };
        // A worker's notice is updated one heartbeat later.
        let have_finished = |status: &Value| {
            finished(status).iter().all(|count| *count > 0) && finished(status).iter().sum::<u64>() == 32
        };
        fleet.until("results of both workers", have_finished);
        for worker in workers {
            worker.drained();
        }
        assert_eq!(content(&alone.path().join("alone")), content(&folder.path().join("together")));
        assert_devices_are_told(&folder.path().join("together"), &coordinator.said());
        let written = results(&folder.path().join("together"));
        // The same command finds everything settled and needs no worker.
        fleet.coordinator("together", &tasks).exits(0);
        assert_eq!(written, results(&folder.path().join("together")), "the results changed");
    }
}

/// Asserts that the report lists the devices of both workers, and that one worker's models took turns.
fn assert_devices_are_told(run: &Path, said: &str) {
    let results = results(run);
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
        let are_right = loads.iter().all(|count| if in_turns { *count > 0 } else { *count == 1 });
        assert!(loads.len() > 1 && are_right, "{engines:?}");
        let sum: u64 = loads.iter().sum();
        assert!(!in_turns || sum > loads.len() as u64, "{engines:?}");
        all += sum;
    }
    let said = unwrapped(said);
    assert!(said.contains("loaded in turns, 8 episodes at once: "), "{said}");
    assert!(said.contains(&format!("all 2 workers together: {all} loads in ")), "{said}");
}

/// Returns the arguments of a rehearsed run.
fn rehearsed(folder: &Path, items: u64) -> String {
    Rehearsal::write(folder, items).arguments()
}

/// Adds leases that do not expire during a test.
fn with_long_leases(arguments: &str) -> String {
    format!("{arguments} --lease 900")
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
    let mut victim = fleet.worker("--concurrency 16 --script-latency 60000");
    let mut coordinator = fleet.coordinator("killed", with_long_leases(&arguments));
    let status = fleet.until("the first worker's work", |status| in_use(status) == 16);
    assert_eq!(settled(&status), 0);
    victim.kill();
    let second = fleet.worker("--concurrency 16 --script-latency 10");
    fleet.until("the second worker's work", |status| settled(status) == 16);
    coordinator.exits(0);
    second.drained();
}

#[test]
fn a_worker_that_is_asked_to_stop_gives_back_what_it_cannot_finish() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let arguments = rehearsed(folder.path(), 8);
    let fleet = Fleet::new(folder.path(), &nats.url());
    let slow = fleet.worker("--concurrency 8 --script-latency 120000 --grace 1");
    let mut coordinator = fleet.coordinator("graceful", with_long_leases(&arguments));
    fleet.until("work", |status| in_use(status) == 8);
    slow.drained();
    let status = fleet.until("the status", |_| true);
    assert_eq!(settled(&status), 0, "no item ends within the grace time: {status}");
    let quick = fleet.worker("--concurrency 8 --idle-exit 60");
    coordinator.exits(0);
    quick.drained();
}

#[test]
fn an_interrupted_run_waits_for_the_episodes_in_progress_and_takes_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let arguments = rehearsed(folder.path(), 60);
    let fleet = Fleet::new(folder.path(), &nats.url());
    let worker = fleet.worker("--concurrency 4 --script-latency 1500");
    let mut coordinator = fleet.coordinator("interrupted", format!("{arguments} --grace 120"));
    let status = fleet.until("episodes in progress", |status| in_use(status) == 4);
    assert_eq!(settled(&status), 0);
    coordinator.signal("-TERM");
    coordinator.exits(130);
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
    let quick = fleet.worker("--concurrency 16");
    fleet.coordinator("interrupted", &arguments).exits(0);
    quick.drained();
    worker.drained();
}

#[test]
fn a_second_coordinator_is_refused_and_a_dead_one_succeeded() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let arguments = rehearsed(folder.path(), 40);
    let fleet = Fleet::new(folder.path(), &nats.url());
    let mut first = fleet.coordinator("twice", &arguments);
    fleet.until("the run", |status| !status["runs"].as_array().unwrap().is_empty());
    // The same run folder on another host, simulated by a copy, which sled's lock does not cover.
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let copied = Command::new("cp").arg("-r").arg(folder.path().join("twice")).arg(&elsewhere).status();
    assert!(copied.unwrap().success());
    let refused = fleet.run(&format!("resume '{}'", elsewhere.join("twice").display())).with_code(2);
    refused.reports([format!("another coordinator owns this run: process {} on ", first.id())]);
    assert_eq!(first.ended(), None, "the refused coordinator stopped the owner: {}", first.said());
    first.kill();
    let worker = fleet.worker("--concurrency 8 --script-latency 5");
    // The coordinator with the original folder continues the run.
    let mut second = fleet.coordinator("twice", &arguments);
    second.exits(0);
    worker.drained();
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
    let worker = fleet.worker("--concurrency 4 --script-latency 1000");
    let mut coordinator = fleet.coordinator("cancelled", &arguments);
    fleet.until("some results", |status| settled(status) > 0);
    let cancelled = fleet.run("cancel cancelled").with_code(0);
    assert!(cancelled.stdout.starts_with("cancelled run cancelled: removed "), "{cancelled}");
    coordinator.exits(130);
    assert!(coordinator.said().contains("the run was cancelled\n"), "{}", coordinator.said());
    let resume = format!(" --queue {}` continues them\n", nats.url());
    assert!(coordinator.said().contains(&resume), "{}", coordinator.said());
    let report = lumos().args("report").arg(folder.path().join("cancelled")).exits(5);
    report.prints([format!(" --queue {}\n", nats.url())]);
    let rows = || content(&folder.path().join("cancelled")).0["gsm8k"].len();
    let recorded = rows();
    assert!((1..200).contains(&recorded), "{recorded} of 200 items");
    fleet.until("idle workers", |status| in_use(status) == 0);
    let quick = fleet.worker("--concurrency 16");
    let mut second = fleet.coordinator("cancelled", &arguments);
    second.exits(0);
    assert!(second.said().contains(&format!(", {recorded} already settled")), "{}", second.said());
    assert_eq!(rows(), 200);
    quick.drained();
    worker.drained();
}

#[test]
fn parts_made_without_a_queue_merge_into_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = rehearsed(folder.path(), 60);
    let run = |name: &str, partition: &str| {
        lumos().args("run").args(&arguments).output(folder.path(), name).args(partition).ok();
        folder.path().join(name)
    };
    let whole = run("whole", "");
    let parts = [1, 2, 3].map(|part| run(&format!("part-{part}"), &format!("--partition hash:{part}/3")));
    let into = folder.path().join("merged");
    let merge = |which: &[usize]| {
        let merge = lumos().args("merge --into").arg(&into);
        which.iter().fold(merge, |merge, part| merge.arg(&parts[*part]))
    };
    // The missing part is named.
    merge(&[0, 2]).exits(2).reports(["2/3"]);
    merge(&[0, 1, 1]).exits(2).reports(["2/3"]);
    merge(&[0, 1, 2]).ok();
    assert_eq!(content(&whole), content(&into));
}

#[test]
fn a_fresh_server_has_no_runs() {
    for program in programs() {
        let folder = tempfile::tempdir().unwrap();
        let nats = NatsServer::with_jetstream(&program);
        let fleet = Fleet::new(folder.path(), &nats.url());
        let status = fleet.run("status").with_code(0).prints(["no runs on this queue"]);
        assert_eq!(status.stderr, "", "{status}");
        let status = fleet.run("status --json").with_code(0);
        assert_eq!(status.stdout.trim(), "{\"runs\":[],\"workers\":[]}");
        for command in ["status sweep", "cancel sweep"] {
            fleet.run(command).with_code(2).reports(["run `sweep` not found on this queue"]);
        }
        for command in ["status 0123456789abcdef", "cancel 0123456789abcdef"] {
            fleet.run(command).with_code(2).reports(["run `0123456789abcdef` not found on this queue"]);
        }
        // `watch` waits for runs (all or one) and shows them once they exist.
        let mut all = fleet.watch("");
        let mut one = fleet.watch("sweep");
        all.until_said("no runs on this queue");
        one.until_said("run `sweep` not found on this queue: the queue has no runs; retrying");
        let _worker = fleet.worker("--concurrency 4");
        fleet.coordinator("sweep", "--tasks gsm8k --model builtin:tiny --limit 4").exits(0);
        all.until_said("sweep · complete");
        one.until_said("sweep · complete");
        // There is nothing to cancel.
        let cancelled = fleet.run("cancel sweep").with_code(0);
        assert_eq!(cancelled.stdout, "nothing to cancel: run sweep is complete\n", "{cancelled}");
        fleet.run("status sweep").prints(["sweep · complete"]);
    }
}
