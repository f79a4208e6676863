//! The bias-corrected and accelerated bootstrap interval of a ratio.

use std::collections::HashMap;

use rand_mt::Mt64;

use super::Limits;
use super::normal::{normal_cdf, normal_quantile, student_quantile, two_sided};

/// A BCa interval (Efron 1987; DiCiccio and Efron 1996) with its intermediate results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bca {
    /// The statistic.
    pub theta: f64,
    /// Bias correction.
    pub z0: f64,
    /// Acceleration.
    pub acceleration: f64,
    /// Corrected positions of the limits among the sorted resamples, from 0 to 1.
    pub quantiles: Limits,
    /// The interval.
    pub interval: Limits,
    /// The interval at the uncorrected positions.
    pub percentile: Limits,
}

/// Sums of the values of one cluster. The statistic is Σ numerator / Σ denominator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterSum {
    /// Sum of the values.
    pub numerator: f64,
    /// Their number or weight.
    pub denominator: f64,
}

impl ClusterSum {
    /// Sums values by cluster, in the order in which the clusters first appear; the denominators are the numbers of
    /// values. `clusters` are at the same positions as the values; without them, every value is a cluster.
    pub fn of(values: &[f64], clusters: Option<&[u32]>) -> Vec<Self> {
        let Some(clusters) = clusters else {
            return values.iter().map(|&numerator| Self { numerator, denominator: 1.0 }).collect();
        };
        let mut positions = HashMap::new();
        let mut sums: Vec<Self> = Vec::new();
        for (value, cluster) in values.iter().zip(clusters) {
            let at = *positions.entry(cluster).or_insert_with(|| {
                sums.push(Self { numerator: 0.0, denominator: 0.0 });
                sums.len() - 1
            });
            sums[at].numerator += value;
            sums[at].denominator += 1.0;
        }
        sums
    }
}

/// Returns the interval of the mean of a few values from all their resamples, without random numbers.
#[cfg(test)]
pub(super) fn bca_of_all_resamples(values: &[f64], level: f64) -> Option<Bca> {
    let count = values.len();
    let sums = (0..count).fold(vec![0.0], |sums: Vec<f64>, _| {
        sums.iter().flat_map(|sum| values.iter().map(move |value| sum + value)).collect()
    });
    let means = sums.into_iter().map(|sum| sum / count as f64).collect();
    interval_of(&ClusterSum::of(values, None), means, two_sided(level))
}

/// Returns the interval of Σ numerator / Σ denominator from `draws` resamples of whole clusters, drawn from `seed`.
/// With `expanded`, the level is widened as a t interval is wider than a normal one (Hesterberg 2015), which corrects
/// its coverage for few clusters. Returns `None` for fewer than two clusters, without draws or without weight.
pub fn bca(clusters: &[ClusterSum], draws: u32, seed: u64, level: f64, expanded: bool) -> Option<Bca> {
    let count = clusters.len();
    if count < 2 || draws == 0 {
        return None;
    }
    let mut source = Mt64::new(seed);
    let mut statistics = Vec::with_capacity(draws as usize);
    for _ in 0..draws {
        let (mut numerator, mut denominator) = (0.0, 0.0);
        for _ in 0..count {
            // The upper half of a product is uniform over the clusters up to 2⁻⁶⁴ of their number.
            let index = (u128::from(source.next_u64()) * count as u128) >> 64;
            let cluster = clusters[index as usize];
            numerator += cluster.numerator;
            denominator += cluster.denominator;
        }
        statistics.push(if denominator > 0.0 { numerator / denominator } else { 0.0 });
    }
    let mut quantile = two_sided(level);
    if expanded {
        let count = count as f64;
        quantile = (count / (count - 1.0)).sqrt() * student_quantile(0.5 + level / 2.0, count - 1.0);
    }
    interval_of(clusters, statistics, quantile)
}

