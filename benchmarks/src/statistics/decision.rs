//! The decision of a gate: not worse than a baseline by more than a margin.

use super::PairedDifference;
use super::normal::{normal_cdf, normal_quantile};

/// Confidence of the one-sided limits.
const CONFIDENCE: f64 = 0.95;

/// A candidate compared with a baseline, whose difference is candidate minus baseline and higher is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonInferiority {
    /// Mean difference.
    pub difference: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// One-sided 95 % lower limit: the candidate is not worse if it is above minus the margin.
    pub lower: f64,
    /// One-sided 95 % upper limit.
    pub upper: f64,
    /// One-sided p value of the hypothesis that the candidate is worse by at most the margin. A small value shows that
    /// it is worse by more.
    pub p_worse: f64,
}

/// Returns the limits and the p value for a margin of at least 0, in the unit of the difference.
///
/// ```
/// use lumos_benchmarks::statistics::{PairedDifference, non_inferiority};
///
/// let (candidate, baseline) = ([0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]);
/// let paired = PairedDifference::of(&candidate, &baseline).unwrap();
/// assert!(non_inferiority(&paired, 0.1).lower < -0.1);
/// ```
pub fn non_inferiority(paired: &PairedDifference, margin: f64) -> NonInferiority {
    let PairedDifference { difference, standard_error, .. } = *paired;
    let half = normal_quantile(CONFIDENCE) * standard_error;
    let p_worse = if standard_error > 0.0 {
        normal_cdf((difference + margin) / standard_error)
    } else if difference < -margin {
        0.0
    } else {
        1.0
    };
    NonInferiority { difference, standard_error, lower: difference - half, upper: difference + half, p_worse }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_variance_the_difference_decides() {
        let of = |difference: f64| {
            let (candidate, baseline) = ([1.0 + difference; 5], [1.0; 5]);
            non_inferiority(&PairedDifference::of(&candidate, &baseline).unwrap(), 0.02)
        };
        assert_eq!((of(0.0).lower, of(0.0).p_worse), (0.0, 1.0));
        assert_eq!((of(-0.5).lower, of(-0.5).p_worse), (-0.5, 0.0));
    }

    #[test]
    fn a_larger_margin_makes_worse_less_likely() {
        let (candidate, baseline) = ([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], [1.0; 6]);
        let paired = PairedDifference::of(&candidate, &baseline).unwrap();
        let p = |margin| non_inferiority(&paired, margin).p_worse;
        assert!(p(0.0) < p(0.1) && p(0.1) < p(0.6), "{} {} {}", p(0.0), p(0.1), p(0.6));
        // Without a margin, the p value is that of the one-sided z test.
        assert!((2.0 * p(0.0) - paired.p_z).abs() < 1e-15);
    }
}
