//! Comparison of runs over different items.

use lumos_benchmarks::statistics::{
    ALPHA, LEVEL, POWER, Variances, detectable, items_needed, linearised, mean_and_error, newcombe,
    p_of_normal, welch,
};
use lumos_benchmarks::{MetricDefinition, MetricKind, Share};

use crate::results::{ItemShares, MetricComparison, count_once, settled, sum};

/// Compares a metric over the items that each side has, by Newcombe's interval for proportions of items and by Welch's
/// for other figures. The p value of proportions is that of the normal test with the pooled share. Returns `None` if
/// either side has fewer than two settled items.
pub(super) fn unpaired(
    metric: &MetricDefinition,
    a: &[ItemShares],
    b: &[ItemShares],
    seeds: (u64, u64),
) -> Option<MetricComparison> {
    let shares = |items: &[ItemShares]| -> Vec<Share> {
        let settled = items.iter().map(|item| settled(item)).filter(|shares| !shares.is_empty());
        settled.map(|shares| sum(&shares)).collect()
    };
    let (a, b) = (shares(a), shares(b));
    let (values_a, values_b) = (linearised(&a)?, linearised(&b)?);
    let ((mean_a, error_a), (mean_b, error_b)) = (mean_and_error(&values_a)?, mean_and_error(&values_b)?);
    let (count_a, count_b) = (a.len() as u64, b.len() as u64);
    let is_binary = metric.kind == MetricKind::Proportion && count_once(&a) && count_once(&b);
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
        let p = if error > 0.0 { p_of_normal(difference / error) } else { 1.0 };
        (difference, interval, p, "newcombe")
    } else {
        let (difference, interval, p) = welch((mean_b, error_b, count_b), (mean_a, error_a, count_a), LEVEL)?;
        (difference, interval, p, "welch")
    };
    let items = count_a.min(count_b);
    let variances = Variances::of_items(standard_error * standard_error * items as f64);
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
        items_needed: items_needed(difference, &variances, ALPHA, POWER),
        flips: None,
        bounds: None,
    })
}
