//! AVX2, AVX-512 and its bfloat16 dot products.

use std::arch::x86_64::*;

use super::lanes::{Bfloat16Pairs, Float16, Lanes, Weight, Widen, Words};
use super::tile::{run, run_widened};
use super::{Unit, attention};

/// AVX2, FMA and F16C; with AVX-VNNI if `VNNI`.
pub(super) struct Avx2<const VNNI: bool = false>;

impl<const VNNI: bool> Lanes for Avx2<VNNI> {
    const LANES: usize = 8;
    const PREFETCHES: bool = true;
    type Vector = __m256;

    #[inline(always)]
    unsafe fn zero() -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat(word: *const f32) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_broadcast_ss(&*word) }
    }

    #[inline(always)]
    unsafe fn load(words: *const f32) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(words) }
    }

    #[inline(always)]
    unsafe fn store(words: *mut f32, vector: __m256) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(words, vector) }
    }

    #[inline(always)]
    unsafe fn add(left: __m256, right: __m256) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_add_ps(left, right) }
    }

    #[inline(always)]
    unsafe fn multiply_add(activation: __m256, weight: __m256, sum: __m256) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_fmadd_ps(activation, weight, sum) }
    }

    #[inline(always)]
    unsafe fn prefetch(line: *const u8) {
        // SAFETY: the caller's promise; a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
    }

    #[inline(always)]
    unsafe fn prefetch_far(line: *const u8) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) }
    }
}

impl<const VNNI: bool> Widen for Avx2<VNNI> {
    #[inline(always)]
    unsafe fn load_f16(values: *const u16) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(values.cast())) }
    }

    #[inline(always)]
    unsafe fn load_even(pairs: *const u16) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_loadu_si256(pairs.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_odd(pairs: *const u16) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let upper = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
            _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(pairs.cast()), upper))
        }
    }
}

/// AVX-512 F.
pub(super) struct Avx512;

impl Lanes for Avx512 {
    const LANES: usize = 16;
    const PREFETCHES: bool = true;
    type Vector = __m512;

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat(word: *const f32) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_set1_ps(*word) }
    }

    #[inline(always)]
    unsafe fn load(words: *const f32) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(words) }
    }

    #[inline(always)]
    unsafe fn store(words: *mut f32, vector: __m512) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(words, vector) }
    }

    #[inline(always)]
    unsafe fn add(left: __m512, right: __m512) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_add_ps(left, right) }
    }

    #[inline(always)]
    unsafe fn multiply_add(activation: __m512, weight: __m512, sum: __m512) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_fmadd_ps(activation, weight, sum) }
    }

    #[inline(always)]
    unsafe fn prefetch(line: *const u8) {
        // SAFETY: the caller's promise; a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
    }

    #[inline(always)]
    unsafe fn prefetch_far(line: *const u8) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) }
    }
}

impl Widen for Avx512 {
    #[inline(always)]
    unsafe fn load_f16(values: *const u16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(values.cast())) }
    }

    #[inline(always)]
    unsafe fn load_even(pairs: *const u16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_loadu_si512(pairs.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_odd(pairs: *const u16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe {
            let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
            _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(pairs.cast()), upper))
        }
    }
}

/// AVX-512 BF16: a word is a pair of bfloat16, and one instruction adds both products of a pair to the sum, the second
/// one first.
pub(super) struct Avx512Pairs;

