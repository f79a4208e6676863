//! Runs that are killed at any stage, interrupted, or out of disk space: nothing is lost or recorded twice.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

#[cfg(target_os = "linux")]
use crate::support::disk::SmallDisk;
use crate::support::paced::Paced;
use crate::support::{Lumos, content, lumos, wait_until};

/// 30 items of each benchmark under two formulations.
const RUN: &str = "run --tasks gsm8k,svamp --formulation iterative,onetime";
const UNITS: usize = 120;

/// Number of episodes in progress at the same time.
const AT_ONCE: usize = 8;

/// Returns the command of a run with the paced model, which may begin this many episodes.
fn paced_run(paced: &Paced, folder: &Path, name: &str, episodes: usize) -> Lumos {
    let run = lumos().args(RUN).args(format!("--model {} --batch-size {AT_ONCE}", paced.model()));
    paced.admit(run.output(folder, name), episodes)
}

/// Asserts that the samples contain every unit exactly once.
fn assert_complete(folder: &Path) {
    let (samples, _) = content(folder);
    let units: Vec<_> =
        samples.values().flatten().map(|row| row["unit"].as_str().unwrap().to_owned()).collect();
    assert_eq!(units.len(), UNITS);
    assert_eq!(units.iter().collect::<HashSet<_>>().len(), UNITS, "no unit is recorded twice");
}

/// Points of a start at which a run is killed: before it has any file, and while it plans.
#[derive(Debug, Clone, Copy)]
enum Start {
    Process,
    Folder,
    Manifest,
    Planned,
}

/// Kills a run while it starts. No episode of it may begin.
fn kill_at(start: Start, paced: &Paced, folder: &Path) {
    let mut run = paced_run(paced, folder, "killed", 0).args("--json").follow();
    let run_folder = folder.join("killed");
    let mut until_there = |path: &Path| {
        let found = || {
            assert!(run.is_running(), "{start:?}: {}", path.display());
            path.exists()
        };
        wait_until(found, || format!("{start:?}: {}", path.display()));
    };
    match start {
        Start::Process => {}
        Start::Folder => until_there(&run_folder),
        Start::Manifest => until_there(&run_folder.join("manifest.json")),
        Start::Planned => run.until("started", 1),
    }
    assert!(run.kill(), "{start:?}: the run ended by itself:\n{}", run.said());
    assert_eq!(run.settled(), Vec::<String>::new());
}

#[test]
fn killed_twenty_times_it_ends_as_if_nothing_had_happened() {
    let folder = tempfile::tempdir().unwrap();
    let paced = Paced::start();
    paced_run(&paced, folder.path(), "whole", usize::MAX).ok();
    assert_complete(&folder.path().join("whole"));

    for start in [Start::Process, Start::Folder, Start::Manifest, Start::Planned] {
        kill_at(start, &paced, folder.path());
    }
    // Each of sixteen processes begins six episodes, so they leave units for the last one.
    const KILLED: usize = 16;
    const EPISODES: usize = 6;
    const { assert!(KILLED * EPISODES < UNITS) };
    let mut recorded = 0..=0;
    let mut settled = HashSet::new();
    for number in 0..KILLED {
        let mut run = paced_run(&paced, folder.path(), "killed", EPISODES).args("--json").follow();
        // The other episodes go on, so that kills hit different steps of recording them.
        run.until("settled", 1 + number % (EPISODES - 1));
        std::thread::sleep(Duration::from_micros(500) * number as u32);
        assert!(run.kill(), "the run ended by itself:\n{}", run.said());
        let before = run.settled_before();
        assert!(recorded.contains(&before), "{before} units are settled, expected {recorded:?}");
        let now = run.settled();
        recorded = before + now.len()..=before + EPISODES;
        for unit in now {
            assert!(settled.insert(unit.clone()), "{unit} was executed again after it was recorded");
        }
    }
    let mut run = paced_run(&paced, folder.path(), "killed", usize::MAX).args("--json").follow();
    assert_eq!(run.end(), Some(0), "{}", run.said());
    let before = run.settled_before();
    assert!(recorded.contains(&before), "{before} units are settled, expected {recorded:?}");
    assert_eq!(before + run.settled().len(), UNITS);
    assert!(run.settled().iter().all(|unit| !settled.contains(unit)), "a recorded unit was executed again");
    assert_complete(&folder.path().join("killed"));
    assert_eq!(content(&folder.path().join("whole")), content(&folder.path().join("killed")));
}

