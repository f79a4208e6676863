//! Order in which the units of a run are dispatched: by priority, then as the specification says. Pure.

use std::cmp::Reverse;

use crate::manifest::PlannedConfiguration;
use crate::spec::DispatchOrder;

/// Returns positions of configurations in groups. Groups are dispatched one after the other; within a group, one unit of
/// each configuration in turn. Settled units do not change the order, so it is the same after an interruption.
pub(super) fn groups(configurations: &[PlannedConfiguration], order: DispatchOrder) -> Vec<Vec<usize>> {
    let mut positions: Vec<usize> = (0..configurations.len()).collect();
    // Stable: equal configurations stay in the order of reports.
    positions.sort_by_key(|&position| {
        let planned = &configurations[position];
        let units = if order == DispatchOrder::ShortestFirst { planned.planned } else { 0 };
        (Reverse(planned.priority), units)
    });
    let priority = |position: &usize| configurations[*position].priority;
    match order {
        DispatchOrder::RoundRobin => {
            positions.chunk_by(|one, other| priority(one) == priority(other)).map(<[usize]>::to_vec).collect()
        }
        DispatchOrder::Listed | DispatchOrder::ShortestFirst => {
            positions.into_iter().map(|position| vec![position]).collect()
        }
    }
}

/// Ranks the priorities of configurations: 0 for the highest, by position.
pub(super) fn ranks(configurations: &[PlannedConfiguration]) -> Vec<usize> {
    let mut priorities: Vec<i32> = configurations.iter().map(|planned| planned.priority).collect();
    priorities.sort_unstable_by_key(|priority| Reverse(*priority));
    priorities.dedup();
    let rank = |planned: &PlannedConfiguration| {
        priorities.iter().position(|priority| *priority == planned.priority).unwrap_or(0)
    };
    configurations.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::{configuration, item, manifest_of};

    fn planned(settings: &[(i32, u64)]) -> Vec<PlannedConfiguration> {
        let configurations: Vec<_> = (0..settings.len() as u64).map(configuration).collect();
        let mut planned = manifest_of(&configurations, &[item(0)]).configurations;
        for (planned, (priority, units)) in planned.iter_mut().zip(settings) {
            (planned.priority, planned.planned) = (*priority, *units);
        }
        planned
    }

    #[test]
    fn priorities_come_first() {
        let planned = planned(&[(0, 9), (5, 7), (0, 2), (5, 3)]);
        assert_eq!(groups(&planned, DispatchOrder::Listed), [[1], [3], [0], [2]]);
        assert_eq!(groups(&planned, DispatchOrder::ShortestFirst), [[3], [1], [2], [0]]);
        assert_eq!(groups(&planned, DispatchOrder::RoundRobin), [[1, 3], [0, 2]]);
        assert_eq!(ranks(&planned), [1, 0, 1, 0]);
    }

    proptest! {
        #[test]
        fn every_configuration_is_in_one_group(
            settings in proptest::collection::vec((-2i32..3, 0u64..4), 1..8),
            order in prop_oneof![
                Just(DispatchOrder::Listed), Just(DispatchOrder::ShortestFirst), Just(DispatchOrder::RoundRobin)
            ],
        ) {
            let planned = planned(&settings);
            let order: Vec<usize> = groups(&planned, order).concat();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..planned.len()).collect::<Vec<_>>());
            let priorities: Vec<i32> = order.iter().map(|&position| planned[position].priority).collect();
            prop_assert!(priorities.is_sorted_by(|one, next| one >= next));
        }
    }
}
