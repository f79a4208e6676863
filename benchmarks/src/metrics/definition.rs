//! Definitions of metrics.

use serde::{Serialize, Serializer};

use crate::score::Share;

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
    /// Any number: Student's t interval, for at least two items. Items never have the full score.
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

    /// Whether the full score of this metric makes an item correct. If lower is better (number of turns), only in the main
    /// metric.
    pub fn decides(&self, main: Option<&Self>) -> bool {
        self.higher_is_better || main.is_some_and(|main| main.name == self.name)
    }

    /// Whether an item has the full score: the highest possible value, or the lowest if lower is better. Always
    /// `false` for weight 0 and metrics without bounds.
    pub fn is_full(&self, share: Share) -> bool {
        let Share { numerator, denominator } = share;
        let Some((least, most)) = self.kind.range() else { return false };
        // Multiplied instead of divided, so that rounding does not change a weighted value.
        let is_best = if self.higher_is_better {
            numerator >= most * denominator
        } else {
            numerator <= least * denominator
        };
        denominator > 0.0 && is_best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_score_is_the_best_possible_value() {
        const SOLVED: MetricDefinition = MetricDefinition::proportion("solved", "");
        let bounded = |least, most| MetricDefinition {
            kind: MetricKind::BoundedMean { least, most },
            ..MetricDefinition::unit_mean("bounded", "")
        };
        let lower = |metric: MetricDefinition| MetricDefinition { higher_is_better: false, ..metric };
        let full = |metric: &MetricDefinition, values: [f64; 4]| {
            values.map(|value| metric.is_full(Share { numerator: 3.0 * value, denominator: 3.0 }))
        };
        assert_eq!(full(&SOLVED, [0.0, 0.99, 1.0, 1.5]), [false, false, true, true]);
        assert_eq!(full(&lower(SOLVED), [0.0, 0.01, 1.0, -0.5]), [true, false, false, true]);
        assert_eq!(full(&bounded(0.0, 10.0), [0.0, 1.0, 9.9, 10.0]), [false, false, false, true]);
        assert_eq!(full(&bounded(-1.0, 1.0), [-1.0, 0.0, 0.5, 1.0]), [false, false, false, true]);
        assert_eq!(full(&lower(bounded(0.0, 100.0)), [0.0, 0.5, 1.0, 100.0]), [true, false, false, false]);
        assert_eq!(full(&lower(bounded(2.0, 5.0)), [1.0, 2.0, 2.5, 5.0]), [true, true, false, false]);
        let unbounded = MetricDefinition { kind: MetricKind::UnboundedMean, ..SOLVED };
        assert_eq!(full(&unbounded, [-1.0, 0.0, 1.0, 1e9]), [false; 4]);
        for metric in [SOLVED, lower(SOLVED)] {
            assert!(!metric.is_full(Share { numerator: 0.0, denominator: 0.0 }), "weight 0");
        }
    }
}