/// Returns the interval from the statistics of resamples, with limits at ± `quantile`.
fn interval_of(clusters: &[ClusterSum], mut statistics: Vec<f64>, quantile: f64) -> Option<Bca> {
    let numerator: f64 = clusters.iter().map(|cluster| cluster.numerator).sum();
    let denominator: f64 = clusters.iter().map(|cluster| cluster.denominator).sum();
    if denominator <= 0.0 {
        return None;
    }
    let theta = rounded(numerator / denominator);
    statistics.iter_mut().for_each(|statistic| *statistic = rounded(*statistic));
    statistics.sort_by(f64::total_cmp);
    let (first, last) = (*statistics.first()?, *statistics.last()?);
    if first == last {
        let point = (theta, theta);
        let quantiles = (normal_cdf(-quantile), normal_cdf(quantile));
        return Some(Bca {
            theta,
            z0: 0.0,
            acceleration: 0.0,
            quantiles,
            interval: point,
            percentile: point,
        });
    }
    let below = statistics.partition_point(|one| *one < theta) as f64;
    let equal = statistics.partition_point(|one| *one <= theta) as f64 - below;
    let count = statistics.len() as f64;
    // A statistic outside of all resamples would have an infinite bias.
    let share = ((below + 0.5 * equal) / count).clamp(0.5 / count, 1.0 - 0.5 / count);
    let z0 = normal_quantile(share);
    let acceleration = acceleration(clusters, numerator, denominator);
    let position = |z: f64| normal_cdf(z0 + (z0 + z) / (1.0 - acceleration * (z0 + z)));
    let at = |(low, high): Limits| (interpolated(&statistics, low), interpolated(&statistics, high));
    let quantiles = (position(-quantile), position(quantile));
    Some(Bca {
        theta,
        z0,
        acceleration,
        quantiles,
        interval: at(quantiles),
        percentile: at((normal_cdf(-quantile), normal_cdf(quantile))),
    })
}

/// Returns the acceleration from the statistics that leave out one cluster each.
fn acceleration(clusters: &[ClusterSum], numerator: f64, denominator: f64) -> f64 {
    let without = |cluster: &ClusterSum| {
        let rest = denominator - cluster.denominator;
        if rest > 0.0 { (numerator - cluster.numerator) / rest } else { 0.0 }
    };
    let left_out: Vec<f64> = clusters.iter().map(without).collect();
    let mean = left_out.iter().sum::<f64>() / left_out.len() as f64;
    let (squares, cubes) = left_out.iter().fold((0.0, 0.0), |(squares, cubes), one| {
        let influence = mean - one;
        (squares + influence * influence, cubes + influence * influence * influence)
    });
    if squares > 0.0 { cubes / (6.0 * f64::powf(squares, 1.5)) } else { 0.0 }
}

/// Returns the value at a position from 0 to 1 among sorted values, by linear interpolation.
fn interpolated(sorted: &[f64], position: f64) -> f64 {
    let last = sorted.len() - 1;
    let place = position.clamp(0.0, 1.0) * last as f64;
    let below = (place.floor() as usize).min(last);
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// Rounds to 12 decimals, so that sums of the same values in another order are equal.
fn rounded(value: f64) -> f64 {
    (value * 1e12).round() / 1e12
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Vec<ClusterSum> {
        ClusterSum::of(values, None)
    }

    #[test]
    fn drawing_approaches_all_resamples() {
        let values = [0.1, 0.2, 0.25, 0.9, 0.3];
        let all = bca_of_all_resamples(&values, 0.95).unwrap();
        let drawn = bca(&of(&values), 20_000, 5, 0.95, false).unwrap();
        assert!((all.interval.0 - drawn.interval.0).abs() < 0.01, "{all:?} {drawn:?}");
        assert!((all.interval.1 - drawn.interval.1).abs() < 0.03, "{all:?} {drawn:?}");
        assert_eq!(bca(&of(&values), 500, 5, 0.95, false), bca(&of(&values), 500, 5, 0.95, false));
        let wide = bca(&of(&values), 20_000, 5, 0.95, true).unwrap();
        assert!(wide.interval.0 < drawn.interval.0 && wide.interval.1 > drawn.interval.1);
    }

    #[test]
    fn equal_values_have_no_width_and_few_have_no_interval() {
        let equal = bca(&of(&[0.5; 6]), 100, 1, 0.95, true).unwrap();
        assert_eq!((equal.interval, equal.percentile), ((0.5, 0.5), (0.5, 0.5)));
        assert_eq!(bca(&of(&[0.5]), 100, 1, 0.95, false), None);
        assert_eq!(bca(&of(&[0.5, 0.1]), 0, 1, 0.95, false), None);
        let weightless = [ClusterSum { numerator: 0.0, denominator: 0.0 }; 3];
        assert_eq!(bca(&weightless, 100, 1, 0.95, false), None);
    }
}
