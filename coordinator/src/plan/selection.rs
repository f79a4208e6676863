//! Selects the items of a data set that are run.

use lumos_tasks::{Item, ItemId};
use thiserror::Error;

use crate::spec::ItemChoice;

/// Error of selecting items.
#[derive(Debug, Error)]
pub enum SelectError<E: std::error::Error + 'static> {
    /// A record cannot be read, and malformed records are not skipped.
    #[error(transparent)]
    Load(#[from] E),
    /// A chosen position does not exist.
    #[error("{benchmark} has no item {missing}{}: its items are 0 to {}", if *more { " and others" } else { "" }, records.saturating_sub(1))]
    OutOfRange {
        /// The benchmark.
        benchmark: String,
        /// The first position that does not exist.
        missing: u64,
        /// Whether there are further ones.
        more: bool,
        /// Number of records read.
        records: u64,
    },
    /// No items were selected.
    #[error("no items of {benchmark} selected")]
    Nothing {
        /// The benchmark.
        benchmark: String,
    },
}

/// A selected item. The item itself is read again when it is stored, so that a plan of millions of items fits
/// in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectedItem {
    /// Position in the data.
    pub index: u64,
    /// Its identity.
    pub id: ItemId,
}

/// The selected items, and counts of the records read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selected {
    /// The items, ordered by position.
    pub items: Vec<SelectedItem>,
    /// Number of records read.
    pub records: u64,
    /// Number of malformed records that were skipped.
    pub invalid: u64,
}

/// Selects items from a stream.
///
/// `skippable` is called for every load error and returns whether the record is skipped and the stream
/// continues. It combines `--skip-invalid` with the kind of error.
///
/// # Errors
/// On the first malformed record that is not skipped, if a chosen item does not exist, or if no items are
/// selected.
pub fn select<E: std::error::Error + 'static>(
    benchmark: &str,
    items: impl IntoIterator<Item = Result<Item, E>>,
    choice: &ItemChoice,
    mut skippable: impl FnMut(&E) -> bool,
) -> Result<Selected, SelectError<E>> {
    let mut selected = Selected::default();
    let end = choice.end();
    // A malformed record also has a position, which no item gets.
    let mut items = items.into_iter();
    while end.is_none_or(|end| selected.records < end) {
        let Some(item) = items.next() else { break };
        selected.records += 1;
        match item {
            Ok(Item { index, id, .. }) if choice.keeps(index) => {
                selected.items.push(SelectedItem { index, id });
            }
            Ok(_) => {}
            Err(error) if skippable(&error) => selected.invalid += 1,
            Err(error) => return Err(SelectError::Load(error)),
        }
    }
    if let ItemChoice::Chosen(selection) = choice {
        let mut missing = selection.positions().filter(|position| *position >= selected.records);
        if let Some(first) = missing.next() {
            return Err(SelectError::OutOfRange {
                benchmark: benchmark.to_owned(),
                missing: first,
                more: missing.next().is_some(),
                records: selected.records,
            });
        }
    }
    selected.items.sort_by_key(|item| item.index);
    if selected.items.is_empty() {
        return Err(SelectError::Nothing { benchmark: benchmark.to_owned() });
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::item;

    fn indices(selected: &Selected) -> Vec<u64> {
        selected.items.iter().map(|item| item.index).collect()
    }

    fn stream(count: u64) -> impl Iterator<Item = Result<Item, std::fmt::Error>> {
        (0..count).map(|index| if index == 2 { Err(std::fmt::Error) } else { Ok(item(index)) })
    }

    #[test]
    fn limits_and_choices_select() {
        let choose = |choice, skip| select("gsm8k", stream(6), &choice, |_| skip);
        assert_eq!(indices(&choose(ItemChoice::First(2), false).unwrap()), [0, 1]);
        let all = choose(ItemChoice::All, true).unwrap();
        assert_eq!((indices(&all), all.records, all.invalid), (vec![0, 1, 3, 4, 5], 6, 1));
        assert!(matches!(choose(ItemChoice::All, false), Err(SelectError::Load(_))));
        let chosen = ItemChoice::Chosen("1,3-4".parse().unwrap());
        assert_eq!(indices(&choose(chosen, true).unwrap()), [1, 3, 4]);
        let beyond = choose(ItemChoice::Chosen("1,6-9".parse().unwrap()), true).unwrap_err();
        assert_eq!(beyond.to_string(), "gsm8k has no item 6 and others: its items are 0 to 5");
        assert!(matches!(
            choose(ItemChoice::Chosen("2".parse().unwrap()), true),
            Err(SelectError::Nothing { .. })
        ));
    }

    proptest! {
        #[test]
        fn a_first_choice_is_a_prefix(count in 1u64..30, first in 1u64..40) {
            let items = (0..count).map(|index| Ok::<_, std::fmt::Error>(item(index)));
            let selected = select("gsm8k", items, &ItemChoice::First(first), |_| false).unwrap();
            prop_assert_eq!(indices(&selected), (0..count.min(first)).collect::<Vec<_>>());
        }
    }
}
