//! The claim of a run's owner, and the test whether a process on this machine is alive.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use lumos_tasks::ContentHash;
use serde::{Deserialize, Serialize};

/// A coordinator's claim on a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// Host name, for display.
    pub(super) host: String,
    /// Process id on that host.
    pub(super) process: u32,
    /// Identifies the boot and the process namespace; empty if they cannot be determined.
    pub(super) machine: String,
    /// Start time of the process in the system's clock ticks, because process ids are reused.
    pub(super) started: u64,
    /// Identifier of this session.
    pub(super) session: String,
    /// Incremented by every new owner.
    pub(super) epoch: u64,
    /// When the claim was written, in milliseconds since 1970.
    pub(super) written_ms: i64,
    /// Whether the owner has released the run.
    pub(super) released: bool,
}

/// State of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It runs on this machine.
    Alive,
    /// It has released the run, or ran on this machine and has ended.
    Gone,
    /// It runs elsewhere; only the age of its claim indicates its state.
    Unknown,
}

impl Claim {
    /// Creates a claim of this process.
    pub(super) fn here(epoch: u64) -> Self {
        static SESSIONS: AtomicU64 = AtomicU64::new(0);
        let process = std::process::id();
        let now = Timestamp::now();
        let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let machine = machine();
        let session = ContentHash::of_json(&(&machine, process, now.as_nanosecond().to_string(), number));
        Self {
            host: host(),
            process,
            machine,
            started: started(process).unwrap_or(0),
            session: session.short().to_owned(),
            epoch,
            written_ms: now.as_millisecond(),
            released: false,
        }
    }

    /// Returns the same claim with the current time.
    pub(super) fn renewed(&self) -> Self {
        Self { written_ms: Timestamp::now().as_millisecond(), ..self.clone() }
    }

    /// Age of the claim in seconds, as far as the clocks of both machines agree.
    pub(super) fn age(&self) -> f64 {
        let milliseconds = Timestamp::now().as_millisecond().saturating_sub(self.written_ms).max(0);
        std::time::Duration::from_millis(milliseconds.unsigned_abs()).as_secs_f64()
    }

    /// Returns the state of its owner.
    pub(super) fn renewal(&self) -> Renewal {
        if self.released {
            return Renewal::Gone;
        }
        let here = machine();
        if here.is_empty() || here != self.machine {
            return Renewal::Unknown;
        }
        match started(self.process) {
            Some(started) if started == self.started => Renewal::Alive,
            _ => Renewal::Gone,
        }
    }
}

/// Returns the name of this host.
pub(crate) fn host() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

/// Returns the boot id and the process namespace of this process.
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let table = std::fs::read_link("/proc/self/ns/pid");
    match (boot, table) {
        (Ok(boot), Ok(table)) => format!("{} {}", boot.trim(), table.display()),
        _ => String::new(),
    }
}

/// Start time of a process on this machine in clock ticks since boot; `None` if there is no such process.
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // A zombie process has ended.
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_that_ended_is_not() {
        let claim = Claim::here(1);
        assert_ne!(claim.session, Claim::here(1).session);
        if claim.machine.is_empty() {
            return;
        }
        assert_eq!(claim.renewal(), Renewal::Alive);
        assert_eq!(Claim { released: true, ..claim.clone() }.renewal(), Renewal::Gone);
        assert_eq!(Claim { machine: "elsewhere".to_owned(), ..claim.clone() }.renewal(), Renewal::Unknown);
        assert_eq!(Claim { started: claim.started + 1, ..claim.clone() }.renewal(), Renewal::Gone);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(Claim { process: child.id(), ..claim }.renewal(), Renewal::Gone);
    }
}
