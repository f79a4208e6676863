//! NEON, which every 64-bit ARM processor has.

use std::arch::aarch64::*;
use std::arch::asm;

use super::Unit;
use super::lanes::{Lanes, Weight, Widen};
use super::tile::run;

/// NEON; for block formats with dot products of signed bytes or, if `I8MM`, of unsigned with signed ones.
pub(super) struct Neon<const I8MM: bool = false>;

impl<const I8MM: bool> Lanes for Neon<I8MM> {
    const LANES: usize = 4;
    type Vector = float32x4_t;

    #[inline(always)]
    unsafe fn zero() -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vdupq_n_f32(0.0) }
    }

    #[inline(always)]
    unsafe fn splat(word: *const f32) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vld1q_dup_f32(word) }
    }

    #[inline(always)]
    unsafe fn load(words: *const f32) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vld1q_f32(words) }
    }

    #[inline(always)]
    unsafe fn store(words: *mut f32, vector: float32x4_t) {
        // SAFETY: the caller's promise.
        unsafe { vst1q_f32(words, vector) }
    }

    #[inline(always)]
    unsafe fn add(left: float32x4_t, right: float32x4_t) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vaddq_f32(left, right) }
    }

    #[inline(always)]
    unsafe fn multiply_add(activation: float32x4_t, weight: float32x4_t, sum: float32x4_t) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vfmaq_f32(sum, activation, weight) }
    }

    #[inline(always)]
    unsafe fn prefetch(line: *const u8) {
        // SAFETY: a prefetch never faults and changes no register.
        unsafe {
            asm!("prfm pldl1keep, [{}]", in(reg) line, options(readonly, nostack, preserves_flags));
        }
    }
}

impl<const I8MM: bool> Widen for Neon<I8MM> {
    #[inline(always)]
    unsafe fn load_f16(values: *const u16) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(values))) }
    }

    #[inline(always)]
    unsafe fn load_even(pairs: *const u16) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vreinterpretq_f32_u32(vshlq_n_u32::<16>(vreinterpretq_u32_u16(vld1q_u16(pairs)))) }
    }

    #[inline(always)]
    unsafe fn load_odd(pairs: *const u16) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe {
            let upper = vdupq_n_u32(0xffff_0000);
            vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(vld1q_u16(pairs)), upper))
        }
    }
}

/// Adds the products of signed bytes, four per lane. The standard library's function is not stable yet.
///
/// # Safety
/// The processor has dot products of bytes.
#[inline(always)]
pub(super) unsafe fn dot_signed(mut sum: int32x4_t, left: int32x4_t, right: int32x4_t) -> int32x4_t {
    // SAFETY: the caller's promise; only registers are used.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {sum:v}.4s, {left:v}.16b, {right:v}.16b",
            sum = inout(vreg) sum, left = in(vreg) left, right = in(vreg) right,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Adds the products of unsigned bytes and signed ones, four per lane. The standard library's function is not stable yet.
///
/// # Safety
/// The processor has the instructions for matrices of bytes (I8MM).
#[inline(always)]
pub(super) unsafe fn dot_mixed(mut sum: int32x4_t, unsigned: int32x4_t, signed: int32x4_t) -> int32x4_t {
    // SAFETY: the caller's promise; only registers are used.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "usdot {sum:v}.4s, {unsigned:v}.16b, {signed:v}.16b",
            sum = inout(vreg) sum, unsigned = in(vreg) unsigned, signed = in(vreg) signed,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Most rows that are multiplied with all vectors of a panel at once, so that weights are read from start to end.
const FEW_ROWS: usize = 3;

/// Weights of one stored type, in tiles that depend on the number of rows.
///
/// # Safety
/// See [`run`] for the lengths.
pub(super) unsafe fn multiply<W: Weight<Neon>>(unit: Unit<'_>, row_lines: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if unit.output.rows() <= FEW_ROWS {
            run::<Neon, W, 8, 3>(unit, row_lines);
        } else {
            run::<Neon, W, 2, 12>(unit, row_lines);
        }
    }
}
