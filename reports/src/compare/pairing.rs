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

/// Pairs items with the same record: each side has its first items up to a number, because a configuration may have fewer
/// than the benchmark has in its run. If a data set contains a record more than once, its occurrences are paired in
/// order. Positions do not matter: the first run may have other items in between.
pub(crate) fn pair_items(
    (a, len_a): (&BenchmarkItems, usize),
    (b, len_b): (&BenchmarkItems, usize),
) -> ItemPairs {
    let ids = (a.ids.iter().take(len_a), b.ids.iter().take(len_b));
    let (count_a, count_b) = (ids.0.len(), ids.1.len());
    let position = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let of_b: HashMap<_, u32> = ids.1.enumerate().map(|(at, id)| (id, position(at))).collect();
    let pairs: Vec<(u32, u32)> =
        ids.0.enumerate().filter_map(|(at, id)| Some((position(at), *of_b.get(id)?))).collect();
    let paired = pairs.len();
    ItemPairs { only_a: (count_a - paired) as u64, only_b: (count_b - paired) as u64, pairs }
}
