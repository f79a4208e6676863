//! Evaluates expression trees to exact values.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive};

use super::exact;
use super::expression::{Expression, Mark};
use super::fraction::Fraction;
use super::lexer::Function;
use super::limits::Meter;
use super::polynomial::Polynomial;
use super::surd::Real;
use super::{MathsError, Result};

/// The highest index of a root such as `x^(1/5)`.
const HIGHEST_ROOT: u32 = 64;

/// Evaluates an expression; unknowns without a binding remain unknowns.
pub(crate) fn evaluate(
    expression: &Expression,
    bindings: &[Option<Fraction>],
    meter: &mut Meter,
) -> Result<Fraction> {
    meter.spend(5)?;
    match expression {
        Expression::Number(value) => Ok(Real::from(value.clone()).into()),
        Expression::Variable(variable) => Ok(match bindings.get(*variable) {
            Some(Some(value)) => value.clone(),
            _ => Polynomial::variable(*variable).into(),
        }),
        Expression::Negative(inner) => Ok(evaluate(inner, bindings, meter)?.negated()),
        Expression::Sum(terms) => {
            let mut sum = Fraction::from(Real::zero());
            for term in terms {
                let value = evaluate(&term.expression, bindings, meter)?;
                sum = if term.subtracted { sum.subtract(&value, meter)? } else { sum.add(&value, meter)? };
            }
            Ok(sum)
        }
        Expression::Product(factors) => {
            let mut product = Fraction::from(Real::one());
            for factor in factors {
                let value = evaluate(&factor.expression, bindings, meter)?;
                product = if factor.divides {
                    product.divide(&value, meter)?
                } else {
                    product.multiply(&value, meter)?
                };
            }
            Ok(product)
        }
        Expression::Power(base, exponent) => {
            let exponent = evaluate(exponent, bindings, meter)?;
            let base = evaluate(base, bindings, meter)?;
            power(&base, &exponent, meter)
        }
        Expression::Marked(operand, marks) => {
            let mut value = evaluate(operand, bindings, meter)?;
            for mark in marks {
                value = marked(&value, *mark, meter)?;
            }
            Ok(value)
        }
        Expression::Call(function, argument) => {
            let argument = evaluate(argument, bindings, meter)?;
            let Some(value) = argument.as_constant() else {
                return Err(MathsError::no_result("a function of an unknown"));
            };
            Ok(call(*function, &value, meter)?.into())
        }
    }
}

/// All divisors in an expression that contain unknowns; none of them may be zero.
pub(crate) fn divisors(expression: &Expression, meter: &mut Meter) -> Result<Vec<Polynomial>> {
    let mut found = Vec::new();
    collect_divisors(expression, &mut found, meter)?;
    Ok(found)
}

fn collect_divisors(expression: &Expression, found: &mut Vec<Polynomial>, meter: &mut Meter) -> Result<()> {
    meter.spend(5)?;
    match expression {
        Expression::Number(_) | Expression::Variable(_) => Ok(()),
        Expression::Negative(inner) | Expression::Marked(inner, _) | Expression::Call(_, inner) => {
            collect_divisors(inner, found, meter)
        }
        Expression::Sum(terms) => {
            terms.iter().try_for_each(|term| collect_divisors(&term.expression, found, meter))
        }
        Expression::Product(factors) => factors.iter().try_for_each(|factor| {
            if factor.divides {
                push_divisor(&factor.expression, found, meter)?;
            }
            collect_divisors(&factor.expression, found, meter)
        }),
        Expression::Power(base, exponent) => {
            let exponent = evaluate(exponent, &[], meter)?;
            let exponent = exponent.as_constant();
            if exponent.as_ref().and_then(Real::as_rational).is_some_and(Signed::is_negative) {
                push_divisor(base, found, meter)?;
            }
            collect_divisors(base, found, meter)
        }
    }
}

fn push_divisor(expression: &Expression, found: &mut Vec<Polynomial>, meter: &mut Meter) -> Result<()> {
    let divisor = evaluate(expression, &[], meter)?.numerator().clone();
    if divisor.as_constant().is_none() && !found.contains(&divisor) {
        found.push(divisor);
    }
    Ok(())
}

fn marked(value: &Fraction, mark: Mark, meter: &mut Meter) -> Result<Fraction> {
    match mark {
        Mark::Percent => value.multiply(&Real::from(BigRational::new(1.into(), 100.into())).into(), meter),
        Mark::Factorial => {
            let constant = value.as_constant();
            match constant.as_ref().and_then(Real::as_rational) {
                Some(value) => Ok(Real::from(exact::factorial(value, meter)?).into()),
                None => Err(MathsError::no_result("a factorial of something other than a whole number")),
            }
        }
    }
}

fn power(base: &Fraction, exponent: &Fraction, meter: &mut Meter) -> Result<Fraction> {
    let exponent = exponent.as_constant();
    let Some(exponent) = exponent.as_ref().and_then(Real::as_rational) else {
        return Err(MathsError::no_result("an exponent that is not a rational number"));
    };
    if exponent.denom().is_one() {
        return base.power(exponent.numer(), meter);
    }
    let Some(value) = base.as_constant() else {
        return Err(MathsError::no_result("a root of an unknown"));
    };
    Ok(root(&value, exponent, meter)?.into())
}

/// A power with a fractional exponent.
fn root(value: &Real, exponent: &BigRational, meter: &mut Meter) -> Result<Real> {
    let numerator: &BigInt = exponent.numer();
    if *exponent.denom() == BigInt::from(2) {
        return value.square_root(meter)?.power(numerator, meter);
    }
    let index = exponent.denom().to_u32().filter(|index| *index <= HIGHEST_ROOT);
    let (Some(index), Some(rational)) = (index, value.as_rational()) else {
        return Err(MathsError::no_result("a root that is not a square root"));
    };
    match exact::root(rational, index, meter)? {
        Some(root) => Ok(exact::power(&root, numerator, meter)?.into()),
        None => Err(MathsError::no_result("an irrational root that is not a square root")),
    }
}

fn call(function: Function, value: &Real, meter: &mut Meter) -> Result<Real> {
    match function {
        Function::SquareRoot => value.square_root(meter),
        Function::Absolute => {
            Ok(if value.sign(meter)? == Ordering::Less { value.negated() } else { value.clone() })
        }
        Function::Floor | Function::Ceiling => match value.as_rational() {
            Some(rational) if function == Function::Floor => Ok(rational.floor().into()),
            Some(rational) => Ok(rational.ceil().into()),
            None => Err(MathsError::no_result("rounding an irrational number")),
        },
    }
}
