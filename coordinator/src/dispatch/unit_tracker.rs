//! State machine of a session's open units. Performs no I/O and reads no clock.
//!
//! ```text
//!           next          sent
//! waiting ───────► sending ───────► published ──── outcome ───► settled
//!    ▲                                  │                          ▲
//!    ├──── message lost (same attempt) ─┤                          │ late outcome
//!    └──── fault, retries left ─────────┴──── fault, none left ─► faulted
//! ```
//!
//! Units of a configuration with a stop rule are held back after its first ones: they stay waiting until the rule has
//! decided, and are then published or dropped (stopped).
//!
//! A fault with retries left makes the unit wait again as its next attempt. A published unit whose message is
//! lost is published again as the same attempt. [`UnitTracker`] holds the units, [`Present`] lists the attempts
//! found on the server, and [`Transition`] is the effect of a result. The session's loop executes the
//! decisions.

use std::collections::{BTreeSet, HashSet, VecDeque};

use crate::checkpoint::{Recorded, Settlement, UnitStatus};
use crate::unit_key::UnitKey;

/// Index of a unit, in the order in which units are published first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UnitIndex(u32);

/// One attempt at a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitAttempt {
    pub(crate) unit_index: UnitIndex,
    pub(crate) unit: UnitKey,
    pub(crate) attempt: u32,
}

/// Attempts that exist on the server: queued, held by a worker, or among the results.
pub(crate) type Present = HashSet<(UnitKey, u32)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// Passed to the queue, which has not confirmed it yet.
    Sending,
    /// Queued or held by a worker, as of this round of reconciliation.
    Published {
        round: u32,
    },
    Settled,
    /// No attempts left.
    Faulted,
    /// Its configuration ended before it.
    Stopped,
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

/// Numbers of units of one configuration by state.
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

/// The first units of a configuration, after which a stop rule decides. Later units are held back until then.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    /// Number of first units.
    after: u64,
    /// Number of units added so far.
    added: u64,
    /// Item of the first unit that is held back; `u64::MAX` before it was added.
    end: u64,
    /// Number of first units that are neither settled nor faulted.
    open: u64,
    held: Vec<UnitIndex>,
}

impl Look {
    /// Whether a unit is one of the first.
    fn covers(&self, item: u64) -> bool {
        item < self.end
    }
}

/// Effect of a recorded result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    /// The unit is settled.
    Settled(Settlement),
    /// The attempt ended with a fault.
    Faulted { will_retry: bool },
    /// A fault of an earlier attempt. It has no effect.
    Late,
    /// The unit was already settled, or this fault was already recorded.
    Duplicate,
}

/// Whether a result belongs to this session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// A result of this unit.
    Known { unit_index: UnitIndex, configuration: u32, item: u64 },
    /// Not a unit of this session: it was settled before, or is not part of this run.
    Unknown,
    /// A unit of this session, but an attempt that was never published.
    NeverSent,
}

/// The open units of a session.
#[derive(Debug)]
pub(crate) struct UnitTracker {
    units: Vec<Unit>,
    /// Indices into `units`, sorted by key.
    by_key: Vec<u32>,
    /// Index of the first unit that was never published.
    fresh: usize,
    /// Units to publish again. May contain units that are no longer waiting; those are skipped.
    again: VecDeque<UnitIndex>,
    retries: u32,
    in_flight: usize,
    /// Number of units in flight by rank of their configuration's priority; the highest priority has rank 0.
    in_flight_by_rank: Vec<usize>,
    /// Ranks of the configurations.
    ranks: Vec<usize>,
    open: usize,
    tallies: Vec<Tally>,
    /// By configuration. `None` if it has no stop rule or the rule has decided.
    looks: Vec<Option<Look>>,
    /// Configurations whose rule can decide.
    due: Vec<u32>,
    /// Units that were held back and may be published.
    released: BTreeSet<UnitIndex>,
}

