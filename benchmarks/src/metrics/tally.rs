//! Sums of scores.
//!
//! A [`Tally`] adds scores in any order with the same result, because it uses fixed-point sums, and returns
//! an [`Estimate`] for each metric. [`GroupedTally`] also keeps a tally per group.

use std::collections::BTreeMap;

use serde::Serialize;

use super::interval::{IntervalMethod, interval_of, weighted_interval_of};
use super::{MetricDefinition, MetricKind};
use crate::score::ItemScore;
use crate::statistics::{clustered_error, standard_error};

/// A number in steps of 2⁻⁶⁰. Each summand is rounded separately and sums are computed in integers, so a sum
/// is independent of order and grouping. The values of scores (counts, rewards in hundredths) are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Fixed(i128);

/// 2⁶⁰.
const STEPS: f64 = (1u64 << 60) as f64;

impl From<f64> for Fixed {
    fn from(value: f64) -> Self {
        // Scaling by a power of two is exact. The conversion saturates and maps NaN to 0.
        Self((value * STEPS).round() as i128)
    }
}

impl From<Fixed> for f64 {
    fn from(value: Fixed) -> Self {
        value.0 as f64 / STEPS
    }
}

impl std::ops::AddAssign for Fixed {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

/// Sums of one metric.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sums {
    /// Number of items with a weight above 0.
    items: u64,
    numerator: Fixed,
    denominator: Fixed,
    /// Sum of squares of each item's value, for the standard error.
    squares: Fixed,
    /// Sum of products of each item's numerator and denominator, for items that count several times.
    products: Fixed,
    /// Sum of squares of each item's denominator.
    weights: Fixed,
}

impl Sums {
    /// Whether every item counts once or not at all.
    fn counts_items(&self) -> bool {
        self.denominator == self.weights
    }
}

/// Sums of scores, independent of the order of items.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    sums: BTreeMap<String, Sums>,
}

/// Figure of a metric over many items.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The value: between 0 and 1 for a proportion, in the metric's unit for a mean.
    pub value: f64,
    /// Sum of achieved values.
    pub numerator: f64,
    /// Sum of weights.
    pub denominator: f64,
    /// Number of scored items with a weight above 0.
    pub items: u64,
    /// Standard error, for at least two items.
    pub standard_error: Option<f64>,
    /// The 95 % interval for the metric's kind ([`MetricKind`](super::MetricKind)). If an item counts several
    /// times (the steps of a task), Wilson's interval with the number of independent trials that follows from
    /// the standard error, scaled to the metric's bounds.
    pub interval: Option<(f64, f64)>,
    /// Method by which the interval was computed.
    pub method: Option<IntervalMethod>,
}

impl Estimate {
    /// Returns the share of correct items, with Wilson's interval; `None` without items.
    pub fn of_share(correct: u64, items: u64) -> Option<Self> {
        let numerator = correct.min(items) as f64;
        let standard_error = standard_error(numerator, numerator, items);
        let (interval, method) = interval_of(MetricKind::Proportion, numerator, items, standard_error)?;
        Some(Self {
            value: numerator / items as f64,
            numerator,
            denominator: items as f64,
            items,
            standard_error,
            interval: Some(interval),
            method: Some(method),
        })
    }
}

impl Tally {
    /// Adds an item's score.
    pub fn add(&mut self, score: &ItemScore) {
        for (metric, share) in score.shares() {
            let sums = self.sums.entry(metric.to_owned()).or_default();
            sums.items += u64::from(share.denominator > 0.0);
            sums.numerator += Fixed::from(share.numerator);
            sums.denominator += Fixed::from(share.denominator);
            sums.squares += Fixed::from(share.numerator * share.numerator);
            sums.products += Fixed::from(share.numerator * share.denominator);
            sums.weights += Fixed::from(share.denominator * share.denominator);
        }
    }

