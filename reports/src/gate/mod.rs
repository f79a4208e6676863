//! Checks a run against a baseline (`lumos gate`): pass, fail or cannot tell.
//!
//! [`gate`] pairs the items of a candidate with those of a [`BaselineSource`], a run or a [`BaselineFile`], and applies
//! [`GateRules`]: not worse than the baseline by more than a margin, thresholds of metrics, and items that must be
//! correct. "Not significantly worse" is not a pass: the one-sided limit of the difference must be above the margin.

mod baseline;
mod model;
mod render;
mod rules;
mod scored;
mod verdict;

pub use baseline::{BaselineError, BaselineFile};
pub use model::{GateCheck, GateReport, GateVerdict};
pub use render::GateFormat;
pub use rules::{AllowedDifference, GateRules, InvalidRule, ItemRef, MetricThreshold};
pub use verdict::{BaselineSource, gate};

#[cfg(test)]
mod tests;
