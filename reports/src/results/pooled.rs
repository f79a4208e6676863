//! Figures over several seeds, where each item counts once.
//!
//! Seeds repeat the same items, so their values are not independent: pooled figures have the items as clusters, and
//! more seeds never make the sample of items larger.

use std::collections::BTreeMap;

use lumos_benchmarks::statistics::{
    LEVEL, linearised, mean_and_error, pass_at_k, pass_hat_k, student_interval,
};
use lumos_benchmarks::{
    Estimate, IntervalMethod, ItemScore, MetricDefinition, MetricKind, Share, Tally, Unit,
};
use serde::Serialize;

use super::difference::{count_once, item_share};
use super::seeds::{SeedGroup, seed_groups};
use super::table::RunTable;

/// A metric over all seeds of a group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Pooled {
    /// The figure over items; `None` if nothing is scored.
    pub(crate) estimate: Option<Estimate>,
    /// Number of scored units.
    pub(crate) units: u64,
    /// Number of items with at least one scored unit.
    pub(crate) items: u64,
    /// Number of seeds.
    pub(crate) seeds: u64,
    /// Standard deviation of the figures of single seeds, for at least two seeds.
    pub(crate) between_seeds: Option<f64>,
    /// pass@k and pass^k over the items that have all seeds, for k = 1 and all seeds; empty for one seed and for means.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) attempts: Vec<AttemptFigure>,
}

/// A metric of a group of at least two seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GroupFigure {
    /// Positions of the configurations in the manifest, one per seed.
    #[serde(skip)]
    pub(crate) cells: Vec<usize>,
    /// The benchmark.
    pub(crate) benchmark: String,
    /// Label of the first configuration, without its seed.
    pub(crate) group: String,
    /// The seeds.
    pub(crate) seeds: Vec<u64>,
    /// The metric.
    pub(crate) metric: String,
    /// Its unit.
    pub(crate) unit: Unit,
    /// The pooled figure.
    #[serde(flatten)]
    pub(crate) pooled: Pooled,
}

/// Returns the pooled figures of all groups of at least two seeds.
pub(crate) fn group_figures(table: &RunTable) -> Vec<GroupFigure> {
    let groups = seed_groups(table).into_iter().filter(|group| group.cells.len() > 1);
    groups
        .flat_map(|group| {
            let first = group.first(table);
            let configuration = group.configuration(table);
            let seed = format!(" seed {}", configuration.seed);
            let seeds = |cell: &usize| table.cells[*cell].planned.configuration.seed;
            let figure = |(at, metric): (usize, &MetricDefinition)| GroupFigure {
                cells: group.cells.clone(),
                benchmark: configuration.benchmark.clone(),
                group: first.planned.label.replacen(&seed, "", 1),
                seeds: group.cells.iter().map(seeds).collect(),
                metric: metric.name.to_owned(),
                unit: metric.unit,
                pooled: pooled(table, &group, at),
            };
            first.metrics.iter().enumerate().map(figure).collect::<Vec<_>>()
        })
        .collect()
}

/// Figures of k attempts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct AttemptFigure {
    /// Number of attempts.
    pub(crate) k: u64,
    /// Probability that at least one attempt is correct.
    pub(crate) pass_at_k: f64,
    /// Probability that all attempts are correct.
    pub(crate) pass_hat_k: f64,
}

/// Pools the metric at a position in the cells' metrics.
pub(crate) fn pooled(table: &RunTable, group: &SeedGroup, metric: usize) -> Pooled {
    let definition = &group.first(table).metrics[metric];
    // Each scored item's shares, by seed.
    let mut by_item: Vec<Vec<Share>> = (0..group.items(table))
        .map(|item| group.rows(table, item).filter_map(|row| row.share(metric)).collect())
        .collect();
    by_item.retain(|shares| !shares.is_empty());
    let seeds = group.cells.len() as u64;
    Pooled {
        estimate: estimate(definition, &by_item),
        units: by_item.iter().map(|shares| shares.len() as u64).sum(),
        items: by_item.len() as u64,
        seeds,
        between_seeds: between_seeds(table, group, metric),
        attempts: attempts(definition, &by_item, seeds),
    }
}

