//! Property test: for any sequence of events, every unit ends, and ends exactly once.

use std::collections::{BTreeMap, HashSet};

use lumos_tasks::{ContentHash, UnitId};
use proptest::prelude::*;

use super::unit_tracker::*;
use crate::checkpoint::{Recorded, SettledIndex, Settlement, UnitStatus};
use crate::unit_key::UnitKey;

const UNITS: u64 = 12;
const CONFIGURATIONS: u32 = 2;

fn key(number: u64) -> UnitKey {
    UnitKey::of(&UnitId::new(ContentHash::of_json(&number)))
}

/// An event. Numbers select among the available messages.
#[derive(Debug, Clone, Copy)]
enum Act {
    Publish(usize),
    /// The queue confirms the messages that were sent.
    Confirm,
    /// A result arrives for a message.
    Answer(usize, Option<Settlement>),
    /// A second result arrives for a message.
    AnswerAgain(usize, Option<Settlement>),
    /// A message is lost.
    Vanish(usize),
    Reconcile,
    /// The coordinator is killed and restarted.
    Restart,
}

fn settlements() -> impl Strategy<Value = Option<Settlement>> {
    prop_oneof![2 => Just(None), 2 => Just(Some(Settlement::Answered)), 1 => Just(Some(Settlement::GaveUp))]
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1usize..6).prop_map(Act::Publish),
        2 => Just(Act::Confirm),
        5 => (any::<usize>(), settlements()).prop_map(|(at, ending)| Act::Answer(at, ending)),
        2 => (any::<usize>(), settlements()).prop_map(|(at, ending)| Act::AnswerAgain(at, ending)),
        1 => any::<usize>().prop_map(Act::Vanish),
        1 => Just(Act::Reconcile),
        1 => Just(Act::Restart),
    ]
}

/// A coordinator, its index, and a queue that loses and duplicates messages.
struct World {
    tracker: UnitTracker,
    index: SettledIndex,
    /// Messages that exist.
    present: Vec<(UnitKey, u32)>,
    /// Messages with a result.
    answered: Vec<(UnitKey, u32)>,
    sending: Vec<UnitAttempt>,
    round: u32,
    window: usize,
    retries: u32,
    /// Number of times each unit was settled.
    settled: BTreeMap<UnitKey, u32>,
    /// Units without attempts left, as reported by the unit tracker.
    given_up: HashSet<UnitKey>,
}

impl World {
    fn new(window: usize, retries: u32) -> Self {
        let mut world = Self {
            tracker: UnitTracker::new(Vec::new(), 0),
            index: SettledIndex::default(),
            present: Vec::new(),
            answered: Vec::new(),
            sending: Vec::new(),
            round: 0,
            window,
            retries,
            settled: BTreeMap::new(),
            given_up: HashSet::new(),
        };
        world.restart();
        world
    }

    fn restart(&mut self) {
        let mut tracker = UnitTracker::new(vec![0; CONFIGURATIONS as usize], self.retries);
        for number in 0..UNITS {
            let unit = key(number);
            tracker.add(number as u32 % CONFIGURATIONS, number, unit, self.index.status(&unit));
        }
        tracker.complete();
        tracker.adopt(&self.present.iter().copied().collect());
        self.tracker = tracker;
        self.sending.clear();
        self.round = 0;
        self.given_up.clear();
    }

    fn publish(&mut self, together: usize) -> Result<usize, TestCaseError> {
        let adopted = self.tracker.in_flight();
        let tickets = self.tracker.next(self.window, 1, together);
        prop_assert!(tickets.len() <= together);
        prop_assert!(self.tracker.in_flight() <= self.window.max(adopted));
        for unit_attempt in &tickets {
            prop_assert!(
                !self.index.has(&unit_attempt.unit, unit_attempt.attempt),
                "a recorded attempt was published"
            );
            let message = (unit_attempt.unit, unit_attempt.attempt);
            // Publishing twice has no effect.
            if !self.present.contains(&message) {
                self.present.push(message);
            }
        }
        let count = tickets.len();
        self.sending.extend(tickets);
        Ok(count)
    }

    fn confirm(&mut self) {
        let sent = std::mem::take(&mut self.sending);
        self.tracker.sent(&sent, self.round);
    }

