//! Validates and records results, and applies them to the board.

use lumos_queue::Lease;
use lumos_tasks::Finished;

use super::board::{Admission, Consequence};
use super::session::Session;
use super::take_in::{Claimed, Note};
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
    fn entry(&mut self, finished: Finished, message: &str) -> Option<(Record, Note)> {
        let Finished { unit, attempt, mut outcome, telemetry, run } = finished;
        let key = UnitKey::of(&unit);
        if let Some(link) = &self.link {
            link.gauge.hear();
            if run.as_ref() != Some(&link.run) {
                tracing::warn!(message, "dropped a result of another run");
                return None;
            }
        }
        let (seat, configuration, item) = match self.board.admit(&key, attempt) {
            Admission::Known { seat, configuration, item } => (Some(seat), configuration, item),
            // Recording it will detect and count the duplicate.
            Admission::Unknown if self.is_settled(&key) => (None, 0, 0),
            Admission::Unknown => {
                tracing::warn!(%unit, "dropped a result: its unit is not part of this run");
                return None;
            }
            Admission::NeverSent { attempt } => {
                tracing::warn!(%unit, attempt, "dropped a result: its attempt was never published");
                return None;
            }
        };
        if let Some(link) = self.link.as_ref().filter(|_| outcome.is_fault()) {
            (link.annotate)(&format!("{unit}-{attempt}"), &mut outcome);
        }
        let correct = match seat {
            Some(seat) if !outcome.is_fault() => self.bodies.correct(&self.board, seat, &outcome),
            _ => None,
        };
        let record = Record { unit, configuration, item, attempt, outcome, telemetry };
        let note = Note::of(&record, seat, correct);
        Some((record, note))
    }

    fn is_settled(&self, unit: &UnitKey) -> bool {
        matches!(self.checkpoint.with_index(|index| index.status(unit)), UnitStatus::Settled(_))
    }

    /// Applies a recorded result to the board and emits the event.
    pub(super) async fn conclude(&mut self, note: Note, recorded: Recorded) {
        let Note { seat, unit, attempt, settlement, fault, correct, tokens, seconds, cost, worker } = note;
        let place = seat.and_then(|seat| Some((seat, self.board.place(seat)?)));
        let Some((seat, (configuration, item))) = place else {
            return self.say(Event::Duplicate { unit }).await;
        };
        let consequence = self.board.settle(seat, attempt, recorded, settlement);
        let configuration = configuration as usize;
        let event = match (consequence, fault) {
            (Consequence::Settled(settlement), _) => Event::Settled {
                unit,
                configuration,
                item,
                attempt,
                status: settlement.name(),
                correct,
                prompt_tokens: tokens.0,
                completion_tokens: tokens.1,
                seconds,
                cost,
            },
            (Consequence::Faulted { will_retry }, Some(fault)) => {
                self.voice.with(|sheet| {
                    sheet.fault(&unit, &worker, attempt, &fault);
                    sheet.set_faulted(self.board.tallies());
                });
                if !will_retry {
                    self.bodies.forget(seat);
                }
                Event::Faulted { unit, configuration, item, attempt, fault, will_retry }
            }
            (Consequence::Late, _) => return,
            (Consequence::Duplicate | Consequence::Faulted { .. }, _) => Event::Duplicate { unit },
        };
        self.say(event).await;
    }
}
