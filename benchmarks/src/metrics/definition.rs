//! Definitions of metrics.

use serde::{Serialize, Serializer};

/// Definition of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MetricDefinition {
    /// Name in files and on the command line.
    pub name: &'static str,
    /// Description for display.
    pub description: &'static str,
    /// Possible values of an item, which determine the kind of interval.
    pub kind: MetricKind,
    /// Unit in which the figure is shown.
    pub unit: Unit,
    /// Whether higher figures are better.
    pub higher_is_better: bool,
    /// Whether the metric needs a judge. It then has figures only after a pass of judging, over the judged
    /// items.
    pub judged: bool,
}

/// Possible values of an item, and the resulting 95 % interval of the mean over items.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MetricKind {
    /// 0 or 1, per item or per step: Wilson's score interval.
    Proportion,
    /// Any number between two bounds (F1, rewards): Student's t interval, limited to the bounds. If all
    /// values are equal, in which case a t interval would have no width, Wilson's interval scaled to the
    /// bounds.
    BoundedMean {
        /// Lowest value of an item.
        least: f64,
        /// Highest value of an item.
        most: f64,
    },
    /// Any number: Student's t interval, for at least two items.
    UnboundedMean,
}

/// Unit of a figure; stored in files by its [`name`](Self::name).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A fraction shown in percent.
    Percent,
    /// A number of the named things.
    Count(&'static str),
}

impl Unit {
    /// Returns `percent`, or the name of the counted things.
    pub fn name(self) -> &'static str {
        match self {
            Self::Percent => "percent",
            Self::Count(counted) => counted,
        }
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl MetricKind {
    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Proportion => "proportion",
            Self::BoundedMean { .. } => "bounded_mean",
            Self::UnboundedMean => "unbounded_mean",
        }
    }

    /// Returns the lowest and the highest value of an item, if they are bounded.
    pub fn range(self) -> Option<(f64, f64)> {
        match self {
            Self::Proportion => Some((0.0, 1.0)),
            Self::BoundedMean { least, most } => Some((least, most)),
            Self::UnboundedMean => None,
        }
    }
}

/// Returns the main metric of metrics in the order of reports: the first one, except those of a judge without a value.
///
/// `has_value` is whether a judged metric has a value: of an item, or of any item.
pub fn main_metric<'a>(
    metrics: impl IntoIterator<Item = &'a MetricDefinition>,
    has_value: impl Fn(&MetricDefinition) -> bool,
) -> Option<&'a MetricDefinition> {
    metrics.into_iter().find(|metric| !metric.judged || has_value(metric))
}

impl MetricDefinition {
    /// Defines a fraction of items or steps in percent, where higher is better and no judge is needed.
    pub const fn proportion(name: &'static str, description: &'static str) -> Self {
        Self {
            name,
            description,
            kind: MetricKind::Proportion,
            unit: Unit::Percent,
            higher_is_better: true,
            judged: false,
        }
    }

    /// Defines a mean of values from 0 to 1 in percent, where higher is better and no judge is needed.
    pub(crate) const fn unit_mean(name: &'static str, description: &'static str) -> Self {
        Self {
            kind: MetricKind::BoundedMean { least: 0.0, most: 1.0 },
            ..Self::proportion(name, description)
        }
    }
}
