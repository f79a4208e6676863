//! Quotients of polynomials.

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};

use super::limits::Meter;
use super::polynomial::Polynomial;
use super::surd::Real;
use super::{MathsError, Result};

/// `numerator / denominator`; the denominator is never zero, and one when it is constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fraction {
    numerator: Polynomial,
    denominator: Polynomial,
}

impl From<Polynomial> for Fraction {
    fn from(numerator: Polynomial) -> Self {
        Self { numerator, denominator: Polynomial::one() }
    }
}

impl From<Real> for Fraction {
    fn from(value: Real) -> Self {
        Polynomial::constant(value).into()
    }
}

impl Fraction {
    /// A quotient without those common factors that are cheap to find.
    pub(crate) fn new(numerator: Polynomial, denominator: &Polynomial, meter: &mut Meter) -> Result<Self> {
        if denominator.is_zero() {
            return Err(MathsError::DivisionByZero);
        }
        if let Some(value) = denominator.as_constant() {
            if value.is_one() {
                return Ok(numerator.into());
            }
            return Ok(numerator.scale(&value.inverse(meter)?, meter)?.into());
        }
        if numerator.is_zero() {
            return Ok(numerator.into());
        }
        if let Some(quotient) = numerator.divide_exactly(denominator, meter)? {
            return Ok(quotient.into());
        }
        let (numerator, denominator) = without_common_monomial(&numerator, denominator, meter)?;
        let (numerator, denominator) = without_common_divisor(numerator, denominator, meter)?;
        let Some((_, leading)) = denominator.leading() else {
            return Err(MathsError::DivisionByZero);
        };
        let factor = leading.inverse(meter)?;
        Ok(Self {
            numerator: numerator.scale(&factor, meter)?,
            denominator: denominator.scale(&factor, meter)?,
        })
    }

    pub(crate) fn numerator(&self) -> &Polynomial {
        &self.numerator
    }

    pub(crate) fn denominator(&self) -> &Polynomial {
        &self.denominator
    }

    /// The value as a polynomial, if the denominator is one.
    pub(crate) fn as_polynomial(&self) -> Option<&Polynomial> {
        self.denominator.as_constant().is_some().then_some(&self.numerator)
    }

    pub(crate) fn as_constant(&self) -> Option<Real> {
        self.as_polynomial().and_then(Polynomial::as_constant)
    }

    pub(crate) fn negated(&self) -> Self {
        Self { numerator: self.numerator.negated(), denominator: self.denominator.clone() }
    }

    pub(crate) fn add(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        if self.denominator == other.denominator {
            let numerator = self.numerator.add(&other.numerator, meter)?;
            return Self::new(numerator, &self.denominator, meter);
        }
        let left = self.numerator.multiply(&other.denominator, meter)?;
        let right = other.numerator.multiply(&self.denominator, meter)?;
        let denominator = self.denominator.multiply(&other.denominator, meter)?;
        Self::new(left.add(&right, meter)?, &denominator, meter)
    }

    pub(crate) fn subtract(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        self.add(&other.negated(), meter)
    }

    pub(crate) fn multiply(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        let numerator = self.numerator.multiply(&other.numerator, meter)?;
        let denominator = self.denominator.multiply(&other.denominator, meter)?;
        Self::new(numerator, &denominator, meter)
    }

    pub(crate) fn inverse(&self, meter: &mut Meter) -> Result<Self> {
        Self::new(self.denominator.clone(), &self.numerator, meter)
    }

    pub(crate) fn divide(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        self.multiply(&other.inverse(meter)?, meter)
    }

    /// An integer power; the exponent may be negative.
    pub(crate) fn power(&self, exponent: &BigInt, meter: &mut Meter) -> Result<Self> {
        if let Some(value) = self.as_constant() {
            return Ok(value.power(exponent, meter)?.into());
        }
        let Some(repetitions) = exponent.magnitude().to_u32() else {
            let limit = u64::from(meter.limits().degree);
            return Err(MathsError::TooLarge { what: "degree of an expression", limit });
        };
        let base = if exponent.is_negative() { self.inverse(meter)? } else { self.clone() };
        let numerator = base.numerator.power(repetitions, meter)?;
        let denominator = base.denominator.power(repetitions, meter)?;
        Self::new(numerator, &denominator, meter)
    }

    /// Equality of value, even if a common factor was not removed.
    pub(crate) fn same(&self, other: &Self, meter: &mut Meter) -> Result<bool> {
        let left = self.numerator.multiply(&other.denominator, meter)?;
        let right = other.numerator.multiply(&self.denominator, meter)?;
        Ok(left == right)
    }
}

/// Divides both by the product of unknowns that divides every term.
fn without_common_monomial(
    numerator: &Polynomial,
    denominator: &Polynomial,
    meter: &mut Meter,
) -> Result<(Polynomial, Polynomial)> {
    let mut monomials = numerator.terms().chain(denominator.terms()).map(|(monomial, _)| *monomial);
    let common = monomials.next().unwrap_or_default();
    let common = monomials.fold(common, |common, monomial| common.common(&monomial));
    let divisor = Polynomial::term(common, Real::one());
    let divide = |polynomial: &Polynomial, meter: &mut Meter| {
        Ok(polynomial.divide_exactly(&divisor, meter)?.unwrap_or_else(|| polynomial.clone()))
    };
    Ok((divide(numerator, meter)?, divide(denominator, meter)?))
}

/// Divides both by their greatest common divisor if they contain a single unknown, the same in both.
fn without_common_divisor(
    numerator: Polynomial,
    denominator: Polynomial,
    meter: &mut Meter,
) -> Result<(Polynomial, Polynomial)> {
    let unknowns = denominator.variables();
    if unknowns.len() != 1 || numerator.variables() != unknowns {
        return Ok((numerator, denominator));
    }
    let (mut larger, mut smaller) = (numerator.clone(), denominator.clone());
    while !smaller.is_zero() {
        let rest = remainder(larger, &smaller, meter)?;
        larger = smaller;
        smaller = rest;
    }
    if larger.degree() == 0 {
        return Ok((numerator, denominator));
    }
    match (numerator.divide_exactly(&larger, meter)?, denominator.divide_exactly(&larger, meter)?) {
        (Some(numerator), Some(denominator)) => Ok((numerator, denominator)),
        _ => Ok((numerator, denominator)),
    }
}

fn remainder(dividend: Polynomial, divisor: &Polynomial, meter: &mut Meter) -> Result<Polynomial> {
    let Some((divisor_monomial, divisor_value)) = divisor.leading() else {
        return Err(MathsError::DivisionByZero);
    };
    let mut rest = dividend;
    while let Some((monomial, value)) = rest.leading() {
        let Some(monomial) = monomial.divide(divisor_monomial) else {
            break;
        };
        let term = Polynomial::term(monomial, value.divide(divisor_value, meter)?);
        rest = rest.subtract(&divisor.multiply(&term, meter)?, meter)?;
    }
    Ok(rest)
}
