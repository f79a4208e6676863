//! What an owner writes under a run's token, and whether a process of this machine is alive.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use lumos_tasks::ContentHash;
use serde::{Deserialize, Serialize};

/// A coordinator's claim on a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// The host, for people.
    pub(super) host: String,
    /// The process on that host.
    pub(super) process: u32,
    /// Names the running system and its table of processes; empty where neither can be told.
    pub(super) machine: String,
    /// When the process began, in the system's own count: a process id may be used again.
    pub(super) started: u64,
    /// This session and no other.
    pub(super) session: String,
    /// Raised by every owner.
    pub(super) epoch: u64,
    /// When this was written, milliseconds since 1970.
    pub(super) written_ms: i64,
    /// Whether the owner has let go.
    pub(super) released: bool,
}

/// What is known of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vital {
    /// It runs on this machine.
    Alive,
    /// It has let go, or ran on this machine and is gone.
    Gone,
    /// It is elsewhere; only its claim's age can tell.
    Unknown,
}

impl Claim {
    /// A claim of this process.
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

    /// The same claim, written now.
    pub(super) fn renewed(&self) -> Self {
        Self { written_ms: Timestamp::now().as_millisecond(), ..self.clone() }
    }

    /// Seconds since it was written, as far as clocks agree.
    pub(super) fn age(&self) -> f64 {
        let milliseconds = Timestamp::now().as_millisecond().saturating_sub(self.written_ms).max(0);
        std::time::Duration::from_millis(milliseconds.unsigned_abs()).as_secs_f64()
    }

    /// Whether its owner is alive.
    pub(super) fn vital(&self) -> Vital {
        if self.released {
            return Vital::Gone;
        }
        let here = machine();
        if here.is_empty() || here != self.machine {
            return Vital::Unknown;
        }
        match started(self.process) {
            Some(started) if started == self.started => Vital::Alive,
            _ => Vital::Gone,
        }
    }
}

fn host() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let named = read.or_else(|| std::env::var("HOSTNAME").ok());
    named.map_or_else(|| "an unnamed host".to_owned(), |name| name.trim().to_owned())
}

/// The boot and the table of processes this process is in.
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let table = std::fs::read_link("/proc/self/ns/pid");
    match (boot, table) {
        (Ok(boot), Ok(table)) => format!("{} {}", boot.trim(), table.display()),
        _ => String::new(),
    }
}

/// When a process of this machine began, in clock ticks since the boot; `None` if there is none.
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // A zombie has ended, whatever its parent makes of that.
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
        assert_eq!(claim.vital(), Vital::Alive);
        assert_eq!(Claim { released: true, ..claim.clone() }.vital(), Vital::Gone);
        assert_eq!(Claim { machine: "elsewhere".to_owned(), ..claim.clone() }.vital(), Vital::Unknown);
        assert_eq!(Claim { started: claim.started + 1, ..claim.clone() }.vital(), Vital::Gone);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(Claim { process: child.id(), ..claim }.vital(), Vital::Gone);
    }
}
