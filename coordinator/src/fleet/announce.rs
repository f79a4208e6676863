//! Publishes a run on the server: its notice and its shared data, which workers need before they can take its
//! units, and its status.

use std::collections::{BTreeSet, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use lumos_queue::nats::{Blobs, KeyValue, KeyValueError};
use lumos_tasks::fleet::{
    ConfigurationStatus, RunNotice, RunState, RunStatus, ShardId, SharedInputs, protocol_of,
};
use lumos_tasks::{ContentHash, RunToken};

use super::Around;
use super::error::CoordinatorError;
use super::retrying_client::RetryingClient;
use crate::manifest::Manifest;

/// A run that is announced on the server.
#[derive(Debug)]
pub(super) struct Announced {
    runs: KeyValue,
    blobs: Blobs,
    notice: RunNotice,
    shared: Vec<u8>,
    revision: AtomicU64,
}

/// Returns the run's shards, in the order of its configurations.
pub(super) fn shards(manifest: &Manifest, priority: u8) -> Vec<ShardId> {
    manifest.configurations.iter().map(|planned| ShardId::of(&planned.configuration, priority)).collect()
}

/// Adds the shards with units that an earlier session of the run queued at another priority. `present` are the shards
/// that contain units of the run.
fn with_earlier(shards: Vec<ShardId>, present: &HashSet<String>) -> BTreeSet<ShardId> {
    let mut all = BTreeSet::from_iter(shards);
    let every = all.iter().flat_map(|shard| {
        let needs = &shard.needs;
        (0..=ShardId::LAST_PRIORITY).map(move |priority| ShardId { needs: needs.clone(), priority })
    });
    let earlier: Vec<ShardId> = every.filter(|shard| present.contains(&shard.to_string())).collect();
    all.extend(earlier);
    all
}

impl Announced {
    /// Stores the data that units share, then publishes the notice that the run is active.
    pub(super) async fn announce(
        manifest: &Manifest,
        around: &Around,
        client: &RetryingClient,
    ) -> Result<Self, CoordinatorError> {
        let configurations: Vec<_> =
            manifest.configurations.iter().map(|planned| Arc::clone(&planned.configuration)).collect();
        let protocol = protocol_of(configurations.iter().map(AsRef::as_ref));
        let bytes = serde_json::to_vec(&SharedInputs { configurations })?;
        let blobs = client.call(|| around.server.shared()).await?;
        let shared = client.call(|| blobs.put(&bytes)).await?;
        let runs = client.call(|| around.server.runs()).await?;
        let present = client.call(|| around.server.shards_present(around.run.as_str())).await?;
        let priority = around.settings.priority;
        let shards = with_earlier(shards(manifest, priority), &present);
        let priorities: BTreeSet<u8> = shards.iter().map(|shard| shard.priority).collect();
        for kept in priorities.into_iter().filter(|kept| *kept != priority) {
            tracing::warn!(
                "units of an earlier session are still queued with priority {kept} and keep it; further units have \
                 priority {priority}"
            );
        }
        let notice = RunNotice {
            protocol,
            run: around.run.clone(),
            name: manifest.spec.name.clone(),
            state: RunState::Active,
            shared: ContentHash::from_hex(shared),
            shards: shards.into_iter().collect(),
            time_limit: manifest.spec.limits.time_limit,
            written_ms: Timestamp::now().as_millisecond(),
        };
        let written = serde_json::to_vec(&notice)?;
        let revision = client.call(|| runs.put(around.run.as_str(), &written)).await?;
        if let Err(error) = around.server.tell_older(around.run.as_str(), &written).await {
            tracing::debug!(%error, "failed to announce the run to workers of the previous protocol version");
        }
        Ok(Self { runs, blobs, notice, shared: bytes, revision: AtomicU64::new(revision) })
    }

    /// Names of the run's shards.
    pub(super) fn shard_names(&self) -> Vec<String> {
        self.notice.shards.iter().map(ToString::to_string).collect()
    }

    /// The revision of the notice that this session wrote. Older revisions belong to earlier sessions.
    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Recreates the notice and the shared data if they were deleted, and returns what was recreated. The
    /// notice of a draining run lists no shards: see [`close_shards`].
    pub(super) async fn restore(&self, draining: bool) -> Result<Vec<&'static str>, CoordinatorError> {
        let mut restored = Vec::new();
        if !self.blobs.holds(self.notice.shared.as_str()).await? {
            self.blobs.put(&self.shared).await?;
            restored.push("shared data of the units");
        }
        if self.runs.get(self.notice.run.as_str()).await?.is_none() {
            let written_ms = Timestamp::now().as_millisecond();
            let shards = if draining { Vec::new() } else { self.notice.shards.clone() };
            let notice = RunNotice { shards, written_ms, ..self.notice.clone() };
            let bytes = serde_json::to_vec(&notice)?;
            // If another process has created the notice meanwhile (to cancel the run), its version is kept.
            match self.runs.create(self.notice.run.as_str(), &bytes).await {
                Ok(revision) => self.revision.store(revision, Ordering::Release),
                Err(KeyValueError::Conflict(_)) => return Ok(restored),
                Err(error) => return Err(error.into()),
            }
            restored.push("the run's notice");
        }
        Ok(restored)
    }

    /// Removes the run from the server, except for its notice and its status. Cleanup that does not finish in
    /// time is left to the run's next session.
    pub(super) async fn end(&self, around: &Around, state: RunState, within: Duration) {
        let farewell = async {
            if let Err(error) = set_state(&self.runs, &around.run, state).await {
                tracing::debug!(%error, "failed to update the run's notice");
            }
            if let Err(error) = around.server.remove_run(around.run.as_str()).await {
                tracing::debug!(%error, "failed to remove the run from the server");
            }
        };
        if tokio::time::timeout(within, farewell).await.is_err() {
            tracing::debug!("lost connection to the server; the run stays on it");
        }
    }
}

