//! What a metric is.

use serde::Serialize;

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MetricDefinition {
    /// The name in files and on the command line.
    pub name: &'static str,
    /// What it says, for people.
    pub description: &'static str,
    /// Whether a higher figure is a better one.
    pub higher_is_better: bool,
    /// Whether a model judges: such a metric has figures only after a pass of judging, over the items judged.
    pub judged: bool,
}
