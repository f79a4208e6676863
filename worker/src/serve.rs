//! The worker's loop: claim as many units as there are free places, drive them side by side, publish what came
//! of each, then acknowledge.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use lumos_queue::{Lease, Queue, QueueError};
use lumos_tasks::{Assignment, Ending, Fault, FaultKind, Finished, Outcome, Telemetry, WorkUnit};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::drive::{Limits, drive};
use crate::model::Models;
use crate::tools::ToolSets;

/// Why a worker stopped before its queue was empty.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A queue could not be used.
    #[error("the queue: {0}")]
    Queue(#[from] QueueError),
}

/// A worker: its models, its tools and its places.
pub struct Worker {
    /// The worker's name in telemetry.
    pub name: String,
    /// Episodes driven side by side.
    pub places: usize,
    /// Limits of one episode.
    pub limits: Limits,
    /// Models by content.
    pub models: Arc<Models>,
    /// Tools by backend.
    pub tools: Arc<ToolSets>,
}

impl Worker {
    /// Serves until the work queue is closed and empty, or until `drain` is cancelled and the episodes at hand
    /// have ended.
    ///
    /// # Errors
    /// If a queue fails; leases at hand are given back then.
    pub async fn serve(
        self: Arc<Self>,
        work: Arc<dyn Queue<Assignment>>,
        results: Arc<dyn Queue<Finished>>,
        drain: CancellationToken,
    ) -> Result<(), ServeError> {
        let mut running: JoinSet<Result<(), ServeError>> = JoinSet::new();
        let mut claiming = true;
        while claiming || !running.is_empty() {
            let free = self.places.max(1).saturating_sub(running.len());
            tokio::select! {
                biased;
                () = drain.cancelled(), if claiming => claiming = false,
                Some(joined) = running.join_next(), if !running.is_empty() => match joined {
                    Ok(result) => result?,
                    // Episodes catch their own panics; what is left is an abort at shutdown.
                    Err(error) => tracing::warn!(%error, "an episode's task did not end by itself"),
                },
                leases = work.claim(free), if claiming && free > 0 => {
                    let leases = leases?;
                    claiming = !leases.is_empty();
                    for lease in leases {
                        running.spawn(Arc::clone(&self).work(lease, Arc::clone(&results)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Works on one lease: the result is published before the work is acknowledged.
    async fn work(
        self: Arc<Self>,
        lease: Lease<Assignment>,
        results: Arc<dyn Queue<Finished>>,
    ) -> Result<(), ServeError> {
        let finished = self.finish(lease.body()).await;
        results.publish(&finished.message_id(), finished).await?;
        if let Err(error) = lease.acknowledge().await {
            // The unit will be delivered again and its second outcome dropped.
            tracing::debug!(%error, "acknowledged too late");
        }
        Ok(())
    }

    async fn finish(&self, assignment: &Assignment) -> Finished {
        let WorkUnit::Episode(unit) = &assignment.unit;
        let driven = AssertUnwindSafe(async {
            let backends = self.models.backends(&unit.configuration, &self.tools).await?;
            Ok::<_, Fault>(drive(unit, &backends, self.limits).await)
        })
        .catch_unwind()
        .await;
        let (outcome, mut telemetry) = match driven {
            Ok(Ok(driven)) => driven,
            Ok(Err(fault)) => (faulted(fault), Telemetry::default()),
            Err(panic) => {
                let message = format!("the episode panicked: {}", panic_message(panic.as_ref()));
                (faulted(Fault { kind: FaultKind::Worker, message }), Telemetry::default())
            }
        };
        telemetry.attempt = assignment.attempt;
        telemetry.worker.clone_from(&self.name);
        Finished {
            unit: unit.id.clone(),
            attempt: assignment.attempt,
            outcome,
            telemetry,
            run: assignment.run.clone(),
        }
    }
}

fn faulted(fault: Fault) -> Outcome {
    Outcome { ending: Ending::Faulted(fault), evidence: None, steps: Vec::new() }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
