//! Means and their standard errors, also of values in clusters.

use super::Limits;
use super::normal::{p_of_student, student_quantile};

/// Returns the mean of values and its standard error, the sample standard deviation divided by the square root of the
/// sample size, as reported by lm-eval. Returns `None` for fewer than two values. Two passes, so that the error of
/// values with a large mean is not lost in rounding.
pub fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    Some((mean, (squares / (count - 1.0) / count).sqrt()))
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

/// Student's interval of a mean at a level such as 0.95; `None` for fewer than two items.
pub fn student_interval(mean: f64, standard_error: f64, items: u64, level: f64) -> Option<Limits> {
    let degrees = items.checked_sub(1).filter(|degrees| *degrees > 0)? as f64;
    let half = student_quantile(0.5 + level / 2.0, degrees) * standard_error;
    Some((mean - half, mean + half))
}

/// Difference of the means a − b of different items, with Welch's interval at a level and its two-sided p value. `a`
/// and `b` are mean, standard error and number of items. Returns `None` for fewer than two items in either.
pub fn welch(a: (f64, f64, u64), b: (f64, f64, u64), level: f64) -> Option<(f64, Limits, f64)> {
    if a.2 < 2 || b.2 < 2 {
        return None;
    }
    let difference = a.0 - b.0;
    let (left, right) = (a.1 * a.1, b.1 * b.1);
    let error = (left + right).sqrt();
    if error == 0.0 {
        let p = if difference == 0.0 { 1.0 } else { 0.0 };
        return Some((difference, (difference, difference), p));
    }
    let degrees = (left + right) * (left + right)
        / (left * left / (a.2 as f64 - 1.0) + right * right / (b.2 as f64 - 1.0));
    let half = student_quantile(0.5 + level / 2.0, degrees) * error;
    let p = p_of_student(difference / error, degrees);
    Some((difference, (difference - half, difference + half), p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::normal::student_cdf;

    #[test]
    fn known_standard_errors() {
        // 1, 0, 1, 1: mean 0.75, sample variance 0.25.
        assert_eq!(standard_error(3.0, 3.0, 4), Some(0.25));
        assert_eq!(standard_error(5.0, 5.0, 5), Some(0.0));
        assert_eq!(standard_error(1.0, 1.0, 1), None);
        assert_eq!(mean_and_error(&[1.0, 0.0, 1.0, 1.0]), Some((0.75, 0.25)));
        assert_eq!(mean_and_error(&[1.0]), None);
        let (_, error) = mean_and_error(&[1e9, 1e9 + 1.0]).unwrap();
        assert_eq!(error, 0.5, "a large mean does not hide the deviations");
    }

    #[test]
    fn welchs_interval() {
        // With equal errors and sizes, the interval is Student's with 2 (n - 1) degrees of freedom.
        let (difference, (low, high), p) = welch((2.0, 0.3, 5), (3.0, 0.3, 5), 0.95).unwrap();
        let error = 0.18f64.sqrt();
        let half = student_quantile(0.975, 8.0) * error;
        assert_eq!(difference, -1.0);
        assert!((low + 1.0 + half).abs() < 1e-12 && (high + 1.0 - half).abs() < 1e-12, "{low} {high}");
        assert!((p - 2.0 * student_cdf(-1.0 / error, 8.0)).abs() < 1e-12, "{p}");
        let equal = welch((1.0, 0.0, 3), (1.0, 0.0, 3), 0.95).unwrap();
        assert_eq!(equal, (0.0, (0.0, 0.0), 1.0));
        assert_eq!(welch((1.0, 0.0, 1), (1.0, 0.0, 3), 0.95), None);
    }
}
