//! How sure one can be of a share.

/// The 97.5th percentile of the standard normal distribution: 95 % lie within it on both sides.
const NORMAL_95: f64 = 1.959_963_984_540_054;

/// Wilson's 95 % score interval of a share (Wilson 1927): the shares that a test at that level would not reject.
/// `None` without items.
pub fn wilson(successes: f64, items: f64) -> Option<(f64, f64)> {
    if items.is_nan() || items <= 0.0 {
        return None;
    }
    let share = (successes / items).clamp(0.0, 1.0);
    let squared = NORMAL_95 * NORMAL_95;
    let scale = 1.0 + squared / items;
    let centre = (share + squared / (2.0 * items)) / scale;
    let spread = share * (1.0 - share) / items + squared / (4.0 * items * items);
    let half = NORMAL_95 * spread.sqrt() / scale;
    Some(((centre - half).max(0.0), (centre + half).min(1.0)))
}

/// Standard error of a mean, from the sums of values and of their squares over `items` values: the sample's
/// standard deviation over the root of its size, as lm-eval reports it. `None` below two items.
pub fn standard_error(sum: f64, sum_of_squares: f64, items: u64) -> Option<f64> {
    if items < 2 {
        return None;
    }
    let items = items as f64;
    let variance = (sum_of_squares - sum * sum / items).max(0.0) / (items - 1.0);
    Some((variance / items).sqrt())
}

/// Standard error of a share whose trials come in clusters (the steps of a task), from the sum over clusters of the
/// squared deviations of the numerator from the share of the denominator: the linearised ratio estimator (Cochran 1977,
/// section 6.4), with as many degrees of freedom as there are clusters but one. `None` below two clusters.
pub(crate) fn clustered_error(deviations: f64, trials: f64, clusters: u64) -> Option<f64> {
    if clusters < 2 || trials <= 0.0 {
        return None;
    }
    let clusters = clusters as f64;
    Some((deviations.max(0.0) * clusters / (clusters - 1.0)).sqrt() / trials)
}

/// Wilson's 95 % interval of such a share, over the number of independent trials that would have its standard error (the
/// effective sample size), at least one and at most all trials. Where the standard error cannot tell, because there is
/// one cluster or all is right or wrong, there are as many trials as clusters.
pub(crate) fn clustered_interval(
    share: f64,
    standard_error: Option<f64>,
    trials: f64,
    clusters: u64,
) -> Option<(f64, f64)> {
    let clusters = clusters as f64;
    let effective = match standard_error {
        Some(error) if share > 0.0 && share < 1.0 => (share * (1.0 - share) / (error * error)).min(trials),
        _ => clusters.min(trials),
    };
    let effective = effective.max(1.0);
    wilson(share * effective, effective)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 5e-5
    }

    #[test]
    fn known_intervals() {
        // Newcombe (1998), Statistics in Medicine 17: 857-872, table I, method 3.
        for (successes, items, low, high) in [
            (81.0, 263.0, 0.2553, 0.3662),
            (15.0, 148.0, 0.0624, 0.1605),
            (0.0, 20.0, 0.0, 0.1611),
            (1.0, 29.0, 0.0061, 0.1718),
        ] {
            let (lower, upper) = wilson(successes, items).unwrap();
            assert!(close(lower, low) && close(upper, high), "{successes}/{items}: {lower} {upper}");
        }
        assert_eq!(wilson(0.0, 0.0), None);
    }

    #[test]
    fn known_standard_errors() {
        // 1, 0, 1, 1: mean 0.75, sample variance 0.25.
        assert_eq!(standard_error(3.0, 3.0, 4), Some(0.25));
        assert_eq!(standard_error(5.0, 5.0, 5), Some(0.0));
        assert_eq!(standard_error(1.0, 1.0, 1), None);
    }

    proptest! {
        #[test]
        fn intervals_hold_the_share(items in 1u32..5000, part in 0.0f64..=1.0) {
            let successes = (f64::from(items) * part).floor();
            let share = successes / f64::from(items);
            let (low, high) = wilson(successes, f64::from(items)).unwrap();
            prop_assert!(0.0 <= low && low <= share + 1e-12 && share <= high + 1e-12 && high <= 1.0);
        }
    }
}
