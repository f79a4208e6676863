//! Comparison of runs over different items.

use lumos_benchmarks::statistics::{
    ALPHA, LEVEL, POWER, PairedDifference, Variances, detectable, items_needed, linearised, newcombe,
    p_of_normal, welch,
};
use lumos_benchmarks::{MetricDefinition, MetricKind, Share};

use crate::results::{ItemShares, MetricComparison, count_once, item_share, settled, sum};

/// Shares of the items of one side, and the items' clusters, if the benchmark has clusters.
pub(super) type UnpairedItems<'a> = (&'a [ItemShares], Option<&'a [u32]>);

/// A metric over the settled items of one side.
struct SideFigure {
    shares: Vec<Share>,
    /// The mean, as a difference from 0.
    mean: PairedDifference,
    is_clustered: bool,
}

impl SideFigure {
    fn of((items, clusters): UnpairedItems<'_>, seeds: u64) -> Option<Self> {
        let is_settled = |at: &usize| items[*at].iter().any(Option::is_some);
        let positions: Vec<usize> = (0..items.len()).filter(is_settled).collect();
        let shares: Vec<Share> =
            positions.iter().map(|&at| item_share(&settled(&items[at]), seeds)).collect();
        let clusters: Option<Vec<u32>> =
            clusters.map(|clusters| positions.iter().map(|&at| clusters[at]).collect());
        let values = linearised(&shares)?;
        let zeros = vec![0.0; values.len()];
        // With a single cluster, items are treated as independent.
        let (mean, is_clustered) = match PairedDifference::of(&values, &zeros, clusters.as_deref()) {
            Some(mean) => (mean, clusters.is_some()),
            None => (PairedDifference::of(&values, &zeros, None)?, false),
        };
        Some(Self { shares, mean, is_clustered })
    }
}

