//! F1 between two actions written as text.

use std::collections::BTreeSet;

use lumos_tasks::python::is_space;

/// F1 between the sets of words of two texts; 1 if both are empty, 0 if one is empty.
pub(super) fn f1(prediction: &str, gold: &str) -> f64 {
    of_sets(&words(prediction), &words(gold))
}

/// Returns the words of a text.
pub(super) fn words(text: &str) -> BTreeSet<&str> {
    text.split(is_space).filter(|word| !word.is_empty()).collect()
}

/// F1 between two sets of words.
pub(super) fn of_sets(prediction: &BTreeSet<&str>, gold: &BTreeSet<&str>) -> f64 {
    if prediction.is_empty() && gold.is_empty() {
        return 1.0;
    }
    if prediction.is_empty() || gold.is_empty() {
        return 0.0;
    }
    let same = prediction.intersection(gold).count() as f64;
    let (precision, recall) = (same / prediction.len() as f64, same / gold.len() as f64);
    if precision == 0.0 || recall == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }
}

/// Formats an action for official scoring: its name, and its value if it has one.
pub(super) fn written(operation: &str, value: &str) -> String {
    if operation == "CLICK" { operation.to_owned() } else { format!("{operation} {value}") }
}
