//! Recording of claimed results.

use futures::future::join_all;
use lumos_benchmarks::ItemScore;
use lumos_queue::Lease;
use lumos_tasks::Ending;

use super::unit_tracker::UnitIndex;
use crate::checkpoint::{CheckpointError, Record, Recorded, RunStore, Settlement};
use crate::events::Event;

/// Data of a result that is kept while its record is written.
#[derive(Debug)]
pub(super) struct PendingResult {
    /// The unit, unless it was settled before this session.
    pub(super) unit_index: Option<UnitIndex>,
    pub(super) attempt: u32,
    pub(super) settlement: Option<Settlement>,
    /// The score under the first scoring.
    pub(super) score: Option<ItemScore>,
    pub(super) worker: String,
    /// The event, if the result has an effect. What it says about other units is filled in when it is emitted.
    pub(super) event: Event,
}

impl PendingResult {
    pub(super) fn of(
        record: &Record,
        unit_index: Option<UnitIndex>,
        scored: Option<(ItemScore, bool)>,
    ) -> Self {
        let (score, correct) = scored.unzip();
        let Record { item, attempt, outcome, telemetry, .. } = record;
        let (item, attempt) = (*item, *attempt);
        let (unit, configuration) = (record.unit.clone(), record.configuration as usize);
        let event = match &outcome.ending {
            Ending::Faulted(fault) => {
                let fault = fault.clone();
                Event::Faulted { unit, configuration, item, attempt, fault, will_retry: false }
            }
            ending => {
                let (prompt_tokens, completion_tokens) = outcome.tokens();
                Event::Settled {
                    unit,
                    configuration,
                    item,
                    attempt,
                    status: ending.status(),
                    correct,
                    prompt_tokens,
                    completion_tokens,
                    seconds: telemetry.seconds,
                    drafts: telemetry.drafts,
                    cost: telemetry.cost,
                    has_reply: outcome.has_reply(),
                    at_hand: 0,
                }
            }
        };
        let settlement = Settlement::of(outcome);
        Self { unit_index, attempt, settlement, score, worker: telemetry.worker.clone(), event }
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
