//! Cancels runs, and detects that a run was cancelled.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use lumos_queue::nats::{KeyValue, NatsError, Server};
use lumos_tasks::RunToken;
use lumos_tasks::fleet::{RunNotice, RunState, RunStatus};

use super::announce::{Announced, set_state};
use super::{Around, CoordinatorError};
use crate::dispatch::Command;

/// Delay before opening a bucket is retried.
const PAUSE: Duration = Duration::from_millis(500);

/// Result of cancelling a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Cancellation {
    /// The run is cancelled.
    Cancelled {
        /// The run's name.
        name: String,
        /// Number of queued units that were withdrawn.
        withdrawn: u64,
    },
    /// The run's coordinator had already ended, so there was nothing to cancel. Contains the run's status.
    Ended(Box<RunStatus>),
}

/// Cancels a run: workers drop its units, its coordinator ends, and queued units are withdrawn. Recorded
/// outcomes are kept, and starting the run again reactivates it. A run whose coordinator has ended is not
/// changed.
///
/// # Errors
/// [`CoordinatorError::NoRun`] if the run is not on the server. Other errors if the server cannot be reached or
/// refuses.
pub async fn cancel(server: &Server, run: &RunToken) -> Result<Cancellation, CoordinatorError> {
    let runs = match server.runs().await {
        // No coordinator has set up the server, so it has no runs.
        Err(NatsError::Missing(_)) => return Err(CoordinatorError::NoRun(run.clone())),
        runs => runs?,
    };
    if let Some(status) = ended(server, &runs, run).await? {
        return Ok(Cancellation::Ended(Box::new(status)));
    }
    let RunNotice { name, .. } = set_state(&runs, run, RunState::Cancelled).await?;
    let withdrawn = server.purge_work(run.as_str()).await?;
    Ok(Cancellation::Cancelled { name, withdrawn })
}

/// Returns the status of a run whose coordinator has ended. A coordinator marks the notice as ended before the
/// status; until both are marked, the run can still be cancelled.
async fn ended(
    server: &Server,
    runs: &KeyValue,
    run: &RunToken,
) -> Result<Option<RunStatus>, CoordinatorError> {
    let notice = runs.get(run.as_str()).await?;
    let notice = notice.and_then(|(bytes, _)| serde_json::from_slice::<RunNotice>(&bytes).ok());
    if notice.is_none_or(|notice| notice.state != RunState::Ended) {
        return Ok(None);
    }
    let status = server.status().await?.get(run.as_str()).await?;
    let status = status.and_then(|(bytes, _)| serde_json::from_slice::<RunStatus>(&bytes).ok());
    Ok(status.filter(|status| status.state == RunState::Ended))
}

/// Sends a command to the session when its run is cancelled.
pub(super) async fn watch_notice(around: Around, announced: Arc<Announced>) {
    let runs = loop {
        match around.server.runs().await {
            Ok(runs) => break runs,
            Err(error) => tracing::debug!(%error, "failed to watch the run's notice"),
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = around.over.cancelled() => return,
        }
    };
    let mut changes = std::pin::pin!(runs.watch());
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            () = around.over.cancelled() => return,
        };
        let Some(change) = change else { return };
        if change.key != around.run.as_str() || change.revision <= announced.revision() {
            continue;
        }
        let notice = change.value.as_deref().map(serde_json::from_slice::<RunNotice>);
        if matches!(notice, Some(Ok(RunNotice { state: RunState::Cancelled, .. }))) {
            // The session may have ended.
            let _ = around.commands.send(Command::Cancelled).await;
            return;
        }
    }
}
