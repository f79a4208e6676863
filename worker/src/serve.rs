//! The worker's loop: claims as many units as it has free slots, executes them concurrently, publishes each
//! outcome, then acknowledges the unit. Also the settings of that loop, and the limits for the episodes of a run.

use std::convert::Infallible;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, OptionFuture};
use lumos_models::{ModelRegistry, lost_gpu, until_gpu_lost};
use lumos_queue::{Lease, Queue, QueueError};
use lumos_tasks::{Assignment, Ending, Fault, FaultKind, Finished, Outcome, RunToken, Telemetry};
use lumos_tools::ToolSets;
use thiserror::Error;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, Awaited, EpisodeProgress};
use crate::drive::{Backends, EpisodeLimits, drive};

/// Time for the publication of a result to be confirmed when its run has ended.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);

/// How a worker handles leases. The default fits a queue within the process: no episode is aborted.
#[derive(Debug, Clone, Default)]
pub struct LeaseTerms {
    /// How long an episode may wait for a reply before it is aborted. A longer time limit of the item takes
    /// precedence.
    pub stall: Option<Duration>,
    /// Maximum deliveries of a message. A message that was delivered more often is not executed, because it
    /// probably crashes its worker.
    pub max_deliveries: Option<u32>,
    /// How long a draining worker waits for episodes in progress; `None` waits until they end.
    pub grace: Option<Duration>,
    /// When cancelled, the worker stops immediately and returns its unfinished units.
    pub stop: CancellationToken,
    /// Updated whenever one of the worker's episodes receives a reply.
    pub activity: Activity,
}

impl LeaseTerms {
    /// How long an episode with these limits may wait for a reply.
    fn stall_under(&self, limits: EpisodeLimits) -> Option<Duration> {
        self.stall.map(|stall| stall.max(limits.time.unwrap_or_default()))
    }
}

/// Limits and cancellation of the episodes of one run.
#[derive(Debug, Clone, Default)]
pub struct RunTerms {
    /// Limits of one episode.
    pub limits: EpisodeLimits,
    /// When cancelled, the run's episodes are dropped and their messages are not redelivered.
    pub cancelled: CancellationToken,
}

/// Source of the terms of runs.
pub trait Runs: Send + Sync {
    /// Returns the terms of a run. `None` means the only run, for assignments that name none.
    fn terms(&self, run: Option<&RunToken>) -> RunTerms;

    /// Whether a run was recorded as ended or cancelled. A run whose notice is missing may go on.
    fn has_ended(&self, run: &RunToken) -> bool;
}

/// Uses the same terms for every run, for a worker that serves one run.
impl Runs for RunTerms {
    fn terms(&self, _run: Option<&RunToken>) -> RunTerms {
        self.clone()
    }

    fn has_ended(&self, _run: &RunToken) -> bool {
        self.cancelled.is_cancelled()
    }
}

