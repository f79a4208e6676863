//! The budget of one query: sizes and counted work, never wall-clock time, so that every machine answers or
//! rejects the same queries.

use num_bigint::BigInt;
use num_rational::BigRational;

use super::{MathsError, Result};

/// Resources that one query may use. A query that exceeds a limit fails with [`MathsError::TooLarge`].
///
/// The defaults keep every query within 50 milliseconds and a few megabytes, in debug builds too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MathsLimits {
    /// Maximum length of the query in bytes.
    pub input_bytes: usize,
    /// Maximum depth of nested parentheses, functions and exponents.
    pub nesting: usize,
    /// Maximum number of bits of the numerator and of the denominator of any number.
    pub bits: u64,
    /// Maximum number of terms of a polynomial; a number may contain a sixteenth as many different square
    /// roots.
    pub terms: usize,
    /// Maximum total degree of a polynomial.
    pub degree: u32,
    /// Maximum number of different variables in one query; values above 12 have no effect.
    pub unknowns: usize,
    /// Maximum number of equations and inequalities in one query.
    pub relations: usize,
    /// Maximum number of solutions followed at the same time.
    pub branches: usize,
    /// Maximum units of arithmetic work; one unit takes some tens of nanoseconds.
    pub work: u64,
}

impl Default for MathsLimits {
    fn default() -> Self {
        Self {
            input_bytes: 4096,
            nesting: 128,
            bits: 8192,
            terms: 512,
            degree: 64,
            unknowns: 12,
            relations: 24,
            branches: 32,
            work: 350_000,
        }
    }
}

/// What a number with too many digits has too many of.
const BITS: &str = "bits of a number";

/// Counts the work of one query against its [`MathsLimits`].
#[derive(Debug)]
pub(crate) struct Meter {
    limits: MathsLimits,
    spent: u64,
}

impl Meter {
    pub(crate) fn new(limits: MathsLimits) -> Self {
        Self { limits, spent: 0 }
    }

    pub(crate) fn limits(&self) -> &MathsLimits {
        &self.limits
    }

    pub(crate) fn spend(&mut self, units: u64) -> Result<()> {
        self.spent = self.spent.saturating_add(units);
        within("steps of computation", self.spent, self.limits.work)
    }

    /// Fails if a number has more bits than allowed.
    pub(crate) fn check(&self, value: &BigRational) -> Result<()> {
        self.check_bits(value.numer().bits().max(value.denom().bits()))
    }

    pub(crate) fn check_bits(&self, bits: u64) -> Result<()> {
        within(BITS, bits, self.limits.bits)
    }

    /// The error of a number with more bits than allowed.
    pub(crate) fn too_many_bits(&self) -> MathsError {
        MathsError::TooLarge { what: BITS, limit: self.limits.bits }
    }

    pub(crate) fn check_terms(&self, terms: usize) -> Result<()> {
        within("terms of an expression", terms, self.limits.terms)
    }

    pub(crate) fn check_degree(&self, degree: u32) -> Result<()> {
        within("degree of an expression", degree, self.limits.degree)
    }
}

/// Fails if `amount` exceeds `limit`.
pub(crate) fn within<T: Copy + PartialOrd + TryInto<u64>>(
    what: &'static str,
    amount: T,
    limit: T,
) -> Result<()> {
    if amount > limit {
        return Err(MathsError::TooLarge { what, limit: limit.try_into().unwrap_or(u64::MAX) });
    }
    Ok(())
}

/// Number of 64-bit words of an integer.
pub(crate) fn words(value: &BigInt) -> u64 {
    value.bits() / 64 + 1
}
