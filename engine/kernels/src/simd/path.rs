//! [`DType`]: the types of stored weights. [`Path`]: the instruction sets that can compute a product, and how to select
//! one.

use std::fmt;
use std::str::FromStr;
#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::tile::next_block;
use super::{InstructionLimit, LINE, STRETCH_LINES};

/// The type that weights are stored in.
///
/// With [`DType::Bf16`] or [`DType::F16`] the matrices are rounded to that type and take half the memory; norms, keys,
/// values and activations stay float32, and so does arithmetic. Embeddings keep the type of a safetensors or GGUF file.
/// Processors with AMX, and AMD's with AVX512-BF16, round activations, keys and values to [`DType::Bf16`], too. On a GPU,
/// embeddings, keys, values and the inputs of matrix products are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32 bits: exact for every checkpoint.
    #[default]
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
}

impl DType {
    /// Size of a value in bytes.
    #[inline]
    pub fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f32" | "float32" => Ok(Self::F32),
            "bf16" | "bfloat16" => Ok(Self::Bf16),
            "f16" | "float16" | "half" => Ok(Self::F16),
            other => Err(format!("unknown dtype {other:?}: expected f32, bf16 or f16")),
        }
    }
}

/// Rows of a tile register, and of a block of activations for tiles.
pub(super) const AMX_ROWS: usize = 16;

/// The instructions that compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Plain Rust.
    Portable,
    /// NEON, which every 64-bit ARM processor has.
    Neon,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F.
    Avx512,
    /// AVX-512 BF16: dot products of pairs.
    Avx512Bf16,
    /// Advanced matrix extensions on bfloat16.
    Amx,
}

impl Path {
    /// All paths of the architecture; usually each is faster than those before it.
    #[cfg(target_arch = "aarch64")]
    pub const ALL: [Self; 2] = [Self::Portable, Self::Neon];
    /// All paths of the architecture; usually each is faster than those before it.
    #[cfg(not(target_arch = "aarch64"))]
    pub const ALL: [Self; 5] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Bf16, Self::Amx];

    /// The fastest path of this processor for weights of this type, within the [`instruction_limit`](crate::instruction_limit).
    pub fn best(dtype: DType) -> Self {
        let limit = InstructionLimit::current();
        let allowed = |path: &Self| path.needs() <= limit && path.available(dtype);
        let best = Self::ALL.into_iter().rev().find(allowed).unwrap_or(Self::Portable);
        // Intel's cores take two cycles for a dot product of pairs and half a cycle for a fused multiply-add.
        if best == Self::Avx512Bf16 && intel() { Self::Avx512 } else { best }
    }

    /// The lowest limit that allows the path.
    fn needs(self) -> InstructionLimit {
        match self {
            Self::Portable => InstructionLimit::Portable,
            Self::Neon => InstructionLimit::Neon,
            Self::Avx2 => InstructionLimit::Avx2,
            Self::Avx512 | Self::Avx512Bf16 => InstructionLimit::Avx512,
            Self::Amx => InstructionLimit::Amx,
        }
    }

    /// Whether this processor supports the path, and the path supports weights of this type.
    pub fn available(self, dtype: DType) -> bool {
        (dtype == DType::Bf16 || !self.rounds()) && self.detected()
    }

    /// Whether activations are rounded to bfloat16.
    #[inline]
    pub fn rounds(self) -> bool {
        matches!(self, Self::Avx512Bf16 | Self::Amx)
    }

    /// Inputs per line of activations.
    pub(crate) fn line_inputs(self) -> usize {
        if self.rounds() { 2 * LINE } else { LINE }
    }

    /// Rows of the next block of activations if `rest` rows remain.
    pub(crate) fn next_block(self, rest: usize) -> usize {
        match self {
            Self::Portable | Self::Avx2 => next_block(3, rest),
            Self::Neon | Self::Avx512 | Self::Avx512Bf16 => next_block(12, rest),
            Self::Amx => rest.min(AMX_ROWS),
        }
    }

    /// Number of packed rows of activations for `rows` rows.
    pub(crate) fn packed_rows(self, rows: usize) -> usize {
        if self == Self::Amx { rows.next_multiple_of(AMX_ROWS) } else { rows }
    }

    /// Lines of activations per stretch of the inputs. Either a panel's weights of one stretch stay in the
    /// first-level cache, or reading sums again would cost more than that saves.
    pub(crate) fn stretch_lines(self) -> usize {
        if self == Self::Amx { 64 } else { STRETCH_LINES }
    }

    #[cfg(target_arch = "x86_64")]
    fn detected(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Neon => false,
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            Self::Avx512Bf16 => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16"),
            #[cfg(target_os = "linux")]
            Self::Amx => Self::Avx512Bf16.detected() && super::amx::available(),
            #[cfg(not(target_os = "linux"))]
            Self::Amx => false,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detected(self) -> bool {
        self == Self::Portable || cfg!(target_arch = "aarch64") && self == Self::Neon
    }
}

/// Whether the processor is one of Intel's.
#[cfg(target_arch = "x86_64")]
pub(super) fn intel() -> bool {
    // In a virtual machine the instruction takes microseconds.
    static INTEL: LazyLock<bool> = LazyLock::new(|| {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
    });
    *INTEL
}

/// Whether the processor is one of Intel's.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn intel() -> bool {
    false
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512bf16",
            Self::Amx => "amx",
        })
    }
}
