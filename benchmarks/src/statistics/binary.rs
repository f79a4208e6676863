//! Two runs whose items are right or wrong: McNemar's test, and the score interval of the difference.

use statrs::distribution::{Binomial, Discrete, DiscreteCDF};

use super::Limits;
use super::normal::two_sided;

/// Two-sided p values of McNemar's test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct McNemar {
    /// The exact test (McNemar 1947), which rejects a true hypothesis in at most the stated share of cases.
    pub exact: f64,
    /// The mid-p form (Fagerland, Lydersen and Laake 2013), which is less conservative.
    pub mid_p: f64,
}

/// Tests whether two runs are right equally often, from the numbers of items that only one of them has right.
///
/// ```
/// let test = lumos_benchmarks::statistics::mcnemar(7, 1);
/// assert!((test.exact - 0.0703125).abs() < 1e-12);
/// ```
pub fn mcnemar(only_a: u64, only_b: u64) -> McNemar {
    let certain = McNemar { exact: 1.0, mid_p: 1.0 };
    let (fewer, items) = (only_a.min(only_b), only_a.saturating_add(only_b));
    if items == 0 {
        return certain;
    }
    Binomial::new(0.5, items).map_or(certain, |binomial| {
        let below = 2.0 * binomial.cdf(fewer);
        McNemar { exact: below.min(1.0), mid_p: (below - binomial.pmf(fewer)).clamp(0.0, 1.0) }
    })
}

/// Halvings of the range in which a limit is searched: down to the precision of a float.
const HALVINGS: u32 = 60;

/// Interval of the difference a − b of two shares over the same `items`, from the numbers of items that only one side
/// has right: the differences that the paired score test does not reject (Tango 1998, Statistics in Medicine 17:
/// 891–908). Unlike an interval from the standard error it has a width if no item differs. Returns `None` without
/// items, or if more items differ than there are.
pub fn paired_score(only_a: u64, only_b: u64, items: u64, level: f64) -> Option<Limits> {
    if items == 0 || only_a.checked_add(only_b).is_none_or(|differing| differing > items) {
        return None;
    }
    let (a, b, n) = (only_a as f64, only_b as f64, items as f64);
    let quantile = two_sided(level);
    let difference = (a - b) / n;
    let rejects = |tested: f64| {
        // The share of items that only b has right, under the tested difference, with the highest likelihood.
        let linear = 2.0 * n * tested - (a + b) - (a - b) * tested;
        let root = (linear * linear + 8.0 * n * b * tested * (1.0 - tested)).max(0.0).sqrt();
        let only_b = ((root - linear) / (4.0 * n)).max(0.0);
        let variance = n * (2.0 * only_b + tested * (1.0 - tested));
        (a - b - n * tested).abs() > quantile * variance.max(0.0).sqrt()
    };
    let limit = |outermost: f64| {
        if !rejects(outermost) {
            return outermost;
        }
        let (mut accepted, mut rejected) = (difference, outermost);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(accepted, rejected);
            if rejects(middle) { rejected = middle } else { accepted = middle }
        }
        accepted
    };
    Some((limit(-1.0), limit(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_and_none_are_no_evidence() {
        for (a, b) in [(0, 0), (1, 1), (40, 40)] {
            assert_eq!(mcnemar(a, b).exact, 1.0, "{a} {b}");
        }
        assert!(mcnemar(2000, 1000).exact < 1e-12);
    }

    #[test]
    fn known_score_intervals() {
        // Without differing items, the limits are those of z² / (n + z²).
        let squared = two_sided(0.95).powi(2);
        let (low, high) = paired_score(0, 0, 30, 0.95).unwrap();
        assert!((high - squared / (30.0 + squared)).abs() < 1e-12 && low == -high, "{low} {high}");
        // Fagerland, Lydersen and Laake (2014), Statistics in Medicine 33: 2850-2875: 1 and 7 discordant pairs of 21.
        let (low, high) = paired_score(1, 7, 21, 0.95).unwrap();
        assert!((low + 0.517).abs() < 5e-4 && (high + 0.026).abs() < 5e-4, "{low} {high}");
        assert_eq!(paired_score(0, 0, 0, 0.95), None);
        assert_eq!(paired_score(2, 2, 3, 0.95), None);
        assert_eq!(paired_score(5, 0, 5, 0.95).unwrap().1, 1.0);
    }

    /// The interval excludes 0 exactly if McNemar's statistic without correction exceeds the quantile.
    #[test]
    fn the_interval_is_the_inverse_of_mcnemars_statistic() {
        for (a, b) in [(10u64, 3u64), (10, 2), (12, 3), (4, 0), (3, 0), (30, 16), (30, 17)] {
            let (low, _) = paired_score(a, b, 200, 0.95).unwrap();
            let statistic = (a as f64 - b as f64).powi(2) / (a + b) as f64;
            assert_eq!(low > 0.0, statistic > two_sided(0.95).powi(2), "{a} {b}: {low}");
        }
    }
}
