//! [`InstructionLimit`]: which instruction sets the process may use, to compare them on one machine.
//!
//! The variable `LUMOS_CPU` sets it. [`Path::best`](super::Path::best), [`QuantizedPath::best`](super::QuantizedPath::best)
//! and [`arch`], which everything except linear layers is compiled for, follow it.

use std::sync::OnceLock;

use pulp::Arch;

/// The variable that limits the instruction sets.
const VARIABLE: &str = "LUMOS_CPU";

/// Instruction sets that include those before them, of one architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InstructionLimit {
    /// Those of every processor of the target.
    Portable,
    /// NEON.
    Neon,
    /// NEON with dot products of bytes.
    NeonDot,
    /// NEON with the instructions for matrices of bytes.
    NeonI8mm,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-VNNI.
    AvxVnni,
    /// AVX-512 with its extensions.
    Avx512,
    /// Advanced matrix extensions, and no limit.
    Amx,
}

impl InstructionLimit {
    #[cfg(target_arch = "aarch64")]
    const NAMES: [(&str, Self); 4] = [
        ("portable", Self::Portable),
        ("neon", Self::Neon),
        ("neondot", Self::NeonDot),
        ("neoni8mm", Self::NeonI8mm),
    ];
    #[cfg(not(target_arch = "aarch64"))]
    const NAMES: [(&str, Self); 5] = [
        ("portable", Self::Portable),
        ("avx2", Self::Avx2),
        ("avxvnni", Self::AvxVnni),
        ("avx512", Self::Avx512),
        ("amx", Self::Amx),
    ];

    /// The limit of this process, read once. An invalid value sets no limit; [`Self::check`] reports it.
    pub(crate) fn current() -> Self {
        Self::read().clone().unwrap_or(Self::Amx)
    }

    /// Checks the variable.
    ///
    /// # Errors
    /// The message for users if the value is invalid.
    pub(crate) fn check() -> Result<(), String> {
        Self::read().clone().map(|_| ())
    }

    fn read() -> &'static Result<Self, String> {
        static LIMIT: OnceLock<Result<InstructionLimit, String>> = OnceLock::new();
        LIMIT.get_or_init(|| std::env::var(VARIABLE).map_or(Ok(Self::Amx), |value| Self::parse(&value)))
    }

    fn parse(value: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == value);
        found.map(|(_, limit)| *limit).ok_or_else(|| {
            let names = Self::NAMES.map(|(name, _)| name).join(", ");
            format!("invalid value `{value}` for {VARIABLE}: expected one of {names}")
        })
    }
}

/// The limit that the variable `LUMOS_CPU` sets to the instruction sets of this process (`avx2`), or `None` without one.
///
/// # Errors
/// The message for users if the value is invalid. Models do not load then.
pub fn instruction_limit() -> Result<Option<&'static str>, String> {
    InstructionLimit::check()?;
    let limit = InstructionLimit::current();
    let named =
        InstructionLimit::NAMES.iter().find(|(_, one)| *one == limit && limit < InstructionLimit::Amx);
    Ok(named.map(|(name, _)| *name))
}

/// The instruction set of everything except linear layers: the processor's within the limit.
pub fn arch() -> Arch {
    match InstructionLimit::current() {
        InstructionLimit::Portable => Arch::Scalar,
        #[cfg(target_arch = "x86_64")]
        InstructionLimit::Avx2 | InstructionLimit::AvxVnni => {
            pulp::x86::V3::try_new().map_or(Arch::Scalar, Arch::V3)
        }
        _ => Arch::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_by_name() {
        for window in InstructionLimit::NAMES.windows(2) {
            assert!(window[0].1 < window[1].1);
            assert_eq!(InstructionLimit::parse(window[1].0), Ok(window[1].1));
        }
        let error = InstructionLimit::parse("sse").unwrap_err();
        let names = if cfg!(target_arch = "aarch64") {
            "portable, neon, neondot, neoni8mm"
        } else {
            "portable, avx2, avxvnni, avx512, amx"
        };
        assert_eq!(error, format!("invalid value `sse` for LUMOS_CPU: expected one of {names}"));
    }
}
