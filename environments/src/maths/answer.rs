//! The result of a query.

use std::fmt;

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
