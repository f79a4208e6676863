//! Chooses the next token from logits: greedy or random.
//!
//! Sampling gives the same token on every device: after one subtraction and one product in float32, all
//! arithmetic is on integers, so the CPU and a GPU choose the same token for the same logits, sampling and
//! index.

mod draw;
mod weight;

pub(crate) use draw::Draw;

use lumos_kernels::maximum;

use crate::error::GenerateError;
use crate::request::SamplingParams;

/// How one token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Choosing {
    /// The most likely token, the lowest id among equals.
    Highest,
    /// At random.
    Draw(Draw),
}

impl SamplingParams {
    /// Validates the ranges.
    pub(crate) fn check(&self) -> Result<(), GenerateError> {
        let invalid = |reason: String| Err(GenerateError::InvalidSampling(reason));
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            return invalid(format!("temperature {} must be 0 or more", self.temperature));
        }
        if let Some(top_p) = self.top_p.filter(|value| !(*value > 0.0 && *value <= 1.0)) {
            return invalid(format!("top_p {top_p} must be above 0 and at most 1"));
        }
        if self.top_k == Some(0) {
            return invalid("top_k must be at least 1".to_owned());
        }
        Ok(())
    }

    /// How to choose the token after `index` generated ones.
    pub(crate) fn choosing(&self, index: usize) -> Choosing {
        // Below this, hardly any two logits are close enough to each other for sampling to matter.
        if self.temperature < 1e-7 || self.top_k == Some(1) {
            return Choosing::Highest;
        }
        Choosing::Draw(Draw::new(self, index))
    }
}

/// The next token. `None` if a logit is not finite.
pub(crate) fn choose(logits: &[f32], choosing: &Choosing) -> Option<u32> {
    if logits.iter().fold(false, |any, logit| any | !logit.is_finite()) {
        return None;
    }
    let highest = maximum(logits);
    Some(match choosing {
        Choosing::Highest => logits.iter().position(|logit| *logit == highest).unwrap_or(0) as u32,
        Choosing::Draw(draw) => draw.take(logits, highest),
    })
}

/// The `count` highest logits with their ids, highest first, lower ids first among equals.
pub(crate) fn highest(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut pairs: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    pairs.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    pairs.truncate(count);
    pairs
}

/// The random number of a token: element `index` of the splitmix64 sequence (Steele, Lea and Flood 2014) that
/// starts with the seed.
///
/// It needs no other state, and passes the usual statistical test suites. Two seeds share numbers only if
/// they differ by a small multiple of its constant, which seeds below 2⁴⁰ do not within a million tokens, and
/// hashes only by chance.
fn random(seed: u64, index: u64) -> u64 {
    let mut state = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(temperature: f64, top_p: Option<f64>, top_k: Option<usize>, seed: u64) -> SamplingParams {
        SamplingParams { temperature, top_p, top_k, seed }
    }

    fn sample(logits: &[f32], sampling: &SamplingParams, index: usize) -> Option<u32> {
        choose(logits, &sampling.choosing(index))
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        let logits = [0.5, 2.0, -1.0, 2.0];
        assert_eq!(sample(&logits, &SamplingParams::GREEDY, 0), Some(1));
        assert_eq!(sample(&logits, &sampling(1.0, None, Some(1), 3), 5), Some(1));
        assert_eq!(highest(&logits, 3), [(1, 2.0), (3, 2.0), (0, 0.5)]);
        // Close to the lowest temperature.
        assert_eq!(sample(&[0.5, 2.0, 1.999], &sampling(1e-6, None, None, 3), 5), Some(1));
    }

    #[test]
    fn logits_have_to_be_finite() {
        for sampling in [SamplingParams::GREEDY, sampling(1.0, Some(0.9), Some(40), 1)] {
            for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                assert_eq!(sample(&[0.0, broken], &sampling, 0), None);
            }
        }
    }

    #[test]
    fn the_stream_depends_on_seed_and_index_only() {
        let logits: Vec<f32> = (0..50).map(|id| (id as f32 * 0.37).sin()).collect();
        let draw = |seed: u64| -> Vec<u32> {
            (0..40)
                .map(|index| sample(&logits, &sampling(1.0, Some(0.9), Some(40), seed), index).unwrap())
                .collect()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let later = sample(&logits, &sampling(1.0, Some(0.9), Some(40), 1), 17);
        assert_eq!(later, Some(draw(1)[17]));
        // The generator's published numbers for this seed.
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([0, 1, 2].map(|index| random(1_234_567, index)), published);
        // Sampling is a stable definition: a change of these numbers changes results everywhere.
        assert_eq!(draw(1)[..12], [23, 36, 42, 20, 20, 37, 39, 22, 7, 37, 19, 24]);
    }

    #[test]
    fn ranges_are_checked() {
        assert!(sampling(-1.0, None, None, 0).check().is_err());
        assert!(sampling(f64::NAN, None, None, 0).check().is_err());
        assert!(sampling(1.0, Some(0.0), None, 0).check().is_err());
        assert!(sampling(1.0, Some(1.5), None, 0).check().is_err());
        assert!(sampling(1.0, None, Some(0), 0).check().is_err());
        assert!(sampling(1.0, Some(1.0), Some(5), 0).check().is_ok());
    }
}
