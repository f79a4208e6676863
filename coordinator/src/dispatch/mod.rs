//! Dispatches units and records their outcomes, always in this order: record, flush, acknowledge.
//!
//! [`dispatch()`] runs a session with in-memory queues; [`crate::fleet`] runs the same session with queues on
//! a server. The session's loop executes the decisions of the unit tracker, a state machine without I/O. [`DispatchConfig`]
//! are the settings of a session and [`Summary`] is its result.

mod assignments;
mod control;
mod ingest;
mod order;
mod results;
mod run_stats;
mod session;
#[cfg(test)]
mod stop_tests;
#[cfg(test)]
mod tests;
mod unit_tracker;
#[cfg(test)]
mod unit_tracker_tests;

use std::time::Instant;

use lumos_queue::{Queue, QueueError};
use lumos_tasks::{Assignment, Finished};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::events::Event;
use crate::manifest::Manifest;
use crate::spec::{FailOnError, Stopped};

pub(crate) use control::{Annotate, Asker, Command, ControlChannel, RunGauges};
pub(crate) use run_stats::{RunStats, SessionName};
pub(crate) use session::Session;
pub(crate) use unit_tracker::Present;

pub use {control::EventSink, run_stats::RunProgress};

/// Default number of units that are given out and not settled.
const WINDOW: usize = 8192;

/// Settings of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DispatchConfig {
    /// Attempts of a faulted unit beyond its first in this session.
    pub retry_on_error: u32,
    /// Number of faulted units at which the session stops.
    pub fail_on_error: FailOnError,
    /// Maximum number of units that are given out and not settled.
    pub window: usize,
    /// Maximum number of episodes driven at the same time, if known. Other units wait in the queue.
    pub at_once: usize,
}

impl DispatchConfig {
    /// Returns the settings of a run.
    pub fn of(manifest: &Manifest) -> Self {
        let limits = &manifest.spec.limits;
        Self {
            retry_on_error: limits.retry_on_error,
            fail_on_error: limits.fail_on_error,
            window: WINDOW,
            at_once: usize::MAX,
        }
    }
}

/// Result of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Total number of planned units.
    pub planned: u64,
    /// Total number of settled units.
    pub settled: u64,
    /// Units whose attempts of this session are used up.
    pub faulted: u64,
    /// Whether the session stopped because of too many faults.
    pub too_many_faults: bool,
    /// Whether the run was cancelled.
    pub cancelled: bool,
    /// Configurations that stop rules ended in this session, with their positions. [`Manifest::stop`] takes them.
    pub stopped: Vec<(usize, Stopped)>,
}

impl Summary {
    /// Number of units that are neither settled nor faulted.
    pub fn outstanding(&self) -> u64 {
        self.planned.saturating_sub(self.settled + self.faulted)
    }
}

/// Error of a session. Everything recorded before is safe.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// The checkpoint failed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A queue failed.
    #[error("queue error: {0}")]
    Queue(#[from] QueueError),
    /// Another coordinator has taken over the run.
    #[error("{0}")]
    Displaced(String),
}

/// Runs every planned unit that is not settled, over queues in this process.
///
/// Ends when every unit is settled or has no attempts left. After `drain` was cancelled or too many units
/// faulted, ends when the results queue is closed and empty; the caller closes it once its workers have
/// ended. Closes the work queue when nothing more will be published.
///
/// # Errors
/// If the checkpoint or a queue fails.
pub async fn dispatch(
    manifest: &Manifest,
    terms: &DispatchConfig,
    checkpoint: &Checkpoint,
    work: &dyn Queue<Assignment>,
    results: &dyn Queue<Finished>,
    events: impl Into<EventSink>,
    drain: &CancellationToken,
) -> Result<Summary, DispatchError> {
    let opened = Session::open(manifest, *terms, checkpoint, events.into(), None);
    let ended = match opened {
        Ok(mut session) => {
            session.sink.with(|stats| stats.begin(&session.labels, session.tracker.tallies()));
            conduct(&mut session, work, results, drain).await
        }
        Err(error) => Err(error.into()),
    };
    // Workers must not wait for more units, even after an error.
    work.close();
    ended
}

/// Runs a session from its first to its last event.
pub(crate) async fn conduct<R: Into<Vec<Finished>> + Send + Sync>(
    session: &mut Session<'_>,
    work: &dyn Queue<Assignment>,
    results: &dyn Queue<R>,
    drain: &CancellationToken,
) -> Result<Summary, DispatchError> {
    let began = Instant::now();
    session.start().await;
    let ended = session.run(work, results, drain).await;
    work.close();
    ended?;
    let summary = session.summary();
    session
        .sink
        .emit(Event::Finished {
            settled: summary.settled,
            faulted: summary.faulted,
            outstanding: summary.outstanding(),
            seconds: began.elapsed().as_secs_f64(),
        })
        .await;
    Ok(summary)
}
