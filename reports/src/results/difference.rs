//! The difference of a metric between two sides over the same items.
//!
//! [`PairedItems`] holds the shares of both sides, item by item, and [`PairedItems::compare`] computes the difference,
//! its interval and its p value. The difference is always b − a.

use lumos_benchmarks::statistics::{
    ALPHA, ClusterSum, LEVEL, Limits, POWER, PairedDifference, SidedShares, Variances, bca, detectable,
    items_needed, linearised, mcnemar, mean_and_error, paired_ratio, paired_score, sign_flip, wilson,
};
use lumos_benchmarks::{Estimate, MetricDefinition, MetricKind, Share, Unit};
use serde::Serialize;

use super::pooled::sum;
use super::seeds::SeedGroup;
use super::table::{RunTable, UnitRow};

/// Seed of random sign vectors and resamples: equal records have equal figures.
const SEED: u64 = 24;
/// Resamples of a bootstrap interval, and the largest number of clusters for which they are drawn.
const RESAMPLES: u32 = 1999;
const RESAMPLED: usize = 20_000;

/// Returns the smallest difference from a fixed figure, such as a published one, that the items of an estimate detect
/// with 80 % power; `None` without a standard error.
pub(crate) fn detectable_from(estimate: &Estimate) -> Option<f64> {
    let variances = Variances::of_items(estimate.standard_error?.powi(2));
    Some(detectable(1, &variances, ALPHA, POWER)).filter(|difference| *difference > 0.0)
}

/// The shares of one item, by seed; `None` for a unit that is not settled. Units without a value are left out.
pub(crate) type ItemShares = Vec<Option<Share>>;

/// Returns the shares of every item of a group, in the order of items.
pub(crate) fn item_shares(table: &RunTable, group: &SeedGroup, metric: usize) -> Vec<ItemShares> {
    let share = |row: &UnitRow| if row.is_settled() { row.share(metric).map(Some) } else { Some(None) };
    (0..group.items(table)).map(|item| group.rows(table, item).filter_map(share).collect()).collect()
}

/// The shares of one item on both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ItemPair<'a> {
    pub(crate) a: &'a [Option<Share>],
    pub(crate) b: &'a [Option<Share>],
}

/// A metric's shares of the same items on two sides.
#[derive(Debug)]
pub(crate) struct PairedItems<'a> {
    pub(crate) metric: &'a MetricDefinition,
    pub(crate) items: Vec<ItemPair<'a>>,
    /// The items' clusters, if the benchmark has clusters.
    pub(crate) clusters: Option<Vec<u32>>,
    /// Numbers of seeds of a and b.
    pub(crate) seeds: (u64, u64),
}

/// Numbers of items by which side has them right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Flips {
    /// Right on both sides.
    pub both_right: u64,
    /// Right in a, wrong in b.
    pub only_a: u64,
    /// Wrong in a, right in b.
    pub only_b: u64,
    /// Wrong on both sides.
    pub both_wrong: u64,
}

/// A metric compared over the same items.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricComparison {
    /// The metric.
    pub metric: String,
    /// Unit in which figures are shown; all numbers here are fractions or counts.
    pub unit: Unit,
    /// Possible values of an item.
    #[serde(flatten)]
    pub kind: MetricKind,
    /// Whether higher values are better.
    pub higher_is_better: bool,
    /// Number of items that are settled on both sides.
    pub items: u64,
    /// Number of clusters, if the benchmark has clusters; of different items, on the side that has fewer.
    pub clusters: Option<u64>,
    /// Numbers of seeds of a and b.
    pub seeds: (u64, u64),
    /// Value of a over these items.
    pub a: f64,
    /// Value of b over these items.
    pub b: f64,
    /// b − a.
    pub difference: f64,
    /// Standard error of the difference.
    pub standard_error: f64,
    /// 95 % interval of the difference.
    pub interval: Limits,
    /// Method of the interval: `paired_score`, `student_t`, `stretched_wilson`, `newcombe` or `welch`.
    pub interval_method: &'static str,
    /// BCa bootstrap interval of a mean, in addition.
    pub bca: Option<Limits>,
    /// Two-sided p value.
    pub p_value: f64,
    /// Method of the p value: `mcnemar_exact`, `sign_flip_exact`, `sign_flip`, `newcombe` or `welch`.
    pub test: &'static str,
    /// Mid-p form of McNemar's test.
    pub mid_p: Option<f64>,
    /// p value adjusted for all metrics of the comparison (Benjamini and Hochberg).
    pub p_adjusted: f64,
    /// Smallest difference that is detected with 80 % power.
    pub detectable: f64,
    /// Number of items needed to detect the observed difference with 80 % power; `None` without a difference.
    pub items_needed: Option<u64>,
    /// Items by which side has them right, for proportions.
    pub flips: Option<Flips>,
    /// Least and greatest difference if units that are not settled had the worst or the best values.
    pub bounds: Option<Limits>,
}

