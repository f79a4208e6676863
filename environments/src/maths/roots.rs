//! Real roots of polynomials in one unknown.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::exact;
use super::limits::Meter;
use super::surd::Real;
use super::{MathsError, Result};

/// Integers up to this limit are factored to find rational roots.
const LARGEST_FACTORED: u64 = 10_000_000_000;

/// All real roots, ascending, without duplicates.
///
/// The coefficients are in ascending order of degree; the last is not zero. Finds rational roots, roots of
/// quadratic factors, and roots of such polynomials in a power of the unknown.
pub(crate) fn real_roots(coefficients: &[Real], meter: &mut Meter) -> Result<Vec<Real>> {
    let mut roots = Vec::new();
    let leading_zeros = coefficients.iter().take_while(|coefficient| coefficient.is_zero()).count();
    if leading_zeros > 0 {
        roots.push(Real::zero());
    }
    let rest = coefficients.get(leading_zeros..).unwrap_or_default();
    // The remaining polynomial is in x^step.
    let step = rest
        .iter()
        .enumerate()
        .filter(|(_, coefficient)| !coefficient.is_zero())
        .fold(0, |step: usize, (place, _)| step.gcd(&place));
    if step > 1 {
        let compressed: Vec<Real> = rest.iter().step_by(step).cloned().collect();
        for power in plain_roots(&compressed, meter)? {
            roots.extend(roots_of_power(&power, step, meter)?);
        }
    } else {
        roots.extend(plain_roots(rest, meter)?);
    }
    sorted(roots, meter)
}

/// The numbers whose `step`-th power is the given one.
fn roots_of_power(power: &Real, step: usize, meter: &mut Meter) -> Result<Vec<Real>> {
    let negative = power.sign(meter)? == Ordering::Less;
    if negative && step.is_even() {
        return Ok(Vec::new());
    }
    let magnitude = if negative { power.negated() } else { power.clone() };
    let index = u32::try_from(step).unwrap_or(u32::MAX);
    let exact_root = match magnitude.as_rational() {
        Some(rational) => exact::root(rational, index, meter)?.map(Real::from),
        None => None,
    };
    let root = match exact_root {
        Some(root) => root,
        None if step == 2 => magnitude.square_root(meter)?,
        None => return Err(inexpressible()),
    };
    Ok(match (step.is_even(), negative) {
        (true, _) => vec![root.negated(), root],
        (false, true) => vec![root.negated()],
        (false, false) => vec![root],
    })
}

fn plain_roots(coefficients: &[Real], meter: &mut Meter) -> Result<Vec<Real>> {
    match coefficients {
        [] | [_] => Ok(Vec::new()),
        [constant, linear] => Ok(vec![constant.negated().divide(linear, meter)?]),
        [constant, linear, square] => quadratic_roots(constant, linear, square, meter),
        _ => {
            let rational: Option<Vec<BigRational>> =
                coefficients.iter().map(|coefficient| coefficient.as_rational().cloned()).collect();
            match rational {
                Some(rational) => higher_roots(rational, meter),
                None => Err(inexpressible()),
            }
        }
    }
}

fn quadratic_roots(constant: &Real, linear: &Real, square: &Real, meter: &mut Meter) -> Result<Vec<Real>> {
    let product = square.multiply(constant, meter)?.multiply(&Real::small(4), meter)?;
    let discriminant = linear.multiply(linear, meter)?.subtract(&product, meter)?;
    let half = square.multiply(&Real::small(2), meter)?.inverse(meter)?;
    let middle = linear.negated().multiply(&half, meter)?;
    match discriminant.sign(meter)? {
        Ordering::Less => Ok(Vec::new()),
        Ordering::Equal => Ok(vec![middle]),
        Ordering::Greater => {
            let distance = discriminant.square_root(meter)?.multiply(&half, meter)?;
            Ok(vec![middle.subtract(&distance, meter)?, middle.add(&distance, meter)?])
        }
    }
}

/// Divides by rational roots until a quadratic remains.
fn higher_roots(coefficients: Vec<BigRational>, meter: &mut Meter) -> Result<Vec<Real>> {
    let mut roots: Vec<Real> = Vec::new();
    let mut rest = coefficients;
    while rest.len() > 3 {
        let Some((root, quotient)) = rational_root(&rest, meter)? else {
            return Err(inexpressible());
        };
        roots.push(root.into());
        rest = quotient;
    }
    let rest: Vec<Real> = rest.into_iter().map(Real::from).collect();
    roots.extend(plain_roots(&rest, meter)?);
    Ok(roots)
}

