//! Selections of items by position: `0-9,15`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of item positions, counted from 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// First and last position of each contiguous range, in ascending order, with gaps between ranges.
    ranges: Vec<(u64, u64)>,
}

/// Returns the error for an invalid part of a selection.
fn invalid(part: impl fmt::Display) -> String {
    format!("`{part}` selects no items: expected positions counted from 0, such as `0-9,15`")
}

impl Selection {
    fn of_ranges(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => previous.1 = previous.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self { ranges: merged }
    }

    /// Creates the set of these positions.
    pub(crate) fn of(positions: impl IntoIterator<Item = u64>) -> Self {
        Self::of_ranges(positions.into_iter().map(|position| (position, position)).collect())
    }

    /// Whether a position is selected.
    pub(crate) fn contains(&self, position: u64) -> bool {
        let behind = self.ranges.partition_point(|(first, _)| *first <= position);
        behind > 0 && position <= self.ranges[behind - 1].1
    }

    /// Returns the last selected position.
    pub fn last(&self) -> Option<u64> {
        self.ranges.last().map(|(_, last)| *last)
    }

    /// Whether nothing is selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the selected positions in ascending order.
    pub(crate) fn positions(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u64 = first.trim().parse().map_err(|_| invalid(part))?;
            let last: u64 = last.trim().parse().map_err(|_| invalid(part))?;
            if first <= last { Ok((first, last)) } else { Err(invalid(part)) }
        };
        text.split(',').map(str::trim).map(part).collect::<Result<_, _>>().map(Self::of_ranges)
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if first == last {
                write!(formatter, "{comma}{first}")?;
            } else {
                write!(formatter, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Selection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Selection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Positions;
        impl<'de> Visitor<'de> for Positions {
            type Value = Selection;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("positions such as \"0-9,15\" or [0, 1, 2]")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Selection, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: Error>(self, position: u64) -> Result<Selection, E> {
                Ok(Selection::of([position]))
            }
            fn visit_i64<E: Error>(self, position: i64) -> Result<Selection, E> {
                let position = u64::try_from(position).map_err(|_| E::custom(invalid(position)))?;
                Ok(Selection::of([position]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Selection, A::Error> {
                let mut positions = Vec::new();
                while let Some(position) = sequence.next_element()? {
                    positions.push(position);
                }
                Ok(Selection::of(positions))
            }
        }
        deserializer.deserialize_any(Positions)
    }
}

/// Parses `--samples`: lm-eval's JSON object (`{"gsm8k": [0, 1]}`), or entries such as `gsm8k=0-9,15`
/// separated by `;`.
///
/// # Errors
/// A message if the text has neither form.
pub fn parse_samples(text: &str) -> Result<BTreeMap<String, Selection>, String> {
    let text = text.trim();
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|error| format!("samples: {error}"));
    }
    text.split(';')
        .map(|part| {
            let (task, selection) = part.split_once('=').ok_or_else(|| {
                format!("invalid value `{part}` for --samples: expected TASK=POSITIONS, such as gsm8k=0-9,15")
            })?;
            let selection = selection.parse().map_err(|error| format!("samples of {task}: {error}"))?;
            Ok((task.trim().to_owned(), selection))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn selections_read_and_write() {
        let selection: Selection = "15, 0-3,4-9".parse().unwrap();
        assert_eq!(selection.to_string(), "0-9,15");
        assert!(selection.contains(9) && selection.contains(15) && !selection.contains(10));
        for wrong in ["", "a", "3-1", "-1", "1,,2", "1-2-3"] {
            assert!(wrong.parse::<Selection>().is_err(), "{wrong}");
        }
        let all: Selection = format!("0-{}", u64::MAX).parse().unwrap();
        assert!(all.contains(u64::MAX));
    }

    #[test]
    fn samples_read_in_both_forms() {
        let expected = BTreeMap::from([("gsm8k".to_owned(), Selection::of([0, 1, 2]))]);
        assert_eq!(parse_samples("gsm8k=0-2"), Ok(expected.clone()));
        assert_eq!(parse_samples(r#"{"gsm8k": [0, 1, 2]}"#), Ok(expected.clone()));
        assert_eq!(parse_samples(r#"{"gsm8k": "0-2"}"#), Ok(expected));
        assert!(parse_samples("gsm8k").unwrap_err().contains("TASK=POSITIONS"));
    }

    proptest! {
        #[test]
        fn a_selection_is_the_set_of_its_positions(positions in proptest::collection::btree_set(0u64..60, 1..30)) {
            let selection = Selection::of(positions.iter().copied());
            prop_assert_eq!(selection.positions().collect::<BTreeSet<_>>(), positions.clone());
            prop_assert_eq!(selection.last(), positions.last().copied());
            for position in 0..61 {
                prop_assert_eq!(selection.contains(position), positions.contains(&position));
            }
            prop_assert_eq!(selection.to_string().parse(), Ok(selection));
        }
    }
}
