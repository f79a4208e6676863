//! Metrics: definitions, per-item values, sums and intervals.
//!
//! A [`MetricDefinition`] describes a metric. A [`Tally`] sums the scores of items, in any order, and returns
//! an [`Estimate`] with standard error and 95 % interval for each metric.

mod definition;
mod exact_match;
mod interval;
mod tally;
mod text;

pub use definition::{MetricDefinition, MetricKind, Unit, main_metric};
pub(crate) use exact_match::{EXACT_MATCH, score_number, score_value, value};
pub use interval::IntervalMethod;
pub use tally::{Estimate, GroupedTally, Tally};
pub(crate) use text::{ACCURACY, F1, f1, normalise, says_yes, score_words, score_yes_or_no, verdict};

use lumos_tasks::Outcome;
use lumos_tasks::outcome::Value;

/// Returns an outcome's prediction, if it is a string.
pub fn prediction(outcome: &Outcome) -> Option<&str> {
    match outcome.evidence.as_ref()?.plan()?.prediction.as_ref()? {
        Value::Text(text) => Some(text),
        Value::List(_) => None,
    }
}