/// Compares a metric over the items that each side has, by Newcombe's interval for proportions of independent items and
/// by Welch's for other figures, over clusters if there are any. The p value of proportions is that of the normal test
/// with the pooled share. Returns `None` if either side has fewer than two settled items.
pub(super) fn unpaired(
    metric: &MetricDefinition,
    a: UnpairedItems<'_>,
    b: UnpairedItems<'_>,
    seeds: (u64, u64),
) -> Option<MetricComparison> {
    let (a, b) = (SideFigure::of(a, seeds.0)?, SideFigure::of(b, seeds.1)?);
    let is_clustered = a.is_clustered || b.is_clustered;
    let is_binary = seeds == (1, 1)
        && !is_clustered
        && metric.kind == MetricKind::Proportion
        && count_once(&a.shares)
        && count_once(&b.shares);
    let standard_error = a.mean.standard_error.hypot(b.mean.standard_error);
    let (difference, interval, p_value, method) = if is_binary {
        let (right_a, right_b) = (sum(&a.shares), sum(&b.shares));
        let (difference, interval) = newcombe(
            (right_b.numerator, right_b.denominator),
            (right_a.numerator, right_a.denominator),
            LEVEL,
        )?;
        let share = (right_a.numerator + right_b.numerator) / (right_a.denominator + right_b.denominator);
        let error = (share * (1.0 - share) * (1.0 / right_a.denominator + 1.0 / right_b.denominator)).sqrt();
        let p = if error > 0.0 { p_of_normal(difference / error) } else { 1.0 };
        (difference, interval, p, "newcombe")
    } else {
        let mean =
            |side: &SideFigure| (side.mean.difference, side.mean.standard_error, side.mean.clusters as u64);
        let (difference, interval, p) = welch(mean(&b), mean(&a), LEVEL)?;
        (difference, interval, p, "welch")
    };
    let items = a.mean.items.min(b.mean.items) as u64;
    let variances = Variances::of_items(standard_error * standard_error * items as f64);
    Some(MetricComparison {
        metric: metric.name.to_owned(),
        unit: metric.unit,
        kind: metric.kind,
        higher_is_better: metric.higher_is_better,
        items,
        clusters: is_clustered.then(|| a.mean.clusters.min(b.mean.clusters) as u64),
        seeds,
        a: a.mean.difference,
        b: b.mean.difference,
        difference,
        standard_error,
        interval,
        interval_method: method,
        bca: None,
        p_value,
        test: method,
        mid_p: None,
        p_adjusted: p_value,
        detectable: detectable(items, &variances, ALPHA, POWER),
        items_needed: items_needed(difference, &variances, ALPHA, POWER),
        flips: None,
        bounds: None,
    })
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use lumos_coordinator::samples::configuration;
    use lumos_tasks::{Configuration, Task};

    use super::*;
    use crate::compare::tests::items;
    use crate::compare::{CompareOptions, Side, compare};
    use crate::results::tests::table_of;

    const SUCCESS: MetricDefinition = MetricDefinition::proportion("success_rate", "");

    #[test]
    fn items_of_a_cluster_count_together() {
        let clusters: Vec<u32> = (0..60).map(|item| item % 6).collect();
        // The items of this many clusters are right.
        let shares = |right: u32| -> Vec<ItemShares> {
            let value = |cluster: &u32| Share::once(f64::from(*cluster < right));
            clusters.iter().map(|cluster| vec![Some(value(cluster))]).collect()
        };
        let (a, b) = (shares(2), shares(4));
        let compared =
            |clusters: Option<&[u32]>| unpaired(&SUCCESS, (&a, clusters), (&b, clusters), (1, 1)).unwrap();
        let (clustered, independent) = (compared(Some(clusters.as_slice())), compared(None));
        assert_eq!((clustered.test, clustered.items, clustered.clusters), ("welch", 60, Some(6)));
        assert_eq!((independent.test, independent.items, independent.clusters), ("newcombe", 60, None));
        assert_eq!((clustered.a, clustered.difference), (independent.a, independent.difference));
        assert!(clustered.standard_error > 3.0 * independent.standard_error, "{clustered:?}");
        assert!(clustered.p_value > 0.2 && independent.p_value < 0.001, "{clustered:?} {independent:?}");
        let single = compared(Some([0; 60].as_slice()));
        assert_eq!(single, independent, "a single cluster");
    }

    #[test]
    fn missing_seeds_do_not_change_the_weight_of_an_item() {
        let (right, wrong) = (Some(Share::once(1.0)), Some(Share::once(0.0)));
        let complete = [vec![vec![right; 2]; 10], vec![vec![wrong; 2]; 10]].concat();
        let missing = [vec![vec![right; 2]; 10], vec![vec![wrong, None]; 10]].concat();
        let compared = unpaired(&SUCCESS, (&missing, None), (&complete, None), (2, 2)).unwrap();
        assert_eq!((compared.a, compared.b, compared.difference), (0.5, 0.5, 0.0));
        assert!(compared.p_value > 0.999 && compared.test == "welch", "{compared:?}");
    }

    #[test]
    fn benchmarks_with_clusters_are_compared_by_clusters() {
        let sql = Configuration { benchmark: "intercode_sql".to_owned(), ..configuration(0) };
        let side = |name: &str, range: Range<u64>| {
            let mut items = items(range);
            for item in &mut items {
                let database = format!("database-{}", item.index % 5);
                item.task = Task::Sql { question: "How many?".to_owned(), database };
            }
            let table = table_of(std::slice::from_ref(&sql), &items, |_, _, outcome| outcome);
            Side { name: name.to_owned(), folder: name.into(), table }
        };
        let options = CompareOptions { unpaired: true, ..CompareOptions::default() };
        let comparison = compare(&[side("a", 0..40), side("b", 40..80)], &options).unwrap();
        let metric = &comparison.comparisons[0].metrics[0];
        assert_eq!((metric.test, metric.items, metric.clusters), ("welch", 40, Some(5)));
    }
}
