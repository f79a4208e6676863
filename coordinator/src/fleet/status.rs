//! Publishes the run's status on the server.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use lumos_tasks::fleet::{PROTOCOL, RunState, RunStatus};

use super::Around;
use super::claim::Claim;

/// Time limit for a write.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes the status periodically. Must be dropped before the final status is written.
pub(super) async fn writing(around: &Around) -> Infallible {
    loop {
        write(around, RunState::Active).await;
        tokio::time::sleep(around.settings.status_every).await;
    }
}

/// Writes the status. A failed write is dropped, because the next status replaces it.
pub(super) async fn write(around: &Around, state: RunState) {
    let Some(status) = status(around, state) else { return };
    let Ok(bytes) = serde_json::to_vec(&status) else { return };
    let written = async { around.server.status().await?.put(around.run.as_str(), &bytes).await };
    match tokio::time::timeout(PATIENCE, written).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "failed to write the status"),
        Err(_) => tracing::debug!("timed out writing the status"),
    }
}

fn status(around: &Around, state: RunState) -> Option<RunStatus> {
    let owner = Claim::here(0);
    around.sink.with(|stats| {
        let (units_per_second, tokens_per_second) = stats.rates();
        RunStatus {
            protocol: PROTOCOL,
            run: around.run.clone(),
            name: around.manifest_name.clone(),
            state,
            host: owner.host,
            configurations: stats.configurations.clone(),
            in_flight: stats.in_flight,
            duplicates: stats.duplicates,
            recovered: stats.recovered,
            units_per_second,
            tokens_per_second,
            recent_faults: stats.recent_faults.iter().cloned().collect(),
            started_ms: around.started_ms,
            written_ms: Timestamp::now().as_millisecond(),
        }
    })
}