/// Sums shares.
pub(crate) fn sum(shares: &[Share]) -> Share {
    shares.iter().fold(Share { numerator: 0.0, denominator: 0.0 }, |sum, share| Share {
        numerator: sum.numerator + share.numerator,
        denominator: sum.denominator + share.denominator,
    })
}

fn estimate(definition: &MetricDefinition, by_item: &[Vec<Share>]) -> Option<Estimate> {
    // Without the seeds that have not begun.
    let seeds = by_item.iter().map(Vec::len).max()? as u64;
    let is_mean = definition.kind != MetricKind::Proportion;
    let once = by_item.iter().all(|shares| count_once(shares));
    // A tally takes an item that counts several times for trials, which the values of means are not.
    if is_mean && seeds > 1 && !once {
        let shares: Vec<Share> = by_item.iter().map(|shares| item_share(shares, seeds)).collect();
        return weighted_mean(definition.kind, &shares);
    }
    let mut tally = Tally::default();
    for shares in by_item {
        let share =
            if is_mean && once { Share::once(sum(shares).value()) } else { item_share(shares, seeds) };
        tally.add(&ItemScore::default().with(definition.name, share));
    }
    tally.finish(definition)
}

/// Returns a mean whose items have different weights: a ratio with Student's interval over items.
fn weighted_mean(kind: MetricKind, shares: &[Share]) -> Option<Estimate> {
    let total = sum(shares);
    let values = linearised(shares)?;
    let (value, items) = (total.value(), shares.len() as u64);
    let error = mean_and_error(&values).map(|(_, error)| error);
    let interval = error.and_then(|error| student_interval(value, error, items, LEVEL));
    let (least, most) = kind.range().unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
    Some(Estimate {
        value,
        numerator: total.numerator,
        denominator: total.denominator,
        items,
        standard_error: error,
        interval: interval.map(|(low, high)| (low.max(least), high.min(most))),
        method: interval.map(|_| IntervalMethod::StudentT),
    })
}

fn between_seeds(table: &RunTable, group: &SeedGroup, metric: usize) -> Option<f64> {
    let value = |cell: &usize| {
        let shares: Vec<Share> = table.cells[*cell].rows.iter().filter_map(|row| row.share(metric)).collect();
        let sum = sum(&shares);
        (sum.denominator > 0.0).then(|| sum.value())
    };
    let values: Vec<f64> = group.cells.iter().filter_map(value).collect();
    mean_and_error(&values).map(|(_, error)| error * (values.len() as f64).sqrt())
}

fn attempts(definition: &MetricDefinition, by_item: &[Vec<Share>], seeds: u64) -> Vec<AttemptFigure> {
    // If lower is better, the metric describes items, and attempts are neither correct nor wrong.
    let is_solved = definition.kind == MetricKind::Proportion && definition.higher_is_better;
    if seeds < 2 || !is_solved {
        return Vec::new();
    }
    // Number of items by number of correct attempts.
    let mut items: BTreeMap<u64, u64> = BTreeMap::new();
    for shares in by_item.iter().filter(|shares| shares.len() as u64 == seeds) {
        if !count_once(shares) {
            return Vec::new();
        }
        let correct = shares.iter().filter(|share| definition.is_full(**share)).count() as u64;
        *items.entry(correct).or_default() += 1;
    }
    let count: u64 = items.values().sum();
    let mean = |of: fn(u64, u64, u64) -> Option<f64>, k: u64| {
        let sum: Option<f64> =
            items.iter().map(|(&correct, &items)| Some(of(seeds, correct, k)? * items as f64)).sum();
        sum.filter(|_| count > 0).map(|sum| sum / count as f64)
    };
    let figure =
        |k: u64| Some(AttemptFigure { k, pass_at_k: mean(pass_at_k, k)?, pass_hat_k: mean(pass_hat_k, k)? });
    [1, seeds].into_iter().filter_map(figure).collect()
}
