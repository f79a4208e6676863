//! Intervals of a share of items, and of the difference of two shares over different items. Shares of items of which one
//! or all of several attempts are correct.

use super::Limits;
use super::normal::two_sided;

/// Wilson's score interval of a share (Wilson 1927): the shares that a test at that level would not reject.
/// `successes` and `trials` may be fractional. Returns `None` without trials.
///
/// ```
/// let (low, high) = lumos_benchmarks::statistics::wilson(4.0, 8.0, 0.95).unwrap();
/// assert!((low - 0.2152).abs() < 1e-4 && (high - 0.7848).abs() < 1e-4);
/// ```
pub fn wilson(successes: f64, trials: f64, level: f64) -> Option<Limits> {
    if trials.is_nan() || trials <= 0.0 {
        return None;
    }
    let share = (successes / trials).clamp(0.0, 1.0);
    let quantile = two_sided(level);
    let squared = quantile * quantile;
    let scale = 1.0 + squared / trials;
    let centre = (share + squared / (2.0 * trials)) / scale;
    let spread = share * (1.0 - share) / trials + squared / (4.0 * trials * trials);
    let half = quantile * spread.sqrt() / scale;
    // At 0 and 1 the limit is the share itself, except for rounding.
    let low = if share == 0.0 { 0.0 } else { (centre - half).max(0.0) };
    let high = if share == 1.0 { 1.0 } else { (centre + half).min(1.0) };
    Some((low, high))
}

/// Difference a − b of two shares over different items, with Newcombe's interval (Newcombe 1998, Statistics in Medicine
/// 17: 873–890, method 10), which combines the Wilson intervals of both. `a` and `b` are successes and trials. Returns
/// `None` if either has no trials.
pub fn newcombe(a: (f64, f64), b: (f64, f64), level: f64) -> Option<(f64, Limits)> {
    let (a_low, a_high) = wilson(a.0, a.1, level)?;
    let (b_low, b_high) = wilson(b.0, b.1, level)?;
    let (a, b) = (a.0 / a.1, b.0 / b.1);
    let difference = a - b;
    let low = difference - (a - a_low).hypot(b_high - b);
    let high = difference + (a_high - a).hypot(b - b_low);
    Some((difference, (low, high)))
}

/// Probability that at least one of `k` attempts is correct, estimated without bias from `attempts` of which `correct`
/// are correct (Chen et al. 2021): 1 − C(n − c, k) / C(n, k). Returns `None` if there are fewer than `k` attempts.
///
/// ```
/// assert_eq!(lumos_benchmarks::statistics::pass_at_k(2, 1, 1), Some(0.5));
/// ```
pub fn pass_at_k(attempts: u64, correct: u64, k: u64) -> Option<f64> {
    if k == 0 || k > attempts || correct > attempts {
        return None;
    }
    if attempts - correct < k {
        return Some(1.0);
    }
    let none: f64 = (attempts - correct + 1..=attempts).map(|one| 1.0 - k as f64 / one as f64).product();
    Some(1.0 - none)
}

/// Probability that all of `k` attempts are correct (pass^k; Yao et al. 2024, τ-bench): C(c, k) / C(n, k). Returns
/// `None` if there are fewer than `k` attempts.
pub fn pass_hat_k(attempts: u64, correct: u64, k: u64) -> Option<f64> {
    if k == 0 || k > attempts || correct > attempts {
        return None;
    }
    if correct < k {
        return Some(0.0);
    }
    Some((0..k).map(|one| (correct - one) as f64 / (attempts - one) as f64).product())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_intervals() {
        // Newcombe (1998), Statistics in Medicine 17: 857-872, table I, method 3.
        for (successes, items, low, high) in [
            (81.0, 263.0, 0.2553, 0.3662),
            (15.0, 148.0, 0.0624, 0.1605),
            (0.0, 20.0, 0.0, 0.1611),
            (1.0, 29.0, 0.0061, 0.1718),
        ] {
            let (lower, upper) = wilson(successes, items, 0.95).unwrap();
            let close = |left: f64, right: f64| (left - right).abs() < 5e-5;
            assert!(close(lower, low) && close(upper, high), "{successes}/{items}: {lower} {upper}");
        }
    }

    #[test]
    fn nothing_measured_has_no_interval() {
        assert_eq!(wilson(0.0, 0.0, 0.95), None);
        assert_eq!(newcombe((0.0, 0.0), (1.0, 2.0), 0.95), None);
    }

    #[test]
    fn one_attempt_is_the_share_and_impossible_numbers_have_no_figure() {
        for correct in 0..=7 {
            let share = correct as f64 / 7.0;
            assert!((pass_at_k(7, correct, 1).unwrap() - share).abs() < 1e-15);
            assert!((pass_hat_k(7, correct, 1).unwrap() - share).abs() < 1e-15);
        }
        for (attempts, correct, k) in [(3, 2, 4), (3, 4, 1), (3, 2, 0)] {
            assert_eq!((pass_at_k(attempts, correct, k), pass_hat_k(attempts, correct, k)), (None, None));
        }
    }

    #[test]
    fn many_attempts_do_not_overflow() {
        let value = pass_at_k(1_000_000, 10, 500_000).unwrap();
        assert!((value - (1.0 - 0.5f64.powi(10))).abs() < 1e-4, "{value}");
    }
}
