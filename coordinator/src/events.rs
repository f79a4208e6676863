//! Events of a run.
//!
//! A session sends every [`Event`] through one channel. Progress bars, JSON lines (`--json`), logs and the
//! status of a queue are all produced from this stream.

use lumos_tasks::{DraftCounts, Fault, NanoDollars, UnitId};
use serde::Serialize;

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run starts or resumes.
    Started {
        /// The run's name.
        run: String,
        /// Total number of planned units.
        planned: u64,
        /// Number of units settled by earlier sessions.
        settled: u64,
        /// Labels of the configurations, by index.
        configurations: Vec<String>,
    },
    /// A unit was settled, and its outcome is on disk.
    Settled {
        /// The unit.
        unit: UnitId,
        /// Index of its configuration.
        configuration: usize,
        /// The item's index in its data set.
        item: u64,
        /// The attempt that settled it, counted from 1.
        attempt: u32,
        /// `answered` or `gave_up`.
        status: &'static str,
        /// Whether it is correct under the first scoring.
        correct: Option<bool>,
        /// Number of prompt tokens.
        prompt_tokens: u64,
        /// Number of generated tokens.
        completion_tokens: u64,
        /// Duration of the episode in seconds.
        seconds: f64,
        /// Tokens that lookup decoding drafted.
        #[serde(skip_serializing_if = "Option::is_none")]
        drafts: Option<DraftCounts>,
        /// Cost of models on servers with a price, in billionths of a US dollar.
        #[serde(rename = "cost_nanodollars", skip_serializing_if = "Option::is_none")]
        cost: Option<NanoDollars>,
        /// Whether a model replied. Rejected prompts cost nothing. Not part of the JSON lines.
        #[serde(skip)]
        has_reply: bool,
        /// Episodes in progress, at most. Not part of the JSON lines.
        #[serde(skip)]
        at_hand: u64,
    },
    /// An attempt at a unit ended with a fault, which the agent did not cause.
    Faulted {
        /// The unit.
        unit: UnitId,
        /// Index of its configuration.
        configuration: usize,
        /// The item's index in its data set.
        item: u64,
        /// The attempt, counted from 1.
        attempt: u32,
        /// The fault.
        fault: Fault,
        /// Whether the unit is retried in this session.
        will_retry: bool,
    },
    /// A further outcome of a settled unit arrived and was dropped.
    Duplicate {
        /// The unit.
        unit: UnitId,
    },
    /// No more units are given out; the session waits for those in progress.
    Draining {
        /// The reason.
        reason: String,
        /// Episodes in progress.
        at_hand: u64,
        /// Maximum wait in seconds. Without a queue there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        at_most: Option<f64>,
    },
    /// A stop rule ended a configuration.
    Stopped {
        /// Index of the configuration.
        configuration: usize,
        /// Its label.
        label: String,
        /// After how many items, and why.
        reason: String,
        /// Number of its units that are not dispatched.
        units: u64,
    },
    /// Units were published again because their message or their worker was lost.
    Recovered {
        /// Number of units.
        units: u64,
    },
    /// The queue is unavailable; the session waits for it.
    QueueAway {
        /// The queue's error message.
        detail: String,
    },
    /// The queue is available again.
    QueueBack {
        /// Seconds for which it was unavailable.
        seconds: f64,
    },
    /// A worker stopped responding.
    WorkerLost {
        /// The worker.
        worker: String,
        /// Leases of this run that were withdrawn from it.
        recalled: u64,
    },
    /// Units are queued and no worker takes them.
    NoWorkers {
        /// What the user can do.
        hint: String,
    },
    /// Another coordinator owns the run or owned it recently; the session waits for its claim to expire.
    Waiting {
        /// Host of the other coordinator.
        host: String,
        /// Process id of the other coordinator.
        process: u32,
        /// Seconds until the claim expires.
        seconds: f64,
    },
    /// The run was cancelled.
    Cancelled {
        /// Units that were given out and are not settled.
        at_hand: u64,
    },
    /// The session has ended.
    Finished {
        /// Total number of settled units.
        settled: u64,
        /// Units without attempts left.
        faulted: u64,
        /// Units that are neither settled nor faulted.
        outstanding: u64,
        /// Duration of the session in seconds.
        seconds: f64,
    },
}