    fn result(
        &mut self,
        (unit, attempt): (UnitKey, u32),
        ending: Option<Settlement>,
    ) -> Result<(), TestCaseError> {
        let Acceptance::Known { unit_index, .. } = self.tracker.admit(&unit, attempt) else {
            // Settled by an earlier session: further results are duplicates.
            let settled = matches!(self.index.status(&unit), UnitStatus::Settled(_));
            prop_assert!(settled, "an open unit is known");
            return Ok(());
        };
        let recorded = self.index.take(unit, attempt, ending);
        let consequence = self.tracker.settle(unit_index, attempt, recorded, ending);
        match consequence {
            Transition::Settled(settlement) => {
                prop_assert_eq!(recorded, Recorded::First);
                prop_assert_eq!(Some(settlement), ending);
                *self.settled.entry(unit).or_default() += 1;
                self.given_up.remove(&unit);
            }
            Transition::Faulted { will_retry: false } => {
                prop_assert!(self.given_up.insert(unit), "given up once");
            }
            Transition::Faulted { will_retry: true } | Transition::Late => {
                prop_assert_eq!(recorded, Recorded::FaultKept);
            }
            Transition::Duplicate => prop_assert_eq!(recorded, Recorded::Duplicate),
        }
        Ok(())
    }

    fn reconcile(&mut self) {
        self.round += 1;
        let present: Present = self.present.iter().copied().collect();
        let index = &self.index;
        self.tracker.missing(&present, self.round, |unit, attempt| index.has(unit, attempt));
    }

    fn act(&mut self, act: Act) -> Result<(), TestCaseError> {
        let chosen = |from: &[(UnitKey, u32)], at: usize| (!from.is_empty()).then(|| at % from.len());
        match act {
            Act::Publish(together) => {
                self.publish(together)?;
            }
            Act::Confirm => self.confirm(),
            Act::Answer(at, ending) => {
                if let Some(at) = chosen(&self.present, at) {
                    let message = self.present.swap_remove(at);
                    self.answered.push(message);
                    self.result(message, ending)?;
                }
            }
            Act::AnswerAgain(at, ending) => {
                if let Some(at) = chosen(&self.answered, at) {
                    self.result(self.answered[at], ending)?;
                }
            }
            Act::Vanish(at) => {
                if let Some(at) = chosen(&self.present, at) {
                    self.present.swap_remove(at);
                }
            }
            Act::Reconcile => self.reconcile(),
            Act::Restart => self.restart(),
        }
        self.check()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let tracker = &self.tracker;
        prop_assert_eq!(tracker.planned(), UNITS);
        prop_assert_eq!(tracker.settled(), self.index.settled());
        prop_assert_eq!(tracker.faulted(), self.given_up.len() as u64);
        prop_assert_eq!(tracker.is_done(), tracker.settled() + tracker.faulted() == UNITS);
        prop_assert!(self.settled.values().all(|times| *times == 1), "a unit was settled twice");
        Ok(())
    }

