//! Decisions: not worse than a baseline by more than a margin, and corrections of p values for several tests.

use super::normal::{normal_cdf, normal_quantile, student_cdf, student_quantile};
use super::{LEVEL, PairedDifference};

/// A candidate compared with a baseline, whose difference is candidate minus baseline and higher is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonInferiority {
    /// One-sided 95 % lower limit: the candidate is not worse if it is above minus the margin.
    pub lower: f64,
    /// One-sided p value of the hypothesis that the candidate is worse by at most the margin. A small value shows that
    /// it is worse by more.
    pub p_worse: f64,
}

/// Returns the limit and the p value for a margin of at least 0, in the unit of the difference: by the normal
/// distribution, and for items in clusters by Student's with one degree of freedom less than there are clusters.
///
/// ```
/// use lumos_benchmarks::statistics::{PairedDifference, non_inferiority};
///
/// let (candidate, baseline) = ([0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]);
/// let paired = PairedDifference::of(&candidate, &baseline, None).unwrap();
/// assert!(non_inferiority(&paired, 0.1).lower < -0.1);
/// ```
pub fn non_inferiority(paired: &PairedDifference, margin: f64) -> NonInferiority {
    let PairedDifference { difference, standard_error, .. } = *paired;
    // Clusters are often few.
    let degrees = (paired.clusters < paired.items).then_some(paired.clusters as f64 - 1.0);
    let quantile = match degrees {
        Some(degrees) => student_quantile(LEVEL, degrees),
        None => normal_quantile(LEVEL),
    };
    let p_worse = if standard_error > 0.0 {
        let statistic = (difference + margin) / standard_error;
        degrees.map_or_else(|| normal_cdf(statistic), |degrees| student_cdf(statistic, degrees))
    } else if difference < -margin {
        0.0
    } else {
        1.0
    };
    NonInferiority { lower: difference - quantile * standard_error, p_worse }
}

/// Adjusts p values so that all rejections together are wrong with the stated probability (Holm 1979): for decisions
/// such as a gate. The result is in the order of the input.
///
/// ```
/// use lumos_benchmarks::statistics::{benjamini_hochberg, holm};
///
/// assert_eq!(holm(&[0.04, 0.01, 0.03]), [0.06, 0.03, 0.06]);
/// assert_eq!(benjamini_hochberg(&[0.5]), [0.5]);
/// ```
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut largest = 0.0f64;
    for (rank, index) in ascending(p).into_iter().enumerate() {
        largest = largest.max((p.len() - rank) as f64 * p[index]).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

/// Adjusts p values so that the stated share of rejections is wrong on average (Benjamini and Hochberg 1995): for
/// exploring many differences. The result is in the order of the input.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut smallest = 1.0f64;
    for (rank, index) in ascending(p).into_iter().enumerate().rev() {
        smallest = smallest.min(p.len() as f64 / (rank + 1) as f64 * p[index]);
        adjusted[index] = smallest;
    }
    adjusted
}

/// Returns the positions of the values in ascending order.
fn ascending(values: &[f64]) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..values.len()).collect();
    positions.sort_by(|&left, &right| values[left].total_cmp(&values[right]));
    positions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::p_of_normal;

    #[test]
    fn without_variance_the_difference_decides() {
        let of = |difference: f64| {
            let (candidate, baseline) = ([1.0 + difference; 5], [1.0; 5]);
            non_inferiority(&PairedDifference::of(&candidate, &baseline, None).unwrap(), 0.02)
        };
        assert_eq!((of(0.0).lower, of(0.0).p_worse), (0.0, 1.0));
        assert_eq!((of(-0.5).lower, of(-0.5).p_worse), (-0.5, 0.0));
    }

    #[test]
    fn a_larger_margin_makes_worse_less_likely() {
        let (candidate, baseline) = ([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], [1.0; 6]);
        let paired = PairedDifference::of(&candidate, &baseline, None).unwrap();
        let p = |margin| non_inferiority(&paired, margin).p_worse;
        assert!(p(0.0) < p(0.1) && p(0.1) < p(0.6), "{} {} {}", p(0.0), p(0.1), p(0.6));
        // Without a margin, the p value is that of the one-sided z test.
        let two_sided = p_of_normal(paired.difference / paired.standard_error);
        assert!((2.0 * p(0.0) - two_sided).abs() < 1e-15);
    }

    #[test]
    fn few_clusters_decide_less_than_as_many_independent_items() {
        // Each of three clusters loses one of its 20 items.
        let candidate: Vec<f64> = (0..60).map(|item| if item < 3 { 0.0 } else { 1.0 }).collect();
        let clusters: Vec<u32> = (0..60).map(|item| item % 3).collect();
        let paired = PairedDifference::of(&candidate, &[1.0; 60], Some(&clusters)).unwrap();
        let test = non_inferiority(&paired, 0.02);
        assert!(test.p_worse > 0.15, "{test:?}");
        // Student's quantile with two degrees of freedom.
        assert!(
            (test.lower - (-0.05 - 2.919_985_580_353_726 * paired.standard_error)).abs() < 1e-9,
            "{test:?}"
        );
        // Clusters of one item are independent items.
        let alone: Vec<u32> = (0..60).collect();
        let alone = PairedDifference::of(&candidate, &[1.0; 60], Some(&alone)).unwrap();
        let independent = PairedDifference::of(&candidate, &[1.0; 60], None).unwrap();
        let (alone, independent) = (non_inferiority(&alone, 0.02), non_inferiority(&independent, 0.02));
        assert!((alone.lower - independent.lower).abs() < 1e-12, "{alone:?} {independent:?}");
    }

    #[test]
    fn order_is_kept_and_nothing_exceeds_one() {
        assert_eq!(holm(&[]), Vec::<f64>::new());
        assert_eq!(holm(&[0.9, 0.8, 0.001]), [1.0, 1.0, 0.003]);
        assert_eq!(benjamini_hochberg(&[0.9, 0.8, 0.001]), [0.9, 0.9, 0.003]);
    }
}
