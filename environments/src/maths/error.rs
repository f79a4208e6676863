//! [`MathsError`]: why a query has no answer.

use thiserror::Error;

/// Reasons why a query has no answer. The messages are meant for people.
///
/// The original service shows all four in the same way: without a result pod.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MathsError {
    /// The text is not a query of a known form.
    #[error("not understood: {reason}")]
    NotUnderstood {
        /// The part that could not be parsed.
        reason: String,
    },
    /// The query is valid, but has no exact result.
    #[error("no result: {reason}")]
    NoResult {
        /// The reason.
        reason: String,
    },
    /// The query, or an intermediate result, exceeds a limit.
    #[error("too large: {what} (limit {limit})")]
    TooLarge {
        /// What exceeded its limit.
        what: &'static str,
        /// The limit, in the unit of the matching field of [`MathsLimits`](super::MathsLimits).
        limit: u64,
    },
    /// A division by zero, or zero raised to a negative power.
    #[error("division by zero")]
    DivisionByZero,
}

impl MathsError {
    pub(crate) fn not_understood(reason: impl Into<String>) -> Self {
        Self::NotUnderstood { reason: reason.into() }
    }

    pub(crate) fn no_result(reason: impl Into<String>) -> Self {
        Self::NoResult { reason: reason.into() }
    }
}