impl Lanes for Avx512Pairs {
    const LANES: usize = 16;
    const PREFETCHES: bool = true;
    type Vector = __m512;

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { Avx512::zero() }
    }

    #[inline(always)]
    unsafe fn splat(word: *const f32) -> __m512 {
        // SAFETY: the caller's promise; read as an integer, the pair keeps its bits.
        unsafe { _mm512_castsi512_ps(_mm512_set1_epi32(*word.cast())) }
    }

    #[inline(always)]
    unsafe fn load(words: *const f32) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { Avx512::load(words) }
    }

    #[inline(always)]
    unsafe fn store(words: *mut f32, vector: __m512) {
        // SAFETY: the caller's promise.
        unsafe { Avx512::store(words, vector) }
    }

    #[inline(always)]
    unsafe fn add(left: __m512, right: __m512) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { Avx512::add(left, right) }
    }

    #[inline(always)]
    unsafe fn multiply_add(activation: __m512, weight: __m512, sum: __m512) -> __m512 {
        // SAFETY: the caller's promise; the casts only rename 64 bytes.
        unsafe {
            let pairs = std::mem::transmute::<__m512, __m512bh>;
            _mm512_dpbf16_ps(sum, pairs(activation), pairs(weight))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(line: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { Avx512::prefetch(line) }
    }

    #[inline(always)]
    unsafe fn prefetch_far(line: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { Avx512::prefetch_far(line) }
    }
}

/// Rounds float32 to bfloat16, to nearest, ties to even; subnormal numbers become zero.
///
/// # Safety
/// The processor has AVX-512 F and BF16.
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn round_line(values: &[f32; 32], rounded: &mut [u16; 32]) {
    // SAFETY: both sides have 64 bytes for each of the accesses.
    unsafe {
        let first = _mm512_loadu_ps(values.as_ptr());
        let second = _mm512_loadu_ps(values.as_ptr().add(16));
        let line: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(second, first));
        _mm512_storeu_si512(rounded.as_mut_ptr().cast(), line);
    }
}

/// Rows from which 16-bit weights are widened once for all of them, because several blocks multiply them.
const MANY_ROWS: usize = 5;

/// 16-bit weights, in tiles that depend on the number of rows.
///
/// # Safety
/// The processor has AVX2, FMA and F16C; see [`run`] for the lengths.
#[inline(always)]
unsafe fn avx2<W: Weight<Avx2>>(unit: Unit<'_>, row_lines: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if unit.output.rows() < MANY_ROWS {
            run::<Avx2, W, 4, 3>(unit, row_lines);
        } else {
            run_widened::<Avx2, W, 4, 3>(unit, row_lines);
        }
    }
}

/// One function per instruction set and stored type, so that the generic code is compiled for that instruction set.
macro_rules! products {
    ($($name:ident: $features:literal, $product:expr;)*) => {$(
        /// # Safety
        /// The processor has the features that the function is compiled for; see [`run`] for the lengths.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(unit: Unit<'_>, row_lines: usize) {
            // SAFETY: the caller's promise.
            unsafe { $product(unit, row_lines) }
        }
    )*};
}

products! {
    avx2_f32: "avx2,fma,f16c", run::<Avx2, Words, 4, 3>;
    avx2_bf16: "avx2,fma,f16c", avx2::<Bfloat16Pairs>;
    avx2_f16: "avx2,fma,f16c", avx2::<Float16>;
    avx512_f32: "avx512f", run::<Avx512, Words, 2, 12>;
    avx512_bf16: "avx512f", run::<Avx512, Bfloat16Pairs, 2, 12>;
    avx512_f16: "avx512f", run::<Avx512, Float16, 2, 12>;
    avx512_pairs: "avx512f,avx512bf16", run::<Avx512Pairs, Words, 2, 12>;
}

/// [`attention::scores`], compiled for its instructions.
///
/// # Safety
/// The processor has AVX-512 F and BF16; the lengths are those that [`AttentionTiles`](super::AttentionTiles) checks.
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn attention_scores(count: usize, queries: &[u16], keys: &[&[u16]], scores: &mut [f32]) {
    // SAFETY: the caller's promise.
    unsafe { attention::scores(count, queries, keys, scores) }
}

/// [`attention::sums`], compiled for its instructions.
///
/// # Safety
/// As for [`attention_scores`].
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn attention_sums(count: usize, weights: &[u16], values: &[&[u16]], output: &mut [f32]) {
    // SAFETY: the caller's promise.
    unsafe { attention::sums(count, weights, values, output) }
}
