//! Validates and records results, and applies them to the unit tracker.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use lumos_benchmarks::ItemScore;
use lumos_queue::Lease;
use lumos_tasks::{Finished, UnitId};

use super::ingest::{Claimed, PendingResult};
use super::session::Session;
use super::unit_tracker::{Acceptance, Transition};
use crate::checkpoint::{Record, Recorded, UnitStatus};
use crate::events::Event;
use crate::unit_key::UnitKey;

/// Interval between warnings about results that are dropped for the same reason.
const QUIET: Duration = Duration::from_secs(10);
/// Number of characters of a unit id in a warning: the length of a valid one. The worker chooses it.
const LONGEST_UNIT: usize = 64;

/// Warns about dropped results at most once per reason in ten seconds, and counts the others: a worker can send any
/// number of them.
#[derive(Debug, Default)]
pub(super) struct DropWarnings {
    /// The last warning of each reason, and the number of results dropped since.
    logged: HashMap<&'static str, (Instant, u64)>,
}

impl DropWarnings {
    /// Counts a dropped result. If a warning is due, returns the number of results dropped since the last one.
    fn count(&mut self, reason: &'static str, now: Instant) -> Option<u64> {
        if let Some((logged, unsaid)) = self.logged.get_mut(reason)
            && now.saturating_duration_since(*logged) < QUIET
        {
            *unsaid += 1;
            return None;
        }
        Some(self.logged.insert(reason, (now, 0)).map_or(0, |(_, unsaid)| unsaid))
    }

    fn warn(&mut self, reason: &'static str, unit: &UnitId, attempt: u32) {
        if let Some(unsaid) = self.count(reason, Instant::now()) {
            let unit = shortened(unit);
            tracing::warn!(unit, attempt, unsaid, "dropped a result: {reason}");
        }
    }
}

fn shortened(unit: &UnitId) -> String {
    unit.to_string().chars().take(LONGEST_UNIT).collect()
}

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
        for finished in bodies.into_iter().flatten() {
            if let Some((record, note)) = self.entry(finished) {
                records.push(record);
                notes.push(note);
            }
        }
        Claimed { leases, records, notes }
    }

    /// Returns the record of a result and the data kept for later, or `None` if it must not be recorded.
    fn entry(&mut self, finished: Finished) -> Option<(Record, PendingResult)> {
        let Finished { unit, attempt, mut outcome, telemetry, run } = finished;
        let key = UnitKey::of(&unit);
        if let Some(link) = &self.link {
            link.gauges.receive();
            if run.as_ref() != Some(&link.run) {
                self.dropped.warn("it belongs to another run", &unit, attempt);
                return None;
            }
        }
        let (unit_index, configuration, item) = match self.tracker.admit(&key, attempt) {
            Acceptance::Known { unit_index, configuration, item } => (Some(unit_index), configuration, item),
            // Recording it will detect and count the duplicate.
            Acceptance::Unknown if self.is_settled(&key) => (None, 0, 0),
            Acceptance::Unknown => {
                self.dropped.warn("its unit is not part of this run", &unit, attempt);
                return None;
            }
            Acceptance::NeverSent => {
                self.dropped.warn("its attempt was never published", &unit, attempt);
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

#[cfg(test)]
mod tests {
    use lumos_tasks::ContentHash;

    use super::*;

    #[test]
    fn a_flood_of_dropped_results_is_one_short_warning_per_reason_in_ten_seconds() {
        let mut dropped = DropWarnings::default();
        let now = Instant::now();
        assert_eq!(dropped.count("another run", now), Some(0));
        for _ in 0..1000 {
            assert_eq!(dropped.count("another run", now + QUIET / 2), None);
        }
        assert_eq!(dropped.count("another attempt", now + QUIET / 2), Some(0));
        assert_eq!(dropped.count("another run", now + QUIET), Some(1000));
        assert_eq!(dropped.count("another run", now + QUIET), None);
        let valid = UnitId::new(ContentHash::of_bytes(b"unit"));
        assert_eq!(shortened(&valid), valid.to_string());
        let long = UnitId::new(ContentHash::from_hex("\u{e9}".repeat(1000)));
        assert_eq!(shortened(&long), "\u{e9}".repeat(LONGEST_UNIT));
    }
}