/// Changes the state in a run's notice. A cancelled run stays cancelled until it is announced again.
pub(super) async fn set_state(
    runs: &KeyValue,
    run: &RunToken,
    state: RunState,
) -> Result<RunNotice, CoordinatorError> {
    change(runs, run, |notice| {
        if !(notice.state == RunState::Cancelled && state == RunState::Ended) {
            notice.state = state;
        }
    })
    .await
}

/// Removes all shards from a run's notice. The run's state is unchanged, so workers take no more of its units
/// and finish those that they hold.
pub(super) async fn close_shards(runs: &KeyValue, run: &RunToken) -> Result<RunNotice, CoordinatorError> {
    change(runs, run, |notice| notice.shards.clear()).await
}

/// Updates a run's notice with compare-and-swap and returns the new notice.
async fn change(
    runs: &KeyValue,
    run: &RunToken,
    change: impl Fn(&mut RunNotice),
) -> Result<RunNotice, CoordinatorError> {
    loop {
        let Some((bytes, revision)) = runs.get(run.as_str()).await? else {
            return Err(CoordinatorError::NoRun(run.clone()));
        };
        let found: RunNotice = serde_json::from_slice(&bytes).map_err(|error| {
            CoordinatorError::Malformed(format!("the notice of run {run} cannot be read: {error}"))
        })?;
        let mut notice = found.clone();
        change(&mut notice);
        if notice == found {
            return Ok(found);
        }
        notice.written_ms = Timestamp::now().as_millisecond();
        let bytes = serde_json::to_vec(&notice)?;
        match runs.update(run.as_str(), &bytes, revision).await {
            Ok(_) => return Ok(notice),
            Err(KeyValueError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Time limit for writing the status.
const STATUS_PATIENCE: Duration = Duration::from_secs(5);

/// Writes the status periodically. Must be dropped before the final status is written.
pub(super) async fn writing_status(around: &Around) -> Infallible {
    loop {
        // The next status replaces it.
        if let Err(error) = write_status(around, RunState::Active).await {
            tracing::debug!(%error, "failed to write the status");
        }
        tokio::time::sleep(around.settings.status_every).await;
    }
}

/// Writes the status.
///
/// # Errors
/// If the server cannot be reached, does not respond in time or rejects the status. The error is a message.
pub(super) async fn write_status(around: &Around, state: RunState) -> Result<(), String> {
    let Some(status) = around.sink.with(|stats| stats.status(&around.name, state)) else { return Ok(()) };
    match tokio::time::timeout(STATUS_PATIENCE, put_status(around, status)).await {
        Ok(written) => written.map_err(|error| error.to_string()),
        Err(_) => Err("timed out waiting for the NATS server".to_owned()),
    }
}

/// Stores a status. One that does not fit into a message is stored as [`totals`].
async fn put_status(around: &Around, status: RunStatus) -> Result<(), CoordinatorError> {
    let bucket = around.server.status().await?;
    match bucket.put(around.run.as_str(), &serde_json::to_vec(&status)?).await {
        Err(KeyValueError::TooLarge { .. }) => {
            bucket.put(around.run.as_str(), &serde_json::to_vec(&totals(status))?).await?;
        }
        written => {
            written?;
        }
    }
    Ok(())
}

/// Replaces the rows of a status by one row with their sums, and omits the recent faults. Its size no longer depends
/// on the run.
fn totals(status: RunStatus) -> RunStatus {
    let rows = &status.configurations;
    let scored = rows.iter().filter_map(|row| row.correct);
    let total = ConfigurationStatus {
        label: format!("all {} configurations", rows.len()),
        planned: rows.iter().map(|row| row.planned).sum(),
        answered: rows.iter().map(|row| row.answered).sum(),
        gave_up: rows.iter().map(|row| row.gave_up).sum(),
        faulted: rows.iter().map(|row| row.faulted).sum(),
        correct: scored.reduce(|(correct, scored), (more, others)| (correct + more, scored + others)),
    };
    RunStatus { configurations: vec![total], recent_faults: Vec::new(), ..status }
}

#[cfg(test)]
mod tests {
    use lumos_tasks::FaultKind;
    use lumos_tasks::fleet::PROTOCOL;

    use super::*;
    use crate::samples::{configuration, item, manifest_of};

    #[test]
    fn shards_with_units_of_an_earlier_priority_stay_announced() {
        let manifest = manifest_of(&[configuration(0), configuration(1)], &[item(0)]);
        let at = |priority| shards(&manifest, priority)[0].clone();
        let other = ShardId { needs: RunToken::of(&ContentHash::of_bytes(b"other")), priority: 5 };
        let announced =
            |present: &HashSet<String>| Vec::from_iter(with_earlier(shards(&manifest, 2), present));
        assert_eq!(announced(&HashSet::new()), [at(2)]);
        let present = HashSet::from([at(5), at(0), other].map(|shard| shard.to_string()));
        assert_eq!(announced(&present), [at(0), at(2), at(5)]);
    }

    #[test]
    fn a_status_in_totals_has_the_same_sums_and_a_fixed_size() {
        let row = |number: u64| ConfigurationStatus {
            label: "l".repeat(1000),
            planned: 10,
            answered: number % 8,
            gave_up: 1,
            faulted: 1,
            correct: (number > 0).then_some((number % 3, number % 8)),
        };
        let status = RunStatus {
            protocol: PROTOCOL,
            run: RunToken::of(&ContentHash::of_bytes(b"run")),
            name: "run".to_owned(),
            state: RunState::Ended,
            host: "host".to_owned(),
            configurations: (0..2000).map(row).collect(),
            in_flight: 1,
            duplicates: 2,
            recovered: 3,
            units_per_second: 4.0,
            tokens_per_second: 5.0,
            recent_faults: Vec::new(),
            faults: [(FaultKind::Model, 7)].into(),
            started_ms: 8,
            written_ms: 9,
        };
        let short = totals(status.clone());
        assert!(serde_json::to_vec(&status).unwrap().len() > 1 << 20);
        assert!(serde_json::to_vec(&short).unwrap().len() < 1000);
        assert_eq!((short.planned(), short.faulted()), (20_000, 2_000));
        assert_eq!(short.settled(), status.settled());
        assert_eq!(short.configurations[0].label, "all 2000 configurations");
        let correct = status.configurations.iter().filter_map(|row| row.correct);
        let (correct, scored): (Vec<u64>, Vec<u64>) = correct.unzip();
        let sums = (correct.iter().sum::<u64>(), scored.iter().sum::<u64>());
        assert_eq!(short.configurations[0].correct, Some(sums));
        assert_eq!((short.state, short.in_flight, &short.faults), (status.state, 1, &status.faults));
        let none = totals(RunStatus { configurations: Vec::new(), ..totals(status) });
        assert_eq!(none.configurations[0].correct, None);
    }
}
