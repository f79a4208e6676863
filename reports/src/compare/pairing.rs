//! Pairs the items of two runs by their content.

use std::collections::HashMap;

use crate::results::BenchmarkItems;

/// Items that two runs have in common, and how many only one of them has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ItemPairs {
    /// Positions in a and in b, in the order of a.
    pub(crate) pairs: Vec<(u32, u32)>,
    /// Number of items that only a has.
    pub(crate) only_a: u64,
    /// Number of items that only b has.
    pub(crate) only_b: u64,
}

/// Pairs items with the same record. If a data set contains a record more than once, its occurrences are paired in
/// order. Positions do not matter: the first run may have other items in between.
pub(crate) fn pair_items(a: &BenchmarkItems, b: &BenchmarkItems) -> ItemPairs {
    let position = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let of_b: HashMap<_, u32> = b.ids.iter().enumerate().map(|(at, id)| (id, position(at))).collect();
    let pairs: Vec<(u32, u32)> =
        a.ids.iter().enumerate().filter_map(|(at, id)| Some((position(at), *of_b.get(id)?))).collect();
    let paired = pairs.len();
    ItemPairs { only_a: (a.ids.len() - paired) as u64, only_b: (b.ids.len() - paired) as u64, pairs }
}
