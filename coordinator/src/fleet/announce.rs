//! What workers need to know of a run before they can take its units.

use jiff::Timestamp;
use lumos_queue::nats::{KeyValue, KeyValueError};
use lumos_tasks::ContentHash;
use lumos_tasks::fleet::{LaneId, PROTOCOL, RunNotice, RunState, SharedInputs};
use std::sync::Arc;
use std::time::Duration;

use super::Around;
use super::error::FleetError;
use super::steadfast::Steadfast;
use crate::manifest::Manifest;

/// How long cleaning up may take; what stays is cleaned up by the run's next session.
const FAREWELL: Duration = Duration::from_secs(10);

/// A run that stands on the server.
#[derive(Debug)]
pub(super) struct Announced {
    runs: KeyValue,
    revision: u64,
}

/// The run's lanes, in the order of its configurations.
pub(super) fn lanes(manifest: &Manifest, priority: u8) -> Vec<LaneId> {
    manifest.configurations.iter().map(|planned| LaneId::of(&planned.configuration, priority)).collect()
}

impl Announced {
    /// Stores what units share, then says that the run is active.
    pub(super) async fn announce(
        manifest: &Manifest,
        around: &Around,
        steadfast: &Steadfast,
    ) -> Result<Self, FleetError> {
        let configurations =
            manifest.configurations.iter().map(|planned| Arc::clone(&planned.configuration)).collect();
        let malformed = |error: serde_json::Error| FleetError::Malformed(error.to_string());
        let bytes = serde_json::to_vec(&SharedInputs { configurations }).map_err(malformed)?;
        let blobs = steadfast.call(|| around.server.shared()).await?;
        let shared = steadfast.call(|| blobs.put(&bytes)).await?;
        let runs = steadfast.call(|| around.server.runs()).await?;
        let mut lanes = lanes(manifest, around.settings.priority);
        lanes.sort();
        lanes.dedup();
        let notice = RunNotice {
            protocol: PROTOCOL,
            run: around.run.clone(),
            name: manifest.spec.name.clone(),
            state: RunState::Active,
            shared: ContentHash::from_hex(shared),
            lanes,
            time_limit: manifest.spec.limits.time_limit,
            written_ms: Timestamp::now().as_millisecond(),
        };
        let bytes = serde_json::to_vec(&notice).map_err(malformed)?;
        let revision = steadfast.call(|| runs.put(around.run.as_str(), &bytes)).await?;
        Ok(Self { runs, revision })
    }

    /// The revision of the notice as it was written first; what is older concerns earlier sessions.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Takes the run off the server, but for its notice and its status. What cannot be done now is left.
    pub(super) async fn end(self, around: &Around, state: RunState) {
        let farewell = async {
            if let Err(error) = set_state(&self.runs, &around.run, state).await {
                tracing::debug!(%error, "the run's notice was not changed");
            }
            if let Err(error) = around.server.remove_run(around.run.as_str()).await {
                tracing::debug!(%error, "the run was not removed from the server");
            }
        };
        if tokio::time::timeout(FAREWELL, farewell).await.is_err() {
            tracing::debug!("the server is away; the run stays on it");
        }
    }
}

/// Changes the state of a run's notice. A cancelled run stays cancelled until it is announced again.
pub(super) async fn set_state(
    runs: &KeyValue,
    run: &lumos_tasks::RunToken,
    state: RunState,
) -> Result<RunNotice, FleetError> {
    loop {
        let Some((bytes, revision)) = runs.get(run.as_str()).await? else {
            return Err(FleetError::NoRun(run.clone()));
        };
        let mut notice: RunNotice = serde_json::from_slice(&bytes).map_err(|error| {
            FleetError::Malformed(format!("the notice of run {run} cannot be read: {error}"))
        })?;
        if notice.state == state || (notice.state == RunState::Cancelled && state == RunState::Ended) {
            return Ok(notice);
        }
        notice.state = state;
        notice.written_ms = Timestamp::now().as_millisecond();
        let bytes = serde_json::to_vec(&notice).map_err(|error| FleetError::Malformed(error.to_string()))?;
        match runs.update(run.as_str(), &bytes, revision).await {
            Ok(_) => return Ok(notice),
            Err(KeyValueError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
