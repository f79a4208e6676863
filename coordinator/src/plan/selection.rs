//! Which items of a data set are run.

use lumos_tasks::{Item, ItemId};
use thiserror::Error;

use crate::spec::ItemChoice;

/// Why items cannot be selected.
#[derive(Debug, Error)]
pub enum SelectError<E: std::error::Error + 'static> {
    /// A record cannot be read, and malformed records are not to be left out.
    #[error(transparent)]
    Load(#[from] E),
    /// Items were chosen that are not there.
    #[error("{benchmark} has no item {missing}{}: its items are 0 to {}", if *more { " and others" } else { "" }, records.saturating_sub(1))]
    OutOfRange {
        /// The benchmark.
        benchmark: String,
        /// The first position that is not there.
        missing: u64,
        /// Whether there are more.
        more: bool,
        /// How many records were read.
        records: u64,
    },
    /// Nothing is left to run.
    #[error("no items of {benchmark} selected")]
    Nothing {
        /// The benchmark.
        benchmark: String,
    },
}

/// An item that was selected. The item itself is read again when it is stored, so that a plan of millions fits into
/// memory.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectedItem {
    /// Its position in the data.
    pub index: u64,
    /// Its identity.
    pub id: ItemId,
}

/// The items selected, and what was seen on the way.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selected {
    /// The items, by position.
    pub items: Vec<SelectedItem>,
    /// Records that were read.
    pub records: u64,
    /// Records that were left out as malformed.
    pub invalid: u64,
}

/// Selects items from a stream.
///
/// `skippable` says of a load error whether the stream goes on behind it and the record may be left out; it is asked
/// for every error, so that `--skip-invalid` and the kind of error decide together.
///
/// # Errors
/// On the first record that is malformed and not left out, if a chosen item is not there, or if nothing is left.
pub fn select<E: std::error::Error + 'static>(
    benchmark: &str,
    items: impl IntoIterator<Item = Result<Item, E>>,
    choice: &ItemChoice,
    mut skippable: impl FnMut(&E) -> bool,
) -> Result<Selected, SelectError<E>> {
    let mut selected = Selected::default();
    let end = choice.end();
    // A malformed record has a position too; the loader gives it to nobody.
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
