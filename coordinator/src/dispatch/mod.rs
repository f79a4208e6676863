//! Giving units out and taking their outcomes in: record, flush, acknowledge, always in that order.
//!
//! A board, pure, decides; a session's loop carries out. The same loop serves queues in memory and, linked to the
//! tasks that look after a fleet, queues on a server.

mod board;
#[cfg(test)]
mod board_tests;
mod bodies;
mod link;
mod results;
mod session;
mod sheet;
mod take_in;
#[cfg(test)]
mod tests;

use std::time::Instant;

use lumos_queue::{Queue, QueueError};
use lumos_tasks::{Assignment, Finished};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::events::Event;
use crate::manifest::Manifest;
use crate::spec::FailOnError;

pub(crate) use board::Present;
pub(crate) use link::{Annotate, Asker, Command, Gauge, Link, Voice};
pub(crate) use session::Session;
pub(crate) use sheet::Sheet;

/// Units given out and not settled, unless something else is asked for.
pub const WINDOW: usize = 8192;

/// What a session goes by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Attempts a faulted unit gets beyond its first of this session.
    pub retry_on_error: u32,
    /// When so many units have faulted that the session stops.
    pub fail_on_error: FailOnError,
    /// Units that are given out and not settled, at most.
    pub window: usize,
    /// Episodes that are driven at once, at most, where that is known; units beyond them wait in the queue.
    pub at_once: usize,
}

impl Terms {
    /// The terms of a run.
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

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Units planned in all.
    pub planned: u64,
    /// Units settled in all.
    pub settled: u64,
    /// Units whose attempts of this session are used up.
    pub faulted: u64,
    /// Whether too many units faulted.
    pub too_many_faults: bool,
    /// Whether somebody cancelled the run.
    pub cancelled: bool,
}

impl Summary {
    /// Units that are neither settled nor faulted.
    pub fn outstanding(&self) -> u64 {
        self.planned.saturating_sub(self.settled + self.faulted)
    }
}

/// Why a session could not go on. What was recorded before is safe.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// The checkpoint failed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A queue failed.
    #[error("queue error: {0}")]
    Queue(#[from] QueueError),
    /// Another coordinator has taken the run over.
    #[error("{0}")]
    Displaced(String),
}

/// Runs every planned unit that is not settled, over queues in this process. Ends when all are settled or faulted for
/// good, or, after `drain` was cancelled or too many units faulted, when the results queue is closed and empty:
/// whoever runs the workers closes it once they have ended.
///
/// Closes the work queue when nothing more will be published.
///
/// # Errors
/// If the checkpoint or a queue fails.
pub async fn dispatch(
    manifest: &Manifest,
    terms: &Terms,
    checkpoint: &Checkpoint,
    work: &dyn Queue<Assignment>,
    results: &dyn Queue<Finished>,
    events: &mpsc::Sender<Event>,
    drain: &CancellationToken,
) -> Result<Summary, DispatchError> {
    let opened = Session::open(manifest, *terms, checkpoint, Voice::new(events.clone()), None);
    let ended = match opened {
        Ok(mut session) => conduct(&mut session, work, results, drain).await,
        Err(error) => Err(error.into()),
    };
    // Workers must not wait for more, whatever happened here.
    work.close();
    ended
}

/// Runs a session from its first event to its last.
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
        .say(Event::Finished {
            settled: summary.settled,
            faulted: summary.faulted,
            outstanding: summary.outstanding(),
            seconds: began.elapsed().as_secs_f64(),
        })
        .await;
    Ok(summary)
}
