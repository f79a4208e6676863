//! Metrics: what a score holds, how scores add up, how sure one can be of the sum.

mod definition;
mod exact_match;
mod fixed;
mod interval;
mod tally;

pub use definition::MetricDefinition;
pub use exact_match::EXACT_MATCH;
pub(crate) use exact_match::score_number;
pub use interval::{standard_error, wilson};
pub use tally::{Estimate, GroupedTally, Tally};
