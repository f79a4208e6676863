//! Properties that hold for all inputs.

use proptest::prelude::*;

use super::*;
use crate::score::Share;

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-9
}

fn mirrored((low, high): Limits, (other_low, other_high): Limits) -> bool {
    close(low, -other_high) && close(high, -other_low)
}

/// Scores of the same items on two sides.
fn sides() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
    let score = prop_oneof![Just(0.0), Just(1.0), Just(0.5), 0.0f64..=1.0];
    proptest::collection::vec((score.clone(), score), 2..40).prop_map(|pairs| pairs.into_iter().unzip())
}

proptest! {
    #[test]
    fn shares_and_their_complements_have_mirrored_intervals(n in 1u64..3000, part in 0.0f64..=1.0) {
        let k = (n as f64 * part).floor() as u64;
        let (low, high) = wilson(k as f64, n as f64, 0.95).unwrap();
        let (other_low, other_high) = wilson((n - k) as f64, n as f64, 0.95).unwrap();
        prop_assert!(close(low, 1.0 - other_high) && close(high, 1.0 - other_low), "{low} {high}");
        let share = k as f64 / n as f64;
        prop_assert!(0.0 <= low && low <= share + 1e-12 && share <= high + 1e-12 && high <= 1.0);
    }

    #[test]
    fn swapping_the_sides_mirrors_the_difference((a, b) in sides(), seed in any::<u64>()) {
        let (forwards, backwards) = (PairedDifference::of(&a, &b, None).unwrap(), PairedDifference::of(&b, &a, None).unwrap());
        prop_assert!(close(forwards.difference, -backwards.difference));
        prop_assert!(close(forwards.standard_error, backwards.standard_error));
        prop_assert!(close(forwards.p_t, backwards.p_t));
        let limits = forwards.interval(0.95);
        prop_assert!(mirrored(limits, backwards.interval(0.95)));
        prop_assert!(limits.0 <= forwards.difference && forwards.difference <= limits.1);
        let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
        let swapped: Vec<f64> = differences.iter().map(|one| -one).collect();
        let few = differences.len().min(18);
        prop_assert_eq!(sign_flip(&differences[..few], seed), sign_flip(&swapped[..few], seed));
        let p = sign_flip(&differences[..few], seed).p;
        prop_assert!(p > 0.0 && p <= 1.0, "{p}");
    }

    #[test]
    fn counts_of_right_items_are_mirrored(only_a in 0u64..60, only_b in 0u64..60, same in 0u64..200) {
        prop_assert_eq!(mcnemar(only_a, only_b), mcnemar(only_b, only_a));
        let test = mcnemar(only_a, only_b);
        prop_assert!(test.mid_p <= test.exact && test.exact <= 1.0 && test.mid_p >= 0.0);
        let items = only_a + only_b + same;
        prop_assume!(items > 0);
        let limits = paired_score(only_a, only_b, items, 0.95).unwrap();
        prop_assert!(mirrored(limits, paired_score(only_b, only_a, items, 0.95).unwrap()), "{limits:?}");
        let difference = (only_a as f64 - only_b as f64) / items as f64;
        prop_assert!(-1.0 <= limits.0 && limits.0 <= difference && difference <= limits.1 && limits.1 <= 1.0);
        let (a, b) = ((only_a as f64, items as f64), (only_b as f64, items as f64));
        let ((left, forwards), (right, backwards)) = (newcombe(a, b, 0.95).unwrap(), newcombe(b, a, 0.95).unwrap());
        prop_assert!(close(left, -right) && mirrored(forwards, backwards));
        prop_assert!(forwards.0 <= left && left <= forwards.1);
    }

    #[test]
    fn adding_a_constant_changes_no_error(values in proptest::collection::vec(-1.0f64..1.0, 4..30), by in -5.0f64..5.0) {
        let moved: Vec<f64> = values.iter().map(|value| value + by).collect();
        prop_assert!(close(mean_and_error(&values).unwrap().1, mean_and_error(&moved).unwrap().1));
        let clusters: Vec<u32> = (0..).map(|index| index / 2).take(values.len()).collect();
        let zeros = vec![0.0; values.len()];
        let error = |values: &[f64]| PairedDifference::of(values, &zeros, Some(&clusters)).unwrap().standard_error;
        prop_assert!(close(error(&values), error(&moved)));
    }

    #[test]
    fn a_ratio_of_whole_items_is_the_paired_difference((a, b) in sides()) {
        let shares = |values: &[f64]| -> Vec<Share> {
            values.iter().map(|&value| Share::once(value)).collect()
        };
        let ratio = paired_ratio(&SidedShares { a: &shares(&a), b: &shares(&b), clusters: None });
        prop_assert_eq!(ratio, PairedDifference::of(&a, &b, None));
    }

    #[test]
    fn adjusted_values_are_ordered(p in proptest::collection::vec(0.0f64..=1.0, 0..30)) {
        let (holm, fdr) = (holm(&p), benjamini_hochberg(&p));
        for ((p, holm), fdr) in p.iter().zip(&holm).zip(&fdr) {
            prop_assert!(*p <= fdr + 1e-15 && *fdr <= holm + 1e-15 && *holm <= 1.0, "{p} {fdr} {holm}");
        }
    }

    #[test]
    fn bootstrap_intervals_are_ordered(values in proptest::collection::vec(0.0f64..=1.0, 2..12), seed in any::<u64>()) {
        let bca = bca(&ClusterSum::of(&values, None), 99, seed, 0.95, true).unwrap();
        prop_assert!(bca.interval.0 <= bca.interval.1 && bca.percentile.0 <= bca.percentile.1, "{bca:?}");
        prop_assert!(0.0 <= bca.interval.0 && bca.interval.1 <= 1.0, "{bca:?}");
    }

    #[test]
    fn more_attempts_help_and_all_are_harder(attempts in 1u64..60, part in 0.0f64..=1.0) {
        let correct = (attempts as f64 * part).floor() as u64;
        for k in 1..attempts {
            prop_assert!(pass_at_k(attempts, correct, k) <= pass_at_k(attempts, correct, k + 1).map(|one| one + 1e-12));
            prop_assert!(pass_hat_k(attempts, correct, k).map(|one| one + 1e-12) >= pass_hat_k(attempts, correct, k + 1));
        }
    }
}
