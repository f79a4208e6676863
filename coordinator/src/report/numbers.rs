//! Numbers as reports show them.

use lumos_benchmarks::Estimate;

use super::model::{MetricReport, PublishedComparison};

/// A share in percent, one decimal.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// A figure in percent; a dash where there is none.
pub(super) fn figure(estimate: Option<&Estimate>) -> String {
    estimate.map_or_else(dash, |estimate| percent(estimate.value))
}

/// `42.1 to 45.0`.
pub(super) fn range((low, high): (f64, f64)) -> String {
    format!("{} to {}", percent(low), percent(high))
}

/// The interval of a figure.
pub(super) fn interval(estimate: Option<&Estimate>) -> String {
    estimate.and_then(|estimate| estimate.interval).map_or_else(dash, range)
}

/// The items a figure is over.
pub(super) fn items(estimate: Option<&Estimate>) -> u64 {
    estimate.map_or(0, |estimate| estimate.items)
}

/// What faulted units could make of the figure; a dash where none has faulted.
pub(super) fn bounds(metric: &MetricReport) -> String {
    metric.bounds.map_or_else(dash, range)
}

/// `47.1 (Lumos-I 7B)`.
pub(super) fn published(comparison: &PublishedComparison) -> String {
    format!("{:.1} ({})", comparison.percent, comparison.system)
}

/// `+3.2, inside`.
pub(super) fn distance(comparison: &PublishedComparison) -> String {
    match (comparison.points, comparison.inside) {
        (Some(points), Some(inside)) => {
            format!("{points:+.1}, {}", if inside { "inside" } else { "outside" })
        }
        (Some(points), None) => format!("{points:+.1}"),
        (None, _) => dash(),
    }
}

/// Seconds with a unit.
pub(super) fn seconds(value: Option<f64>) -> String {
    match value {
        None => dash(),
        Some(value) if value < 1.0 => format!("{:.0} ms", value * 1000.0),
        Some(value) => format!("{value:.1} s"),
    }
}

/// Nothing to show.
pub(super) fn dash() -> String {
    "–".to_owned()
}
