//! What a metric is.

use serde::{Serialize, Serializer};

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MetricDefinition {
    /// The name in files and on the command line.
    pub name: &'static str,
    /// What it says, for people.
    pub description: &'static str,
    /// What an item's value can be: decides which interval the figure gets.
    pub kind: MetricKind,
    /// How the figure is shown.
    pub unit: Unit,
    /// Whether a higher figure is a better one.
    pub higher_is_better: bool,
    /// Whether a model judges: such a metric has figures only after a pass of judging, over the items judged.
    pub judged: bool,
}

/// What an item's value can be, and with it the 95 % interval of the mean over items.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MetricKind {
    /// 0 or 1, for items or for their steps: Wilson's score interval.
    Proportion,
    /// Any number between two bounds (F1, rewards): Student's t interval, cut off at the bounds; where all values are
    /// equal, so that a t interval would have no width, Wilson's interval stretched over the bounds.
    BoundedMean {
        /// The least value of an item.
        least: f64,
        /// The greatest value of an item.
        most: f64,
    },
    /// Any number: Student's t interval, from two items on.
    UnboundedMean,
}

/// How a figure is shown; in files by its [`name`](Self::name).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// In percent of 1.
    Percent,
    /// As it is, followed by what is counted.
    Count(&'static str),
}

impl Unit {
    /// `percent`, or what is counted.
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
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Proportion => "proportion",
            Self::BoundedMean { .. } => "bounded_mean",
            Self::UnboundedMean => "unbounded_mean",
        }
    }

    /// The least and the greatest value of an item, where there are any.
    pub fn range(self) -> Option<(f64, f64)> {
        match self {
            Self::Proportion => Some((0.0, 1.0)),
            Self::BoundedMean { least, most } => Some((least, most)),
            Self::UnboundedMean => None,
        }
    }
}

impl MetricDefinition {
    /// A share of items or steps, in percent; more is better and no model judges.
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

    /// A mean of values from 0 to 1, in percent; more is better and no model judges.
    pub const fn unit_mean(name: &'static str, description: &'static str) -> Self {
        Self {
            kind: MetricKind::BoundedMean { least: 0.0, most: 1.0 },
            ..Self::proportion(name, description)
        }
    }
}