impl UnitTracker {
    /// Creates an empty tracker for configurations with these ranks of priority; the highest priority has rank 0. Units
    /// are added in the order in which they are published. Each unit gets `retries` attempts beyond its first.
    pub(crate) fn new(ranks: Vec<usize>, retries: u32) -> Self {
        Self {
            units: Vec::new(),
            by_key: Vec::new(),
            fresh: 0,
            again: VecDeque::new(),
            retries,
            in_flight: 0,
            in_flight_by_rank: vec![0; ranks.iter().max().map_or(1, |most| most + 1)],
            open: 0,
            tallies: vec![Tally::default(); ranks.len()],
            looks: vec![None; ranks.len()],
            due: Vec::new(),
            released: BTreeSet::new(),
            ranks,
        }
    }

    /// Holds back the units of a configuration after its first ones, until its stop rule has decided. Called before its
    /// units are added. Without effect if any later unit is settled or published: the rule came too late then.
    pub(crate) fn look(&mut self, configuration: u32, after: u64) {
        if let Some(look) = self.looks.get_mut(configuration as usize) {
            *look = Some(Look { after, added: 0, end: u64::MAX, open: 0, held: Vec::new() });
        }
    }

    /// Reserves memory for units, so that a large plan is not copied while it grows.
    pub(crate) fn reserve(&mut self, units: usize) {
        self.units.reserve_exact(units);
    }

    /// Adds a planned unit with its recorded status. Settled units are counted and not stored.
    pub(crate) fn add(&mut self, configuration: u32, item: u64, key: UnitKey, status: UnitStatus) {
        let retries_left = self.retries;
        let attempt = match status {
            UnitStatus::Settled(_) => 0,
            UnitStatus::Outstanding => 1,
            UnitStatus::Faulted { last, .. } => last + 1,
        };
        if let Some(slot) = self.looks.get_mut(configuration as usize)
            && let Some(look) = slot
        {
            look.added += 1;
            let is_open = !matches!(status, UnitStatus::Settled(_));
            if look.added <= look.after {
                look.open += u64::from(is_open);
            } else if is_open {
                look.end = look.end.min(item);
            } else {
                *slot = None;
            }
        }
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

    /// Completes the unit tracker after the last unit was added.
    pub(crate) fn complete(&mut self) {
        self.units.shrink_to_fit();
        self.by_key = (0..).zip(&self.units).map(|(unit_index, _)| unit_index).collect();
        let units = &self.units;
        self.by_key.sort_unstable_by_key(|&unit_index| units.get(unit_index as usize).map(|unit| unit.key));
        for (configuration, slot) in (0..).zip(&mut self.looks) {
            // Without later units there is nothing to stop.
            slot.take_if(|look| look.end == u64::MAX);
            if slot.as_ref().is_some_and(|look| look.open == 0) {
                self.due.push(configuration);
            }
        }
    }

    /// Returns the item at which a configuration ends if its stop rule says so; `None` if it has none or has decided.
    pub(crate) fn end(&self, configuration: u32) -> Option<u64> {
        Some(self.looks.get(configuration as usize)?.as_ref()?.end)
    }

    /// Takes the configurations whose first units have all ended, so that their stop rules can decide.
    pub(crate) fn take_due(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.due)
    }

    /// Continues a configuration whose units were held back.
    pub(crate) fn release(&mut self, configuration: u32) {
        if let Some(look) = self.looks.get_mut(configuration as usize).and_then(Option::take) {
            self.released.extend(look.held);
        }
    }

