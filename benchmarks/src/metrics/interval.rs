//! Confidence intervals and standard errors of proportions and means.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::definition::MetricKind;

/// The 97.5th percentile of the standard normal distribution.
const NORMAL_95: f64 = 1.959_963_984_540_054;

/// Wilson's 95 % score interval of a proportion (Wilson 1927): the proportions that a test at that level
/// would not reject. Returns `None` without items.
pub(crate) fn wilson(successes: f64, items: f64) -> Option<(f64, f64)> {
    if items.is_nan() || items <= 0.0 {
        return None;
    }
    let share = (successes / items).clamp(0.0, 1.0);
    let squared = NORMAL_95 * NORMAL_95;
    let scale = 1.0 + squared / items;
    let centre = (share + squared / (2.0 * items)) / scale;
    let spread = share * (1.0 - share) / items + squared / (4.0 * items * items);
    let half = NORMAL_95 * spread.sqrt() / scale;
    Some(((centre - half).max(0.0), (centre + half).min(1.0)))
}

/// Method by which a 95 % interval was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalMethod {
    /// Wilson's score interval.
    Wilson,
    /// Wilson's score interval with the effective number of trials, for items that count several times.
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
pub(super) type Interval = ((f64, f64), IntervalMethod);

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
        MetricKind::Proportion => Some((wilson(sum, items as f64)?, IntervalMethod::Wilson)),
        MetricKind::UnboundedMean => Some((student(mean, standard_error?, items)?, IntervalMethod::StudentT)),
        MetricKind::BoundedMean { least, most } => {
            let range = most - least;
            if let Some(error) = standard_error.filter(|error| *error > EQUAL * range) {
                let (low, high) = student(mean, error, items)?;
                return Some(((low.max(least), high.min(most)), IntervalMethod::StudentT));
            }
            let items = items as f64;
            let (low, high) = wilson((mean - least) / range * items, items)?;
            Some(((least + low * range, least + high * range), IntervalMethod::StretchedWilson))
        }
    }
}

/// Student's 95 % interval of a mean; `None` for fewer than two items.
fn student(mean: f64, standard_error: f64, items: u64) -> Option<(f64, f64)> {
    let distribution = StudentsT::new(0.0, 1.0, items.checked_sub(1)? as f64).ok()?;
    let half = distribution.inverse_cdf(0.975) * standard_error;
    Some((mean - half, mean + half))
}

/// Standard error of a mean, from the sums of `items` values and of their squares: the sample standard
/// deviation divided by the square root of the sample size, as reported by lm-eval. `None` for fewer than two
/// items.
pub(crate) fn standard_error(sum: f64, sum_of_squares: f64, items: u64) -> Option<f64> {
    if items < 2 {
        return None;
    }
    let items = items as f64;
    let variance = (sum_of_squares - sum * sum / items).max(0.0) / (items - 1.0);
    Some((variance / items).sqrt())
}

/// Standard error of a proportion whose trials come in clusters (the steps of a task), from the sum over
/// clusters of the squared deviations of the numerator from the expected share of the denominator: the
/// linearised ratio estimator (Cochran 1977, section 6.4), with one degree of freedom less than there are
/// clusters. `None` for fewer than two clusters.
pub(crate) fn clustered_error(deviations: f64, trials: f64, clusters: u64) -> Option<f64> {
    if clusters < 2 || trials <= 0.0 {
        return None;
    }
    let clusters = clusters as f64;
    Some((deviations.max(0.0) * clusters / (clusters - 1.0)).sqrt() / trials)
}

/// Wilson's 95 % interval of such a proportion, with the number of independent trials that would have the
/// same standard error (the effective sample size), between one and the number of trials. If the standard
/// error is not informative, because there is one cluster or everything is right or wrong, uses the number of
/// clusters.
pub(crate) fn clustered_interval(
    share: f64,
    standard_error: Option<f64>,
    trials: f64,
    clusters: u64,
) -> Option<(f64, f64)> {
    let clusters = clusters as f64;
    let effective = match standard_error {
        Some(error) if share > 0.0 && share < 1.0 => (share * (1.0 - share) / (error * error)).min(trials),
        _ => clusters.min(trials),
    };
    let effective = effective.max(1.0);
    wilson(share * effective, effective)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 5e-5
    }

    #[test]
    fn known_intervals() {
        // Newcombe (1998), Statistics in Medicine 17: 857-872, table I, method 3.
        for (successes, items, low, high) in [
            (81.0, 263.0, 0.2553, 0.3662),
            (15.0, 148.0, 0.0624, 0.1605),
            (0.0, 20.0, 0.0, 0.1611),
            (1.0, 29.0, 0.0061, 0.1718),
        ] {
            let (lower, upper) = wilson(successes, items).unwrap();
            assert!(close(lower, low) && close(upper, high), "{successes}/{items}: {lower} {upper}");
        }
        assert_eq!(wilson(0.0, 0.0), None);
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
        assert!(close(low / 10.0, wilson(3.0, 3.0).unwrap().0), "{low}");
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

    #[test]
    fn known_standard_errors() {
        // 1, 0, 1, 1: mean 0.75, sample variance 0.25.
        assert_eq!(standard_error(3.0, 3.0, 4), Some(0.25));
        assert_eq!(standard_error(5.0, 5.0, 5), Some(0.0));
        assert_eq!(standard_error(1.0, 1.0, 1), None);
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
            let (low, high) = wilson(successes, f64::from(items)).unwrap();
            prop_assert!(0.0 <= low && low <= share + 1e-12 && share <= high + 1e-12 && high <= 1.0);
        }
    }
}
