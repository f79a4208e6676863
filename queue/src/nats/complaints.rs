//! Rate-limited warnings about messages of other senders, so that they cannot flood the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Problem with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It cannot be decoded.
    Undecodable,
    /// It uses another protocol.
    Protocol,
    /// Its body is larger than allowed.
    TooLarge,
    /// Its body is missing from the object store, or corrupt.
    Body,
    /// Its lease could not be returned immediately.
    Release,
    /// Its content differs from what was published.
    Damaged,
}

const KINDS: usize = 6;
const QUIET: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Default)]
struct Said {
    at: Option<Instant>,
    since: u64,
}

/// Logs at most one warning per kind in ten seconds, and counts the others.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    said: Mutex<[Said; KINDS]>,
}

impl Complaints {
    pub(super) fn warn(&self, kind: Kind, subject: &str, why: &str) {
        let now = Instant::now();
        let unsaid = {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let said = &mut said[kind as usize];
            if said.at.is_some_and(|at| now.duration_since(at) < QUIET) {
                said.since += 1;
                return;
            }
            said.at = Some(now);
            std::mem::take(&mut said.since)
        };
        // The subject is chosen by the publisher and may contain control characters.
        let subject: String = subject.chars().filter(|letter| !letter.is_control()).take(200).collect();
        tracing::warn!(subject, unsaid, "{why}");
    }
}