/// What stops a worker before its queue is empty.
#[derive(Debug, Error)]
pub enum ServeError {
    /// An operation of a queue failed.
    #[error("queue: {0}")]
    Queue(#[from] QueueError),
    /// A GPU failed for good: every further unit would fail. The units in progress return to the queue.
    #[error("{0}")]
    GpuLost(String),
}

/// A worker: its models, tools and slots.
pub struct Worker {
    /// The worker's name in telemetry.
    pub name: String,
    /// Maximum number of episodes executed concurrently.
    pub concurrency: usize,
    /// Models, by content.
    pub models: Arc<ModelRegistry>,
    /// Tools, by backend.
    pub tools: Arc<ToolSets>,
    /// Limits and cancellation of the runs that it serves.
    pub runs: Arc<dyn Runs>,
    /// How the worker handles leases.
    pub terms: LeaseTerms,
}

/// A pending claim for work.
type Claim<'a> = OptionFuture<BoxFuture<'a, Result<Vec<Lease<Assignment>>, QueueError>>>;

impl Worker {
    /// Serves until the work queue is closed and empty, or until `drain` is cancelled and the episodes in
    /// progress have ended or the grace period is over. Unfinished units are then returned to the queue.
    ///
    /// # Errors
    /// If a queue operation or a GPU fails. Unfinished units are then returned to the queue.
    pub async fn serve(
        self: Arc<Self>,
        work: Arc<dyn Queue<Assignment>>,
        results: Arc<dyn Queue<Finished>>,
        drain: CancellationToken,
    ) -> Result<(), ServeError> {
        let mut running: JoinSet<Result<(), ServeError>> = JoinSet::new();
        let mut claim: Claim<'_> = None.into();
        let mut asked = false;
        let mut claiming = true;
        let mut draining = false;
        let mut deadline = None;
        let mut lost = None;
        while claiming || !running.is_empty() {
            let free = self.concurrency.max(1).saturating_sub(running.len());
            if claiming && !asked && free > 0 {
                // The claim stays pending until it returns, so that no message is delivered to a dropped
                // claim. The next claim covers slots that become free in the meantime.
                claim = Some(work.claim(free)).into();
                asked = true;
            }
            tokio::select! {
                biased;
                () = self.terms.stop.cancelled() => break,
                message = until_gpu_lost() => {
                    lost = Some(message);
                    break;
                }
                () = drain.cancelled(), if !draining => {
                    draining = true;
                    claiming = false;
                    asked = false;
                    claim = None.into();
                    deadline = self.terms.grace.and_then(|grace| Instant::now().checked_add(grace));
                }
                () = until(deadline) => {
                    tracing::info!(
                        episodes = running.len(),
                        "grace period over; returning unfinished units to the queue"
                    );
                    break;
                }
                Some(joined) = running.join_next(), if !running.is_empty() => {
                    ended(joined)?;
                    // One claim covers all slots that became free together.
                    while let Some(joined) = running.try_join_next() {
                        ended(joined)?;
                    }
                }
                Some(leases) = &mut claim, if asked => {
                    asked = false;
                    let leases = leases?;
                    claiming = !leases.is_empty();
                    for lease in leases {
                        running.spawn(Arc::clone(&self).work(lease, Arc::clone(&results)));
                    }
                }
            }
        }
        // Dropping an episode's task releases its lease.
        running.abort_all();
        while let Some(joined) = running.join_next().await {
            ended(joined)?;
        }
        lost.map_or(Ok(()), |message| Err(ServeError::GpuLost(message)))
    }

    /// Executes the unit of one lease. The result is published before the message is acknowledged.
    async fn work(
        self: Arc<Self>,
        lease: Lease<Assignment>,
        results: Arc<dyn Queue<Finished>>,
    ) -> Result<(), ServeError> {
        let terms = self.runs.terms(lease.body().run.as_ref());
        let progress = EpisodeProgress::of(&self.terms.activity, lease.body());
        let finished = tokio::select! {
            biased;
            () = terms.cancelled.cancelled() => return terminate(lease).await,
            finished = self.finish(&lease, terms.limits, &progress) => finished,
            () = self.keep(&lease, &progress, self.terms.stall_under(terms.limits)) => {
                let seconds = progress.last().elapsed().as_secs();
                let message = format!("no reply for {seconds} s; the episode was aborted");
                tracing::warn!(unit = lease.id(), "{message}");
                self.record(lease.body(), FaultKind::Timeout, message)
            }
        };
        if finished.outcome.is_fault() && lost_gpu().is_some() {
            // Not the unit's failure: dropping the lease returns it to the queue, for a worker with a GPU that works.
            return Ok(());
        }
        if finished.outcome.is_fault() && matches!(lease.extend().await, Err(QueueError::LeaseLost(_))) {
            // The unit is, or will be, redelivered to another worker. A failure here, after a pause of this
            // process or a lost connection, is not meaningful and is not recorded.
            tracing::info!(unit = lease.id(), "failed after its lease was lost; the unit is redelivered");
            return Ok(());
        }
        let id = finished.message_id();
        let mut publication = results.publish(&id, finished);
        // No timeout: another worker that executed the unit could not publish its result any better.
        tokio::select! {
            biased;
            published = &mut publication => published?,
            () = terms.cancelled.cancelled() => {
                // The last result of a run ends it, maybe before its publication is confirmed and counted.
                let confirmed = tokio::time::timeout(CONFIRMED_WITHIN, publication).await;
                tracing::debug!(unit = lease.id(), ?confirmed, "the run ended during a publication");
                return terminate(lease).await;
            }
            never = Self::extend(&lease) => match never {},
        }
        if let Err(error) = lease.acknowledge().await {
            // The unit will be redelivered, and its second outcome will be dropped.
            tracing::debug!(%error, "failed to acknowledge a unit");
        }
        Ok(())
    }

