//! Exact mathematics as a replacement for WolframAlpha's first result pod.
//!
//! [`answer`] accepts the queries that the agent's tools send to the service. It computes with exact numbers
//! (rationals and square roots) within fixed [`MathsLimits`], so that answers do not depend on the machine.
//!
//! # Queries
//!
//! | query | answer |
//! |---|---|
//! | an expression, also after `Calculate` or `Expand` | its value, expanded: `2*(3+4)` is `14`, `(x + 1)^2` is `x^2 + 2 x + 1` |
//! | an expression and `, where x=2, y=3` | its value with these bindings |
//! | `Solve` and equations or inequalities, separated by commas or "and" | `x = 5`, `x = 2 ∧ y = 3`, `x>2`, … |
//! | a number with one unit, without a keyword | `11 * 30 hours` is `330 hours` |
//! | a relation between numbers, without a keyword | `True` if it holds; otherwise no answer |
//!
//! `Solve` before an expression has no result, unless values follow (`Solve a + b, where a=1, b=2`); an
//! equation with unknowns but without `Solve` is not understood. `Solve` may name its unknowns (`Solve x + y
//! = 3 for x`), and treats `where` as further equations.
//!
//! # Conventions of expressions
//!
//! - juxtaposition multiplies with the precedence of `*`, left to right: `1/2x` is half of x. A number cannot
//!   follow another number that way: `2 3` and `10 % 3` are not understood;
//! - `^` (also `**`) is right-associative and binds tighter than a sign before it: `-2^2` is -4;
//! - `5%` is 5/100, `of` multiplies, `,` groups thousands, `$` before a number is ignored, `13 x 17` is a
//!   product, `5!` a factorial; `sqrt`, `abs`, `floor`, `ceil` are supported;
//! - an unknown is one letter with optional digits (`x`, `R2`, `x_1`), also `e` and `i`; of words only `xy`,
//!   `abc` and similar ones are accepted, as products.
//!
//! # Conventions of results
//!
//! - integers `24`, terminating decimals in full `3.5`, other rationals reduced `7/3`, roots `15 - sqrt(2)`;
//! - polynomials by descending degree with fractions as coefficients: `x + 3/4`, `(2 x)/3`;
//! - several real roots, solutions or ranges are [`MathsAnswer::Many`], ascending;
//! - `(no solutions exist)` over the real numbers, `True` if every value is a solution;
//! - with more unknowns than equations a single equation is solved for its last unknown (`y = 27 - x`), a
//!   system for its first ones (`x = 31 - y`).

mod compare;
mod evaluate;
mod exact;
mod expression;
mod fraction;
mod inequality;
mod lexer;
mod limits;
mod monomial;
mod number;
mod polynomial;
mod printing;
mod query;
mod roots;
mod solver;
mod surd;
mod units;

use std::fmt;

use thiserror::Error;

pub use compare::same_value;
pub use limits::MathsLimits;
pub use number::number;

use limits::Meter;

type Result<T, E = MathsError> = std::result::Result<T, E>;

/// Answers a query exactly, within the default [`MathsLimits`].
///
/// The [module](self) describes the queries and the form of the answers.
///
/// # Errors
///
/// [`MathsError`] if the service would have no result pod, or if a limit is exceeded.
///
/// ```
/// use lumos_environments::maths::{MathsAnswer, answer};
///
/// assert_eq!(answer("2*(3+4)"), Ok(MathsAnswer::One("14".into())));
/// assert_eq!(answer("Solve x^2 = 9"), Ok(MathsAnswer::Many(vec!["x = -3".into(), "x = 3".into()])));
/// ```
pub fn answer(query: &str) -> Result<MathsAnswer, MathsError> {
    answer_within(query, MathsLimits::default())
}

/// Answers a query exactly, within the given limits.
///
/// # Errors
///
/// As [`answer`].
pub fn answer_within(query: &str, limits: MathsLimits) -> Result<MathsAnswer, MathsError> {
    query::answer(query, &mut Meter::new(limits))
}

/// The plain text of the result, with one or several subpods.
///
/// Several subpods are the real roots of an equation (`x = -3`, `x = 3`), the solutions of a system, or the
/// outer ranges of an inequality (`x<=-5`, `x>=5`), ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MathsAnswer {
    /// A single subpod.
    One(String),
    /// Several subpods.
    Many(Vec<String>),
}

impl MathsAnswer {
    /// The texts of the subpods.
    pub fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }
}

impl fmt::Display for MathsAnswer {
    /// The texts, separated by ` or `.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.texts().join(" or "))
    }
}

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
        /// The limit, in the unit of the matching field of [`MathsLimits`].
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
