//! Random sampling, defined in integers: temperature, then the `top_k` highest logits, then the share
//! `top_p`.

use super::random;
use super::weight::{scale, weights};
use crate::request::SamplingParams;

/// The parameters of sampling one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Draw {
    /// Scale of logit differences: the temperature in the weights' units. Above 0.
    pub(super) scale: f32,
    /// Number of highest logits to keep, lower ids first among equals; larger than the vocabulary keeps all.
    pub(super) top_k: u32,
    /// Share of the remaining weight that the highest logits must reach together, in units of 2⁻³²; 0 keeps
    /// all.
    pub(super) top_p: u32,
    /// Share of the remaining weight that lies before the chosen token, in units of 2⁻⁶⁴.
    pub(super) random: u64,
}

impl Draw {
    /// Number of words in the device encoding returned by [`words`](Self::words).
    pub(crate) const WORDS: usize = 5;

    /// Parameters for the token after `index` generated ones, at a temperature above 0.
    pub(super) fn new(sampling: &SamplingParams, index: usize) -> Self {
        // A share that rounds to one keeps all, and one that rounds to zero keeps the highest logit.
        let part = |top_p: f64| ((top_p * 2f64.powi(32)).round() as u64).max(1);
        Self {
            scale: scale(sampling.temperature),
            top_k: sampling.top_k.and_then(|top_k| u32::try_from(top_k).ok()).unwrap_or(u32::MAX),
            top_p: sampling.top_p.map_or(0, part).try_into().unwrap_or(0),
            random: random(sampling.seed, index as u64),
        }
    }

    /// Encoding that a device reads. The first word is never 0.
    pub(crate) fn words(&self) -> [u32; Self::WORDS] {
        [self.scale.to_bits(), self.top_k, self.top_p, self.random as u32, (self.random >> 32) as u32]
    }

    /// Chooses the token. All logits must be finite, and `highest` must be the highest of them.
    pub(super) fn take(&self, logits: &[f32], highest: f32) -> u32 {
        if self.top_k as usize >= logits.len() {
            return self.take_by_weight(logits, highest) as u32;
        }
        let kept = kept(logits, |_| 1, u64::from(self.top_k));
        let logits: Vec<f32> = kept.iter().map(|id| logits[*id as usize]).collect();
        kept[self.take_by_weight(&logits, highest)]
    }

    /// Index of the chosen logit.
    fn take_by_weight(&self, logits: &[f32], highest: f32) -> usize {
        let weights = weights(logits, highest, self.scale);
        if self.top_p == 0 {
            return self.reached(weights.iter().copied());
        }
        let sum: u64 = weights.iter().sum();
        let part = (u128::from(sum) * u128::from(self.top_p)).div_ceil(1 << 32) as u64;
        let kept = kept(logits, |place| weights[place], part);
        kept[self.reached(kept.iter().map(|place| weights[*place as usize]))] as usize
    }

    /// The first index up to which the weights sum to more than the random share of their total.
    fn reached(&self, weights: impl Iterator<Item = u64> + Clone) -> usize {
        let sum: u64 = weights.clone().sum();
        let mut left = ((u128::from(self.random) * u128::from(sum)) >> 64) as u64;
        let mut weights = weights;
        let reached = |weight: u64| {
            let reached = left < weight;
            left = left.wrapping_sub(weight);
            reached
        };
        weights.position(reached).unwrap_or(0)
    }

    /// The same parameters with another random number.
    #[cfg(test)]
    pub(crate) fn at(self, random: u64) -> Self {
        Self { random, ..self }
    }
}

