//! The weight of a token in sampling: e to the power of its logit over the temperature, as an integer.
//!
//! The computation is one subtraction and one product in float32, then integer arithmetic, whose sums do not
//! depend on the order. Any implementation of these steps has bit-identical weights; `cuda/sampling.cu` is
//! one.

use lumos_kernels::{arch, compiled};

/// The highest logit has a weight of two to this power: a sum over all tokens of the largest vocabulary stays below 2⁶⁴.
const HIGHEST: u32 = 40;
/// Fractional bits of a distance; distances are exponents of two.
const POINT: u32 = 25;
/// Distances from this value on have weight 0.
const FARTHEST: f32 = ((HIGHEST as u64 + 1) << POINT) as f32;
/// 2⁻ᶠ = 1 − f·(c₀ − f·(c₁ − …)) for f from 0 to 1, in units of 2⁻³²: fitted for the smallest relative error (2·10⁻⁹).
const COEFFICIENTS: [u32; 6] = [0xb172_1605, 0x3d7f_581b, 0x0e34_a46b, 0x0273_c7f8, 0x0053_8aba, 0x0007_251b];

/// The factor that converts differences of logits to distances. The temperature is above 0.
pub(super) fn scale(temperature: f64) -> f32 {
    let scale = std::f64::consts::LOG2_E * f64::from(1u32 << POINT) / temperature;
    // Above 0, so that an infinite difference stays infinite.
    (scale as f32).max(f32::MIN_POSITIVE)
}

/// Weight of a logit relative to the highest one: at most 2⁴⁰, 0 if it would be less than one.
///
/// Relative to the exponential of the exact difference over the temperature, the error is below 2·10⁻⁷ × (1 +
/// that quotient), plus a rounding error below one.
#[inline(always)]
pub(super) fn weight(logit: f32, highest: f32, scale: f32) -> u64 {
    let distance = (highest - logit) * scale;
    let near = distance < FARTHEST;
    // Signed: processors have conversions to signed integers.
    let distance = if near { distance } else { 0.0 } as i32 as u32;
    let fraction = distance << (32 - POINT);
    let times = |number: u32| ((u64::from(number) * u64::from(fraction)) >> 32) as u32;
    let [lower @ .., top] = COEFFICIENTS;
    let sum = lower.iter().rev().fold(top, |sum, coefficient| coefficient - times(sum));
    let power = (1u64 << 32) - u64::from(times(sum));
    if near { (power << (HIGHEST - 32)) >> (distance >> POINT) } else { 0 }
}

/// The weights of all logits.
pub(super) fn weights(logits: &[f32], highest: f32, scale: f32) -> Vec<u64> {
    let mut weights = vec![0; logits.len()];
    compiled(
        arch(),
        #[inline(always)]
        || {
            for (to, logit) in weights.iter_mut().zip(logits) {
                *to = weight(*logit, highest, scale);
            }
        },
    );
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weights_are_exponentials() {
        for temperature in [1e-7, 1e-3, 0.3, 1.0, 1.7, 100.0] {
            let scale = scale(temperature);
            let highest = 3.7f32;
            for step in 0..60_000u32 {
                let logit = highest - (f64::from(step) * 5e-4 * temperature) as f32;
                let quotient = (f64::from(highest) - f64::from(logit)) / temperature;
                let exact = (-quotient).exp() * 2f64.powi(40);
                let error = (weight(logit, highest, scale) as f64 - exact).abs();
                assert!(
                    error <= 1.0 + exact * 2e-7 * (1.0 + quotient),
                    "{temperature} {quotient}: {error} of {exact}"
                );
            }
        }
    }

    #[test]
    fn weights_fall_with_every_step() {
        let one = 1.0 / (1u32 << 30) as f32;
        // With a scale of one, distances are steps: all steps around powers of two, and some others.
        let at = |step: u32| weight(-(step as f32) * one, 0.0, (1u32 << 30) as f32);
        assert_eq!(at(0), 1 << 40);
        for octave in 0..41u32 {
            let start = octave << POINT;
            let near =
                (start.max(2000) - 2000..start + 2000).chain((start..start + (1 << POINT)).step_by(997));
            for step in near {
                // Beyond 2²⁴ not every step is representable as a float.
                assert!(at(step + 1) <= at(step), "step {step}");
            }
            assert_eq!(at(start), (1 << 40) >> octave);
        }
        for octave in 0..2u32 {
            for step in (octave << POINT..(octave + 1) << POINT).step_by(64) {
                assert!(at(step + 64) < at(step), "step {step}");
            }
        }
        assert_eq!(at(41 << POINT), 0);
    }

    #[test]
    fn sums_of_weights_do_not_overflow() {
        let tokens = crate::load::weights::MOST_TOKENS as u64;
        assert!(tokens.checked_mul(weight(0.0, 0.0, scale(1.0))).is_some());
    }

    #[test]
    fn what_is_out_of_range_weighs_nothing() {
        for temperature in [1e-7, 1.0, 1e30, 1e300, f64::MAX] {
            let scale = scale(temperature);
            assert!(scale > 0.0 && scale.is_finite());
            assert_eq!(weight(f32::MIN, f32::MAX, scale), 0);
            assert_eq!(weight(f32::MAX, f32::MAX, scale), 1 << 40);
            assert_eq!(weight(f32::MIN, f32::MIN, scale), 1 << 40);
        }
        assert_eq!(weight(-100.0, 0.0, scale(1.0)), 0);
        assert_eq!(weight(0.0, f32::from_bits(1), scale(1.0)), 1 << 40);
    }

    proptest! {
        #[test]
        fn rows_have_the_weights_of_their_logits(logits in prop::collection::vec(-40f32..0.0, 0..70), temperature in 0.01f64..3.0) {
            let scale = scale(temperature);
            let expected: Vec<u64> = logits.iter().map(|logit| weight(*logit, 0.0, scale)).collect();
            prop_assert_eq!(weights(&logits, 0.0, scale), expected);
        }
    }
}