/// Number of units that are settled when a run is interrupted.
const SETTLED: usize = 5;

#[test]
fn interrupted_it_drains_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let paced = Paced::start();
    paced_run(&paced, folder.path(), "whole", usize::MAX).ok();
    let mut run = paced_run(&paced, folder.path(), "interrupted", SETTLED).follow();
    paced.until_waiting(AT_ONCE);
    run.signal("-INT");
    run.until_said(&format!("interrupted: waiting for {AT_ONCE} episodes in progress"));
    paced.open();
    assert_eq!(run.end(), Some(130), "{}", run.said());
    let outstanding = UNITS - SETTLED - AT_ONCE;
    let said = run.said();
    assert!(said.contains(&format!("{outstanding} units are outstanding and 0 faulted")), "{said}");
    let folders = ["whole", "interrupted"].map(|name| folder.path().join(name));
    let rows: usize = content(&folders[1]).0.values().map(Vec::len).sum();
    assert_eq!(rows, SETTLED + AT_ONCE, "only episodes in progress are finished");
    let resumed = paced.admit(lumos().args("resume").arg(&folders[1]), usize::MAX).ok();
    resumed.reports([format!(", {} already settled", SETTLED + AT_ONCE)]);
    assert_complete(&folders[1]);
    assert_eq!(content(&folders[0]), content(&folders[1]));
}

#[test]
fn interrupted_twice_it_stops_at_once_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let paced = Paced::start();
    paced_run(&paced, folder.path(), "whole", usize::MAX).ok();
    let mut run = paced_run(&paced, folder.path(), "stopped", SETTLED).args("--json").follow();
    run.until("settled", SETTLED);
    paced.until_waiting(AT_ONCE);
    run.signal("-TERM");
    run.until("draining", 1);
    assert_eq!(run.events("draining")[0]["at_hand"], AT_ONCE);
    // The episodes in progress never end, so only the second signal can end the run.
    assert_eq!(run.stop("-INT"), Some(130), "{}", run.said());
    assert!(run.said().contains("stopped; recorded outcomes are safe"), "{}", run.said());
    assert_eq!(run.events("finished"), Vec::<serde_json::Value>::new());
    // The status of a killed session is not that of the next one.
    let status = folder.path().join("stopped/status.json");
    std::fs::write(&status, "left").unwrap();
    let mut resumed = paced_run(&paced, folder.path(), "stopped", 0).args("--json").follow();
    resumed.until("started", 1);
    assert_ne!(std::fs::read(&status).ok().as_deref(), Some(&b"left"[..]));
    paced.open();
    assert_eq!(resumed.end(), Some(0), "{}", resumed.said());
    assert_eq!(resumed.settled_before(), SETTLED);
    assert_complete(&folder.path().join("stopped"));
    assert_eq!(content(&folder.path().join("whole")), content(&folder.path().join("stopped")));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_run_with_a_message_and_space_lets_it_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let paced = Paced::start();
    let run = |folder: &Path, name: &str| paced_run(&paced, folder, name, usize::MAX);
    run(folder.path(), "whole").ok();
    // Not enough for the checkpoint; enough for the checkpoint but not for the results.
    for kilobytes in [240, 640] {
        let small = folder.path().join(format!("small-{kilobytes}"));
        let Some(disk) = SmallDisk::mount(&small, kilobytes) else { return };
        run(&small, "full").exits(1).reports(["full/", "free disk space"]);
        disk.grow();
        run(&small, "full").ok();
        assert_complete(&small.join("full"));
        assert_eq!(content(&folder.path().join("whole")), content(&small.join("full")));
    }
}
