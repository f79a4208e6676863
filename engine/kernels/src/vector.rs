//! Vector arithmetic that gives the same bits on every machine, whatever vector instructions it has.
//!
//! [`compiled`] runs a loop with the processor's instruction set; [`add_lanes`] and [`exponential`] are its building
//! blocks.

use pulp::{Arch, Simd, WithSimd};

/// The activation of a gated feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// GELU in its form with the hyperbolic tangent.
    GeluTanh,
}

/// Partial sums of a reduction: element `i` is added to sum `i % LANES` on every machine.
pub const LANES: usize = 16;

/// Adds partial sums in a fixed order.
#[inline(always)]
pub fn add_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// The highest value, by lanes that do not wait for each other; negative infinity without values. Ignores NaN.
#[inline(always)]
pub fn maximum(values: &[f32]) -> f32 {
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] = higher(lanes[lane], block[lane]);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, higher)
}

/// eˣ to about one unit in the last place; arguments are clamped to ±87. Vectorizes, and gives the same bits
/// on every machine that has fused multiply-add.
#[inline(always)]
pub fn exponential(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding it rounds to an integer in the low bits
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 87.0 { 87.0 } else { x };
    let rounded = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let power = rounded - ROUND;
    let rest = power.mul_add(-LN2_LOW, power.mul_add(-LN2_HIGH, x));
    let mut sum = 1.987_569_1e-4;
    sum = rest.mul_add(sum, 1.398_199_9e-3);
    sum = rest.mul_add(sum, 8.333_452e-3);
    sum = rest.mul_add(sum, 4.166_579_6e-2);
    sum = rest.mul_add(sum, 1.666_666_5e-1);
    sum = rest.mul_add(sum, 0.5);
    let value = (rest * rest).mul_add(sum, rest) + 1.0;
    value * f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

/// The hyperbolic tangent with an absolute error of about 1e-7. Vectorizes, and gives the same bits as
/// [`exponential`] does.
#[inline(always)]
pub fn tangent(x: f32) -> f32 {
    let power = exponential(-2.0 * x.abs());
    ((1.0 - power) / (1.0 + power)).copysign(x)
}

/// Rounds to bfloat16: to nearest, ties to even. Vectorizes.
#[inline(always)]
pub fn round_to_bf16(values: &[f32], rounded: &mut [u16]) {
    for (value, rounded) in values.iter().zip(rounded) {
        let bits = value.to_bits();
        let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        // A number that is not one keeps a bit of its fraction, which might not be among the upper ones.
        let quiet = bits >> 16 | 0x40;
        *rounded = if value.is_nan() { quiet } else { nearest } as u16;
    }
}

/// Runs `work` compiled for the processor's instruction set. `work` and everything that it calls must be
/// marked `#[inline(always)]`: code that is not inlined is compiled for the baseline, where each fused
/// multiply-add is a function call.
pub fn compiled(arch: Arch, work: impl FnMut()) {
    struct Compiled<F>(F);

    impl<F: FnMut()> WithSimd for Compiled<F> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, _: S) {
            // By reference: a closure passed by value is called through a function that is not inlined.
            (self.0)();
        }
    }

    arch.dispatch(Compiled(work));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_close() {
        let mut x = -87.0f32;
        while x < 87.0 {
            let (value, exact) = (f64::from(exponential(x)), f64::from(x).exp());
            assert!(((value - exact) / exact).abs() < 3e-7, "{x}: {value} against {exact}");
            x += 0.0137;
        }
        assert_eq!(exponential(0.0), 1.0);
        assert!(exponential(f32::NEG_INFINITY) < 1e-37);
    }

    #[test]
    fn rounding_to_bfloat16_is_that_of_the_library() {
        let bits = (0..=u16::MAX).flat_map(|upper| {
            [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff].map(|lower| u32::from(upper) << 16 | lower)
        });
        for value in bits.map(f32::from_bits) {
            let mut rounded = [0];
            round_to_bf16(&[value], &mut rounded);
            assert_eq!(rounded[0], half::bf16::from_f32(value).to_bits(), "{value} ({:x})", value.to_bits());
        }
    }

    #[test]
    fn tangent_is_close() {
        let mut x = -20.0f32;
        while x < 20.0 {
            let (value, exact) = (f64::from(tangent(x)), f64::from(x).tanh());
            assert!((value - exact).abs() < 2e-7, "{x}: {value} against {exact}");
            assert_eq!(tangent(-x), -tangent(x));
            x += 0.0037;
        }
        assert_eq!((tangent(0.0), tangent(f32::INFINITY), tangent(-1e9)), (0.0, 1.0, -1.0));
        assert!(tangent(f32::NAN).is_nan());
    }
}
