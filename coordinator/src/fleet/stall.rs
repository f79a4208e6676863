//! Determines what a run without progress waits for, and formats the warning. Performs no I/O.
//!
//! Every wait of a coordinator that its own process cannot end is a [`Wait`] with a cause and a hint for the
//! user. Waits that end by themselves (delays between retries, the grace time of a drain) are not included.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lumos_tasks::{Reminder, stall_message};

use super::worker_registry::first_of;

/// State of a run without progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Situation {
    /// Whether there is a connection to the server.
    pub(super) connected: bool,
    /// Whether the server is connected and does not respond.
    pub(super) unanswered: bool,
    /// The error that the server currently returns.
    pub(super) trouble: Option<String>,
    /// Whether results are being written to disk.
    pub(super) recording: bool,
    /// Number of units that were given out and are not settled.
    pub(super) in_flight: usize,
    /// Number of live workers.
    pub(super) workers: usize,
    /// Reasons why they cannot take units.
    pub(super) refusals: String,
    /// Number of result messages on the server.
    pub(super) results: usize,
    /// Units of the run that workers hold, and the names of those workers.
    pub(super) held: usize,
    pub(super) holders: Vec<String>,
    /// Number of results that workers have not been able to send.
    pub(super) spooled: u64,
    /// Number of units on the server that no worker holds.
    pub(super) queued: usize,
}

/// Cause of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wait {
    /// The server is unavailable before the run starts.
    Beginning { why: String },
    /// Another coordinator has a claim on the run.
    Claim { host: String, process: u32 },
    /// There is no connection to the server.
    Connection,
    /// The server is connected and does not respond.
    Answer,
    /// The server returns errors.
    Server { why: String },
    /// Writing to this machine's disk.
    Disk,
    /// Results on the server are not delivered.
    Results { count: usize },
    /// Workers cannot send their results.
    Spooled { count: u64 },
    /// There are no workers.
    Workers { queued: usize },
    /// No worker can take the units.
    Capable { refusals: String },
    /// Workers hold the units.
    Held { count: usize, holders: Vec<String> },
    /// Workers are available and take no units.
    Queued { count: usize, workers: usize },
    /// Units are lost and not yet detected as missing.
    Nowhere { count: usize },
}

impl Wait {
    /// Returns the cause of the wait. If there are several, returns the first, from which the others follow.
    pub(super) fn of(situation: Situation) -> Self {
        let Situation { connected, unanswered, trouble, recording, in_flight, workers, refusals, .. } =
            situation;
        let Situation { results, held, holders, spooled, queued, .. } = situation;
        match () {
            () if !connected => Self::Connection,
            () if recording => Self::Disk,
            () if unanswered => Self::Answer,
            () if let Some(why) = trouble => Self::Server { why },
            () if results > 0 => Self::Results { count: results },
            () if workers == 0 => Self::Workers { queued },
            () if spooled > 0 => Self::Spooled { count: spooled },
            () if held > 0 => Self::Held { count: held, holders },
            () if !refusals.is_empty() => Self::Capable { refusals },
            () if queued > 0 => Self::Queued { count: queued, workers },
            () => Self::Nowhere { count: in_flight },
        }
    }

