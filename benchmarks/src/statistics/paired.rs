//! The difference of two runs over the same items.
//!
//! Items differ in difficulty, so the difference per item varies less than either run's figure
//! (Miller 2024, arXiv 2411.00640). [`PairedDifference::of`] takes one value per item and side. Figures that are ratios
//! (steps of tasks, several seeds) are turned into such values by [`linearised`].

use super::Limits;
use super::bootstrap::ClusterSum;
use super::mean::mean_and_error;
use super::normal::{p_of_student, student_quantile};
use crate::score::Share;

/// Mean difference a − b over the same items.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedDifference {
    /// Number of items.
    pub items: usize,
    /// Number of independent groups of items; the number of items unless they are clustered.
    pub clusters: usize,
    /// Mean of a minus mean of b.
    pub difference: f64,
    /// Standard error of the difference.
    pub standard_error: f64,
    /// Two-sided p value of the t test; 1 if no item differs.
    pub p_t: f64,
}

impl PairedDifference {
    /// Compares the values of two sides at the same positions, with the items' clusters, at the same positions, if items
    /// of one cluster are not independent. The standard error is then that of sums by cluster, with the factor G / (G − 1)
    /// for G clusters, and at least that of independent items, because the sums of few clusters may be equal by accident.
    /// Returns `None` for fewer than two items or clusters, or if the lengths differ.
    ///
    /// ```
    /// use lumos_benchmarks::statistics::PairedDifference;
    ///
    /// let (a, b) = ([1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]);
    /// let paired = PairedDifference::of(&a, &b, None).unwrap();
    /// assert_eq!((paired.difference, paired.standard_error), (0.25, 0.25));
    /// let (low, high) = paired.interval(0.95);
    /// assert!(low < 0.0 && high > 0.5);
    /// ```
    pub fn of(a: &[f64], b: &[f64], clusters: Option<&[u32]>) -> Option<Self> {
        if a.len() != b.len() || clusters.is_some_and(|clusters| clusters.len() != a.len()) {
            return None;
        }
        let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
        let count = differences.len() as f64;
        let (difference, independent) = mean_and_error(&differences)?;
        let (clusters, standard_error) = match clusters {
            None => (differences.len(), independent),
            Some(_) => {
                let deviations: Vec<f64> = differences.iter().map(|one| one - difference).collect();
                let sums = ClusterSum::of(&deviations, clusters);
                let groups = sums.len() as f64;
                let between: f64 = sums.iter().map(|sum| sum.numerator * sum.numerator).sum();
                (sums.len(), ((between * groups / (groups - 1.0)).sqrt() / count).max(independent))
            }
        };
        if clusters < 2 {
            return None;
        }
        let p_t = if standard_error > 0.0 {
            p_of_student(difference / standard_error, clusters as f64 - 1.0)
        } else if difference == 0.0 {
            1.0
        } else {
            0.0
        };
        Some(Self { items: differences.len(), clusters, difference, standard_error, p_t })
    }

    /// Returns Student's interval of the difference at a level such as 0.95.
    pub fn interval(&self, level: f64) -> Limits {
        let quantile = student_quantile(0.5 + level / 2.0, self.clusters as f64 - 1.0);
        let half = quantile * self.standard_error;
        (self.difference - half, self.difference + half)
    }
}

/// Shares of the same items on both sides, at the same positions.
#[derive(Debug, Clone, Copy)]
pub struct SidedShares<'a> {
    /// Shares of side a.
    pub a: &'a [Share],
    /// Shares of side b.
    pub b: &'a [Share],
    /// The items' clusters, if items of one cluster are not independent.
    pub clusters: Option<&'a [u32]>,
}

/// Compares two ratios of sums, Σ numerator / Σ denominator, over the same items by their linearised values (Cochran
/// 1977, section 6.4). With denominators of 1 this is [`PairedDifference::of`]. Returns `None` for fewer than two items
/// or clusters, and if either side has no weight.
pub fn paired_ratio(sides: &SidedShares<'_>) -> Option<PairedDifference> {
    let (a, b) = (linearised(sides.a)?, linearised(sides.b)?);
    PairedDifference::of(&a, &b, sides.clusters)
}

