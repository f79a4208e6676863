//! Metrics: what a score holds, how scores add up, how sure one can be of the sum.

mod definition;
mod exact_match;
mod fixed;
mod interval;
mod tally;
mod text;

pub use definition::{MetricDefinition, MetricKind, Unit};
pub use exact_match::EXACT_MATCH;
pub(crate) use exact_match::score_number;
pub use interval::{IntervalMethod, standard_error, wilson};
pub use tally::{Estimate, GroupedTally, Tally};
pub use text::{ACCURACY, F1, f1, normalise, says_yes};
pub(crate) use text::{score_words, score_yes_or_no};

use lumos_tasks::Outcome;
use lumos_tasks::outcome::Value;

/// An outcome's prediction, where it has one that is a text.
pub(crate) fn prediction(outcome: &Outcome) -> Option<&str> {
    match outcome.evidence.as_ref()?.plan()?.prediction.as_ref()? {
        Value::Text(text) => Some(text),
        Value::List(_) => None,
    }
}