    /// Ends a configuration: drops the units that were held back. Returns their number.
    pub(crate) fn stop(&mut self, configuration: u32) -> u64 {
        let Some(look) = self.looks.get_mut(configuration as usize).and_then(Option::take) else { return 0 };
        let mut stopped = 0;
        for unit in &mut self.units {
            let is_held = unit.configuration == configuration && !look.covers(unit.item);
            if is_held && unit.state == State::Waiting {
                unit.state = State::Stopped;
                stopped += 1;
            }
        }
        // The number of units fits into memory.
        self.open -= stopped as usize;
        if let Some(tally) = self.tallies.get_mut(configuration as usize) {
            tally.planned -= stopped;
        }
        stopped
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

    /// Number of units that were given out and are neither settled nor faulted.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns configuration and item of a unit.
    pub(crate) fn place(&self, unit_index: UnitIndex) -> Option<(u32, u64)> {
        self.units.get(unit_index.0 as usize).map(|unit| (unit.configuration, unit.item))
    }

    /// Returns the next units to publish: at most `together`, and so few that at most `window` units are in flight.
    ///
    /// Units of a lower priority are published while units of a higher one are in flight only as far as at most
    /// `at_once` units are: workers choose among what is published, so that otherwise they could start with the former.
    pub(crate) fn next(&mut self, window: usize, at_once: usize, together: usize) -> Vec<UnitAttempt> {
        let mut tickets = Vec::with_capacity(window.saturating_sub(self.in_flight).min(together));
        while tickets.len() < together && self.in_flight < window {
            let Some(unit_index) = self.next_unit(at_once) else { break };
            let Some(unit) = self.units.get_mut(unit_index.0 as usize) else { continue };
            if unit.state == State::Waiting {
                unit.state = State::Sending;
                tickets.push(UnitAttempt { unit_index, unit: unit.key, attempt: unit.attempt });
                let configuration = unit.configuration;
                self.departs(configuration);
            }
        }
        tickets
    }

    /// Retries go first: at the end of a run they would delay its completion.
    fn next_unit(&mut self, at_once: usize) -> Option<UnitIndex> {
        if let Some(unit_index) = self.again.pop_front() {
            return Some(unit_index);
        }
        // Released units come before fresh ones in the order, so they have at least their priority.
        if let Some(&unit_index) = self.released.first() {
            let unit = self.units.get(unit_index.0 as usize)?;
            if self.waits(unit.configuration, at_once) {
                return None;
            }
            return self.released.pop_first();
        }
        loop {
            let unit = self.units.get(self.fresh)?;
            let unit_index = UnitIndex(u32::try_from(self.fresh).ok()?);
            let look = self.looks.get_mut(unit.configuration as usize).and_then(Option::as_mut);
            if let Some(look) = look.filter(|look| !look.covers(unit.item)) {
                look.held.push(unit_index);
            } else if self.waits(unit.configuration, at_once) {
                return None;
            } else {
                self.fresh += 1;
                return Some(unit_index);
            }
            self.fresh += 1;
        }
    }

    /// Whether units of a configuration wait for those of a higher priority.
    fn waits(&self, configuration: u32, at_once: usize) -> bool {
        let rank = self.rank(configuration);
        let is_behind = self.in_flight_by_rank.iter().take(rank).any(|in_flight| *in_flight > 0);
        is_behind && self.in_flight >= at_once.max(1)
    }

    fn rank(&self, configuration: u32) -> usize {
        self.ranks.get(configuration as usize).copied().unwrap_or(0)
    }

    fn departs(&mut self, configuration: u32) {
        self.in_flight += 1;
        let rank = self.rank(configuration);
        if let Some(in_flight) = self.in_flight_by_rank.get_mut(rank) {
            *in_flight += 1;
        }
    }

    fn returns(&mut self, configuration: u32) {
        self.in_flight -= 1;
        let rank = self.rank(configuration);
        if let Some(in_flight) = self.in_flight_by_rank.get_mut(rank) {
            *in_flight -= 1;
        }
    }

    /// Adopts units that an earlier session published and that still exist on the server, so that they are
    /// not published again.
    pub(crate) fn adopt(&mut self, present: &Present) {
        let mut adopted = Vec::new();
        let looks = &mut self.looks;
        for unit in &mut self.units {
            if unit.state == State::Waiting && present.contains(&(unit.key, unit.attempt)) {
                unit.state = State::Published { round: 0 };
                adopted.push(unit.configuration);
                if let Some(slot) = looks.get_mut(unit.configuration as usize) {
                    slot.take_if(|look| !look.covers(unit.item));
                }
            }
        }
        adopted.into_iter().for_each(|configuration| self.departs(configuration));
    }

    /// Whether an attempt must still be sent: its unit may have been settled while sending failed.
    pub(crate) fn is_sending(&self, unit_attempt: &UnitAttempt) -> bool {
        self.units
            .get(unit_attempt.unit_index.0 as usize)
            .is_some_and(|unit| unit.state == State::Sending && unit.attempt == unit_attempt.attempt)
    }

    /// Records that the queue has stored these messages.
    pub(crate) fn sent(&mut self, tickets: &[UnitAttempt], round: u32) {
        for unit_attempt in tickets {
            if let Some(unit) = self.units.get_mut(unit_attempt.unit_index.0 as usize)
                && unit.state == State::Sending
                && unit.attempt == unit_attempt.attempt
            {
                unit.state = State::Published { round };
            }
        }
    }

    /// Checks whether a result belongs to this session.
    pub(crate) fn admit(&self, key: &UnitKey, attempt: u32) -> Acceptance {
        let found = self.by_key.binary_search_by_key(&Some(*key), |&unit_index| {
            self.units.get(unit_index as usize).map(|unit| unit.key)
        });
        let unit_index = found.ok().and_then(|found| self.by_key.get(found).copied());
        let Some((unit_index, unit)) = unit_index
            .and_then(|unit_index| Some((UnitIndex(unit_index), self.units.get(unit_index as usize)?)))
        else {
            return Acceptance::Unknown;
        };
        if unit.state == State::Stopped {
            return Acceptance::Unknown;
        }
        if attempt == 0 || attempt > unit.attempt {
            return Acceptance::NeverSent;
        }
        Acceptance::Known { unit_index, configuration: unit.configuration, item: unit.item }
    }

    /// Applies a recorded result and returns its effect.
    pub(crate) fn settle(
        &mut self,
        unit_index: UnitIndex,
        attempt: u32,
        recorded: Recorded,
        settlement: Option<Settlement>,
    ) -> Transition {
        let Some(unit) = self.units.get_mut(unit_index.0 as usize) else { return Transition::Duplicate };
        if recorded == Recorded::Duplicate || unit.state == State::Settled {
            return Transition::Duplicate;
        }
        let was_open = unit.state != State::Faulted;
        let was_out = matches!(unit.state, State::Sending | State::Published { .. });
        let (configuration, item) = (unit.configuration, unit.item);
        let tally = self.tallies.get_mut(configuration as usize);
        let transition = match settlement {
            Some(settlement) => {
                unit.state = State::Settled;
                if let Some(tally) = tally {
                    tally.count(settlement);
                    // A late outcome settles a unit that had used up its attempts.
                    tally.faulted -= u64::from(!was_open);
                }
                self.open -= usize::from(was_open);
                Transition::Settled(settlement)
            }
            None if !was_open || attempt < unit.attempt => return Transition::Late,
            None => {
                let will_retry = unit.retries_left > 0;
                if will_retry {
                    unit.retries_left -= 1;
                    unit.attempt = unit.attempt.saturating_add(1);
                    unit.state = State::Waiting;
                    self.again.push_back(unit_index);
                } else {
                    unit.state = State::Faulted;
                    self.open -= 1;
                    if let Some(tally) = tally {
                        tally.faulted += 1;
                    }
                }
                Transition::Faulted { will_retry }
            }
        };
        if was_out {
            self.returns(configuration);
        }
        let ended = !matches!(transition, Transition::Faulted { will_retry: true });
        if was_open && ended {
            self.looked(configuration, item);
        }
        transition
    }

    /// Counts the end of a unit for the stop rule of its configuration.
    fn looked(&mut self, configuration: u32, item: u64) {
        let look = self.looks.get_mut(configuration as usize).and_then(Option::as_mut);
        if let Some(look) = look.filter(|look| look.covers(item)) {
            look.open -= 1;
            if look.open == 0 {
                self.due.push(configuration);
            }
        }
    }

    /// Requeues published units that are neither in `present` nor recorded, and returns how many. Considers
    /// only units that were published before `round`, in which `present` was requested.
    pub(crate) fn missing(
        &mut self,
        present: &Present,
        round: u32,
        recorded: impl Fn(&UnitKey, u32) -> bool,
    ) -> u64 {
        let mut missing = Vec::new();
        for (unit_index, unit) in (0..).zip(&mut self.units) {
            let State::Published { round: since } = unit.state else { continue };
            if since < round
                && !present.contains(&(unit.key, unit.attempt))
                && !recorded(&unit.key, unit.attempt)
            {
                unit.state = State::Waiting;
                self.again.push_back(UnitIndex(unit_index));
                missing.push(unit.configuration);
            }
        }
        let count = missing.len() as u64;
        missing.into_iter().for_each(|configuration| self.returns(configuration));
        count
    }
}
