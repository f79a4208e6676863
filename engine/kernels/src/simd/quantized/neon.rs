//! NEON with dot products of bytes.

use std::arch::aarch64::*;

use super::super::neon::{Neon, dot_mixed, dot_signed};
use super::QuantizedUnit;
use super::lanes::QuantizedLanes;
use super::tile::run;

impl<const I8MM: bool> Neon<I8MM> {
    /// Applies `run` to the bytes of a vector.
    #[inline(always)]
    fn bytes(integers: int32x4_t, run: impl FnOnce(uint8x16_t) -> uint8x16_t) -> int32x4_t {
        // SAFETY: every 64-bit ARM processor has NEON; only registers are used.
        unsafe { vreinterpretq_s32_u8(run(vreinterpretq_u8_s32(integers))) }
    }
}

/// With dot products of signed bytes or, if `I8MM`, the instructions for matrices of bytes.
impl<const I8MM: bool> QuantizedLanes for Neon<I8MM> {
    type Integers = int32x4_t;
    const SUBTRACTS: bool = !I8MM;

    #[inline(always)]
    unsafe fn zero_integers() -> int32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vdupq_n_s32(0) }
    }

    #[inline(always)]
    unsafe fn splat_integer(word: *const i32) -> int32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vld1q_dup_s32(word) }
    }

    #[inline(always)]
    unsafe fn load_bytes(bytes: *const u8) -> int32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vreinterpretq_s32_u8(vld1q_u8(bytes)) }
    }

    #[inline(always)]
    unsafe fn store_bytes(bytes: *mut u8, integers: int32x4_t) {
        // SAFETY: the caller's promise.
        unsafe { vst1q_u8(bytes, vreinterpretq_u8_s32(integers)) }
    }

    #[inline(always)]
    unsafe fn dot(sum: int32x4_t, weights: int32x4_t, activations: int32x4_t) -> int32x4_t {
        // SAFETY: the caller's promise.
        unsafe {
            if I8MM {
                dot_mixed(sum, weights, activations)
            } else {
                // Weights of 4 and 6 bits are the same numbers with a sign.
                dot_signed(sum, weights, activations)
            }
        }
    }

    #[inline(always)]
    unsafe fn dot_offset(sum: int32x4_t, weights: int32x4_t, activations: int32x4_t) -> int32x4_t {
        // SAFETY: the caller's promise.
        unsafe {
            let weights = Self::bytes(weights, |bytes| veorq_u8(bytes, vdupq_n_u8(0x80)));
            dot_signed(sum, weights, activations)
        }
    }

    #[inline(always)]
    unsafe fn low(bytes: int32x4_t) -> int32x4_t {
        // SAFETY: the caller's promise.
        Self::bytes(bytes, |bytes| unsafe { vandq_u8(bytes, vdupq_n_u8(15)) })
    }

    #[inline(always)]
    unsafe fn high(bytes: int32x4_t) -> int32x4_t {
        // SAFETY: the caller's promise.
        Self::bytes(bytes, |bytes| unsafe { vshrq_n_u8::<4>(bytes) })
    }

    #[inline(always)]
    unsafe fn pair(bytes: int32x4_t, four: usize) -> int32x4_t {
        // SAFETY: the caller's promise.
        Self::bytes(bytes, |bytes| unsafe {
            let shifted = match four {
                0 => vshlq_n_u8::<4>(bytes),
                1 => vshlq_n_u8::<2>(bytes),
                2 => bytes,
                _ => vshrq_n_u8::<2>(bytes),
            };
            vandq_u8(shifted, vdupq_n_u8(0x30))
        })
    }

    #[inline(always)]
    unsafe fn or(left: int32x4_t, right: int32x4_t) -> int32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vorrq_s32(left, right) }
    }

    #[inline(always)]
    unsafe fn to_floats(integers: int32x4_t) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vcvtq_f32_s32(integers) }
    }

    #[inline(always)]
    unsafe fn load_unsigned(bytes: *const u8) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = vcreate_u8(u64::from(bytes.cast::<u32>().read_unaligned()));
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))))
        }
    }

    #[inline(always)]
    unsafe fn load_signed(bytes: *const u8) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = vcreate_s8(u64::from(bytes.cast::<u32>().read_unaligned()));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
        }
    }

    #[inline(always)]
    unsafe fn multiply(left: float32x4_t, right: float32x4_t) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vmulq_f32(left, right) }
    }
}

/// A unit in tiles that depend on the number of rows: one row is multiplied with all vectors of a panel at once, so that weights
/// are read from start to end.
///
/// # Safety
/// The processor has dot products of bytes and, if `I8MM`, the instructions for matrices of bytes; see [`run`] for the lengths.
pub(super) unsafe fn multiply<const I8MM: bool>(
    unit: QuantizedUnit<'_>,
    panel_blocks: usize,
    row_blocks: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if unit.output.rows() == 1 {
            run::<Neon<I8MM>, 8, 2>(unit, panel_blocks, row_blocks);
        } else {
            run::<Neon<I8MM>, 2, 6>(unit, panel_blocks, row_blocks);
        }
    }
}
