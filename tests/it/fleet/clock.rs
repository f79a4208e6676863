//! Tests of wall clocks that are set forwards and backwards during a run. libfaketime simulates the clock;
//! monotonic time is not changed.

use std::fs;
use std::path::{Path, PathBuf};

use lumos_capabilities::{Capability, skip};

use crate::fleet::Rehearsed;
use crate::support::nats::NatsServer;
use crate::support::{Fleet, Lumos, faketime, files, lumos, rows, settled};

/// The wall clock of a process.
struct Clock(PathBuf);

impl Clock {
    fn new(folder: &Path, name: &str) -> Self {
        let clock = Self(folder.join(name));
        clock.set("+0");
        clock
    }

    /// Sets its offset from the real time, such as `+5h`.
    fn set(&self, offset: &str) {
        let written = self.0.with_extension("new");
        fs::write(&written, format!("{offset}\n")).unwrap();
        fs::rename(written, &self.0).unwrap();
    }

    /// Returns the program's command with this clock.
    fn program(&self, library: &Path) -> Lumos {
        lumos()
            .env("LD_PRELOAD", library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.0)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1")
    }
}

/// Asserts that clock jumps are not treated as lost workers. On an overloaded machine a worker may really be
/// silent, but not at every jump.
fn assert_not_taken_for_silence(said: &str) {
    assert!(!said.contains("no progress for"), "{said}");
    let lost = said.matches("stopped responding").count();
    assert!(lost < JUMPS.len(), "{lost} workers were lost:\n{said}");
}

/// Clock offsets of the coordinator and two workers: forwards and backwards, separately and together.
const JUMPS: [[&str; 3]; 5] = [
    ["+5h", "+0", "+0"],
    ["+0", "+5h", "-5h"],
    ["-26h", "-26h", "+9000h"],
    ["+9000h", "-1h", "+1h"],
    ["-1h", "-1h", "-1h"],
];

#[test]
fn clocks_that_are_set_by_hours_in_mid_run_change_nothing() {
    let Some(library) = faketime() else {
        return skip(Capability::Faketime, "libfaketime is not installed (Debian: faketime)");
    };
    let rehearsed = Rehearsed::new(400);
    let folder = rehearsed.folder.path();
    let Some(nats) = NatsServer::start() else { return };
    let clocks = ["coordinator", "first", "second"].map(|name| Clock::new(folder, name));
    let fleet = Fleet::new(folder, &nats.url());
    let concurrency = "--concurrency 4 --script-latency 80 --stall-warning 600";
    let workers = [1, 2].map(|one| fleet.worker_with(clocks[one].program(&library), concurrency));
    let arguments = rehearsed.with("--stall-warning 600 --lease 5");
    let mut coordinator = fleet.coordinator_with(clocks[0].program(&library), "clocks", arguments);
    for (step, offsets) in JUMPS.iter().enumerate() {
        let reached = 60 * (step as u64 + 1);
        fleet.until("results", |status| settled(status) >= reached);
        for (clock, offset) in clocks.iter().zip(offsets) {
            clock.set(offset);
        }
    }
    coordinator.exits(0);
    rehearsed.assert_undisturbed("clocks");
    fleet.until("all units", |status| settled(status) == 400);
    assert_not_taken_for_silence(&coordinator.said());
    for worker in workers {
        assert_not_taken_for_silence(&worker.drained());
    }
    // The clocks did jump: episodes started in different years.
    let years: std::collections::BTreeSet<i64> =
        started(&folder.join("clocks")).map(|ms| ms / 31_557_600_000).collect();
    assert!(years.len() > 1, "{years:?}");
}

/// Start times of a run's episodes by the clocks of their workers, in milliseconds.
fn started(run: &Path) -> impl Iterator<Item = i64> {
    let rows = rows(&files(run, "samples_", ".jsonl")[0]);
    rows.into_iter().map(|row| row["telemetry"]["started_ms"].as_i64().unwrap())
}
