//! Where every open unit is, and what follows from what happens to it. Pure: no clock, no queue, no disk.
//!
//! A unit waits, is being sent, is published, and ends settled or faulted. A fault with retries left makes it wait
//! again as its next attempt. A published unit whose message has vanished is published again as the same attempt.

use std::collections::{HashSet, VecDeque};

use crate::checkpoint::{Recorded, Settlement, UnitStatus};
use crate::unit_key::UnitKey;

/// A unit on the board, by its place in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seat(u32);

/// One attempt at a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) seat: Seat,
    pub(crate) unit: UnitKey,
    pub(crate) attempt: u32,
}

/// Attempts that are somewhere: in a queue, with a worker, or among the results.
pub(crate) type Present = HashSet<(UnitKey, u32)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// Handed to the queue, which has not said yet that it has it.
    Sending,
    /// In the queue or with a worker, since this round of reconciliation.
    Published {
        round: u32,
    },
    Settled,
    /// Its attempts are used up.
    Faulted,
}

#[derive(Debug, Clone, Copy)]
struct Unit {
    key: UnitKey,
    item: u64,
    configuration: u32,
    attempt: u32,
    retries_left: u32,
    state: State,
}

/// How the units of one configuration stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) planned: u64,
    pub(crate) answered: u64,
    pub(crate) gave_up: u64,
    pub(crate) faulted: u64,
}

impl Tally {
    fn settled(&self) -> u64 {
        self.answered + self.gave_up
    }

    fn count(&mut self, settlement: Settlement) {
        match settlement {
            Settlement::Answered => self.answered += 1,
            Settlement::GaveUp => self.gave_up += 1,
        }
    }
}

/// What a recorded result led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// The unit has its outcome.
    Settled(Settlement),
    /// Its attempt failed.
    Faulted { will_retry: bool },
    /// A fault of an attempt that is past already; nothing follows.
    Late,
    /// The unit was settled, or this fault known, before.
    Duplicate,
}

/// Whether a result is one that can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is of this unit.
    Known { seat: Seat, configuration: u32, item: u64 },
    /// No unit of this session; one that was settled before, or none of this run.
    Unknown,
    /// Of a unit of this session, but of an attempt that was never given out.
    NeverSent { attempt: u32 },
}

/// The open units of a session.
#[derive(Debug)]
pub(crate) struct Board {
    units: Vec<Unit>,
    /// Places in `units`, sorted by key.
    by_key: Vec<u32>,
    /// The first unit that was never taken for publishing.
    fresh: usize,
    /// Units that are to be published again. May hold units that no longer wait; those are passed over.
    again: VecDeque<Seat>,
    retries: u32,
    in_flight: usize,
    open: usize,
    tallies: Vec<Tally>,
}

impl Board {
    /// A board without units; faulted ones get this many attempts beyond their first.
    pub(crate) fn new(configurations: usize, retries: u32) -> Self {
        Self {
            units: Vec::new(),
            by_key: Vec::new(),
            fresh: 0,
            again: VecDeque::new(),
            retries,
            in_flight: 0,
            open: 0,
            tallies: vec![Tally::default(); configurations],
        }
    }

    /// Makes room for units, so that a large plan is not copied while it grows.
    pub(crate) fn reserve(&mut self, units: usize) {
        self.units.reserve_exact(units);
    }

    /// Adds a planned unit as it is recorded. Settled ones are counted and not kept.
    pub(crate) fn add(&mut self, configuration: u32, item: u64, key: UnitKey, status: UnitStatus) {
        let retries_left = self.retries;
        let attempt = match status {
            UnitStatus::Settled(_) => 0,
            UnitStatus::Outstanding => 1,
            UnitStatus::Faulted { last, .. } => last + 1,
        };
        if let Some(tally) = self.tallies.get_mut(configuration as usize) {
            tally.planned += 1;
            if let UnitStatus::Settled(settlement) = status {
                tally.count(settlement);
                return;
            }
        }
        self.open += 1;
        self.units.push(Unit { key, item, configuration, attempt, retries_left, state: State::Waiting });
    }

    /// Ends the adding.
    pub(crate) fn complete(&mut self) {
        self.units.shrink_to_fit();
        self.by_key = (0..).zip(&self.units).map(|(seat, _)| seat).collect();
        let units = &self.units;
        self.by_key.sort_unstable_by_key(|&seat| units.get(seat as usize).map(|unit| unit.key));
    }

