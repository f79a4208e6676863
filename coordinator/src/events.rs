//! What happens in a run, as one stream of events: progress bars, JSON lines and logs all read this and nothing
//! else.

use lumos_tasks::{Fault, NanoDollars, UnitId};
use serde::Serialize;

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run begins, or goes on.
    Started {
        /// The run's name.
        run: String,
        /// Units planned in all.
        planned: u64,
        /// Units settled by earlier sessions.
        settled: u64,
        /// Labels of the configurations, by index.
        configurations: Vec<String>,
    },
    /// A unit has its outcome, and it is on disk.
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
        /// Whether it counts as correct under the first scoring.
        correct: Option<bool>,
        /// Tokens the models read.
        prompt_tokens: u64,
        /// Tokens the models wrote.
        completion_tokens: u64,
        /// Seconds the episode took.
        seconds: f64,
        /// What models of priced servers cost, in billionths of a US dollar.
        #[serde(rename = "cost_nanodollars", skip_serializing_if = "Option::is_none")]
        cost: Option<NanoDollars>,
    },
    /// A unit's attempt failed by no doing of the agent.
    Faulted {
        /// The unit.
        unit: UnitId,
        /// Index of its configuration.
        configuration: usize,
        /// The item's index in its data set.
        item: u64,
        /// The attempt, counted from 1.
        attempt: u32,
        /// What failed.
        fault: Fault,
        /// Whether it is tried again in this session.
        will_retry: bool,
    },
    /// A second outcome of a settled unit came and was dropped.
    Duplicate {
        /// The unit.
        unit: UnitId,
    },
    /// No further units are given out; those at hand are waited for.
    Draining {
        /// Why.
        reason: String,
        /// Episodes in progress.
        at_hand: u64,
        /// For how many seconds they are waited for, at most; on one machine for as long as they take.
        #[serde(skip_serializing_if = "Option::is_none")]
        at_most: Option<f64>,
    },
    /// Units were given out anew: their message had vanished, or their worker was lost.
    Recovered {
        /// How many.
        units: u64,
    },
    /// The queue cannot be used at present; the session waits for it.
    QueueAway {
        /// What it said.
        detail: String,
    },
    /// The queue can be used again.
    QueueBack {
        /// Seconds it was away.
        seconds: f64,
    },
    /// A worker has vanished without saying so.
    WorkerLost {
        /// The worker.
        worker: String,
        /// Leases of this run that were taken back from it.
        recalled: u64,
    },
    /// Units wait, and no worker takes them.
    NoWorkers {
        /// What to do about it.
        hint: String,
    },
    /// Another coordinator has the run, or had it a moment ago; its claim is waited for.
    Waiting {
        /// The other one's host.
        host: String,
        /// Its process on that host.
        process: u32,
        /// Seconds until its claim runs out.
        seconds: f64,
    },
    /// Somebody cancelled the run.
    Cancelled {
        /// Units given out and not settled.
        at_hand: u64,
    },
    /// The session is over.
    Finished {
        /// Units settled in all.
        settled: u64,
        /// Units whose attempts are used up.
        faulted: u64,
        /// Units not settled and not faulted.
        outstanding: u64,
        /// Seconds the session took.
        seconds: f64,
    },
}
