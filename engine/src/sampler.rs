//! From logits to the next token.

use candle_core::{Device, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling as Choice};

use crate::error::GenerateError;
use crate::request::Sampling;

impl Sampling {
    /// Checks the ranges.
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

    /// Whether the most likely token is always chosen.
    pub(crate) fn is_greedy(&self) -> bool {
        // Below this, dividing by the temperature leaves the float range.
        self.temperature < 1e-7 || self.top_k == Some(1)
    }
}

/// The token that follows; `index` counts the tokens generated so far. `None` when a logit is not finite.
pub(crate) fn sample(logits: &[f32], sampling: &Sampling, index: usize) -> Option<u32> {
    if logits.iter().fold(false, |any, logit| any | !logit.is_finite()) {
        return None;
    }
    if sampling.is_greedy() {
        return Some(greedy(logits));
    }
    let temperature = sampling.temperature;
    let choice = match (sampling.top_k, sampling.top_p) {
        (None, None) => Choice::All { temperature },
        (Some(k), None) => Choice::TopK { k, temperature },
        (None, Some(p)) => Choice::TopP { p, temperature },
        (Some(k), Some(p)) => Choice::TopKThenTopP { k, p, temperature },
    };
    let logits = Tensor::from_slice(logits, logits.len(), &Device::Cpu).ok()?;
    LogitsProcessor::from_sampling(mix(sampling.seed, index as u64), choice).sample(&logits).ok()
}

/// The most likely token, the lowest id among equals.
fn greedy(logits: &[f32]) -> u32 {
    let maximum = logits.iter().fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
    logits.iter().position(|logit| *logit == maximum).unwrap_or(0) as u32
}

/// The `count` highest logits with their ids, highest first, lower ids first among equals.
pub(crate) fn highest(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut pairs: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    pairs.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    pairs.truncate(count);
    pairs
}

/// One seed out of two numbers (the finaliser of splitmix64 over both).
fn mix(seed: u64, index: u64) -> u64 {
    let mut state = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(temperature: f64, top_p: Option<f64>, top_k: Option<usize>, seed: u64) -> Sampling {
        Sampling { temperature, top_p, top_k, seed }
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        let logits = [0.5, 2.0, -1.0, 2.0];
        assert_eq!(sample(&logits, &Sampling::GREEDY, 0), Some(1));
        assert_eq!(sample(&logits, &sampling(1.0, None, Some(1), 3), 5), Some(1));
        assert_eq!(sample(&[0.0, f32::NAN], &Sampling::GREEDY, 0), None);
        assert_eq!(highest(&logits, 3), [(1, 2.0), (3, 2.0), (0, 0.5)]);
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
    }

    #[test]
    fn draws_follow_the_distribution_and_its_cuts() {
        let logits = [2.0f32.ln(), 1.0f32.ln(), 1.0f32.ln(), f32::MIN];
        let mut counts = [0usize; 4];
        for index in 0..8000 {
            counts[sample(&logits, &sampling(1.0, None, None, 7), index).unwrap() as usize] += 1;
        }
        assert!((3800..4200).contains(&counts[0]), "{counts:?}");
        assert_eq!(counts[3], 0);
        for index in 0..200 {
            assert_eq!(sample(&logits, &sampling(1.0, Some(0.4), None, 7), index), Some(0));
            assert!(sample(&logits, &sampling(2.0, None, Some(3), 7), index).unwrap() < 3);
        }
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
