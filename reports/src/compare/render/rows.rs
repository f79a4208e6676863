//! Texts and rows shared by the formats.

use lumos_benchmarks::Unit;
use lumos_benchmarks::statistics::Limits;

use crate::compare::model::{FlippedItem, PairComparison};
use crate::display::{shortened, thousands};
use crate::report::{number, signed};
use crate::results::MetricComparison;

/// Maximum length of a text of an item, in characters.
const ITEM_TEXT: usize = 160;

/// Column names of [`figures`].
pub(super) const FIGURES: [&str; 7] = ["metric", "A", "B", "B − A", "95 %", "p", "detects"];

/// What the columns mean.
pub(super) const COLUMNS: &str = "95 %: interval of the difference. p: two-sided, of one metric; p values adjusted for all metrics are in the JSON \
                                  format. detects: the smallest difference that this many items show with 80 % power.";

/// Returns one row per metric.
pub(super) fn figures(pair: &PairComparison) -> Vec<Vec<String>> {
    pair.metrics
        .iter()
        .map(|metric| {
            vec![
                metric.metric.clone(),
                figure(metric.a, metric.unit),
                figure(metric.b, metric.unit),
                signed(metric.difference, metric.unit),
                signed_range(metric.interval, metric.unit),
                p_value(metric.p_value),
                detectable(metric),
            ]
        })
        .collect()
}

fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{} %", number(value, unit)),
        Unit::Count(_) => number(value, unit),
    }
}

/// Formats `−3.1 to +4.2`.
fn signed_range((low, high): Limits, unit: Unit) -> String {
    format!("{} to {}", signed(low, unit), signed(high, unit))
}

/// Formats the smallest detectable difference; a dash if all items differ equally, because their variance is then unknown.
fn detectable(metric: &MetricComparison) -> String {
    if metric.standard_error > 0.0 { number(metric.detectable, metric.unit) } else { "–".to_owned() }
}

fn p_value(p: f64) -> String {
    if p < 0.0001 { "<0.0001".to_owned() } else { format!("{p:.4}") }
}

/// Returns the heading of a pair: `GSM8K iterative paper: A = before, B = after`.
pub(super) fn heading(pair: &PairComparison) -> String {
    let group = if pair.group.is_empty() { String::new() } else { format!(" {}", pair.group) };
    format!("{}{group}: A = {}, B = {}", pair.title, pair.pair.0, pair.pair.1)
}

/// Describes the compared items: `1,319 items, 2 and 3 seeds, clustered by 20 databases`.
pub(super) fn items(pair: &PairComparison) -> String {
    let Some(metric) = pair.metrics.first() else { return String::new() };
    let mut line = if pair.paired {
        format!("{} items settled on both sides", thousands(metric.items))
    } else {
        format!("different items, at least {} on each side", thousands(metric.items))
    };
    if metric.seeds != (1, 1) {
        line.push_str(&format!(", {} and {} seeds pooled by item", metric.seeds.0, metric.seeds.1));
    }
    if let Some(clusters) = metric.clusters {
        line.push_str(&format!(", in {} clusters", thousands(clusters)));
    }
    line
}

/// Describes the items that changed between right and wrong, for every proportion, and how many items would be needed
/// to show the observed difference of the first metric.
pub(super) fn notes(pair: &PairComparison) -> Vec<String> {
    let mut lines: Vec<String> = pair.metrics.iter().filter_map(flips).collect();
    let Some(main) = pair.metrics.first() else { return lines };
    if !pair.otherwise_different.is_empty() {
        let items = thousands(pair.otherwise_different.len() as u64);
        lines.push(format!(
            "items with the same result, but another cause, number of turns or of tokens: {items}"
        ));
    }
    if let Some(needed) = main.items_needed.filter(|_| main.difference.abs() < main.detectable) {
        let needed = thousands(needed);
        lines
            .push(format!("about {needed} items would be needed to show this difference of {}", main.metric));
    }
    if let Some(bounds) = main.bounds {
        let bounds = signed_range(bounds, main.unit);
        lines.push(format!("with units that are not settled as wrong or right: {bounds}"));
    }
    lines
}

fn flips(metric: &MetricComparison) -> Option<String> {
    let flips = metric.flips?;
    let majority = if metric.seeds == (1, 1) { "" } else { " (by most seeds)" };
    Some(format!(
        "{}{majority}: {} right in both, {} only in A, {} only in B, {} wrong in both",
        metric.metric,
        thousands(flips.both_right),
        thousands(flips.only_a),
        thousands(flips.only_b),
        thousands(flips.both_wrong)
    ))
}

/// Returns the rows of the settings that differ.
pub(super) fn settings(pair: &PairComparison) -> Vec<Vec<String>> {
    pair.settings.iter().map(|one| vec![one.setting.clone(), one.a.clone(), one.b.clone()]).collect()
}

/// Returns the lists of changed items with their headings.
pub(super) fn lists(pair: &PairComparison) -> [(String, &[FlippedItem]); 3] {
    let heading = |what: &str, items: &[FlippedItem]| format!("{what}: {}", thousands(items.len() as u64));
    [
        (heading("newly wrong", &pair.newly_wrong), pair.newly_wrong.as_slice()),
        (heading("newly right", &pair.newly_right), pair.newly_right.as_slice()),
        (heading("same result, otherwise different", &pair.otherwise_different), &pair.otherwise_different),
    ]
}

/// Returns the lists for texts that people read from top to bottom: items with the same result only if no result changed.
pub(super) fn short_lists(pair: &PairComparison) -> impl Iterator<Item = (String, &[FlippedItem])> {
    let unchanged = pair.newly_wrong.is_empty() && pair.newly_right.is_empty();
    lists(pair).into_iter().take(if unchanged { 3 } else { 2 })
}

/// Describes an item whose texts were read.
pub(super) fn item(flipped: &FlippedItem) -> Option<String> {
    let texts = flipped.texts.as_ref()?;
    let name = flipped.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let said = |prediction: &Option<String>, cause: &str| match prediction {
        Some(text) => format!("{} ({cause})", shortened(text.trim(), ITEM_TEXT)),
        None => cause.to_owned(),
    };
    Some(format!(
        "item {}{name}: {} Gold {}. A: {}. B: {}.",
        flipped.item,
        shortened(&texts.task, ITEM_TEXT),
        shortened(&texts.gold, ITEM_TEXT),
        said(&texts.prediction_a, flipped.cause_a),
        said(&texts.prediction_b, flipped.cause_b)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_p_values_are_bounded() {
        assert_eq!((p_value(0.000_01), p_value(0.0703)), ("<0.0001".to_owned(), "0.0703".to_owned()));
    }
}