    /// Returns the figure of a metric, or `None` if nothing was scored by it.
    pub fn finish(&self, metric: &MetricDefinition) -> Option<Estimate> {
        let sums = self.sums.get(metric.name)?;
        let (numerator, denominator) = (f64::from(sums.numerator), f64::from(sums.denominator));
        let value = numerator / denominator;
        let (standard_error, interval) = if sums.counts_items() {
            let error = standard_error(numerator, f64::from(sums.squares), sums.items);
            (error, interval_of(metric.kind, numerator, sums.items, error))
        } else {
            let deviations = f64::from(sums.squares) - 2.0 * value * f64::from(sums.products)
                + value * value * f64::from(sums.weights);
            let error = clustered_error(deviations, denominator, sums.items);
            (error, weighted_interval_of(metric.kind, value, error, denominator, sums.items))
        };
        (denominator > 0.0).then_some(Estimate {
            value,
            numerator,
            denominator,
            items: sums.items,
            standard_error,
            interval: interval.map(|(interval, _)| interval),
            method: interval.map(|(_, method)| method),
        })
    }
}

/// Sums of scores over all items and by group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupedTally {
    /// Over all items.
    pub overall: Tally,
    /// By group. Items without a group are in none.
    pub groups: BTreeMap<String, Tally>,
}

