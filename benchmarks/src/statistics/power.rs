//! How small a difference can be detected, and how many items are needed for it.

use super::normal::normal_quantile;

/// Variances that decide how precisely a difference is measured (Miller 2024, arXiv 2411.00640).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variances {
    /// Variance over items of the difference of their true means.
    pub omega2: f64,
    /// Mean variance of the attempts at one item, on side a; 0 for deterministic runs.
    pub sigma2_a: f64,
    /// The same on side b.
    pub sigma2_b: f64,
    /// Attempts per item on side a.
    pub attempts_a: u64,
    /// Attempts per item on side b.
    pub attempts_b: u64,
}

impl Variances {
    /// Returns the variances of deterministic runs, or of measured differences, in which attempts have no part of their own.
    pub fn of_items(omega2: f64) -> Self {
        Self { omega2, sigma2_a: 0.0, sigma2_b: 0.0, attempts_a: 1, attempts_b: 1 }
    }

    /// Returns the variance of an item's measured difference.
    fn of_an_item(&self) -> f64 {
        let part = |sigma2: f64, attempts: u64| sigma2 / attempts.max(1) as f64;
        self.omega2 + part(self.sigma2_a, self.attempts_a) + part(self.sigma2_b, self.attempts_b)
    }
}

/// Returns the sum of the normal quantiles of a two-sided test at `alpha` and of its power.
fn quantiles(alpha: f64, power: f64) -> f64 {
    normal_quantile(1.0 - alpha / 2.0) + normal_quantile(power)
}

/// Returns the smallest difference that a two-sided test at `alpha` detects with probability `power` over this many
/// items.
pub fn detectable(items: u64, variances: &Variances, alpha: f64, power: f64) -> f64 {
    quantiles(alpha, power) * (variances.of_an_item() / items.max(1) as f64).sqrt()
}

/// Returns the number of items that are needed to detect a difference of `delta`; `None` for a difference of 0.
pub fn items_needed(delta: f64, variances: &Variances, alpha: f64, power: f64) -> Option<u64> {
    let needed = (quantiles(alpha, power).powi(2) * variances.of_an_item() / (delta * delta)).ceil();
    // Neither infinity nor NaN.
    (needed < u64::MAX as f64).then_some(needed as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_times_the_items_detect_half_the_difference() {
        let variances = Variances { omega2: 0.2, sigma2_a: 0.1, sigma2_b: 0.1, attempts_a: 1, attempts_b: 2 };
        let of = |items| detectable(items, &variances, 0.05, 0.8);
        assert!((of(100) - 2.0 * of(400)).abs() < 1e-15);
        let needed = items_needed(of(400), &variances, 0.05, 0.8).unwrap();
        assert!((400..=401).contains(&needed), "{needed}");
        assert_eq!(items_needed(0.0, &variances, 0.05, 0.8), None);
        assert_eq!(items_needed(0.0, &Variances::of_items(0.0), 0.05, 0.8), None);
    }
}
