//! AVX2, and AVX-512 with dot products of bytes.

use std::arch::x86_64::*;

use super::super::x86::{Avx2, Avx512};
use super::QuantizedUnit;
use super::lanes::QuantizedLanes;
use super::tile::{run, run_unpacked};

/// With AVX-VNNI if `VNNI`.
impl<const VNNI: bool> QuantizedLanes for Avx2<VNNI> {
    type Integers = __m256i;

    #[inline(always)]
    unsafe fn zero_integers() -> __m256i {
        // SAFETY: the processor has AVX2, as the caller promises; only registers are used.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn splat_integer(word: *const i32) -> __m256i {
        // SAFETY: the processor has AVX2 and `word` is one valid number, as the caller promises.
        unsafe { _mm256_set1_epi32(*word) }
    }

    #[inline(always)]
    unsafe fn load_bytes(bytes: *const u8) -> __m256i {
        // SAFETY: the processor has AVX2 and `bytes` has 32 valid bytes, as the caller promises; the load needs no
        // alignment.
        unsafe { _mm256_loadu_si256(bytes.cast()) }
    }

    #[inline(always)]
    unsafe fn store_bytes(bytes: *mut u8, integers: __m256i) {
        // SAFETY: the processor has AVX2 and `bytes` has room for 32 bytes, as the caller promises; the store needs
        // no alignment.
        unsafe { _mm256_storeu_si256(bytes.cast(), integers) }
    }

    #[inline(always)]
    unsafe fn dot(sum: __m256i, weights: __m256i, activations: __m256i) -> __m256i {
        // SAFETY: the processor has AVX-VNNI if `VNNI`, as the caller promises; only registers are used.
        unsafe { _mm256_dpbusd_avx_epi32(sum, weights, activations) }
    }

    const PAIRS: bool = !VNNI;

    #[inline(always)]
    unsafe fn dot_pairs(pairs: __m256i, weights: __m256i, activations: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2, as the caller promises; only registers are used.
        unsafe { _mm256_add_epi16(pairs, _mm256_maddubs_epi16(weights, activations)) }
    }

    #[inline(always)]
    unsafe fn add_pairs(sum: __m256i, pairs: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2, as the caller promises; only registers are used.
        unsafe { _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))) }
    }

    #[inline(always)]
    unsafe fn dot_offset(sum: __m256i, weights: __m256i, activations: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2, as the caller promises; only registers are used.
        unsafe {
            // The sign moves to the activations, because one side is unsigned.
            let weights = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
            let pairs =
                _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(activations, weights));
            Self::add_pairs(sum, pairs)
        }
    }

    #[inline(always)]
    unsafe fn low(bytes: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2, as the caller promises; only registers are used.
        unsafe { _mm256_and_si256(bytes, _mm256_set1_epi8(15)) }
    }

    #[inline(always)]
    unsafe fn high(bytes: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2, as the caller promises; only registers are used.
        unsafe { Self::low(_mm256_srli_epi16::<4>(bytes)) }
    }

    #[inline(always)]
    unsafe fn pair(bytes: __m256i, four: usize) -> __m256i {
        // SAFETY: the processor has AVX2, as the caller promises; only registers are used.
        unsafe {
            let shifted = match four {
                0 => _mm256_slli_epi16::<4>(bytes),
                1 => _mm256_slli_epi16::<2>(bytes),
                2 => bytes,
                _ => _mm256_srli_epi16::<2>(bytes),
            };
            _mm256_and_si256(shifted, _mm256_set1_epi8(0x30))
        }
    }

    #[inline(always)]
    unsafe fn or(left: __m256i, right: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2, as the caller promises; only registers are used.
        unsafe { _mm256_or_si256(left, right) }
    }

    #[inline(always)]
    unsafe fn to_floats(integers: __m256i) -> __m256 {
        // SAFETY: the processor has AVX2, as the caller promises; only registers are used.
        unsafe { _mm256_cvtepi32_ps(integers) }
    }

    #[inline(always)]
    unsafe fn load_unsigned(bytes: *const u8) -> __m256 {
        // SAFETY: the processor has AVX2 and `bytes` has 8 valid bytes, as the caller promises; the load needs no
        // alignment.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_signed(bytes: *const u8) -> __m256 {
        // SAFETY: the processor has AVX2 and `bytes` has 8 valid bytes, as the caller promises; the load needs no
        // alignment.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(bytes.cast()))) }
    }

    #[inline(always)]
    unsafe fn multiply(left: __m256, right: __m256) -> __m256 {
        // SAFETY: the processor has AVX2, as the caller promises; only registers are used.
        unsafe { _mm256_mul_ps(left, right) }
    }
}

/// With BW and VNNI.
impl QuantizedLanes for Avx512 {
    type Integers = __m512i;

    #[inline(always)]
    unsafe fn zero_integers() -> __m512i {
        // SAFETY: the processor has AVX-512 with BW and VNNI, as the caller promises; only registers are used.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn splat_integer(word: *const i32) -> __m512i {
        // SAFETY: the processor has AVX-512 with BW and VNNI and `word` is one valid number, as the caller promises.
        unsafe { _mm512_set1_epi32(*word) }
    }

