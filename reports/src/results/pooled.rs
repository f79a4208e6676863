//! Figures over several seeds, where each item counts once.
//!
//! Seeds repeat the same items, so their values are not independent: pooled figures have the items as clusters, and
//! more seeds never make the sample of items larger.

use std::collections::BTreeMap;

use lumos_benchmarks::statistics::{linearised, mean_and_error, pass_at_k, pass_hat_k, student_quantile};
use lumos_benchmarks::{
    Estimate, IntervalMethod, ItemScore, MetricDefinition, MetricKind, Share, Tally, Unit,
};
use serde::Serialize;

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
    let by_item = shares_by_item(table, group, metric);
    let seeds = group.cells.len() as u64;
    let units = by_item.iter().map(|shares| shares.len() as u64).sum();
    let scored: Vec<&[Share]> =
        by_item.iter().map(Vec::as_slice).filter(|shares| !shares.is_empty()).collect();
    Pooled {
        estimate: estimate(definition, &scored),
        units,
        items: scored.len() as u64,
        seeds,
        between_seeds: between_seeds(table, group, metric),
        attempts: attempts(definition, &scored, seeds),
    }
}

/// Returns each item's shares, by seed.
pub(crate) fn shares_by_item(table: &RunTable, group: &SeedGroup, metric: usize) -> Vec<Vec<Share>> {
    let items = group.items(table);
    let rows = |item: usize| group.cells.iter().filter_map(move |&cell| table.cells[cell].rows.get(item));
    (0..items).map(|item| rows(item).filter_map(|row| row.share(metric)).collect()).collect()
}

/// Sums shares.
pub(crate) fn sum(shares: &[Share]) -> Share {
    shares.iter().fold(Share { numerator: 0.0, denominator: 0.0 }, |sum, share| Share {
        numerator: sum.numerator + share.numerator,
        denominator: sum.denominator + share.denominator,
    })
}

fn estimate(definition: &MetricDefinition, by_item: &[&[Share]]) -> Option<Estimate> {
    let tallied = |share: &dyn Fn(&[Share]) -> Share| {
        let mut tally = Tally::default();
        for shares in by_item {
            tally.add(&ItemScore::default().with(definition.name, share(shares)));
        }
        tally.finish(definition)
    };
    let is_single = by_item.iter().all(|shares| shares.len() == 1);
    let counts_once = by_item.iter().all(|shares| shares.iter().all(|share| share.denominator == 1.0));
    match definition.kind {
        _ if is_single => tallied(&|shares| shares[0]),
        MetricKind::Proportion => tallied(&sum),
        // Wilson's interval of trials does not apply to means: each item counts once with its mean over seeds.
        _ if counts_once => tallied(&|shares| {
            let sum = sum(shares);
            Share { numerator: sum.numerator / sum.denominator, denominator: 1.0 }
        }),
        kind => {
            let sums: Vec<Share> = by_item.iter().map(|shares| sum(shares)).collect();
            weighted_mean(kind, &sums)
        }
    }
}

/// Returns a mean whose items have different weights: a ratio with Student's interval over items.
fn weighted_mean(kind: MetricKind, shares: &[Share]) -> Option<Estimate> {
    let total = sum(shares);
    let values = linearised(shares)?;
    let value = total.numerator / total.denominator;
    let error = mean_and_error(&values).map(|(_, error)| error);
    let (least, most) = kind.range().unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
    let interval = error.map(|error| {
        let half = student_quantile(0.975, values.len() as f64 - 1.0) * error;
        ((value - half).max(least), (value + half).min(most))
    });
    Some(Estimate {
        value,
        numerator: total.numerator,
        denominator: total.denominator,
        items: shares.len() as u64,
        standard_error: error,
        interval,
        method: interval.map(|_| IntervalMethod::StudentT),
    })
}

fn between_seeds(table: &RunTable, group: &SeedGroup, metric: usize) -> Option<f64> {
    let value = |cell: &usize| {
        let shares: Vec<Share> = table.cells[*cell].rows.iter().filter_map(|row| row.share(metric)).collect();
        let sum = sum(&shares);
        (sum.denominator > 0.0).then(|| sum.numerator / sum.denominator)
    };
    let values: Vec<f64> = group.cells.iter().filter_map(value).collect();
    mean_and_error(&values).map(|(_, error)| error * (values.len() as f64).sqrt())
}

fn attempts(definition: &MetricDefinition, by_item: &[&[Share]], seeds: u64) -> Vec<AttemptFigure> {
    if seeds < 2 || definition.kind != MetricKind::Proportion {
        return Vec::new();
    }
    // Number of items by number of correct attempts.
    let mut items: BTreeMap<u64, u64> = BTreeMap::new();
    for shares in by_item.iter().filter(|shares| shares.len() as u64 == seeds) {
        if shares.iter().any(|share| share.denominator != 1.0) {
            return Vec::new();
        }
        let correct = shares.iter().filter(|share| share.numerator >= share.denominator).count() as u64;
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
