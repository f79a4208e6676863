//! Stop rules: in sessions, and as a property of the unit tracker.

use lumos_tasks::ContentHash;
use proptest::prelude::*;

use super::tests::Stage;
use super::unit_tracker::UnitTracker;
use super::*;
use crate::checkpoint::{Recorded, Settlement, UnitStatus};
use crate::samples::item;
use crate::spec::{DispatchOrder, StopRule};
use crate::unit_key::UnitKey;

/// Creates a run of two configurations; the first ends after 10 of its 40 items if they are clearly below 50 %.
fn stage(order: DispatchOrder) -> Stage {
    let mut stage = Stage::new(40);
    stage.manifest.spec.order = order;
    stage.manifest.configurations[0].stop =
        Some(StopRule { after: 10, below: Some(50.0), ..StopRule::default() });
    stage
}

#[tokio::test]
async fn a_configuration_ends_after_its_first_items() {
    for order in [DispatchOrder::Listed, DispatchOrder::RoundRobin] {
        let mut stage = stage(order);
        // Without evidence, no outcome is correct.
        let (summary, events, given) = stage.run(stage.terms(), |_| true, 1).await;
        assert_eq!((summary.planned, summary.settled, summary.outstanding(), given), (50, 50, 0, 50));
        let [(0, stopped)] = summary.stopped.as_slice() else { panic!("{:?}", summary.stopped) };
        assert_eq!((stopped.end, stopped.after, stopped.units), (10, 10, 40));
        assert_eq!(stopped.describe(), "stopped after 10 of 40 items: exact_match 0.0 to 27.8 is below 50");
        let is_stop = |event: &&Event| matches!(event, Event::Stopped { configuration: 0, units: 30, .. });
        assert_eq!(events.iter().filter(is_stop).count(), 1);

        // The coordinator was killed before it wrote the manifest: the rule decides the same again.
        let (again, _, given) = stage.run(stage.terms(), |_| true, 1).await;
        assert_eq!((&again.stopped, again.planned, given), (&summary.stopped, 50, 0));

        let before = stage.manifest.clone();
        assert!(stage.manifest.stop(summary.stopped));
        assert_eq!(stage.manifest.planned(), 50);
        let (again, _, given) = stage.run(stage.terms(), |_| true, 1).await;
        assert_eq!((again.stopped.len(), again.planned, given), (0, 50, 0));

        // The same rule keeps it stopped; without the rule, the run continues.
        stage.manifest.adopt(before.clone());
        assert_eq!(stage.manifest.planned(), 50);
        let mut without = before;
        without.configurations[0].stop = None;
        stage.manifest.adopt(without);
        let (rest, _, given) = stage.run(stage.terms(), |_| true, 1).await;
        assert_eq!((rest.planned, rest.settled, given), (80, 80, 30));
    }
}

#[tokio::test]
async fn a_configuration_whose_first_items_faulted_continues() {
    let stage = stage(DispatchOrder::Listed);
    let is_whole = |assignment: &Assignment| {
        let unit = &assignment.unit;
        unit.item != item(3).id || unit.configuration.seed != 0
    };
    let terms = DispatchConfig { retry_on_error: 0, ..stage.terms() };
    let (summary, _, given) = stage.run(terms, is_whole, 1).await;
    assert_eq!((summary.planned, summary.settled, summary.faulted, given), (80, 79, 1, 80));
    assert!(summary.stopped.is_empty());
    // All first items are settled now, but so are later ones.
    let (summary, _, given) = stage.run(terms, |_| true, 1).await;
    assert_eq!((summary.settled, summary.stopped.len(), given), (80, 0, 1));
}

fn key(number: u64) -> UnitKey {
    UnitKey::of(&lumos_tasks::UnitId::new(ContentHash::of_json(&number)))
}

proptest! {
    /// Whatever order results arrive in: units after the first ones are published only if the rule continues, and then
    /// all of them are.
    #[test]
    fn units_are_held_back_until_the_rule_decides(
        after in 1u64..8,
        units in 1u64..14,
        settled_before in proptest::collection::vec(any::<bool>(), 14),
        order in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 200),
        stops in any::<bool>(),
        window in 1usize..6,
    ) {
        let mut tracker = UnitTracker::new(vec![0], 1);
        tracker.look(0, after);
        // Sessions before this one had the same rule: they settled first units only.
        let is_settled = |number: u64| number < after && settled_before[number as usize];
        for number in 0..units {
            let settled = UnitStatus::Settled(Settlement::Answered);
            let status = if is_settled(number) { settled } else { UnitStatus::Outstanding };
            // Positions of items have gaps.
            tracker.add(0, 3 * number, key(number), status);
        }
        tracker.complete();
        let has_look = units > after;
        prop_assert_eq!(tracker.end(0), has_look.then_some(3 * after));
        let mut given: Vec<super::unit_tracker::UnitAttempt> = Vec::new();
        let mut published = std::collections::BTreeSet::new();
        let mut has_decided = false;
        for (index, answers) in order {
            for configuration in tracker.take_due() {
                has_decided = true;
                if stops {
                    prop_assert_eq!(tracker.stop(configuration), units - after);
                } else {
                    tracker.release(configuration);
                }
            }
            for attempt in tracker.next(window, usize::MAX, window) {
                let (_, item) = tracker.place(attempt.unit_index).unwrap();
                prop_assert!(!has_look || item < 3 * after || (has_decided && !stops));
                published.insert(item);
                tracker.sent(&[attempt], 0);
                given.push(attempt);
            }
            if given.is_empty() {
                break;
            }
            let attempt = given.swap_remove(index.index(given.len()));
            let (recorded, settlement) = match answers {
                true => (Recorded::First, Some(Settlement::Answered)),
                false => (Recorded::FaultKept, None),
            };
            tracker.settle(attempt.unit_index, attempt.attempt, recorded, settlement);
        }
        prop_assert!(tracker.is_done());
        let end = if has_look && stops { after } else { units };
        let expected: Vec<u64> = (0..end).filter(|&number| !is_settled(number)).map(|number| 3 * number).collect();
        prop_assert_eq!(published.into_iter().collect::<Vec<_>>(), expected);
        prop_assert_eq!(tracker.planned(), end);
        prop_assert_eq!(tracker.in_flight(), 0);
    }
}