    /// Extends the lease while the episode makes progress. Returns once it has made none for `stall`.
    async fn keep(&self, lease: &Lease<Assignment>, progress: &EpisodeProgress, stall: Option<Duration>) {
        let stalled = async {
            let Some(stall) = stall else { return pending().await };
            // Waiting for a model's phase does not count as a stall while other requests make progress.
            let last = || Some(progress.last()).max(self.models.went_on()).map(|last| last.elapsed());
            while let Some(left) =
                stall.checked_sub(last().unwrap_or_default()).filter(|left| !left.is_zero())
            {
                tokio::time::sleep(left).await;
            }
        };
        tokio::select! {
            () = stalled => {}
            never = Self::extend(lease) => match never {},
        }
    }

    /// Extends the lease every third of its duration.
    async fn extend(lease: &Lease<Assignment>) -> Infallible {
        let Some(time) = lease.duration() else { return pending().await };
        loop {
            tokio::time::sleep(time / 3).await;
            if let Err(error) = lease.extend().await {
                // Another worker may have the unit now. The first outcome counts, and this one will still be
                // published.
                tracing::debug!(%error, "failed to extend a lease");
            }
        }
    }

    async fn finish(
        &self,
        lease: &Lease<Assignment>,
        limits: EpisodeLimits,
        progress: &EpisodeProgress,
    ) -> Finished {
        let assignment = lease.body();
        if self.terms.max_deliveries.is_some_and(|limit| lease.deliveries() > limit) {
            let message = format!(
                "delivered {} times without a result: each worker that had it was stopped or killed, or lost \
                 its connection",
                lease.deliveries()
            );
            tracing::warn!(unit = lease.id(), "{message}");
            return self.record(assignment, FaultKind::Worker, message);
        }
        let unit = &assignment.unit;
        let driven = AssertUnwindSafe(async {
            let waiting = progress.wait(Awaited::SetUp, &unit.configuration);
            let backends = Backends::of(&self.models, &self.tools, &unit.configuration).await?;
            drop(waiting);
            progress.mark();
            Ok::<_, Fault>(drive(unit, &backends, limits, progress).await)
        })
        .catch_unwind()
        .await;
        match driven {
            Ok(Ok((outcome, telemetry))) => self.sign(assignment, outcome, telemetry),
            Ok(Err(Fault { kind, message })) => self.record(assignment, kind, message),
            Err(panic) => {
                let message = format!("the episode panicked: {}", panic_message(panic.as_ref()));
                self.record(assignment, FaultKind::Worker, message)
            }
        }
    }

    /// Creates the result of an assignment that failed.
    fn record(&self, assignment: &Assignment, kind: FaultKind, message: String) -> Finished {
        self.sign(assignment, faulted(kind, message), Telemetry::default())
    }

    fn sign(&self, assignment: &Assignment, outcome: Outcome, mut telemetry: Telemetry) -> Finished {
        telemetry.attempt = assignment.attempt;
        telemetry.worker.clone_from(&self.name);
        Finished {
            unit: assignment.unit.id.clone(),
            attempt: assignment.attempt,
            outcome,
            telemetry,
            run: assignment.run.clone(),
        }
    }
}

/// The outcome of a unit that failed outside of its episode.
pub(crate) fn faulted(kind: FaultKind, message: String) -> Outcome {
    Outcome { ending: Ending::Faulted(Fault { kind, message }), evidence: None, steps: Vec::new() }
}

/// Terminates a message of a cancelled run. The coordinator does the same.
async fn terminate(lease: Lease<Assignment>) -> Result<(), ServeError> {
    if let Err(error) = lease.terminate().await {
        tracing::debug!(%error, "failed to remove a cancelled unit from the queue");
    }
    Ok(())
}

/// Returns the result of an episode's task.
fn ended(joined: Result<Result<(), ServeError>, JoinError>) -> Result<(), ServeError> {
    match joined {
        Ok(result) => result,
        // Episodes catch their own panics, so the only expected error is an abort at the end. A panic outside of an
        // episode, for example while its lease is extended, drops the lease, which returns the unit to the queue.
        Err(error) => {
            log_panic("episode", error);
            Ok(())
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// Logs the panic of a task. Returns its message, or `None` if the task was aborted.
pub(crate) fn log_panic(task: &str, error: JoinError) -> Option<String> {
    let panic = error.try_into_panic().ok()?;
    let message = panic_message(panic.as_ref()).to_owned();
    tracing::error!(task, "a task of this worker panicked: {message}");
    Some(message)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no panic message")
}