    pub(crate) fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    pub(crate) fn planned(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.planned).sum()
    }

    pub(crate) fn settled(&self) -> u64 {
        self.tallies.iter().map(Tally::settled).sum()
    }

    pub(crate) fn faulted(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.faulted).sum()
    }

    /// Whether every unit is settled or faulted.
    pub(crate) fn is_done(&self) -> bool {
        self.open == 0
    }

    /// Units that were given out and are neither settled nor faulted.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Configuration and item of a unit.
    pub(crate) fn place(&self, seat: Seat) -> Option<(u32, u64)> {
        self.units.get(seat.0 as usize).map(|unit| (unit.configuration, unit.item))
    }

    /// The next units to give out, so that no more than `window` are given out together; at most `together`.
    pub(crate) fn next(&mut self, window: usize, together: usize) -> Vec<Ticket> {
        let room = window.saturating_sub(self.in_flight).min(together);
        let mut tickets = Vec::with_capacity(room);
        while tickets.len() < room {
            let Some(seat) = self.next_seat() else { break };
            let Some(unit) = self.units.get_mut(seat.0 as usize) else { continue };
            if unit.state == State::Waiting {
                unit.state = State::Sending;
                self.in_flight += 1;
                tickets.push(Ticket { seat, unit: unit.key, attempt: unit.attempt });
            }
        }
        tickets
    }

    /// Retries go first: they hold a run up when they come last.
    fn next_seat(&mut self) -> Option<Seat> {
        if let Some(seat) = self.again.pop_front() {
            return Some(seat);
        }
        let seat = u32::try_from(self.fresh).ok().filter(|_| self.fresh < self.units.len())?;
        self.fresh += 1;
        Some(Seat(seat))
    }

    /// Takes over what an earlier session gave out and is still somewhere: it is not given out again.
    pub(crate) fn adopt(&mut self, present: &Present) {
        for unit in &mut self.units {
            if unit.state == State::Waiting && present.contains(&(unit.key, unit.attempt)) {
                unit.state = State::Published { round: 0 };
                self.in_flight += 1;
            }
        }
    }

    /// Whether a ticket is still to be sent: its unit may have been settled while sending it failed.
    pub(crate) fn is_sending(&self, ticket: &Ticket) -> bool {
        self.units
            .get(ticket.seat.0 as usize)
            .is_some_and(|unit| unit.state == State::Sending && unit.attempt == ticket.attempt)
    }

    /// The queue has these messages.
    pub(crate) fn sent(&mut self, tickets: &[Ticket], round: u32) {
        for ticket in tickets {
            if let Some(unit) = self.units.get_mut(ticket.seat.0 as usize)
                && unit.state == State::Sending
                && unit.attempt == ticket.attempt
            {
                unit.state = State::Published { round };
            }
        }
    }

    /// Whether a result can be one of this session.
    pub(crate) fn admit(&self, key: &UnitKey, attempt: u32) -> Admission {
        let found = self
            .by_key
            .binary_search_by_key(&Some(*key), |&seat| self.units.get(seat as usize).map(|unit| unit.key));
        let seat = found.ok().and_then(|found| self.by_key.get(found).copied());
        let Some((seat, unit)) = seat.and_then(|seat| Some((Seat(seat), self.units.get(seat as usize)?)))
        else {
            return Admission::Unknown;
        };
        if attempt == 0 || attempt > unit.attempt {
            return Admission::NeverSent { attempt };
        }
        Admission::Known { seat, configuration: unit.configuration, item: unit.item }
    }

    /// Draws the consequences of a recorded result.
    pub(crate) fn settle(
        &mut self,
        seat: Seat,
        attempt: u32,
        recorded: Recorded,
        settlement: Option<Settlement>,
    ) -> Consequence {
        let Some(unit) = self.units.get_mut(seat.0 as usize) else { return Consequence::Duplicate };
        if recorded == Recorded::Duplicate || unit.state == State::Settled {
            return Consequence::Duplicate;
        }
        let was_open = unit.state != State::Faulted;
        let was_out = matches!(unit.state, State::Sending | State::Published { .. });
        let tally = self.tallies.get_mut(unit.configuration as usize);
        match settlement {
            Some(settlement) => {
                unit.state = State::Settled;
                if let Some(tally) = tally {
                    tally.count(settlement);
                    // A late answer mends a unit that was given up.
                    tally.faulted -= u64::from(!was_open);
                }
                self.open -= usize::from(was_open);
                self.in_flight -= usize::from(was_out);
                Consequence::Settled(settlement)
            }
            None if !was_open || attempt < unit.attempt => Consequence::Late,
            None => {
                let will_retry = unit.retries_left > 0;
                if will_retry {
                    unit.retries_left -= 1;
                    unit.attempt = unit.attempt.saturating_add(1);
                    unit.state = State::Waiting;
                    self.again.push_back(seat);
                } else {
                    unit.state = State::Faulted;
                    self.open -= 1;
                    if let Some(tally) = tally {
                        tally.faulted += 1;
                    }
                }
                self.in_flight -= usize::from(was_out);
                Consequence::Faulted { will_retry }
            }
        }
    }

    /// Takes back published units that are nowhere: neither present nor recorded. Only those count that were published
    /// before `round`, when it was asked what is present. They are given out again; how many.
    pub(crate) fn missing(
        &mut self,
        present: &Present,
        round: u32,
        recorded: impl Fn(&UnitKey, u32) -> bool,
    ) -> u64 {
        let mut missing = 0;
        for (seat, unit) in (0..).zip(&mut self.units) {
            let State::Published { round: since } = unit.state else { continue };
            if since < round
                && !present.contains(&(unit.key, unit.attempt))
                && !recorded(&unit.key, unit.attempt)
            {
                unit.state = State::Waiting;
                self.again.push_back(Seat(seat));
                self.in_flight -= 1;
                missing += 1;
            }
        }
        missing
    }
}