/// Returns one value per item whose mean is the ratio R = Σ numerator / Σ denominator, and whose standard error is that
/// of the ratio: R + (numerator − R · denominator) / mean denominator. If all denominators are equal, these are the
/// items' own values. Returns `None` without weight.
pub fn linearised(shares: &[Share]) -> Option<Vec<f64>> {
    let first = shares.first()?.denominator;
    let weight: f64 = shares.iter().map(|share| share.denominator).sum();
    if weight <= 0.0 {
        return None;
    }
    // Exact, so that equal items stay equal.
    if shares.iter().all(|share| share.denominator == first) {
        return Some(shares.iter().map(|share| share.numerator / first).collect());
    }
    let ratio = shares.iter().map(|share| share.numerator).sum::<f64>() / weight;
    let mean = weight / shares.len() as f64;
    Some(shares.iter().map(|share| ratio + (share.numerator - ratio * share.denominator) / mean).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::clustered_error;

    fn shares(values: &[(f64, f64)]) -> Vec<Share> {
        values.iter().map(|&(numerator, denominator)| Share { numerator, denominator }).collect()
    }

    #[test]
    fn equal_sides_do_not_differ() {
        let a = [1.0, 0.0, 0.5];
        let paired = PairedDifference::of(&a, &a, None).unwrap();
        assert_eq!((paired.difference, paired.standard_error, paired.p_t), (0.0, 0.0, 1.0));
        assert_eq!(paired.interval(0.95), (0.0, 0.0));
        assert_eq!(PairedDifference::of(&a, &a[..2], None), None);
        assert_eq!(PairedDifference::of(&a[..1], &a[..1], None), None);
        assert_eq!(PairedDifference::of(&[1.0, 1.0], &[0.0, 0.0], None).unwrap().p_t, 0.0);
    }

    #[test]
    fn a_ratio_has_the_error_of_its_figure() {
        let a = shares(&[(3.0, 4.0), (0.0, 2.0), (5.0, 5.0), (1.0, 3.0)]);
        let b = shares(&[(0.0, 1.0); 4]);
        let paired = paired_ratio(&SidedShares { a: &a, b: &b, clusters: None }).unwrap();
        let ratio = 9.0 / 14.0;
        let deviations: f64 =
            a.iter().map(|share| (share.numerator - ratio * share.denominator).powi(2)).sum();
        assert!((paired.difference - ratio).abs() < 1e-15);
        let error = clustered_error(deviations, 14.0, 4).unwrap();
        assert!((paired.standard_error - error).abs() < 1e-15, "{paired:?} {error}");
        let none = shares(&[(0.0, 0.0); 4]);
        assert_eq!(paired_ratio(&SidedShares { a: &a, b: &none, clusters: None }), None);
    }

    #[test]
    fn items_of_a_cluster_count_together() {
        let (a, b) = ([1.0, 1.0, 0.0, 0.0], [0.0; 4]);
        let paired = PairedDifference::of(&a, &b, Some(&[1, 1, 2, 2])).unwrap();
        assert_eq!((paired.clusters, paired.standard_error), (2, 0.5));
        let alone = PairedDifference::of(&a, &b, Some(&[0, 1, 2, 3])).unwrap();
        let independent = PairedDifference::of(&a, &b, None).unwrap();
        assert!((alone.standard_error - independent.standard_error).abs() < 1e-15);
        assert_eq!(PairedDifference::of(&a, &b, Some(&[1; 4])), None);
    }

    #[test]
    fn equal_sums_of_clusters_are_not_certain() {
        // Each of three clusters loses one of its 20 items.
        let b: Vec<f64> = (0..60).map(|item| if item < 3 { 0.0 } else { 1.0 }).collect();
        let clusters: Vec<u32> = (0..60).map(|item| item % 3).collect();
        let paired = PairedDifference::of(&[1.0; 60], &b, Some(&clusters)).unwrap();
        let independent = PairedDifference::of(&[1.0; 60], &b, None).unwrap();
        assert_eq!((paired.clusters, paired.standard_error), (3, independent.standard_error));
        assert!(paired.p_t > 0.2 && paired.interval(0.95).0 < 0.0, "{paired:?}");
    }
}
