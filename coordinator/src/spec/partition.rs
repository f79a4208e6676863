//! Partitions of a run's items, for running a run on several machines without a queue.

use std::fmt;
use std::str::FromStr;

use lumos_tasks::{ContentHash, ItemId};
use serde::{Deserialize, Serialize};

/// One of `of` parts, written `hash:1/4`. An item's part depends on its content only, not on its position in
/// the data, so that parts are similar in kind and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Partition {
    part: u32,
    of: u32,
}

impl Partition {
    /// Creates part `part` of `of`, counted from 1. Returns `None` if there is no such part.
    pub(crate) fn new(part: u32, of: u32) -> Option<Self> {
        (1..=of).contains(&part).then_some(Self { part, of })
    }

    /// Number of this part, counted from 1.
    pub(crate) fn part(self) -> u32 {
        self.part
    }

    /// Number of parts.
    pub(crate) fn of(self) -> u32 {
        self.of
    }

    /// Whether an item belongs to this part. Every item belongs to exactly one part.
    pub fn keeps(self, item: &ItemId) -> bool {
        let hash = ContentHash::of_json(&("partition/1", item));
        let number = hash.as_str().get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.unwrap_or(0) % u64::from(self.of) + 1 == u64::from(self.part)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "hash:{}/{}", self.part, self.of)
    }
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.trim().strip_prefix("hash:").and_then(|numbers| numbers.split_once('/'));
        numbers
            .and_then(|(part, of)| Self::new(part.parse().ok()?, of.parse().ok()?))
            .ok_or_else(|| {
                format!(
                    "invalid partition `{text}`: expected hash:M/N, from hash:1/4 for the first of four parts to hash:4/4"
                )
            })
    }
}

impl TryFrom<String> for Partition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Partition> for String {
    fn from(partition: Partition) -> Self {
        partition.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn partitions_read_and_write() {
        let partition: Partition = "hash:2/3".parse().unwrap();
        assert_eq!((partition.part(), partition.of(), partition.to_string()), (2, 3, "hash:2/3".to_owned()));
        for wrong in ["", "2/3", "hash:0/3", "hash:4/3", "hash:1/0", "count:1/2", "hash:1/2/3", "hash:-1/2"] {
            let error = wrong.parse::<Partition>().unwrap_err();
            assert!(error.contains("hash:1/4"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_item_is_in_exactly_one_part(of in 1u32..9, content in any::<u64>(), occurrence in 0u32..3) {
            let item = ItemId { content: ContentHash::of_json(&content), occurrence };
            let parts = (1..=of).filter(|&part| Partition::new(part, of).unwrap().keeps(&item));
            prop_assert_eq!(parts.count(), 1);
        }
    }

    #[test]
    fn parts_are_of_much_the_same_size() {
        let third = Partition::new(2, 3).unwrap();
        let item = |number: u64| ItemId { content: ContentHash::of_json(&number), occurrence: 0 };
        let kept = (0..3000).filter(|&number| third.keeps(&item(number))).count();
        assert!((900..1100).contains(&kept), "{kept}");
    }
}
