//! Units: every selected item under every configuration of its benchmark.

use std::sync::Arc;

use lumos_tasks::{Configuration, EpisodeUnit, Item};

/// A unit and its place in the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedUnit {
    /// The configuration's position in the manifest.
    pub configuration: u32,
    /// The item's position in its data set.
    pub item: u64,
    /// The unit.
    pub unit: EpisodeUnit,
}

/// The units of one configuration, in the order of the items.
pub fn units_of(
    position: u32,
    configuration: &Arc<Configuration>,
    items: impl IntoIterator<Item = Item>,
) -> impl Iterator<Item = PlannedUnit> {
    let configuration = Arc::clone(configuration);
    items.into_iter().map(move |item| PlannedUnit {
        configuration: position,
        item: item.index,
        unit: EpisodeUnit::new(item.id, item.task, item.setup, Arc::clone(&configuration)),
    })
}

/// All units, in the order of configurations and, within one, of items.
pub fn units<'a, I>(
    configurations: &'a [Arc<Configuration>],
    mut items: impl FnMut(&str) -> I + 'a,
) -> impl Iterator<Item = PlannedUnit> + 'a
where
    I: IntoIterator<Item = Item> + 'a,
{
    (0..).zip(configurations).flat_map(move |(position, configuration)| {
        units_of(position, configuration, items(&configuration.benchmark))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use lumos_tasks::UnitId;
    use proptest::prelude::*;

    use super::*;
    use crate::identity::RunIdentity;
    use crate::samples::{configuration, item};

    fn ids(configurations: &[Arc<Configuration>], count: u64) -> Vec<UnitId> {
        units(configurations, |_| (0..count).map(item)).map(|planned| planned.unit.id).collect()
    }

    proptest! {
        #[test]
        fn no_two_units_share_an_identity(seeds in proptest::collection::hash_set(any::<u64>(), 1..5), count in 1u64..20) {
            let configurations: Vec<_> = seeds.iter().map(|&seed| Arc::new(configuration(seed))).collect();
            let ids = ids(&configurations, count);
            prop_assert_eq!(ids.len() as u64, configurations.len() as u64 * count);
            prop_assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        }

        #[test]
        fn order_is_no_part_of_identity(seeds in proptest::collection::hash_set(any::<u64>(), 1..5), count in 1u64..20) {
            let configurations: Vec<_> = seeds.iter().map(|&seed| Arc::new(configuration(seed))).collect();
            let mut reversed = configurations.clone();
            reversed.reverse();
            let forwards: HashSet<_> = ids(&configurations, count).into_iter().collect();
            let backwards: HashSet<_> = ids(&reversed, count).into_iter().collect();
            prop_assert_eq!(forwards, backwards);
            let identity = |configurations: &[Arc<Configuration>], items: Vec<_>| {
                RunIdentity::of(configurations.iter().map(AsRef::as_ref), [("gsm8k", items)])
            };
            let items: Vec<_> = (0..count).map(|index| item(index).id).collect();
            let mut turned = items.clone();
            turned.reverse();
            prop_assert_eq!(identity(&configurations, items.clone()), identity(&reversed, turned));
            prop_assert_ne!(identity(&configurations, items.clone()), identity(&configurations, items[1..].to_vec()));
        }
    }

    #[test]
    fn units_stand_in_the_order_of_configurations_and_items() {
        let configurations = [Arc::new(configuration(0)), Arc::new(configuration(1))];
        let places: Vec<_> = units(&configurations, |_| (0..2).map(item))
            .map(|planned| (planned.configuration, planned.item))
            .collect();
        assert_eq!(places, [(0, 0), (0, 1), (1, 0), (1, 1)]);
    }
}