/// An integer for each finite logit that has the same order; both zeros map to the same integer.
fn key(logit: f32) -> u32 {
    // Adding zero turns −0 into 0.
    let bits = (logit + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// Indices of the smallest set of highest logits, lower indices first among equals, whose amounts sum to at
/// least `needed`, which is at least one and at most the sum of all amounts. Equal logits have equal amounts.
fn kept(logits: &[f32], amount: impl Fn(usize) -> u64, mut needed: u64) -> Vec<u32> {
    let keys: Vec<u32> = logits.iter().copied().map(key).collect();
    let mut equal: Vec<u32> = (0..keys.len() as u32).collect();
    // Digit by digit: everything above the digit at which the sum is reached stays, and the next digit
    // decides within it.
    for (shift, digits) in [(21, 1 << 11), (10, 1 << 11), (0, 1 << 10)] {
        let digit = |place: u32| (keys[place as usize] >> shift) as usize % digits;
        let mut sums = vec![0u64; digits];
        for place in &equal {
            sums[digit(*place)] += amount(*place as usize);
        }
        let mut reached = digits - 1;
        while sums[reached] < needed {
            needed -= sums[reached];
            reached -= 1;
        }
        equal.retain(|place| digit(*place) == reached);
    }
    let (lowest, each) = (equal[0], amount(equal[0] as usize));
    let (key, last) = (keys[lowest as usize], equal[needed.div_ceil(each) as usize - 1]);
    let stays = |(place, own): (u32, &u32)| (*own > key || (*own == key && place <= last)).then_some(place);
    (0..).zip(&keys).filter_map(stays).collect()
}

#[cfg(test)]
mod tests {
    use super::super::weight::weight;
    use super::*;
    use proptest::prelude::*;

    fn draw(temperature: f64, top_p: Option<f64>, top_k: Option<usize>, seed: u64, index: usize) -> Draw {
        Draw::new(&SamplingParams { temperature, top_p, top_k, seed }, index)
    }

    fn highest(logits: &[f32]) -> f32 {
        logits.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

    /// The definition of sampling, implemented by sorting and summing.
    fn by_sorting(draw: &Draw, logits: &[f32]) -> u32 {
        let weights: Vec<u128> =
            logits.iter().map(|logit| weight(*logit, highest(logits), draw.scale).into()).collect();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|one, other| logits[*other].partial_cmp(&logits[*one]).unwrap().then(one.cmp(other)));
        order.truncate(draw.top_k as usize);
        let all: u128 = order.iter().map(|id| weights[*id]).sum();
        if draw.top_p > 0 {
            let mut sum = 0;
            let enough = |id: &usize| {
                sum += weights[*id];
                sum << 32 >= all * u128::from(draw.top_p)
            };
            let last = order.iter().position(enough).unwrap();
            order.truncate(last + 1);
        }
        order.sort_unstable();
        let all: u128 = order.iter().map(|id| weights[*id]).sum();
        let target = (u128::from(draw.random) * all) >> 64;
        let mut sum = 0;
        let reached = |id: &&usize| {
            sum += weights[**id];
            sum > target
        };
        *order.iter().find(reached).unwrap() as u32
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Few distinct logits, so that equals are common, and zeros of both signs.
        #[test]
        fn draws_are_those_of_the_definition(
            logits in prop::collection::vec(prop_oneof![(-9i8..9).prop_map(|at| -(f32::from(at) / 3.0)), -8f32..8.0], 1..90),
            temperature in prop_oneof![Just(1e-6), Just(100.0), 0.05f64..2.0],
            top_p in prop::option::of(1e-3f64..1.0), top_k in prop::option::of(1usize..95), seed in any::<u64>(),
        ) {
            for index in 0..8 {
                let draw = draw(temperature, top_p, top_k, seed, index);
                prop_assert_eq!(draw.take(&logits, highest(&logits)), by_sorting(&draw, &logits));
            }
            // The highest random number selects the last token that remains: with descending logits, the one
            // at which the cuts end.
            let mut falling = logits;
            falling.sort_by(|one, other| other.total_cmp(one));
            for random in [0, u64::MAX] {
                let draw = draw(temperature, top_p, top_k, seed, 0).at(random);
                prop_assert_eq!(draw.take(&falling, falling[0]), by_sorting(&draw, &falling));
            }
        }
    }

    #[test]
    fn cuts_that_keep_all_change_nothing() {
        let logits: Vec<f32> = (0..300).map(|id| (id as f32 * 0.61).sin() * 4.0).collect();
        let take = |top_p, top_k, index| draw(1.0, top_p, top_k, 9, index).take(&logits, highest(&logits));
        for index in 0..300 {
            let free = take(None, None, index);
            assert_eq!(take(Some(1.0), None, index), free);
            assert_eq!(take(None, Some(300), index), free);
            assert_eq!(take(Some(1.0), Some(usize::MAX), index), free);
        }
    }

    #[test]
    fn equals_are_cut_by_their_ids() {
        let logits = [1.0, 0.0, -0.0, 2.0, 0.0, 0.0];
        let seen = |top_p, top_k| {
            let mut seen = [false; 6];
            for index in 0..400 {
                seen[draw(5.0, top_p, top_k, 3, index).take(&logits, 2.0) as usize] = true;
            }
            seen
        };
        assert_eq!(seen(None, Some(4)), [true, true, true, true, false, false]);
        // A third of the weight of equal logits needs two of six.
        let equal = [3.5; 6];
        let drawn = |index| draw(1.0, Some(0.3), None, 3, index).take(&equal, 3.5);
        assert!((0..400).all(|index| drawn(index) < 2) && (0..400).any(|index| drawn(index) == 1));
        // `top_p` is a share of what `top_k` keeps: of two equal logits the first is half.
        assert!((0..400).all(|index| draw(1.0, Some(0.5), Some(2), 3, index).take(&equal, 3.5) == 0));
    }

    /// Pearson's statistic over 20,000 samples stays below the value that one in ten thousand exceeds.
    #[test]
    fn draws_follow_the_distribution() {
        let logits = [0.3f32, -1.2, 1.9, 0.0, -0.4, 1.1, -2.5, 0.8];
        for (temperature, seed) in [(1.0, 1), (0.6, 2), (1.7, u64::MAX)] {
            let mut counts = [0u32; 8];
            for index in 0..20_000 {
                counts[draw(temperature, None, None, seed, index).take(&logits, 1.9) as usize] += 1;
            }
            let weights = logits.map(|logit| (f64::from(logit) / temperature).exp());
            let sum: f64 = weights.iter().sum();
            let expected = weights.map(|weight| weight / sum * 20_000.0);
            let parts = counts.iter().zip(expected);
            let statistic: f64 =
                parts.map(|(count, expected)| (f64::from(*count) - expected).powi(2) / expected).sum();
            // Seven degrees of freedom.
            assert!(statistic < 29.9, "{statistic}: {counts:?}");
        }
        // Also the first token of adjacent seeds.
        let first = (0..20_000).filter(|seed| draw(1.0, None, None, *seed, 0).take(&[0.0, 0.0], 0.0) == 0);
        assert!((9_700..10_300).contains(&first.count()));
    }
}