    /// Returns what is waited for, and a hint for the user.
    fn texts(&self, address: &str) -> (String, String) {
        let reachable =
            format!("check that the server runs and is reachable: lumos status --queue {address}");
        let (what, hint) = match self {
            Self::Beginning { why } => {
                (format!("the NATS server, to start the run: {why}"), reachable.as_str())
            }
            Self::Connection => ("a connection to the NATS server".to_owned(), reachable.as_str()),
            Self::Claim { host, process } => {
                let what =
                    format!("the claim of another coordinator on this run: process {process} on {host}");
                let hint =
                    format!("stop process {process} on {host} if it should not run, or wait for it to end");
                return (what, hint);
            }
            Self::Answer => (
                "a response of the NATS server, which is connected but does not respond".to_owned(),
                "restart the NATS server if this continues: after a full disk, version 2.9 may not respond \
                 until it is restarted; recorded outcomes are safe",
            ),
            Self::Server { why } => (
                format!("the NATS server, which refuses: {why}"),
                "free disk space on the server or raise max_file_store in its configuration; \
                 the run then continues automatically",
            ),
            Self::Disk => (
                "results to be written to the run folder".to_owned(),
                "check the disk that holds the run folder: df -h, dmesg",
            ),
            Self::Results { count } => (
                format!("{count} result messages that the NATS server does not deliver"),
                "the consumer is recreated automatically; if this continues, restart the server; \
                 recorded outcomes are safe",
            ),
            Self::Spooled { count } => (
                format!("{count} results that workers cannot send"),
                "check the logs of these workers: the server refuses their results or they cannot reach it",
            ),
            Self::Workers { queued } => {
                let what = format!("workers: none connected, {queued} units queued");
                return (what, format!("start workers: lumos worker --queue {address}"));
            }
            Self::Capable { refusals } => {
                let what = format!("workers that can execute the units of this run: {refusals}");
                let hint = "start a worker that has what is missing, or fix the cause: lumos status --queue";
                return (what, format!("{hint} {address}"));
            }
            Self::Held { count, holders } => {
                let named = first_of(holders.iter().map(String::as_str), ", ");
                let hint = "check the logs of these workers; units of a stopped worker are redelivered, and \
                            --stall-limit of a worker abandons an episode without a reply";
                (format!("{count} units that workers hold: {named}"), hint)
            }
            Self::Queued { count, workers } => {
                let what = format!("{count} queued units that none of {workers} workers requests");
                let hint = "check the logs of the workers, and their state: lumos status --queue";
                return (what, format!("{hint} {address}"));
            }
            Self::Nowhere { count } => (
                format!("{count} units that are neither queued, nor held by a worker, nor among the results"),
                "none needed: the units are published again within a minute",
            ),
        };
        (what, hint.to_owned())
    }
}

/// Warns about a wait if a warning is due.
pub(super) fn remind(reminder: &mut Reminder, silence: Duration, wait: impl FnOnce() -> Wait, address: &str) {
    if reminder.is_due(silence) {
        tracing::warn!("{}", message(&wait(), silence, Timestamp::now(), address));
    }
}

/// Formats the warning about a wait that began `silence` before `now`.
pub(super) fn message(wait: &Wait, silence: Duration, now: Timestamp, address: &str) -> String {
    let since = SignedDuration::try_from(silence).ok().and_then(|silence| now.checked_sub(silence).ok());
    let since = since.unwrap_or(now).strftime("%H:%M:%S UTC");
    let (what, hint) = wait.texts(address);
    stall_message(what, &hint, silence, since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_wait() -> Vec<Wait> {
        let going_on = Situation { connected: true, in_flight: 12, workers: 3, ..Situation::default() };
        let of = |change: fn(&mut Situation)| {
            let mut situation = going_on.clone();
            change(&mut situation);
            Wait::of(situation)
        };
        let why = "no NATS server can be reached at nats://host:4222".to_owned();
        vec![
            Wait::Beginning { why },
            Wait::Claim { host: "gpu-1".to_owned(), process: 17 },
            of(|one| one.connected = false),
            of(|one| (one.unanswered, one.trouble) = (true, Some("no answer within 10 s".to_owned()))),
            of(|one| one.trouble = Some("the queue is full".to_owned())),
            of(|one| one.recording = true),
            of(|one| one.results = 36),
            of(|one| one.spooled = 4),
            of(|one| (one.workers, one.queued) = (0, 12)),
            of(|one| one.refusals = "no model `plan`".to_owned()),
            of(|one| (one.held, one.holders) = (5, (1..=6).map(|number| format!("gpu-{number}")).collect())),
            of(|one| one.queued = 12),
            of(|_| {}),
        ]
    }

    /// Assigns a number to each kind. A new kind does not compile until it is added here and to the list
    /// above.
    fn kind(wait: &Wait) -> usize {
        match wait {
            Wait::Beginning { .. } => 0,
            Wait::Claim { .. } => 1,
            Wait::Connection => 2,
            Wait::Answer => 3,
            Wait::Server { .. } => 4,
            Wait::Disk => 5,
            Wait::Results { .. } => 6,
            Wait::Spooled { .. } => 7,
            Wait::Workers { .. } => 8,
            Wait::Capable { .. } => 9,
            Wait::Held { .. } => 10,
            Wait::Queued { .. } => 11,
            Wait::Nowhere { .. } => 12,
        }
    }

    #[test]
    fn every_wait_says_what_for_since_when_and_what_to_do() {
        let now = Timestamp::from_second(1_795_000_000).unwrap();
        let waits = every_wait();
        assert_eq!(waits.iter().map(kind).collect::<Vec<_>>(), (0..13).collect::<Vec<_>>());
        let said: Vec<String> = waits
            .iter()
            .map(|wait| message(wait, Duration::from_secs(60), now, "nats://host:4222"))
            .collect();
        insta::assert_snapshot!(said.join("\n\n"));
    }
}
