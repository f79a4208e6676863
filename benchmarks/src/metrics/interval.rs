//! Choice of a figure's 95 % interval by the kind of its metric. The formulas are in [`crate::statistics`].

use serde::Serialize;

use super::definition::MetricKind;
use crate::statistics::{LEVEL, Limits, student_interval, wilson};

/// Method by which a 95 % interval was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalMethod {
    /// Wilson's score interval.
    Wilson,
    /// Wilson's score interval with the effective number of trials, scaled to the metric's bounds, for items that count
    /// several times.
    ClusteredWilson,
    /// Student's t interval, limited to the metric's bounds.
    StudentT,
    /// Wilson's score interval, scaled to the bounds of a mean whose values are all equal.
    StretchedWilson,
}

impl IntervalMethod {
    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wilson => "wilson",
            Self::ClusteredWilson => "clustered_wilson",
            Self::StudentT => "student_t",
            Self::StretchedWilson => "stretched_wilson",
        }
    }
}

/// Bounds of an interval, and the method.
pub(super) type Interval = (Limits, IntervalMethod);

/// Values that differ by less than this fraction of the range (or of 1) count as equal, because sums are
/// rounded.
const EQUAL: f64 = 1e-9;

/// The 95 % interval of a figure over items that count once each; `None` if it cannot be computed.
///
/// A bounded value has at most the variance of one that equals either bound, so Wilson's interval of a
/// bounded mean is never too narrow.
pub(super) fn interval_of(
    kind: MetricKind,
    sum: f64,
    items: u64,
    standard_error: Option<f64>,
) -> Option<Interval> {
    let mean = sum / items as f64;
    match kind {
        MetricKind::Proportion => Some((wilson(sum, items as f64, LEVEL)?, IntervalMethod::Wilson)),
        MetricKind::UnboundedMean => {
            Some((student_interval(mean, standard_error?, items, LEVEL)?, IntervalMethod::StudentT))
        }
        MetricKind::BoundedMean { least, most } => {
            let range = most - least;
            if let Some(error) = standard_error.filter(|error| *error > EQUAL * range) {
                let (low, high) = student_interval(mean, error, items, LEVEL)?;
                return Some(((low.max(least), high.min(most)), IntervalMethod::StudentT));
            }
            let items = items as f64;
            let (low, high) = wilson((mean - least) / range * items, items, LEVEL)?;
            Some(((least + low * range, least + high * range), IntervalMethod::StretchedWilson))
        }
    }
}

/// The 95 % interval of a figure over items that count several times, with the error between items; `None` if it cannot be
/// computed.
pub(super) fn weighted_interval_of(
    kind: MetricKind,
    mean: f64,
    standard_error: Option<f64>,
    weight: f64,
    items: u64,
) -> Option<Interval> {
    let Some((least, most)) = kind.range() else {
        return Some((student_interval(mean, standard_error?, items, LEVEL)?, IntervalMethod::StudentT));
    };
    let range = most - least;
    let error = standard_error.map(|error| error / range);
    let (low, high) = clustered_interval((mean - least) / range, error, weight, items)?;
    Some(((least + low * range, least + high * range), IntervalMethod::ClusteredWilson))
}

/// Wilson's 95 % interval of a proportion whose trials come in clusters, with the number of independent trials that would have the
/// same standard error (the effective sample size), between one and the number of trials. If the standard
/// error is not informative, because there is one cluster or everything is right or wrong, uses the number of
/// clusters.
fn clustered_interval(share: f64, standard_error: Option<f64>, trials: f64, clusters: u64) -> Option<Limits> {
    let clusters = clusters as f64;
    let effective = match standard_error {
        Some(error) if share > 0.0 && share < 1.0 => (share * (1.0 - share) / (error * error)).min(trials),
        _ => clusters.min(trials),
    };
    let effective = effective.max(1.0);
    wilson(share * effective, effective, LEVEL)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::statistics::standard_error;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 5e-5
    }

    /// Returns the interval of these values.
    fn of(kind: MetricKind, values: &[f64]) -> Option<Interval> {
        let (sum, squares) = (values.iter().sum(), values.iter().map(|value| value * value).sum());
        let items = values.len() as u64;
        interval_of(kind, sum, items, standard_error(sum, squares, items))
    }

    const UNIT: MetricKind = MetricKind::BoundedMean { least: 0.0, most: 1.0 };
    const TURNS: MetricKind = MetricKind::BoundedMean { least: 0.0, most: 10.0 };

    #[test]
    fn means_have_students_interval() {
        // scipy.stats.t.interval(0.95, n - 1, mean, sem).
        let values = [1.0, 0.0, 0.5, 1.0, 0.25, 0.75, 1.0, 0.0];
        for kind in [UNIT, MetricKind::UnboundedMean] {
            let ((low, high), method) = of(kind, &values).unwrap();
            assert!((low - 0.196_208_058_226_046_64).abs() < 1e-9, "{low}");
            assert!((high - 0.928_791_941_773_953_4).abs() < 1e-9, "{high}");
            assert_eq!(method, IntervalMethod::StudentT);
        }
    }

    #[test]
    fn bounded_means_stay_within_their_bounds_and_equal_values_prove_little() {
        // 4, 8 and 10 turns: the mean is 7.33, and the maximum is 10.
        let ((low, high), _) = of(TURNS, &[4.0, 8.0, 10.0]).unwrap();
        assert_eq!((low, high), (0.0, 10.0), "half the width is 7.59");
        let ((low, high), method) = of(TURNS, &[10.0; 3]).unwrap();
        assert_eq!((high, method), (10.0, IntervalMethod::StretchedWilson));
        assert!(close(low / 10.0, wilson(3.0, 3.0, LEVEL).unwrap().0), "{low}");
        assert_eq!(
            of(UNIT, &[0.1; 3]).unwrap().1,
            IntervalMethod::StretchedWilson,
            "a rounding error does not count as variance"
        );
        assert!(of(UNIT, &[0.5]).is_some());
        assert_eq!(of(MetricKind::UnboundedMean, &[7.0]), None, "one value proves nothing");
        assert_eq!(of(MetricKind::UnboundedMean, &[7.0, 7.0]).unwrap().0, (7.0, 7.0));
        assert_eq!(of(UNIT, &[]), None);
    }

    proptest! {
        #[test]
        fn intervals_of_means_hold_the_mean(values in proptest::collection::vec(-1.0f64..=1.0, 1..40)) {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let kind = MetricKind::BoundedMean { least: -1.0, most: 1.0 };
            let ((low, high), _) = of(kind, &values).unwrap();
            prop_assert!(-1.0 <= low && low <= mean + 1e-9 && mean <= high + 1e-9 && high <= 1.0);
        }

        #[test]
        fn intervals_hold_the_share(items in 1u32..5000, part in 0.0f64..=1.0) {
            let successes = (f64::from(items) * part).floor();
            let share = successes / f64::from(items);
            let (low, high) = wilson(successes, f64::from(items), LEVEL).unwrap();
            prop_assert!(0.0 <= low && low <= share + 1e-12 && share <= high + 1e-12 && high <= 1.0);
        }
    }
}
