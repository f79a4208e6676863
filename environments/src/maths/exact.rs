//! Metered arithmetic on rational numbers.
//!
//! Integers use a path without greatest common divisors, which are the main cost of rationals.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::limits::{Meter, words};
use super::{MathsError, Result};

/// Cost of one operation that reduces a fraction of `size` words.
fn reduction_cost(size: u64) -> u64 {
    60 + 8 * size * size
}

fn both_whole(left: &BigRational, right: &BigRational) -> bool {
    left.denom().is_one() && right.denom().is_one()
}

fn size(value: &BigRational) -> u64 {
    words(value.numer()).max(words(value.denom()))
}

fn whole(value: BigInt, meter: &Meter) -> Result<BigRational> {
    meter.check_bits(value.bits())?;
    Ok(BigRational::from_integer(value))
}

pub(crate) fn add(left: &BigRational, right: &BigRational, meter: &mut Meter) -> Result<BigRational> {
    if both_whole(left, right) {
        meter.spend(15 + size(left) + size(right))?;
        return whole(left.numer() + right.numer(), meter);
    }
    meter.spend(reduction_cost(size(left) + size(right)))?;
    let sum = left + right;
    meter.check(&sum)?;
    Ok(sum)
}

pub(crate) fn multiply(left: &BigRational, right: &BigRational, meter: &mut Meter) -> Result<BigRational> {
    if both_whole(left, right) {
        meter.spend(15 + size(left) * size(right) / 4)?;
        return whole(left.numer() * right.numer(), meter);
    }
    meter.spend(reduction_cost(size(left) + size(right)))?;
    let product = left * right;
    meter.check(&product)?;
    Ok(product)
}

pub(crate) fn divide(left: &BigRational, right: &BigRational, meter: &mut Meter) -> Result<BigRational> {
    if right.is_zero() {
        return Err(MathsError::DivisionByZero);
    }
    meter.spend(reduction_cost(size(left) + size(right)))?;
    let quotient = left / right;
    meter.check(&quotient)?;
    Ok(quotient)
}

/// An integer power; the exponent may be negative.
pub(crate) fn power(base: &BigRational, exponent: &BigInt, meter: &mut Meter) -> Result<BigRational> {
    if exponent.is_zero() {
        if base.is_zero() {
            return Err(MathsError::no_result("0^0 is undefined"));
        }
        return Ok(BigRational::one());
    }
    if base.is_zero() {
        return if exponent.is_negative() { Err(MathsError::DivisionByZero) } else { Ok(base.clone()) };
    }
    if base.denom().is_one() && base.numer().magnitude().is_one() {
        let negative = base.is_negative() && exponent.is_odd();
        return Ok(if negative { -BigRational::one() } else { BigRational::one() });
    }
    let repetitions = exponent.magnitude().to_u32().ok_or_else(|| meter.too_many_bits())?;
    let bits = base.numer().bits().max(base.denom().bits());
    let least_bits = (bits - 1).saturating_mul(u64::from(repetitions));
    meter.check_bits(least_bits)?;
    let most_words = bits.saturating_mul(u64::from(repetitions)) / 64 + 1;
    meter.spend(20 + most_words.saturating_mul(most_words))?;
    let numerator = base.numer().pow(repetitions);
    let denominator = base.denom().pow(repetitions);
    let value = if exponent.is_positive() {
        BigRational::new_raw(numerator, denominator)
    } else if numerator.is_negative() {
        BigRational::new_raw(-denominator, -numerator)
    } else {
        BigRational::new_raw(denominator, numerator)
    };
    meter.check(&value)?;
    Ok(value)
}

/// A power by repeated squaring.
pub(crate) fn repeated<T>(
    base: T,
    exponent: u32,
    one: T,
    mut multiply: impl FnMut(&T, &T) -> Result<T>,
) -> Result<T> {
    let (mut result, mut square, mut remaining) = (one, base, exponent);
    while remaining > 0 {
        if remaining & 1 == 1 {
            result = multiply(&result, &square)?;
        }
        remaining >>= 1;
        if remaining > 0 {
            square = multiply(&square, &square)?;
        }
    }
    Ok(result)
}

/// The exact root of a non-negative number, or `None` if it is irrational.
pub(crate) fn root(value: &BigRational, index: u32, meter: &mut Meter) -> Result<Option<BigRational>> {
    if value.is_negative() || index == 0 {
        return Ok(None);
    }
    let size = size(value);
    meter.spend(50 + 20 * size * size)?;
    let numerator = value.numer().nth_root(index);
    let denominator = value.denom().nth_root(index);
    let exact = numerator.pow(index) == *value.numer() && denominator.pow(index) == *value.denom();
    Ok(exact.then(|| BigRational::new_raw(numerator, denominator)))
}

pub(crate) fn factorial(value: &BigRational, meter: &mut Meter) -> Result<BigRational> {
    if !value.denom().is_one() || value.is_negative() {
        return Err(MathsError::no_result("a factorial needs a whole number that is not negative"));
    }
    let last = value.numer().to_u32().ok_or_else(|| meter.too_many_bits())?;
    let mut product = BigInt::one();
    for factor in 2..=last {
        meter.spend(10 + words(&product))?;
        product *= factor;
        meter.check_bits(product.bits())?;
    }
    whole(product, meter)
}

/// A rational number from a small integer.
pub(crate) fn small(value: i64) -> BigRational {
    BigRational::from_integer(BigInt::from(value))
}
