//! Cancelling a run from anywhere, and noticing that it was.

use std::time::Duration;

use futures::StreamExt;
use lumos_queue::nats::Server;
use lumos_tasks::RunToken;
use lumos_tasks::fleet::{RunNotice, RunState};

use super::announce::set_state;
use super::{Around, FleetError};
use crate::dispatch::Command;

/// How long to wait before a bucket that could not be opened is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// What was cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    /// The run's name.
    pub name: String,
    /// Units that waited for a worker and were taken back.
    pub withdrawn: u64,
}

/// Cancels a run: workers drop what they have of it, its coordinator ends, and what waits is taken back. What was
/// recorded is kept, and starting the run again makes it active again.
///
/// # Errors
/// If the server does not know the run, cannot be reached or refuses.
pub async fn cancel(server: &Server, run: &RunToken) -> Result<Cancelled, FleetError> {
    let runs = server.runs().await?;
    let notice = set_state(&runs, run, RunState::Cancelled).await?;
    let withdrawn = server.purge_work(run.as_str()).await?;
    Ok(Cancelled { name: notice.name, withdrawn })
}

/// Tells the session when its run is cancelled.
pub(super) async fn watch_notice(around: Around, own: u64) {
    let runs = loop {
        match around.server.runs().await {
            Ok(runs) => break runs,
            Err(error) => tracing::debug!(%error, "the run's notice cannot be seen"),
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
        if change.key != around.run.as_str() || change.revision <= own {
            continue;
        }
        let notice = change.value.as_deref().map(serde_json::from_slice::<RunNotice>);
        if matches!(notice, Some(Ok(RunNotice { state: RunState::Cancelled, .. }))) {
            // The session may be over already.
            let _ = around.commands.send(Command::Cancelled).await;
            return;
        }
    }
}
