//! The sign-flip test of a mean difference over the same items.

use rand_mt::Mt64;

/// Largest number of differing items whose sign vectors are all enumerated.
const ENUMERATED: usize = 20;
/// Number of random sign vectors for more items.
const DRAWS: u64 = 99_999;
/// Sums that differ by less than this, relative to the largest sum, are equal except for rounding.
const TOLERANCE: f64 = 1e-12;

/// Result of a sign-flip test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Permutation {
    /// The two-sided p value.
    pub p: f64,
    /// Whether all sign vectors were enumerated.
    pub exact: bool,
}

/// Tests whether the mean of the differences is 0, without an assumption on their distribution: if a and b were
/// equally good, every difference could as well have the other sign. The p value is the share of sign vectors whose sum
/// is at least as far from 0 as the observed one.
///
/// Differences of 0 do not change the sum and are left out. For at most 20 others, all sign vectors are enumerated;
/// for more, 99,999 are drawn from `seed` and the p value is (1 + hits) / (1 + draws).
///
/// ```
/// let test = lumos_benchmarks::statistics::sign_flip(&[0.1, 0.1, -0.1, 0.4, 0.0, 0.3], 0);
/// assert_eq!((test.p, test.exact), (0.25, true));
/// ```
pub fn sign_flip(differences: &[f64], seed: u64) -> Permutation {
    let differing: Vec<f64> = differences.iter().copied().filter(|one| *one != 0.0).collect();
    let observed = differing.iter().sum::<f64>().abs();
    let largest: f64 = differing.iter().map(|one| one.abs()).sum();
    let least = observed - TOLERANCE * largest.max(1.0);
    if differing.len() <= ENUMERATED {
        let p = enumerated(&differing, least);
        return Permutation { p, exact: true };
    }
    let hits = drawn(&differing, least, seed);
    Permutation { p: (1 + hits) as f64 / (1 + DRAWS) as f64, exact: false }
}

/// Returns the share of all sign vectors whose sum is at least `least` from 0. Every sum is one of the first half of
/// the values plus one of the second, so rounding does not accumulate.
fn enumerated(values: &[f64], least: f64) -> f64 {
    let (left, right) = values.split_at(values.len() / 2);
    let (left, mut right) = (sums(left), sums(right));
    right.sort_by(f64::total_cmp);
    let hits: usize = left
        .iter()
        .map(|left| {
            let high = right.len() - right.partition_point(|right| left + right < least);
            let low = right.partition_point(|right| left + right <= -least);
            if least <= 0.0 { right.len() } else { high + low }
        })
        .sum();
    hits as f64 / (left.len() * right.len()) as f64
}

/// Returns the sums of the values with all combinations of signs.
fn sums(values: &[f64]) -> Vec<f64> {
    values
        .iter()
        .fold(vec![0.0], |sums, value| sums.iter().flat_map(|sum| [sum + value, sum - value]).collect())
}

/// Returns the number of random sign vectors whose sum is at least `least` from 0. Values of the same size are drawn
/// together: their sum depends only on the number of positive signs, which is a count of random bits.
fn drawn(values: &[f64], least: f64, seed: u64) -> u64 {
    let mut sizes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let groups: Vec<(f64, u32)> =
        sizes.chunk_by(|left, right| left == right).map(|group| (group[0], group.len() as u32)).collect();
    let mut bits = Bits { source: Mt64::new(seed), word: 0, left: 0 };
    let sum = |bits: &mut Bits| -> f64 {
        groups
            .iter()
            .map(|(size, count)| size * (2.0 * f64::from(bits.ones(*count)) - f64::from(*count)))
            .sum()
    };
    (0..DRAWS).map(|_| u64::from(sum(&mut bits).abs() >= least)).sum()
}

/// A stream of random bits.
struct Bits {
    source: Mt64,
    word: u64,
    left: u32,
}

impl Bits {
    /// Returns the number of ones among the next `count` bits.
    fn ones(&mut self, mut count: u32) -> u32 {
        let mut ones = 0;
        while count > 0 {
            if self.left == 0 {
                (self.word, self.left) = (self.source.next_u64(), u64::BITS);
            }
            let taken = count.min(self.left);
            let mask = if taken == u64::BITS { u64::MAX } else { (1 << taken) - 1 };
            ones += (self.word & mask).count_ones();
            self.word = self.word.checked_shr(taken).unwrap_or(0);
            (self.left, count) = (self.left - taken, count - taken);
        }
        ones
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::mcnemar;

    #[test]
    fn binary_differences_have_mcnemars_exact_p_value() {
        for (a, b) in [(7, 1), (5, 0), (3, 3), (12, 6)] {
            let differences = [vec![1.0; a as usize], vec![-1.0; b as usize], vec![0.0; 30]].concat();
            let test = sign_flip(&differences, 1);
            assert!(test.exact && (test.p - mcnemar(a, b).exact).abs() < 1e-12, "{a} {b}: {test:?}");
        }
        let drawn = sign_flip(&[vec![1.0; 30], vec![-1.0; 12]].concat(), 1);
        assert!(!drawn.exact && (drawn.p - mcnemar(30, 12).exact).abs() < 2e-3, "{drawn:?}");
    }

    #[test]
    fn drawing_agrees_with_enumerating_and_repeats() {
        let values: Vec<f64> =
            (1..=16).map(|value| f64::from(value) * if value % 3 == 0 { -0.1 } else { 0.1 }).collect();
        let observed = values.iter().sum::<f64>().abs() - 1e-9;
        let exact = enumerated(&values, observed);
        let share = drawn(&values, observed, 7) as f64 / DRAWS as f64;
        assert!((exact - share).abs() < 5e-3, "{exact} {share}");
        assert_eq!(drawn(&values, observed, 7), drawn(&values, observed, 7));
        assert_ne!(drawn(&values, observed, 7), drawn(&values, observed, 8));
    }

    #[test]
    fn bits_are_counted_across_words() {
        let mut bits = Bits { source: Mt64::new(3), word: 0, left: 0 };
        let mut source = Mt64::new(3);
        let whole: u32 = (0..4).map(|_| source.next_u64().count_ones()).sum();
        let parts: u32 = [1, 63, 64, 100, 28].into_iter().map(|count| bits.ones(count)).sum();
        assert_eq!(parts, whole);
    }

    #[test]
    fn nothing_that_differs_is_no_evidence() {
        assert_eq!(sign_flip(&[], 0), Permutation { p: 1.0, exact: true });
        assert_eq!(sign_flip(&[0.0; 50], 0).p, 1.0);
        assert_eq!(sign_flip(&[0.5], 0).p, 1.0);
    }
}
