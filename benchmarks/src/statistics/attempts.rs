//! Figures over several attempts per item.

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
