//! The unknowns of one query ([`Variables`]) and the products of their powers ([`Monomial`]).

use std::collections::BTreeSet;

use super::Result;
use super::lexer::Token;
use super::limits::{Meter, within};

/// Maximum number of unknowns in a product.
pub(crate) const MOST_UNKNOWNS: usize = 12;

/// Position of an unknown in the alphabetical order of a query's unknowns.
pub(crate) type Variable = usize;

/// The names of the unknowns of one query, in alphabetical order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variables {
    names: Vec<String>,
}

impl Variables {
    /// The unknowns that occur in any of the token sequences.
    pub(crate) fn of<'a>(sequences: impl IntoIterator<Item = &'a [Token]>, meter: &Meter) -> Result<Self> {
        let names: BTreeSet<&String> = sequences
            .into_iter()
            .flatten()
            .filter_map(|token| match token {
                Token::Variable(name) => Some(name),
                _ => None,
            })
            .collect();
        within("unknowns", names.len(), meter.limits().unknowns.min(MOST_UNKNOWNS))?;
        Ok(Self { names: names.into_iter().cloned().collect() })
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Variable> {
        self.names.iter().position(|known| known == name)
    }

    pub(crate) fn name(&self, variable: Variable) -> &str {
        self.names.get(variable).map_or("?", String::as_str)
    }
}

/// A product of powers, ordered by total degree, then alphabetically.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Monomial {
    degree: u32,
    exponents: [u32; MOST_UNKNOWNS],
}

impl Monomial {
    pub(crate) fn of(exponents: [u32; MOST_UNKNOWNS]) -> Self {
        Self { degree: exponents.iter().fold(0, |sum, exponent| sum.saturating_add(*exponent)), exponents }
    }

    pub(crate) fn power_of(variable: Variable, exponent: u32) -> Self {
        let mut exponents = [0; MOST_UNKNOWNS];
        if let Some(place) = exponents.get_mut(variable) {
            *place = exponent;
        }
        Self::of(exponents)
    }

    pub(crate) fn degree(&self) -> u32 {
        self.degree
    }

    pub(crate) fn exponent(&self, variable: Variable) -> u32 {
        self.exponents.get(variable).copied().unwrap_or(0)
    }

    /// The unknowns that occur, with their exponents.
    pub(crate) fn powers(&self) -> impl Iterator<Item = (Variable, u32)> {
        self.exponents.iter().copied().enumerate().filter(|(_, exponent)| *exponent > 0)
    }

    pub(crate) fn multiply(&self, other: &Self) -> Self {
        self.zip(other, u32::saturating_add)
    }

    /// The quotient, if no exponent becomes negative.
    pub(crate) fn divide(&self, other: &Self) -> Option<Self> {
        let divides = self.exponents.iter().zip(&other.exponents).all(|(own, its)| own >= its);
        divides.then(|| self.zip(other, u32::saturating_sub))
    }

    /// The greatest product that divides both.
    pub(crate) fn common(&self, other: &Self) -> Self {
        self.zip(other, u32::min)
    }

    pub(crate) fn power(&self, exponent: u32) -> Self {
        self.zip(self, |own, _| own.saturating_mul(exponent))
    }

    /// The product without one of its unknowns.
    pub(crate) fn without(&self, variable: Variable) -> Self {
        let mut exponents = self.exponents;
        if let Some(place) = exponents.get_mut(variable) {
            *place = 0;
        }
        Self::of(exponents)
    }

    fn zip(&self, other: &Self, combine: impl Fn(u32, u32) -> u32) -> Self {
        let mut exponents = self.exponents;
        for (own, its) in exponents.iter_mut().zip(&other.exponents) {
            *own = combine(*own, *its);
        }
        Self::of(exponents)
    }
}
