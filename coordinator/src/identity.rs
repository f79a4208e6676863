//! What makes two runs the same.

use std::fmt;

use lumos_tasks::{Configuration, ContentHash, ItemId};
use serde::{Deserialize, Serialize};

/// Hash of a run's configurations and selected items, in whatever order they were named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunIdentity(ContentHash);

impl RunIdentity {
    /// The identity of a run of these configurations over these items, by benchmark.
    pub fn of<'a, 'b>(
        configurations: impl IntoIterator<Item = &'a Configuration>,
        items: impl IntoIterator<Item = (&'b str, Vec<ItemId>)>,
    ) -> Self {
        let mut configurations: Vec<ContentHash> =
            configurations.into_iter().map(Configuration::identity).collect();
        configurations.sort();
        configurations.dedup();
        let mut items: Vec<(&str, ContentHash)> = items
            .into_iter()
            .map(|(benchmark, mut items)| {
                items.sort();
                (benchmark, ContentHash::of_json(&items))
            })
            .collect();
        items.sort();
        Self(ContentHash::of_json(&("run/1", configurations, items)))
    }

    /// The hexadecimal digits.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The first twelve digits, for people.
    pub fn short(&self) -> &str {
        self.0.short()
    }
}

impl fmt::Display for RunIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