/// One rational root and the polynomial divided by it.
fn rational_root(
    coefficients: &[BigRational],
    meter: &mut Meter,
) -> Result<Option<(BigRational, Vec<BigRational>)>> {
    let mut common = BigInt::one();
    for coefficient in coefficients {
        meter.spend(50)?;
        common = common.lcm(coefficient.denom());
        meter.check_bits(common.bits())?;
    }
    let whole = |coefficient: Option<&BigRational>| {
        coefficient.map(|value| (value * &common).to_integer()).unwrap_or_default()
    };
    let constant = whole(coefficients.first());
    if constant.is_zero() {
        let quotient = coefficients.get(1..).unwrap_or_default().to_vec();
        return Ok(Some((BigRational::zero(), quotient)));
    }
    let numerators = divisors(&constant, meter)?;
    let denominators = divisors(&whole(coefficients.last()), meter)?;
    for numerator in &numerators {
        for denominator in &denominators {
            meter.spend(5)?;
            if !numerator.gcd(denominator).is_one() {
                continue;
            }
            meter.spend(100)?;
            let candidate = BigRational::new(BigInt::from(*numerator), BigInt::from(*denominator));
            for candidate in [candidate.clone(), -candidate] {
                if let Some(quotient) = divided(coefficients, &candidate, meter)? {
                    return Ok(Some((candidate, quotient)));
                }
            }
        }
    }
    Ok(None)
}

/// Synthetic division by `x - root`, if it has no remainder.
fn divided(
    coefficients: &[BigRational],
    root: &BigRational,
    meter: &mut Meter,
) -> Result<Option<Vec<BigRational>>> {
    let mut quotient = Vec::with_capacity(coefficients.len());
    let mut carried = BigRational::zero();
    for coefficient in coefficients.iter().rev() {
        carried = exact::add(&exact::multiply(&carried, root, meter)?, coefficient, meter)?;
        quotient.push(carried.clone());
    }
    if quotient.pop().is_none_or(|rest| !rest.is_zero()) {
        return Ok(None);
    }
    quotient.reverse();
    Ok(Some(quotient))
}

/// The positive divisors of a non-zero integer.
fn divisors(number: &BigInt, meter: &mut Meter) -> Result<Vec<u64>> {
    let Some(mut rest) = number.abs().to_u64().filter(|value| *value <= LARGEST_FACTORED) else {
        return Err(MathsError::no_result("coefficients too large to search for rational roots"));
    };
    let mut divisors = vec![1_u64];
    let mut prime = 2_u64;
    while rest > 1 {
        meter.spend(2)?;
        if prime * prime > rest {
            prime = rest;
        }
        let known = divisors.clone();
        let mut power = 1;
        while rest % prime == 0 {
            rest /= prime;
            power *= prime;
            meter.spend(known.len() as u64)?;
            divisors.extend(known.iter().map(|divisor| divisor * power));
        }
        prime += if prime == 2 { 1 } else { 2 };
    }
    divisors.sort_unstable();
    Ok(divisors)
}

/// Ascending, without duplicates.
pub(crate) fn sorted(numbers: Vec<Real>, meter: &mut Meter) -> Result<Vec<Real>> {
    let mut sorted: Vec<Real> = Vec::with_capacity(numbers.len());
    for number in numbers {
        let mut ordering = Ordering::Greater;
        let place = position(&sorted, |present| {
            ordering = number.compare(present, meter)?;
            Ok(ordering != Ordering::Greater)
        })?;
        if ordering != Ordering::Equal {
            sorted.insert(place, number);
        }
    }
    Ok(sorted)
}

/// The index of the first item that satisfies a condition, otherwise the number of items.
pub(crate) fn position<T>(items: &[T], mut holds: impl FnMut(&T) -> Result<bool>) -> Result<usize> {
    for (place, item) in items.iter().enumerate() {
        if holds(item)? {
            return Ok(place);
        }
    }
    Ok(items.len())
}

fn inexpressible() -> MathsError {
    MathsError::no_result("roots that are neither rational nor square roots")
}
