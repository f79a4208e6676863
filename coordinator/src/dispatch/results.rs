//! What becomes of results: those that can be are recorded, and the board says what follows.

use lumos_queue::Lease;

use super::board::{Admission, Consequence};
use super::session::Session;
use super::take_in::{Claimed, Note, ResultBody};
use crate::checkpoint::{Record, Recorded, UnitStatus};
use crate::events::Event;
use crate::unit_key::UnitKey;

impl Session<'_> {
    /// Looks at results and makes records of those that can be.
    pub(super) fn admit<R: ResultBody>(&mut self, leases: Vec<Lease<R>>) -> Claimed<R> {
        let mut records = Vec::with_capacity(leases.len());
        let mut notes = Vec::with_capacity(leases.len());
        for lease in &leases {
            let body = lease.body();
            let key = UnitKey::of(body.unit());
            if let Some(link) = &self.link {
                link.gauge.hear();
                if body.run() != Some(&link.run) {
                    tracing::warn!(message = lease.id(), "a result of another run was dropped");
                    continue;
                }
            }
            let (seat, configuration, item) = match self.board.admit(&key, body.attempt()) {
                Admission::Known { seat, configuration, item } => (Some(seat), configuration, item),
                // The record will find it to be a duplicate and count it.
                Admission::Unknown if self.is_settled(&key) => (None, 0, 0),
                Admission::Unknown => {
                    tracing::warn!(unit = %body.unit(), "a result of a unit that is not of this run was dropped");
                    continue;
                }
                Admission::NeverSent { attempt } => {
                    tracing::warn!(unit = %body.unit(), attempt, "a result of an attempt that was never given out was dropped");
                    continue;
                }
            };
            let mut outcome = body.outcome().clone();
            if let Some(link) = self.link.as_ref().filter(|_| outcome.is_fault()) {
                (link.annotate)(&format!("{}-{}", body.unit(), body.attempt()), &mut outcome);
            }
            let correct = match seat {
                Some(seat) if !outcome.is_fault() => self.bodies.correct(&self.board, seat, &outcome),
                _ => None,
            };
            let record = Record {
                unit: body.unit().clone(),
                configuration,
                item,
                attempt: body.attempt(),
                outcome,
                telemetry: body.telemetry().clone(),
            };
            notes.push(Note::of(&record, seat, correct));
            records.push(record);
        }
        Claimed { leases, records, notes }
    }

    fn is_settled(&self, unit: &UnitKey) -> bool {
        matches!(self.checkpoint.with_index(|index| index.status(unit)), UnitStatus::Settled(_))
    }

    /// Draws the consequences of a recorded result and says what happened.
    pub(super) async fn conclude(&mut self, note: Note, recorded: Recorded) {
        let Note { seat, unit, attempt, settlement, fault, correct, tokens, seconds, worker } = note;
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
