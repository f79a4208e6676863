//! Identity of a run.
//!
//! Two runs with the same [`RunIdentity`] have the same configurations and items. A run folder is resumed
//! only by a specification with the same identity.

use std::fmt;

use lumos_tasks::{Configuration, ContentHash, ItemId};
use serde::{Deserialize, Serialize};

/// Hash of a run's configurations and selected items, independent of their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunIdentity(ContentHash);

impl RunIdentity {
    /// Computes the identity of a run from its configurations, each with the number of its items if it has a limit of its
    /// own, and, by benchmark, its items.
    pub(crate) fn of<'a, 'b>(
        configurations: impl IntoIterator<Item = (&'a Configuration, Option<u64>)>,
        items: impl IntoIterator<Item = (&'b str, Vec<ItemId>)>,
    ) -> Self {
        let mut limits: Vec<(ContentHash, u64)> = Vec::new();
        let mut identities: Vec<ContentHash> = Vec::new();
        for (configuration, limit) in configurations {
            let identity = configuration.identity();
            limits.extend(limit.map(|limit| (identity.clone(), limit)));
            identities.push(identity);
        }
        let mut configurations = identities;
        configurations.sort();
        configurations.dedup();
        limits.sort();
        let mut items: Vec<(&str, ContentHash)> = items
            .into_iter()
            .map(|(benchmark, mut items)| {
                items.sort();
                (benchmark, ContentHash::of_json(&items))
            })
            .collect();
        items.sort();
        // Added only if there are any, so that other runs keep the identity of earlier versions.
        Self(if limits.is_empty() {
            ContentHash::of_json(&("run/1", configurations, items))
        } else {
            ContentHash::of_json(&("run/1", configurations, items, limits))
        })
    }

    /// Returns the first twelve digits, for display.
    pub fn short(&self) -> &str {
        self.0.short()
    }
}

impl fmt::Display for RunIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use lumos_tasks::{UnitId, WorkUnit};
    use proptest::prelude::*;

    use super::*;
    use crate::samples::{configuration, item};

    fn ids(configurations: &[Configuration], count: u64) -> Vec<UnitId> {
        let identities = configurations.iter().map(Configuration::identity);
        identities
            .flat_map(|one| (0..count).map(move |index| WorkUnit::identity_of(&item(index).id, &one)))
            .collect()
    }

    proptest! {
        #[test]
        fn no_two_units_share_an_identity(seeds in proptest::collection::hash_set(any::<u64>(), 1..5), count in 1u64..20) {
            let configurations: Vec<_> = seeds.iter().map(|&seed| configuration(seed)).collect();
            let ids = ids(&configurations, count);
            prop_assert_eq!(ids.len() as u64, configurations.len() as u64 * count);
            prop_assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        }

        #[test]
        fn order_is_no_part_of_identity(seeds in proptest::collection::hash_set(any::<u64>(), 1..5), count in 1u64..20) {
            let configurations: Vec<_> = seeds.iter().map(|&seed| configuration(seed)).collect();
            let mut reversed = configurations.clone();
            reversed.reverse();
            let forwards: HashSet<_> = ids(&configurations, count).into_iter().collect();
            let backwards: HashSet<_> = ids(&reversed, count).into_iter().collect();
            prop_assert_eq!(forwards, backwards);
            let identity =
                |configurations: &[Configuration], items: Vec<_>| {
                    RunIdentity::of(configurations.iter().map(|one| (one, None)), [("gsm8k", items)])
                };
            let items: Vec<_> = (0..count).map(|index| item(index).id).collect();
            let mut turned = items.clone();
            turned.reverse();
            prop_assert_eq!(identity(&configurations, items.clone()), identity(&reversed, turned));
            prop_assert_ne!(identity(&configurations, items.clone()), identity(&configurations, items[1..].to_vec()));
        }
    }
}