impl GroupedTally {
    /// Adds the score of an item. `group` may contain several groups, one per line.
    pub fn add(&mut self, group: Option<&str>, score: &ItemScore) {
        self.overall.add(score);
        for group in group.into_iter().flat_map(|groups| groups.split('\n')) {
            self.groups.entry(group.to_owned()).or_default().add(score);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::metrics::{EXACT_MATCH, Unit};
    use crate::score::Share;
    use crate::statistics::{LEVEL, student_interval, wilson};

    const REWARD: MetricDefinition = MetricDefinition::unit_mean("reward", "a mean");
    const STEPS: MetricDefinition = MetricDefinition::proportion("steps", "a share of steps");

    fn reward(value: f64) -> ItemScore {
        ItemScore::default().with("reward", Share::once(value))
    }

    #[test]
    fn figures_of_a_share() {
        let mut tally = Tally::default();
        for met in [true, false, true, true] {
            tally.add(&ItemScore::met("exact_match", met));
        }
        let estimate = tally.finish(&EXACT_MATCH).unwrap();
        assert_eq!((estimate.value, estimate.items), (0.75, 4));
        assert_eq!(estimate.standard_error, Some(0.25));
        assert_eq!(Estimate::of_share(3, 4), Some(estimate));
        assert_eq!((Estimate::of_share(0, 0), Estimate::of_share(9, 1).unwrap().value), (None, 1.0));
        assert_eq!(tally.finish(&REWARD), None);
        assert_eq!(tally.sums.keys().collect::<Vec<_>>(), ["exact_match"]);
    }

    #[test]
    fn the_kind_of_a_metric_decides_its_interval() {
        const TURNS: MetricDefinition = MetricDefinition {
            kind: MetricKind::BoundedMean { least: 0.0, most: 10.0 },
            unit: Unit::Count("turns"),
            ..MetricDefinition::unit_mean("turns", "turns taken")
        };
        let mut tally = Tally::default();
        for turns in [4.0, 8.0, 10.0] {
            tally.add(&ItemScore::met("exact_match", turns < 9.0).with("turns", Share::once(turns)));
        }
        let turns = tally.finish(&TURNS).unwrap();
        assert!((turns.value - 22.0 / 3.0).abs() < 1e-12);
        assert_eq!(turns.method, Some(IntervalMethod::StudentT));
        let (low, high) = turns.interval.unwrap();
        assert!(low < 4.0 && high == 10.0, "{low} {high}");
        let share = tally.finish(&EXACT_MATCH).unwrap();
        assert_eq!((share.interval, share.method), (wilson(2.0, 3.0, 0.95), Some(IntervalMethod::Wilson)));
    }

    #[test]
    fn items_that_count_several_times_are_clusters() {
        let steps =
            |numerator, denominator| ItemScore::default().with("steps", Share { numerator, denominator });
        let mut tally = Tally::default();
        // Two tasks entirely right and two entirely wrong: at most four trials, for any number of steps.
        for score in [steps(10.0, 10.0), steps(0.0, 10.0), steps(10.0, 10.0), steps(0.0, 10.0)] {
            tally.add(&score);
        }
        let clustered = tally.finish(&STEPS).unwrap();
        let mut tally = Tally::default();
        for _ in 0..4 {
            tally.add(&steps(5.0, 10.0));
        }
        let alike = tally.finish(&STEPS).unwrap();
        assert_eq!((clustered.value, alike.value), (0.5, 0.5));
        assert!((clustered.standard_error.unwrap() - (1.0f64 / 12.0).sqrt()).abs() < 1e-12);
        assert_eq!(alike.standard_error, Some(0.0));
        let width = |estimate: &Estimate| estimate.interval.map(|(low, high)| high - low).unwrap();
        assert!(width(&clustered) > 2.0 * width(&alike), "{clustered:?} {alike:?}");
        assert_eq!(alike.interval, wilson(20.0, 40.0, 0.95));
        assert_eq!(alike.method, Some(IntervalMethod::ClusteredWilson));
    }

    #[test]
    fn intervals_of_weighted_means_have_the_unit_of_the_metric() {
        let finish = |kind: MetricKind, shares: [(f64, f64); 3]| {
            let mut tally = Tally::default();
            for (numerator, denominator) in shares {
                tally.add(&ItemScore::default().with("steps", Share { numerator, denominator }));
            }
            tally.finish(&MetricDefinition { kind, ..STEPS }).unwrap()
        };
        let shares = [(1.0, 4.0), (2.0, 2.0), (4.0, 4.0)];
        let share = finish(MetricKind::Proportion, shares);
        assert_eq!(finish(MetricKind::BoundedMean { least: 0.0, most: 1.0 }, shares), share);
        let limits = share.interval.unwrap();
        for (least, most) in [(0.0, 100.0), (-1.0, 1.0)] {
            let range = most - least;
            let scaled = shares.map(|(numerator, weight)| (least * weight + range * numerator, weight));
            let mean = finish(MetricKind::BoundedMean { least, most }, scaled);
            let (low, high) = mean.interval.unwrap();
            let (low, high) = ((low - least) / range, (high - least) / range);
            assert!((low - limits.0).abs() < 1e-9 && (high - limits.1).abs() < 1e-9, "{mean:?} {share:?}");
            assert_eq!(mean.method, Some(IntervalMethod::ClusteredWilson));
        }
        let mean = finish(MetricKind::UnboundedMean, shares);
        assert_eq!(mean.interval, student_interval(mean.value, mean.standard_error.unwrap(), 3, LEVEL));
        assert_eq!(mean.method, Some(IntervalMethod::StudentT));
    }

    #[test]
    fn items_without_weight_do_not_count() {
        let share = |weight: f64| {
            ItemScore::default().with("steps", Share { numerator: weight, denominator: weight })
        };
        let mut tally = Tally::default();
        for weight in [1.0, 0.0, 1.0, 0.0, 1.0, 0.0] {
            tally.add(&share(weight));
        }
        assert_eq!(tally.finish(&STEPS), Estimate::of_share(3, 3));
        let mut tally = Tally::default();
        tally.add(&share(0.0));
        assert_eq!(tally.finish(&STEPS), None);
    }

    #[test]
    fn groups_are_added_up_apart() {
        let mut tally = GroupedTally::default();
        tally.add(Some("Addition"), &ItemScore::met("exact_match", true));
        tally.add(Some("Subtraction"), &ItemScore::met("exact_match", false));
        tally.add(None, &ItemScore::met("exact_match", false));
        let value = |tally: &Tally| tally.finish(&EXACT_MATCH).unwrap().numerator;
        assert_eq!(value(&tally.overall), 1.0);
        assert_eq!(
            tally.groups.iter().map(|(name, tally)| (name.as_str(), value(tally))).collect::<Vec<_>>(),
            [("Addition", 1.0), ("Subtraction", 0.0)]
        );
    }

    proptest! {
        #[test]
        fn the_order_does_not_matter(values in proptest::collection::vec(0.0f64..=1.0, 0..40), by in 0usize..40) {
            let sum = |values: &[f64]| {
                let mut tally = Tally::default();
                values.iter().for_each(|value| tally.add(&reward(*value)));
                tally
            };
            let whole = sum(&values);
            let mut other = values.clone();
            other.rotate_left(by.min(values.len()));
            other.reverse();
            prop_assert_eq!(sum(&other), whole);
        }
    }
}
