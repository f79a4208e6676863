//! Comparison of runs over different items.

use lumos_benchmarks::statistics::{
    Variances, detectable, items_needed, linearised, mean_and_error, newcombe, normal_cdf, welch,
};
use lumos_benchmarks::{MetricDefinition, MetricKind, Share};

use crate::results::{ItemShares, MetricComparison, sum};

const LEVEL: f64 = 0.95;
const ALPHA: f64 = 0.05;
const POWER: f64 = 0.8;

/// Compares a metric over the items that each side has, by Newcombe's interval for proportions of items and by Welch's
/// for other figures. The p value of proportions is that of the normal test with the pooled share. Returns `None` if
/// either side has fewer than two settled items.
pub(super) fn unpaired(
    metric: &MetricDefinition,
    a: &[ItemShares],
    b: &[ItemShares],
    seeds: (u64, u64),
) -> Option<MetricComparison> {
    let settled = |items: &[ItemShares]| -> Vec<Share> {
        let shares = items.iter().map(|shares| shares.iter().copied().flatten().collect::<Vec<Share>>());
        shares.filter(|shares| !shares.is_empty()).map(|shares| sum(&shares)).collect()
    };
    let (a, b) = (settled(a), settled(b));
    let (values_a, values_b) = (linearised(&a)?, linearised(&b)?);
    let ((mean_a, error_a), (mean_b, error_b)) = (mean_and_error(&values_a)?, mean_and_error(&values_b)?);
    let (count_a, count_b) = (a.len() as u64, b.len() as u64);
    let whole = |shares: &[Share]| shares.iter().all(|share| share.denominator == 1.0);
    let is_binary = metric.kind == MetricKind::Proportion && whole(&a) && whole(&b);
    let standard_error = error_a.hypot(error_b);
    let (difference, interval, p_value, method) = if is_binary {
        let (right_a, right_b) = (sum(&a), sum(&b));
        let (difference, interval) = newcombe(
            (right_b.numerator, right_b.denominator),
            (right_a.numerator, right_a.denominator),
            LEVEL,
        )?;
        let share = (right_a.numerator + right_b.numerator) / (right_a.denominator + right_b.denominator);
        let error = (share * (1.0 - share) * (1.0 / right_a.denominator + 1.0 / right_b.denominator)).sqrt();
        let p = if error > 0.0 { 2.0 * normal_cdf(-(difference / error).abs()) } else { 1.0 };
        (difference, interval, p, "newcombe")
    } else {
        let (difference, interval, p) = welch((mean_b, error_b, count_b), (mean_a, error_a, count_a), LEVEL)?;
        (difference, interval, p, "welch")
    };
    let items = count_a.min(count_b);
    let omega2 = standard_error * standard_error * items as f64;
    let variances = Variances { omega2, sigma2_a: 0.0, sigma2_b: 0.0, attempts_a: 1, attempts_b: 1 };
    let needed = (difference != 0.0).then(|| items_needed(difference, &variances, ALPHA, POWER));
    Some(MetricComparison {
        metric: metric.name.to_owned(),
        unit: metric.unit,
        kind: metric.kind,
        higher_is_better: metric.higher_is_better,
        items,
        clusters: None,
        seeds,
        a: mean_a,
        b: mean_b,
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
        items_needed: needed.filter(|needed| *needed < u64::MAX),
        flips: None,
        bounds: None,
    })
}