    #[inline(always)]
    unsafe fn load_bytes(bytes: *const u8) -> __m512i {
        // SAFETY: the processor has AVX-512 with BW and VNNI and `bytes` has 64 valid bytes, as the caller promises;
        // the load needs no alignment.
        unsafe { _mm512_loadu_si512(bytes.cast()) }
    }

    #[inline(always)]
    unsafe fn store_bytes(bytes: *mut u8, integers: __m512i) {
        // SAFETY: the processor has AVX-512 with BW and VNNI and `bytes` has room for 64 bytes, as the caller promises; the store needs
        // no alignment.
        unsafe { _mm512_storeu_si512(bytes.cast(), integers) }
    }

    #[inline(always)]
    unsafe fn dot(sum: __m512i, weights: __m512i, activations: __m512i) -> __m512i {
        // SAFETY: the processor has AVX-512 with BW and VNNI, as the caller promises; only registers are used.
        unsafe { _mm512_dpbusd_epi32(sum, weights, activations) }
    }

    #[inline(always)]
    unsafe fn low(bytes: __m512i) -> __m512i {
        // SAFETY: the processor has AVX-512 with BW and VNNI, as the caller promises; only registers are used.
        unsafe { _mm512_and_si512(bytes, _mm512_set1_epi8(15)) }
    }

    #[inline(always)]
    unsafe fn high(bytes: __m512i) -> __m512i {
        // SAFETY: the processor has AVX-512 with BW and VNNI, as the caller promises; only registers are used.
        unsafe { Self::low(_mm512_srli_epi16::<4>(bytes)) }
    }

    #[inline(always)]
    unsafe fn pair(bytes: __m512i, four: usize) -> __m512i {
        // SAFETY: the processor has AVX-512 with BW and VNNI, as the caller promises; only registers are used.
        unsafe {
            let shifted = match four {
                0 => _mm512_slli_epi16::<4>(bytes),
                1 => _mm512_slli_epi16::<2>(bytes),
                2 => bytes,
                _ => _mm512_srli_epi16::<2>(bytes),
            };
            _mm512_and_si512(shifted, _mm512_set1_epi8(0x30))
        }
    }

    #[inline(always)]
    unsafe fn or(left: __m512i, right: __m512i) -> __m512i {
        // SAFETY: the processor has AVX-512 with BW and VNNI, as the caller promises; only registers are used.
        unsafe { _mm512_or_si512(left, right) }
    }

    #[inline(always)]
    unsafe fn to_floats(integers: __m512i) -> __m512 {
        // SAFETY: the processor has AVX-512 with BW and VNNI, as the caller promises; only registers are used.
        unsafe { _mm512_cvtepi32_ps(integers) }
    }

    #[inline(always)]
    unsafe fn load_unsigned(bytes: *const u8) -> __m512 {
        // SAFETY: the processor has AVX-512 with BW and VNNI and `bytes` has 16 valid bytes, as the caller promises;
        // the load needs no alignment.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_signed(bytes: *const u8) -> __m512 {
        // SAFETY: the processor has AVX-512 with BW and VNNI and `bytes` has 16 valid bytes, as the caller promises;
        // the load needs no alignment.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.cast()))) }
    }

    #[inline(always)]
    unsafe fn multiply(left: __m512, right: __m512) -> __m512 {
        // SAFETY: the processor has AVX-512 with BW and VNNI, as the caller promises; only registers are used.
        unsafe { _mm512_mul_ps(left, right) }
    }
}

/// Most rows that are multiplied with all vectors of a panel at once (a tile's rows), so that weights are read from start to
/// end. With half of the vectors, every other cache line is read first, at little more than half of the memory's rate.
const FEW_ROWS: usize = 4;
/// Rows from which AVX2 unpacks weights once for all of them, because several blocks multiply them.
const MANY_ROWS: usize = 9;

/// # Safety
/// The processor has the features that the function is compiled for; see [`run`] for the lengths.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn avx2(unit: QuantizedUnit<'_>, panel_blocks: usize, row_blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe { many_or_few::<false>(unit, panel_blocks, row_blocks) }
}

/// # Safety
/// As for [`avx2`].
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn avx_vnni(unit: QuantizedUnit<'_>, panel_blocks: usize, row_blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe { many_or_few::<true>(unit, panel_blocks, row_blocks) }
}

/// # Safety
/// As for [`avx2`].
#[inline(always)]
unsafe fn many_or_few<const VNNI: bool>(unit: QuantizedUnit<'_>, panel_blocks: usize, row_blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let rows = unit.output.rows();
        if rows <= FEW_ROWS {
            run::<Avx2<VNNI>, 4, 4>(unit, panel_blocks, row_blocks);
        } else if rows < MANY_ROWS {
            run::<Avx2<VNNI>, 2, 4>(unit, panel_blocks, row_blocks);
        } else {
            run_unpacked::<Avx2<VNNI>, 2, 4>(unit, panel_blocks, row_blocks);
        }
    }
}

/// # Safety
/// As for [`avx2`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn avx512_vnni(unit: QuantizedUnit<'_>, panel_blocks: usize, row_blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe { run::<Avx512, 2, 6>(unit, panel_blocks, row_blocks) }
}
