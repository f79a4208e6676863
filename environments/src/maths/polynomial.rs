//! Polynomials in several unknowns with exact real coefficients.

use std::collections::{BTreeMap, BTreeSet};

use num_bigint::BigInt;

use super::exact;
use super::limits::{Meter, words};
use super::monomial::{Monomial, Variable};
use super::surd::Real;
use super::{MathsError, Result};

/// A sum of terms; no coefficient is zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Polynomial {
    terms: BTreeMap<Monomial, Real>,
}

impl Polynomial {
    pub(crate) fn constant(value: Real) -> Self {
        Self::term(Monomial::default(), value)
    }

    pub(crate) fn one() -> Self {
        Self::constant(Real::one())
    }

    pub(crate) fn variable(variable: Variable) -> Self {
        Self::term(Monomial::power_of(variable, 1), Real::one())
    }

    pub(crate) fn term(monomial: Monomial, coefficient: Real) -> Self {
        let mut terms = BTreeMap::new();
        if !coefficient.is_zero() {
            terms.insert(monomial, coefficient);
        }
        Self { terms }
    }

    /// Terms by ascending degree.
    pub(crate) fn terms(&self) -> impl DoubleEndedIterator<Item = (&Monomial, &Real)> {
        self.terms.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }

    pub(crate) fn degree(&self) -> u32 {
        self.terms.keys().next_back().map_or(0, Monomial::degree)
    }

    pub(crate) fn leading(&self) -> Option<(&Monomial, &Real)> {
        self.terms.last_key_value()
    }

    pub(crate) fn coefficient(&self, monomial: &Monomial) -> Option<&Real> {
        self.terms.get(monomial)
    }

    pub(crate) fn as_constant(&self) -> Option<Real> {
        if self.terms.is_empty() {
            return Some(Real::zero());
        }
        match self.terms.first_key_value() {
            Some((monomial, value)) if self.terms.len() == 1 && monomial.degree() == 0 => Some(value.clone()),
            _ => None,
        }
    }

    pub(crate) fn variables(&self) -> BTreeSet<Variable> {
        self.terms.keys().flat_map(|monomial| monomial.powers().map(|(variable, _)| variable)).collect()
    }

    pub(crate) fn negated(&self) -> Self {
        Self { terms: self.terms.iter().map(|(monomial, value)| (*monomial, value.negated())).collect() }
    }

    pub(crate) fn add(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        let mut sum = self.clone();
        meter.spend((self.terms.len() + other.terms.len()) as u64 * 30)?;
        for (monomial, value) in &other.terms {
            sum.add_term(*monomial, value, meter)?;
        }
        meter.check_terms(sum.terms.len())?;
        Ok(sum)
    }

    pub(crate) fn subtract(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        self.add(&other.negated(), meter)
    }

    pub(crate) fn multiply(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        meter.check_degree(self.degree().saturating_add(other.degree()))?;
        let mut product = Self::default();
        for (left, left_value) in &self.terms {
            for (right, right_value) in &other.terms {
                meter.spend(30)?;
                let value = left_value.multiply(right_value, meter)?;
                product.add_term(left.multiply(right), &value, meter)?;
            }
            meter.check_terms(product.terms.len())?;
        }
        Ok(product)
    }

    pub(crate) fn scale(&self, factor: &Real, meter: &mut Meter) -> Result<Self> {
        self.multiply(&Self::constant(factor.clone()), meter)
    }

    pub(crate) fn power(&self, exponent: u32, meter: &mut Meter) -> Result<Self> {
        meter.check_degree(self.degree().saturating_mul(exponent))?;
        if let Some((monomial, value)) = self.leading()
            && self.terms.len() == 1
        {
            let value = value.power(&BigInt::from(exponent), meter)?;
            return Ok(Self::term(monomial.power(exponent), value));
        }
        exact::repeated(self.clone(), exponent, Self::one(), |left, right| left.multiply(right, meter))
    }

    /// The coefficients of the powers of one unknown, starting with power zero.
    pub(crate) fn coefficients_in(&self, variable: Variable, meter: &mut Meter) -> Result<Vec<Self>> {
        let mut coefficients = vec![Self::default()];
        for (monomial, value) in &self.terms {
            meter.spend(10)?;
            let place = monomial.exponent(variable) as usize;
            coefficients.resize(coefficients.len().max(place + 1), Self::default());
            if let Some(coefficient) = coefficients.get_mut(place) {
                coefficient.add_term(monomial.without(variable), value, meter)?;
            }
        }
        Ok(coefficients)
    }

    /// The coefficients starting with power zero, if there is no other unknown.
    pub(crate) fn univariate(&self, variable: Variable) -> Option<Vec<Real>> {
        let mut coefficients = vec![Real::zero()];
        for (monomial, value) in &self.terms {
            let place = monomial.exponent(variable);
            if place != monomial.degree() {
                return None;
            }
            let place = place as usize;
            coefficients.resize(coefficients.len().max(place + 1), Real::zero());
            *coefficients.get_mut(place)? = value.clone();
        }
        Some(coefficients)
    }

    /// Replaces an unknown by a polynomial.
    pub(crate) fn substitute(
        &self,
        variable: Variable,
        replacement: &Self,
        meter: &mut Meter,
    ) -> Result<Self> {
        let mut result = Self::default();
        for coefficient in self.coefficients_in(variable, meter)?.iter().rev() {
            result = result.multiply(replacement, meter)?.add(coefficient, meter)?;
        }
        Ok(result)
    }

    /// The quotient, if the division has no remainder.
    pub(crate) fn divide_exactly(&self, divisor: &Self, meter: &mut Meter) -> Result<Option<Self>> {
        let Some((divisor_monomial, divisor_value)) = divisor.leading() else {
            return Err(MathsError::DivisionByZero);
        };
        let mut rest = self.clone();
        let mut quotient = Self::default();
        while let Some((monomial, value)) = rest.leading() {
            let Some(monomial) = monomial.divide(divisor_monomial) else {
                return Ok(None);
            };
            let term = Self::term(monomial, value.divide(divisor_value, meter)?);
            rest = rest.subtract(&divisor.multiply(&term, meter)?, meter)?;
            quotient = quotient.add(&term, meter)?;
        }
        Ok(Some(quotient))
    }

    /// Charges the meter for printing the coefficients.
    pub(crate) fn spend_for_printing(&self, meter: &mut Meter) -> Result<()> {
        for value in self.terms.values() {
            let factors = std::iter::once(value.rational()).chain(value.roots().values());
            for factor in factors {
                let size = words(factor.numer()) + words(factor.denom());
                meter.spend(20 + size * size / 4)?;
            }
        }
        Ok(())
    }

    fn add_term(&mut self, monomial: Monomial, value: &Real, meter: &mut Meter) -> Result<()> {
        let sum = match self.terms.get(&monomial) {
            Some(present) => present.add(value, meter)?,
            None => value.clone(),
        };
        if sum.is_zero() {
            self.terms.remove(&monomial);
        } else {
            self.terms.insert(monomial, sum);
        }
        Ok(())
    }
}
