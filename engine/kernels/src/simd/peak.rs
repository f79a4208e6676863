//! The peak rate of arithmetic: loops that multiply and add in registers only.
//!
//! They use nothing of the kernels, so that their rate is an independent limit: what the processor could do without
//! memory, conversion of weights, or sums that are stored. A loop has enough independent sums that its instruction
//! never waits for an earlier result.

use std::hint::black_box;

use super::{Path, QuantizedPath};

/// Rounds of a loop in one call.
const ROUNDS: usize = 1 << 14;

/// Multiplies and adds with the instructions of a path, and returns the number of operations, a multiplication and an
/// addition each. Panics if the processor does not support the path.
pub fn float_operations(path: Path) -> u64 {
    assert!(path.available(super::DType::Bf16), "the processor does not support {path}");
    match path {
        Path::Portable => portable(),
        // SAFETY: the processor has the instructions of the path.
        #[cfg(target_arch = "x86_64")]
        Path::Avx2 => unsafe { x86::avx2() },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 => unsafe { x86::avx512() },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Path::Avx512Bf16 => unsafe { x86::avx512_pairs() },
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        Path::Amx => super::amx::Tiles::new().multiply_in_registers(ROUNDS / 8),
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Path::Neon => unsafe { arm::neon() },
        _ => unreachable!("no path of this machine"),
    }
}

/// As [`float_operations`], with products of bytes.
pub fn byte_operations(path: QuantizedPath) -> u64 {
    assert!(path.available(), "the processor does not support {path}");
    match path {
        QuantizedPath::Portable => portable(),
        // SAFETY: the processor has the instructions of the path.
        #[cfg(target_arch = "x86_64")]
        QuantizedPath::Avx2 => unsafe { x86::avx2_bytes() },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        QuantizedPath::AvxVnni => unsafe { x86::avx_vnni_bytes() },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        QuantizedPath::Avx512Vnni => unsafe { x86::avx512_bytes() },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        QuantizedPath::NeonDot => unsafe { arm::neon_bytes() },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        QuantizedPath::NeonI8mm => unsafe { arm::neon_mixed_bytes() },
        _ => unreachable!("no path of this machine"),
    }
}

/// Plain Rust, which the compiler turns into the vectors that every processor of the target has.
fn portable() -> u64 {
    const LANES: usize = 8;
    const SUMS: usize = 8;
    let (factor, other) = (black_box(1.0f32), black_box(1e-9f32));
    let mut sums = [[0.0f32; LANES]; SUMS];
    for _ in 0..ROUNDS {
        for lane in sums.iter_mut().flatten() {
            *lane += factor * other;
        }
        // The compiler must not compute all rounds at once.
        sums = black_box(sums);
    }
    black_box(sums);
    (ROUNDS * SUMS * LANES * 2) as u64
}

/// Defines a loop over independent sums: its instruction set, the type of its vectors, and one step.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! loops {
    ($($(#[$doc:meta])* $name:ident: $features:literal, $sums:literal sums of $operations:literal,
       $zero:expr, $left:expr, $right:expr, $step:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The processor has the features that the function is compiled for.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name() -> u64 {
            let (left, right) = (black_box($left), black_box($right));
            let mut sums = [$zero; $sums];
            for _ in 0..ROUNDS {
                for sum in &mut sums {
                    *sum = $step(*sum, left, right);
                }
            }
            black_box(sums);
            (ROUNDS * $sums * $operations) as u64
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::ROUNDS;

    loops! {
        /// 8 float32 per instruction.
        avx2: "avx2,fma", 12 sums of 16,
            _mm256_setzero_ps(), _mm256_set1_ps(1.0), _mm256_set1_ps(1e-9),
            |sum, left, right| _mm256_fmadd_ps(left, right, sum);
        /// 16 float32 per instruction.
        avx512: "avx512f", 24 sums of 32,
            _mm512_setzero_ps(), _mm512_set1_ps(1.0), _mm512_set1_ps(1e-9),
            |sum, left, right| _mm512_fmadd_ps(left, right, sum);
        /// 32 bfloat16 per instruction.
        avx512_pairs: "avx512f,avx512bf16", 24 sums of 64,
            _mm512_setzero_ps(), _mm512_set1_epi32(0x3f80_3f80), _mm512_set1_epi32(0x3080_3080),
            |sum, left, right| _mm512_dpbf16_ps(
                sum,
                // SAFETY: both are 64 bytes.
                unsafe { std::mem::transmute::<__m512i, __m512bh>(left) },
                // SAFETY: both are 64 bytes.
                unsafe { std::mem::transmute::<__m512i, __m512bh>(right) },
            );
        /// 32 products of bytes, added in pairs, and an addition of 16-bit sums. A product of constants would be computed
        /// once.
        avx2_bytes: "avx2", 12 sums of 64,
            _mm256_setzero_si256(), _mm256_set1_epi8(1), _mm256_set1_epi8(1),
            |sum, _, right| _mm256_add_epi16(sum, _mm256_maddubs_epi16(sum, right));
        /// 32 products of bytes, added in fours.
        avx_vnni_bytes: "avx2,avxvnni", 12 sums of 64,
            _mm256_setzero_si256(), _mm256_set1_epi8(1), _mm256_set1_epi8(1),
            |sum, left, right| _mm256_dpbusd_avx_epi32(sum, left, right);
        /// 64 products of bytes, added in fours.
        avx512_bytes: "avx512f,avx512vnni", 24 sums of 128,
            _mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_set1_epi8(1),
            |sum, left, right| _mm512_dpbusd_epi32(sum, left, right);
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;
    use std::hint::black_box;

    use super::super::neon::{dot_mixed, dot_signed};
    use super::ROUNDS;

    loops! {
        /// 4 float32 per instruction.
        neon: "neon", 24 sums of 8,
            vdupq_n_f32(0.0), vdupq_n_f32(1.0), vdupq_n_f32(1e-9),
            |sum, left, right| vfmaq_f32(sum, left, right);
        /// 16 products of signed bytes, added in fours.
        neon_bytes: "neon,dotprod", 24 sums of 32,
            vdupq_n_s32(0), vdupq_n_s32(0x0101_0101), vdupq_n_s32(0x0101_0101),
            // SAFETY: the processor has dot products of bytes.
            |sum, left, right| unsafe { dot_signed(sum, left, right) };
        /// 16 products of unsigned and signed bytes, added in fours.
        neon_mixed_bytes: "neon,i8mm", 24 sums of 32,
            vdupq_n_s32(0), vdupq_n_s32(0x0101_0101), vdupq_n_s32(0x0101_0101),
            // SAFETY: the processor has the instructions for matrices of bytes.
            |sum, left, right| unsafe { dot_mixed(sum, left, right) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::DType;

    #[test]
    fn every_available_path_has_a_loop() {
        for path in Path::ALL.into_iter().filter(|path| path.available(DType::Bf16)) {
            assert!(float_operations(path) > 1 << 20, "{path}");
        }
        for path in QuantizedPath::ALL.into_iter().filter(|path| path.available()) {
            assert!(byte_operations(path) > 1 << 20, "{path}");
        }
    }
}
