//! Recording of claimed results.

use futures::future::join_all;
use lumos_queue::Lease;
use lumos_tasks::{Ending, Fault, NanoDollars, UnitId};

use super::unit_tracker::UnitIndex;
use crate::checkpoint::{CheckpointError, Record, Recorded, RunStore, Settlement};

/// Data of a result that is kept while its record is written.
#[derive(Debug)]
pub(super) struct PendingResult {
    /// The unit, unless it was settled before this session.
    pub(super) unit_index: Option<UnitIndex>,
    pub(super) unit: UnitId,
    pub(super) attempt: u32,
    pub(super) settlement: Option<Settlement>,
    pub(super) fault: Option<Fault>,
    pub(super) correct: Option<bool>,
    pub(super) tokens: (u64, u64),
    pub(super) seconds: f64,
    pub(super) cost: Option<NanoDollars>,
    pub(super) worker: String,
}

impl PendingResult {
    pub(super) fn of(record: &Record, unit_index: Option<UnitIndex>, correct: Option<bool>) -> Self {
        let fault = match &record.outcome.ending {
            Ending::Faulted(fault) => Some(fault.clone()),
            Ending::Answered | Ending::GaveUp(_) => None,
        };
        Self {
            unit_index,
            unit: record.unit.clone(),
            attempt: record.attempt,
            settlement: Settlement::of(&record.outcome),
            fault,
            correct,
            tokens: record.outcome.tokens(),
            seconds: record.telemetry.seconds,
            cost: record.telemetry.cost,
            worker: record.telemetry.worker.clone(),
        }
    }
}

/// Results that were claimed together.
pub(super) struct Claimed {
    pub(super) leases: Vec<Lease<()>>,
    pub(super) records: Vec<Record>,
    /// One per record.
    pub(super) notes: Vec<PendingResult>,
}

impl Claimed {
    /// Records and flushes the results, then acknowledges their messages.
    pub(super) async fn record(
        self,
        store: &dyn RunStore,
    ) -> Result<Vec<(PendingResult, Recorded)>, CheckpointError> {
        let Self { leases, records, notes } = self;
        let recorded = if records.is_empty() { Vec::new() } else { store.record_all(records).await? };
        let acknowledged = join_all(leases.into_iter().map(Lease::acknowledge)).await;
        if let Some(error) = acknowledged.into_iter().find_map(Result::err) {
            tracing::debug!(%error, "a result was acknowledged too late; it is redelivered and dropped");
        }
        Ok(notes.into_iter().zip(recorded).collect())
    }
}
