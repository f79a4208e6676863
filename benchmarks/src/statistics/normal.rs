//! Distribution functions and quantiles of the normal and of Student's distribution.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Quantiles that intervals and tests use, to the last digit: probability and quantile. The approximation of the
/// inverse error function differs from them in the last digits, and figures must not change with it.
const EXACT: [(f64, f64); 3] =
    [(0.975, 1.959_963_984_540_054), (0.95, 1.644_853_626_951_472_2), (0.8, 0.841_621_233_572_914_3)];

/// Returns the number that a standard normal variable is at most with probability `p`, in 0..=1.
pub(super) fn normal_quantile(p: f64) -> f64 {
    if let Some((_, quantile)) = EXACT.iter().find(|(probability, _)| *probability == p) {
        return *quantile;
    }
    Normal::standard().inverse_cdf(p.clamp(0.0, 1.0))
}

/// Returns the probability that a standard normal variable is at most `x`.
pub(super) fn normal_cdf(x: f64) -> f64 {
    Normal::standard().cdf(x)
}

/// Returns the quantile of Student's distribution at probability `p`, in 0..=1; NaN without degrees of freedom.
pub(super) fn student_quantile(p: f64, degrees: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees)
        .map_or(f64::NAN, |distribution| distribution.inverse_cdf(p.clamp(0.0, 1.0)))
}

/// Returns the probability that a variable with Student's distribution is at most `x`; NaN without degrees of freedom.
pub(super) fn student_cdf(x: f64, degrees: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::NAN, |distribution| distribution.cdf(x))
}

/// Returns the normal quantile of a two-sided interval at a level such as 0.95.
pub(super) fn two_sided(level: f64) -> f64 {
    normal_quantile(0.5 + level / 2.0)
}

/// Returns the two-sided p value of a standard normal statistic.
pub fn p_of_normal(statistic: f64) -> f64 {
    (2.0 * normal_cdf(-statistic.abs())).min(1.0)
}

/// Returns the two-sided p value of a statistic with Student's distribution.
pub(super) fn p_of_student(statistic: f64, degrees: f64) -> f64 {
    (2.0 * student_cdf(-statistic.abs(), degrees)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_where_figures_depend_on_them() {
        assert_eq!(two_sided(0.95), 1.959_963_984_540_054);
        assert_eq!(two_sided(0.9), 1.644_853_626_951_472_2);
        for (p, quantile) in EXACT {
            let approximated = Normal::standard().inverse_cdf(p);
            assert!((approximated - quantile).abs() < 1e-12, "{p}: {approximated}");
            assert!((normal_cdf(quantile) - p).abs() < 1e-10, "{p}");
        }
        assert_eq!(normal_quantile(0.5), 0.0);
        assert_eq!(normal_quantile(1.0), f64::INFINITY);
    }

    #[test]
    fn students_distribution_needs_degrees_of_freedom() {
        assert!(student_quantile(0.975, 0.0).is_nan() && student_cdf(1.0, 0.0).is_nan());
        // Fisher and Yates (1963), table III.
        assert!((student_quantile(0.975, 10.0) - 2.228).abs() < 5e-4);
        assert!((p_of_student(2.228_138_852, 10.0) - 0.05).abs() < 1e-9);
    }
}
