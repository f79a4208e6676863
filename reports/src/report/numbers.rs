//! Formats numbers for reports.

use lumos_benchmarks::{Estimate, Unit};

use super::model::{MetricReport, PublishedComparison};

/// Formats a fraction in percent with one decimal.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// Formats a value for a unit, without the unit's symbol.
pub(crate) fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => percent(value),
        Unit::Count(_) => format!("{value:.2}"),
    }
}

/// Formats a difference with its sign, in percentage points or the metric's unit. A rounded 0 has no sign.
pub(crate) fn signed(value: f64, unit: Unit) -> String {
    let text = number(value, unit);
    match text.trim_start_matches('-') {
        zero if zero.chars().all(|digit| matches!(digit, '0' | '.')) => zero.to_owned(),
        positive if positive.len() == text.len() => format!("+{text}"),
        negative => format!("−{negative}"),
    }
}

/// Appends the unit: `47.1 %`, `7.33 turns`.
pub(crate) fn with_unit(number: &str, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{number} %"),
        Unit::Count(counted) => format!("{number} {counted}"),
    }
}

/// Formats a figure with its unit; a dash if it is missing.
pub(super) fn figure(estimate: Option<&Estimate>, unit: Unit) -> String {
    estimate.map_or_else(dash, |estimate| with_unit(&number(estimate.value, unit), unit))
}

/// Formats `42.1 to 45.0`.
pub(super) fn range((low, high): (f64, f64), unit: Unit) -> String {
    format!("{} to {}", number(low, unit), number(high, unit))
}

/// Formats the interval of a figure, in the figure's unit.
pub(super) fn interval(estimate: Option<&Estimate>, unit: Unit) -> String {
    estimate.and_then(|estimate| estimate.interval).map_or_else(dash, |interval| range(interval, unit))
}

/// Number of items behind a figure.
pub(super) fn items(estimate: Option<&Estimate>) -> u64 {
    estimate.map_or(0, |estimate| estimate.items)
}

/// Formats the bounds that result from faulted units, with the unit; a dash if there are none.
pub(super) fn bounds(metric: &MetricReport) -> String {
    metric.bounds.map_or_else(dash, |bounds| with_unit(&range(bounds, metric.unit), metric.unit))
}

/// Formats `47.1 % (Lumos-I 7B)`.
pub(super) fn published(comparison: &PublishedComparison) -> String {
    format!("{:.1} % ({})", comparison.percent, comparison.system)
}

/// Formats `+3.2, inside`, or the reasons why the figures are not comparable: `30 of 1,319 items`.
pub(super) fn distance(comparison: &PublishedComparison) -> String {
    match (comparison.points, comparison.inside) {
        (Some(points), Some(inside)) => {
            format!(
                "{}, {}",
                signed(points / 100.0, Unit::Percent),
                if inside { "inside" } else { "outside" }
            )
        }
        (Some(points), None) => signed(points / 100.0, Unit::Percent),
        (None, _) => comparison.not_compared.first().cloned().unwrap_or_else(dash),
    }
}

/// Formats the comparison with all published figures of a metric, one per line, or all reasons why they are
/// not comparable.
pub(super) fn distances(metric: &MetricReport) -> String {
    match metric.published.as_slice() {
        [] => dash(),
        [first, ..] if !first.not_compared.is_empty() => first.not_compared.join("; "),
        all => all.iter().map(distance).collect::<Vec<_>>().join("\n"),
    }
}

/// Formats seconds with a unit.
pub(super) fn seconds(value: Option<f64>) -> String {
    match value {
        None => dash(),
        Some(value) if value < 1.0 => format!("{:.0} ms", value * 1000.0),
        Some(value) => format!("{value:.1} s"),
    }
}

/// Formats a duration: `12.5 s`, `4 min 05 s`, `2 h 03 min`.
pub(super) fn duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time that was measured")]
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// The text for a missing value.
pub(super) fn dash() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_a_sign_and_zero_has_none() {
        assert_eq!(signed(0.031, Unit::Percent), "+3.1");
        assert_eq!(signed(-0.031, Unit::Percent), "−3.1");
        assert_eq!(signed(-0.000_01, Unit::Percent), "0.0");
        assert_eq!(signed(1.5, Unit::Count("turns")), "+1.50");
    }

    #[test]
    fn times_are_shown_for_people() {
        let shown = [0.04, 12.5, 59.96, 245.0, 7384.0].map(duration);
        assert_eq!(shown, ["0.0 s", "12.5 s", "1 min 00 s", "4 min 05 s", "2 h 03 min"]);
    }
}