/// Returns the shares of settled units.
pub(crate) fn settled(shares: &[Option<Share>]) -> Vec<Share> {
    shares.iter().copied().flatten().collect()
}

/// Whether all shares are values of an item that counts once.
pub(crate) fn count_once(shares: &[Share]) -> bool {
    shares.iter().all(|share| share.denominator == 1.0)
}

/// Whether an item is right: most of its settled seeds have the full score. `None` if no seed is settled.
pub(crate) fn is_right(shares: &[Option<Share>], metric: &MetricDefinition) -> Option<bool> {
    let settled = settled(shares);
    let full = settled.iter().filter(|share| metric.is_full(**share)).count();
    (!settled.is_empty()).then_some(2 * full > settled.len())
}

impl PairedItems<'_> {
    /// Compares both sides over the items that are settled on both. Returns `None` for fewer than two such items, and
    /// if either side has no weight.
    pub(crate) fn compare(&self) -> Option<MetricComparison> {
        let paired: Vec<usize> = (0..self.items.len()).filter(|&at| self.is_paired(at)).collect();
        let side = |of: fn(&ItemPair<'_>) -> Vec<Share>, seeds: u64| -> Vec<Share> {
            paired.iter().map(|&at| item_share(&of(&self.items[at]), seeds)).collect()
        };
        let a = side(|item| settled(item.a), self.seeds.0);
        let b = side(|item| settled(item.b), self.seeds.1);
        let clusters: Option<Vec<u32>> =
            self.clusters.as_ref().map(|clusters| paired.iter().map(|&at| clusters[at]).collect());
        let sides = SidedShares { a: &b, b: &a, clusters: clusters.as_deref() };
        // With a single cluster, items are treated as independent.
        let (difference, clusters) = match paired_ratio(&sides) {
            Some(difference) => (difference, clusters),
            None => (paired_ratio(&SidedShares { clusters: None, ..sides })?, None),
        };
        let values: Vec<f64> = linearised(&b)?.iter().zip(linearised(&a)?).map(|(b, a)| b - a).collect();
        let flips = (self.metric.kind == MetricKind::Proportion).then(|| self.flips(&paired));
        let is_binary = self.seeds == (1, 1) && clusters.is_none() && count_once(&a) && count_once(&b);
        let tested = match flips.filter(|_| is_binary) {
            Some(flips) => Tested::binary(flips, difference.items as u64, self.metric)?,
            None => {
                Tested::fractional(&difference, &ClusterSum::of(&values, clusters.as_deref()), self.metric)
            }
        };
        let variances = self.variances(&difference, &paired);
        let items = difference.items as u64;
        Some(MetricComparison {
            metric: self.metric.name.to_owned(),
            unit: self.metric.unit,
            kind: self.metric.kind,
            higher_is_better: self.metric.higher_is_better,
            items,
            clusters: clusters.as_ref().map(|_| difference.clusters as u64),
            seeds: self.seeds,
            a: sum(&a).value(),
            b: sum(&b).value(),
            difference: difference.difference,
            standard_error: difference.standard_error,
            interval: tested.interval,
            interval_method: tested.interval_method,
            bca: tested.bca,
            p_value: tested.p_value,
            test: tested.test,
            mid_p: tested.mid_p,
            p_adjusted: tested.p_value,
            detectable: detectable(items, &variances, ALPHA, POWER),
            items_needed: items_needed(difference.difference, &variances, ALPHA, POWER),
            flips,
            bounds: self.bounds(),
        })
    }

    fn is_paired(&self, at: usize) -> bool {
        let ItemPair { a, b } = self.items[at];
        a.iter().any(Option::is_some) && b.iter().any(Option::is_some)
    }

    fn flips(&self, paired: &[usize]) -> Flips {
        let mut flips = Flips::default();
        let is_right = |shares| is_right(shares, self.metric) == Some(true);
        for &at in paired {
            let ItemPair { a, b } = self.items[at];
            let count = match (is_right(a), is_right(b)) {
                (true, true) => &mut flips.both_right,
                (true, false) => &mut flips.only_a,
                (false, true) => &mut flips.only_b,
                (false, false) => &mut flips.both_wrong,
            };
            *count += 1;
        }
        flips
    }

    /// Splits the variance of an item's difference into that of the items and that of the seeds.
    fn variances(&self, difference: &PairedDifference, paired: &[usize]) -> Variances {
        let measured = difference.standard_error * difference.standard_error * difference.items as f64;
        let sigma2 = |of: fn(&ItemPair<'_>) -> Vec<f64>| {
            let within: Vec<f64> =
                paired.iter().filter_map(|&at| sample_variance(&of(&self.items[at]))).collect();
            if within.is_empty() { 0.0 } else { within.iter().sum::<f64>() / within.len() as f64 }
        };
        let sigma2_a = sigma2(|item| ratios(item.a));
        let sigma2_b = sigma2(|item| ratios(item.b));
        let (attempts_a, attempts_b) = self.seeds;
        let of_seeds = sigma2_a / attempts_a.max(1) as f64 + sigma2_b / attempts_b.max(1) as f64;
        Variances { omega2: (measured - of_seeds).max(0.0), sigma2_a, sigma2_b, attempts_a, attempts_b }
    }

    /// Returns the least and the greatest difference over all items if every unit that is not settled had the lowest
    /// or the highest value and the average weight. `None` if all are settled or values have no range.
    pub(crate) fn bounds(&self) -> Option<Limits> {
        let all = || self.items.iter().flat_map(|item| item.a.iter().chain(item.b));
        let (least, most) = self.metric.kind.range().filter(|_| all().any(Option::is_none))?;
        let settled: Vec<Share> = all().copied().flatten().collect();
        let weight = sum(&settled).denominator / settled.len() as f64;
        let value = |of: fn(&ItemPair<'_>) -> Vec<Option<Share>>, seeds: u64, missing: f64| {
            let missing = Share { numerator: missing * weight, denominator: weight };
            let shares: Vec<Share> = self
                .items
                .iter()
                .map(|item| {
                    let filled: Vec<Share> =
                        of(item).into_iter().map(|share| share.unwrap_or(missing)).collect();
                    item_share(&filled, seeds)
                })
                .collect();
            let sum = sum(&shares);
            (sum.denominator > 0.0).then(|| sum.value())
        };
        let a = |missing: f64| value(|item| item.a.to_vec(), self.seeds.0, missing);
        let b = |missing: f64| value(|item| item.b.to_vec(), self.seeds.1, missing);
        let low = b(least)? - a(most)?;
        let high = b(most)? - a(least)?;
        Some((low, high))
    }
}