    /// From any state, a fleet that returns results completes the run.
    fn finish(&mut self, ending: Option<Settlement>) -> Result<(), TestCaseError> {
        let enough = 4 * UNITS * u64::from(self.retries + 2);
        for _ in 0..enough {
            if self.tracker.is_done() {
                return Ok(());
            }
            self.publish(usize::MAX)?;
            self.confirm();
            self.reconcile();
            while let Some(message) = self.present.pop() {
                self.answered.push(message);
                self.result(message, ending)?;
            }
            self.check()?;
        }
        prop_assert!(false, "the run does not end: {:?}", self.tracker);
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_unit_is_settled_once_or_given_up(
        acts in proptest::collection::vec(acts(), 0..120),
        window in 1usize..10,
        retries in 0u32..3,
        ending in settlements(),
    ) {
        let mut world = World::new(window, retries);
        for act in acts {
            world.act(act)?;
        }
        world.finish(ending)?;
        for number in 0..UNITS {
            let unit = key(number);
            match world.index.status(&unit) {
                UnitStatus::Settled(_) => prop_assert!(!world.given_up.contains(&unit)),
                UnitStatus::Faulted { attempts, .. } => {
                    prop_assert!(world.given_up.contains(&unit));
                    prop_assert!(attempts > retries, "all attempts of the session are used up");
                }
                UnitStatus::Outstanding => prop_assert!(false, "unit {number} has no record"),
            }
        }
    }

    #[test]
    fn units_go_out_in_the_order_of_the_plan(window in 1usize..20, together in 1usize..8) {
        let mut world = World::new(window, 0);
        let mut order = Vec::new();
        while !world.tracker.is_done() {
            for unit_attempt in world.tracker.next(window, 1, together) {
                prop_assert_eq!(unit_attempt.attempt, 1);
                order.push(world.tracker.place(unit_attempt.unit_index).map(|(_, item)| item));
                world.index.take(unit_attempt.unit, 1, Some(Settlement::Answered));
                world.tracker.settle(unit_attempt.unit_index, 1, Recorded::First, Some(Settlement::Answered));
            }
        }
        prop_assert_eq!(order, (0..UNITS).map(Some).collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn lower_priorities_only_fill_idle_slots(
        window in 1usize..20, at_once in 1usize..6, together in 1usize..8, answers in proptest::collection::vec(any::<usize>(), 200),
    ) {
        let mut tracker = UnitTracker::new(vec![1, 0], 0);
        // Configuration 1 has the higher priority.
        for number in 0..UNITS {
            let configuration = u32::from(number < UNITS / 2);
            tracker.add(configuration, number, key(number), UnitStatus::Outstanding);
        }
        tracker.complete();
        let mut out: Vec<UnitAttempt> = Vec::new();
        let mut answers = answers.into_iter();
        while !tracker.is_done() {
            for unit_attempt in tracker.next(window, at_once, together) {
                let is_high = |one: &UnitAttempt| tracker.place(one.unit_index).is_some_and(|(place, _)| place == 1);
                if !is_high(&unit_attempt) && out.iter().any(is_high) {
                    prop_assert!(out.len() < at_once, "{} in flight", out.len());
                }
                out.push(unit_attempt);
            }
            prop_assert!(!out.is_empty() && out.len() <= window, "a unit is always in flight");
            prop_assert_eq!(out.len(), tracker.in_flight());
            let unit_attempt = out.swap_remove(answers.next().unwrap_or(0) % out.len());
            tracker.settle(unit_attempt.unit_index, 1, Recorded::First, Some(Settlement::Answered));
        }
        prop_assert_eq!((tracker.settled(), tracker.in_flight()), (UNITS, 0));
    }
}

#[test]
fn results_that_cannot_be_are_told_apart() {
    let world = World::new(4, 1);
    assert!(matches!(world.tracker.admit(&key(0), 1), Acceptance::Known { configuration: 0, item: 0, .. }));
    assert_eq!(world.tracker.admit(&key(0), 2), Acceptance::NeverSent);
    assert_eq!(world.tracker.admit(&key(0), 0), Acceptance::NeverSent);
    assert_eq!(world.tracker.admit(&key(99), 1), Acceptance::Unknown);
}

#[test]
fn a_late_answer_mends_a_unit_that_was_given_up() {
    let mut world = World::new(1, 0);
    let unit_attempt = world.tracker.next(1, 1, 1)[0];
    let settle = |tracker: &mut UnitTracker, recorded, ending| {
        tracker.settle(unit_attempt.unit_index, 1, recorded, ending)
    };
    let fault = settle(&mut world.tracker, Recorded::FaultKept, None);
    assert_eq!(fault, Transition::Faulted { will_retry: false });
    assert_eq!((world.tracker.faulted(), world.tracker.settled(), world.tracker.in_flight()), (1, 0, 0));
    settle(&mut world.tracker, Recorded::First, Some(Settlement::GaveUp));
    assert_eq!((world.tracker.faulted(), world.tracker.settled(), world.tracker.in_flight()), (0, 1, 0));
    assert_eq!(world.tracker.tallies()[0].gave_up, 1);
}

#[test]
fn what_was_published_after_the_question_is_not_missing() {
    let mut world = World::new(4, 0);
    world.publish(2).unwrap();
    world.tracker.sent(&std::mem::take(&mut world.sending), 1);
    let none = Present::new();
    assert_eq!(world.tracker.missing(&none, 1, |_, _| false), 0);
    assert_eq!(world.tracker.missing(&none, 2, |_, _| true), 0);
    assert_eq!(world.tracker.missing(&none, 2, |_, _| false), 2);
    assert_eq!(world.tracker.in_flight(), 0);
    assert_eq!(world.tracker.next(4, 4, 4).len(), 4);
}
