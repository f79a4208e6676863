//! Validates and records results, and applies them to the unit tracker.

use lumos_benchmarks::ItemScore;
use lumos_queue::Lease;
use lumos_tasks::Finished;

use super::ingest::{Claimed, PendingResult};
use super::session::Session;
use super::unit_tracker::{Acceptance, Transition};
use crate::checkpoint::{Record, Recorded, UnitStatus};
use crate::events::Event;
use crate::unit_key::UnitKey;

impl Session<'_> {
    /// Validates results and creates records of the valid ones.
    pub(super) fn admit<R: Into<Vec<Finished>>>(&mut self, claimed: Vec<Lease<R>>) -> Claimed {
        let (bodies, leases): (Vec<Vec<Finished>>, Vec<Lease<()>>) = claimed
            .into_iter()
            .map(|lease| {
                let (body, lease) = lease.split();
                (body.into(), lease)
            })
            .unzip();
        // Records are large; avoid copying the vector while it grows.
        let results = bodies.iter().map(Vec::len).sum();
        let mut records = Vec::with_capacity(results);
        let mut notes = Vec::with_capacity(results);
        for (lease, body) in leases.iter().zip(bodies) {
            for finished in body {
                if let Some((record, note)) = self.entry(finished, lease.id()) {
                    records.push(record);
                    notes.push(note);
                }
            }
        }
        Claimed { leases, records, notes }
    }

    /// Returns the record of a result and the data kept for later, or `None` if it must not be recorded.
    fn entry(&mut self, finished: Finished, message: &str) -> Option<(Record, PendingResult)> {
        let Finished { unit, attempt, mut outcome, telemetry, run } = finished;
        let key = UnitKey::of(&unit);
        if let Some(link) = &self.link {
            link.gauges.receive();
            if run.as_ref() != Some(&link.run) {
                tracing::warn!(message, "dropped a result of another run");
                return None;
            }
        }
        let (unit_index, configuration, item) = match self.tracker.admit(&key, attempt) {
            Acceptance::Known { unit_index, configuration, item } => (Some(unit_index), configuration, item),
            // Recording it will detect and count the duplicate.
            Acceptance::Unknown if self.is_settled(&key) => (None, 0, 0),
            Acceptance::Unknown => {
                tracing::warn!(%unit, "dropped a result: its unit is not part of this run");
                return None;
            }
            Acceptance::NeverSent => {
                tracing::warn!(%unit, attempt, "dropped a result: its attempt was never published");
                return None;
            }
        };
        if let Some(link) = self.link.as_ref().filter(|_| outcome.is_fault()) {
            (link.annotate)(&format!("{unit}-{attempt}"), &mut outcome);
        }
        let scored = match unit_index {
            Some(unit_index) if !outcome.is_fault() => {
                self.builder.score(&self.tracker, unit_index, &outcome)
            }
            _ => None,
        };
        let record = Record { unit, configuration, item, attempt, outcome, telemetry };
        let note = PendingResult::of(&record, unit_index, scored);
        Some((record, note))
    }

    fn is_settled(&self, unit: &UnitKey) -> bool {
        matches!(self.store.unit_status(unit), UnitStatus::Settled(_))
    }

    /// Adds a score for the stop rule of its configuration, if the item is one of the first.
    fn watch(&mut self, configuration: usize, item: u64, score: Option<&ItemScore>) {
        let Ok(configuration) = u32::try_from(configuration) else { return };
        if self.tracker.end(configuration).is_some_and(|end| item < end)
            && let (Some(watch), Some(score)) = (self.watches.get_mut(&configuration), score)
        {
            watch.add(score);
        }
    }

    /// Applies a recorded result to the unit tracker and emits the event.
    pub(super) async fn conclude(&mut self, note: PendingResult, recorded: Recorded) {
        let PendingResult { unit_index, attempt, settlement, score, worker, mut event } = note;
        let transition = match unit_index {
            Some(unit_index) => self.tracker.settle(unit_index, attempt, recorded, settlement),
            None => Transition::Duplicate,
        };
        match (transition, &mut event) {
            (Transition::Settled(_), Event::Settled { configuration, item, at_hand, .. }) => {
                *at_hand = self.at_hand();
                self.watch(*configuration, *item, score.as_ref());
            }
            (Transition::Late, _) => return,
            (Transition::Faulted { will_retry: retries }, Event::Faulted { unit, fault, will_retry, .. }) => {
                *will_retry = retries;
                self.sink.with(|stats| {
                    stats.fault(unit, &worker, attempt, fault);
                    stats.set_faulted(self.tracker.tallies());
                });
                if let Some(unit_index) = unit_index.filter(|_| !retries) {
                    self.builder.forget(unit_index);
                }
            }
            (_, Event::Settled { unit, .. } | Event::Faulted { unit, .. }) => {
                event = Event::Duplicate { unit: unit.clone() };
            }
            _ => {}
        }
        self.sink.emit(event).await;
    }
}