/// Returns the share of an item over all `seeds`, as if those without a value had the mean of the others: the weight of
/// an item does not depend on how many are missing.
pub(crate) fn item_share(shares: &[Share], seeds: u64) -> Share {
    let sum = sum(shares);
    // Exact, so that equal items stay equal.
    if shares.is_empty() || shares.len() as u64 == seeds {
        return sum;
    }
    let scaled = |value: f64| value * seeds as f64 / shares.len() as f64;
    Share { numerator: scaled(sum.numerator), denominator: scaled(sum.denominator) }
}

fn ratios(shares: &[Option<Share>]) -> Vec<f64> {
    let shares = shares.iter().flatten().filter(|share| share.denominator > 0.0);
    shares.map(|share| share.value()).collect()
}

/// Returns the sample variance; `None` for fewer than two values.
fn sample_variance(values: &[f64]) -> Option<f64> {
    let (_, error) = mean_and_error(values)?;
    Some(error * error * values.len() as f64)
}

/// Interval and p value of a difference.
struct Tested {
    interval: Limits,
    interval_method: &'static str,
    bca: Option<Limits>,
    p_value: f64,
    test: &'static str,
    mid_p: Option<f64>,
}

impl Tested {
    /// One seed on each side, and every item right or wrong.
    fn binary(flips: Flips, items: u64, metric: &MetricDefinition) -> Option<Self> {
        let Flips { only_a, only_b, .. } = flips;
        // Items with the value 1 on one side only: if lower is better, those that the other side has right.
        let (one_a, one_b) = if metric.higher_is_better { (only_a, only_b) } else { (only_b, only_a) };
        let test = mcnemar(one_b, one_a);
        Some(Self {
            interval: paired_score(one_b, one_a, items, LEVEL)?,
            interval_method: "paired_score",
            bca: None,
            p_value: test.exact,
            test: "mcnemar_exact",
            mid_p: Some(test.mid_p),
        })
    }

    fn fractional(difference: &PairedDifference, sums: &[ClusterSum], metric: &MetricDefinition) -> Self {
        let values: Vec<f64> = sums.iter().map(|sum| sum.numerator).collect();
        let test = sign_flip(&values, SEED);
        let is_resampled = metric.kind != MetricKind::Proportion && sums.len() <= RESAMPLED;
        let bca = is_resampled.then(|| bca(sums, RESAMPLES, SEED, LEVEL, true)).flatten();
        // Equal differences have no variance, but few items prove little: the largest share of items that may differ in
        // either direction, by as much as the range allows. Without a difference, this is the score interval of binary
        // items.
        let equal = metric.kind.range().filter(|_| difference.standard_error == 0.0);
        let widest = equal.and_then(|(least, most)| {
            let (range, value) = (most - least, difference.difference);
            let (_, share) = wilson(0.0, difference.clusters as f64, LEVEL)?;
            let limits = (value - share * (range + value), value + share * (range - value));
            Some((limits, "stretched_wilson"))
        });
        let (interval, interval_method) = widest.unwrap_or_else(|| (difference.interval(LEVEL), "student_t"));
        Self {
            interval,
            interval_method,
            bca: bca.map(|bca| bca.interval),
            p_value: test.p,
            test: if test.exact { "sign_flip_exact" } else { "sign_flip" },
            mid_p: None,
        }
    }
}
