//! The reward of a result compared with the gold result (upstream `get_reward`): the share of common rows,
//! scaled by the similarity of their order. Rows are compared as printed.

use std::collections::BTreeMap;

/// A reward with its components.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SqlReward {
    /// The reward, from -1 to 1.
    pub value: f64,
    /// Size of the multiset intersection of the rows.
    pub intersection: u64,
    /// Size of the multiset union of the rows.
    pub union: u64,
    /// Kendall's tau-b of the common rows; `None` if it is not a number or there are no common rows.
    pub tau: Option<f64>,
}

/// The count of each row.
fn counts(rows: &[String]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row.as_str()).or_insert(0) += 1;
    }
    counts
}

/// Compares a result with the gold result, row by printed row.
pub fn reward(agent: &[String], gold: &[String]) -> SqlReward {
    let (of_agent, of_gold) = (counts(agent), counts(gold));
    let common: BTreeMap<&str, u64> = of_agent
        .iter()
        .filter_map(|(row, count)| of_gold.get(row).map(|other| (*row, *count.min(other))))
        .collect();
    let intersection = common.values().sum::<u64>();
    let union = agent.len() as u64 + gold.len() as u64 - intersection;
    if union == 0 {
        return SqlReward { value: 1.0, intersection, union, tau: None };
    }
    let share = intersection as f64 / union as f64;
    let tau = tau_b(&ranks(agent, &common), &ranks(gold, &common));
    let value = tau.map_or(share, |tau| rounded(tau * share));
    SqlReward { value, intersection, union, tau }
}

/// The first rows that form the multiset of common rows, in order, each as its rank by code points.
fn ranks(rows: &[String], common: &BTreeMap<&str, u64>) -> Vec<usize> {
    let mut left: BTreeMap<&str, (usize, u64)> =
        common.iter().enumerate().map(|(rank, (row, count))| (*row, (rank, *count))).collect();
    let mut ranks = Vec::new();
    for row in rows {
        if let Some((rank, count)) = left.get_mut(row.as_str())
            && *count > 0
        {
            *count -= 1;
            ranks.push(*rank);
        }
    }
    ranks
}

/// `round(value, 2)` of numpy's floats: times a hundred, rounded to the nearest integer, ties to even.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round_ties_even() / 100.0
}

/// Kendall's tau-b with scipy's order of operations; `None` if one side is constant.
fn tau_b(left: &[usize], right: &[usize]) -> Option<f64> {
    let pairs = |count: u64| count * count.saturating_sub(1) / 2;
    let total = pairs(left.len() as u64);
    let mut both: Vec<(usize, usize)> = left.iter().copied().zip(right.iter().copied()).collect();
    both.sort_unstable();
    let tied = |sorted: &mut dyn Iterator<Item = (usize, usize)>| {
        let (mut sum, mut run, mut last) = (0u64, 0u64, None);
        for one in sorted {
            run = if last == Some(one) { run + 1 } else { 1 };
            sum += run - 1;
            last = Some(one);
        }
        sum
    };
    let ties_of = |values: &[usize]| {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        tied(&mut sorted.into_iter().map(|value| (value, 0)))
    };
    let (ties_left, ties_right) = (ties_of(left), ties_of(right));
    if ties_left == total || ties_right == total {
        return None;
    }
    let ties_both = tied(&mut both.iter().copied());
    let mut order: Vec<usize> = both.into_iter().map(|(_, right)| right).collect();
    let discordant = inversions(&mut order);
    let excess = i128::from(total) - i128::from(ties_left) - i128::from(ties_right) + i128::from(ties_both)
        - 2 * i128::from(discordant);
    let tau = excess as f64 / ((total - ties_left) as f64).sqrt() / ((total - ties_right) as f64).sqrt();
    Some(tau.clamp(-1.0, 1.0))
}

/// Number of pairs in the wrong order; sorts the values.
fn inversions(values: &mut [usize]) -> u64 {
    if values.len() < 2 {
        return 0;
    }
    let (front, back) = values.split_at_mut(values.len() / 2);
    let mut count = inversions(front) + inversions(back);
    let mut merged = Vec::with_capacity(front.len() + back.len());
    let (mut left, mut right) = (front.iter().copied().peekable(), back.iter().copied().peekable());
    while let (Some(&first), Some(&second)) = (left.peek(), right.peek()) {
        if first <= second {
            merged.extend(left.next());
        } else {
            count += left.len() as u64;
            merged.extend(right.next());
        }
    }
    merged.extend(left);
    merged.extend(right);
    values.copy_from_slice(&merged);
    count
}

/// Corrected comparison: the same rows with the same counts, and in the same order if `ordered`.
pub(super) fn is_same(agent: &[String], gold: &[String], ordered: bool) -> bool {
    if ordered { agent == gold } else { counts(agent) == counts(gold) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn value(agent: &[&str], gold: &[&str]) -> f64 {
        reward(&rows(agent), &rows(gold)).value
    }

    #[test]
    fn shares_orders_and_ties() {
        assert_eq!(value(&[], &[]), 1.0);
        assert_eq!(value(&["a"], &[]), 0.0);
        assert_eq!(value(&["a"], &["a", "b", "c"]), 1.0 / 3.0, "one common row is not rounded");
        assert_eq!(value(&["a", "b"], &["a", "b"]), 1.0);
        assert_eq!(value(&["b", "a"], &["a", "b"]), -1.0);
        assert_eq!(value(&["a", "a"], &["a", "a"]), 1.0, "constant rows have no order");
        assert_eq!(value(&["(10,)", "(2,)", "(9,)"], &["(2,)", "(9,)", "(10,)"]), -0.33);
        assert!(is_same(&rows(&["b", "a"]), &rows(&["a", "b"]), false));
        assert!(!is_same(&rows(&["b", "a"]), &rows(&["a", "b"]), true));
        assert!(!is_same(&rows(&["a"]), &rows(&["a", "a"]), false));
    }

    proptest! {
        #[test]
        fn inversions_are_counted(values in proptest::collection::vec(0usize..9, 0..40)) {
            let pairs = (0..values.len()).flat_map(|first| (first + 1..values.len()).map(move |second| (first, second)));
            let expected = pairs.filter(|(first, second)| values[*first] > values[*second]).count() as u64;
            let mut sorted = values.clone();
            prop_assert_eq!(inversions(&mut sorted), expected);
            prop_assert!(sorted.is_sorted());
        }

        #[test]
        fn a_result_beside_itself_is_worth_one_and_all_rewards_are_bounded(
            left in proptest::collection::vec("[a-d]", 0..30),
            right in proptest::collection::vec("[a-d]", 0..30),
        ) {
            prop_assert_eq!(reward(&left, &left).value, 1.0);
            let between = reward(&left, &right);
            prop_assert!((-1.0..=1.0).contains(&between.value));
            prop_assert_eq!(between.union, (left.len() + right.len()) as u64 - between.intersection);
        }
    }
}
