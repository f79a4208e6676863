//! Solves relations in one unknown: the real line is split at every point where a sign can change, and each
//! piece is tested.

use std::cmp::Ordering;

use super::fraction::Fraction;
use super::lexer::Relation;
use super::limits::Meter;
use super::monomial::Variable;
use super::polynomial::Polynomial;
use super::roots;
use super::surd::Real;
use super::{MathsError, Result};

/// `difference relation 0`, where no divisor is zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) difference: Fraction,
    pub(crate) relation: Relation,
    pub(crate) divisors: Vec<Polynomial>,
}

/// One end of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) value: Real,
    pub(crate) included: bool,
}

/// A range of real numbers; a missing end is infinite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) lower: Option<End>,
    pub(crate) upper: Option<End>,
}

impl Relation {
    /// Whether a number whose comparison with zero is `sign` satisfies the relation.
    pub(crate) fn admits(self, sign: Ordering) -> bool {
        match self {
            Self::Equal => sign == Ordering::Equal,
            Self::NotEqual => sign != Ordering::Equal,
            Self::Less => sign == Ordering::Less,
            Self::LessOrEqual => sign != Ordering::Greater,
            Self::Greater => sign == Ordering::Greater,
            Self::GreaterOrEqual => sign != Ordering::Less,
        }
    }
}

/// The ranges, ascending, where all conditions hold.
pub(crate) fn ranges(conditions: &[Condition], variable: Variable, meter: &mut Meter) -> Result<Vec<Range>> {
    let mut points = Vec::new();
    for condition in conditions {
        let quotient = [condition.difference.numerator(), condition.difference.denominator()];
        for polynomial in quotient.into_iter().chain(&condition.divisors) {
            let coefficients = coefficients(polynomial, variable)?;
            if !polynomial.is_zero() {
                points.extend(roots::real_roots(&coefficients, meter)?);
            }
        }
    }
    let points = roots::sorted(points, meter)?;
    let mut found: Vec<Range> = Vec::new();
    let mut previous_holds = false;
    for (piece, sample) in pieces(&points, meter)? {
        let holds = hold(conditions, variable, &sample, meter)?;
        match found.last_mut() {
            Some(range) if holds && previous_holds => range.upper = piece.upper,
            _ if holds => found.push(piece),
            _ => {}
        }
        previous_holds = holds;
    }
    Ok(found)
}

/// The points and the open ranges around them, ascending, each with a number inside.
fn pieces(points: &[Real], meter: &mut Meter) -> Result<Vec<(Range, Real)>> {
    let end = |value: &Real, included| Some(End { value: value.clone(), included });
    let mut pieces = Vec::with_capacity(2 * points.len() + 1);
    let mut before: Option<&Real> = None;
    for point in points {
        let lower = before.and_then(|value| end(value, false));
        let open = Range { lower, upper: end(point, false) };
        pieces.push((open, between(before, Some(point), meter)?));
        pieces.push((Range { lower: end(point, true), upper: end(point, true) }, point.clone()));
        before = Some(point);
    }
    let last = Range { lower: before.and_then(|value| end(value, false)), upper: None };
    pieces.push((last, between(before, None, meter)?));
    Ok(pieces)
}

fn coefficients(polynomial: &Polynomial, variable: Variable) -> Result<Vec<Real>> {
    polynomial
        .univariate(variable)
        .ok_or_else(|| MathsError::no_result("an inequality in several unknowns that is not linear"))
}

/// Some number strictly between two neighbours.
fn between(lower: Option<&Real>, upper: Option<&Real>, meter: &mut Meter) -> Result<Real> {
    match (lower, upper) {
        (None, None) => Ok(Real::zero()),
        (Some(lower), None) => lower.add(&Real::one(), meter),
        (None, Some(upper)) => upper.subtract(&Real::one(), meter),
        (Some(lower), Some(upper)) => lower.add(upper, meter)?.divide(&Real::small(2), meter),
    }
}

fn hold(conditions: &[Condition], variable: Variable, point: &Real, meter: &mut Meter) -> Result<bool> {
    for Condition { difference, relation, divisors } in conditions {
        for divisor in divisors {
            if sign_at(divisor, variable, point, meter)? == Ordering::Equal {
                return Ok(false);
            }
        }
        let numerator = sign_at(difference.numerator(), variable, point, meter)?;
        let denominator = sign_at(difference.denominator(), variable, point, meter)?;
        let sign = match denominator {
            Ordering::Equal => return Ok(false),
            Ordering::Greater => numerator,
            Ordering::Less => numerator.reverse(),
        };
        if !relation.admits(sign) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sign_at(polynomial: &Polynomial, variable: Variable, point: &Real, meter: &mut Meter) -> Result<Ordering> {
    let mut value = Real::zero();
    for coefficient in coefficients(polynomial, variable)?.iter().rev() {
        value = value.multiply(point, meter)?.add(coefficient, meter)?;
    }
    value.sign(meter)
}
