//! Exact real numbers: a rational plus rational multiples of square roots.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use num_bigint::{BigInt, BigUint, Sign};
use num_integer::{Integer, Roots};
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::exact;
use super::limits::{Meter, words};
use super::{MathsError, Result};

/// Primes up to this limit are divided out of radicands.
const TRIAL_BOUND: u32 = 10_000;

/// Radicands below the cube of [`TRIAL_BOUND`] are known to be square-free.
const SURELY_SQUARE_FREE: u64 = 1_000_000_000_000;

/// `rational + Σ coefficient · sqrt(radicand)`.
///
/// Radicands are integers greater than one and pairwise independent (their products are not squares),
/// coefficients are never zero. The form is therefore unique, except for squares of large primes that remain
/// inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Real {
    rational: BigRational,
    roots: BTreeMap<BigUint, BigRational>,
}

impl From<BigRational> for Real {
    fn from(rational: BigRational) -> Self {
        Self { rational, roots: BTreeMap::new() }
    }
}

impl Real {
    pub(crate) fn zero() -> Self {
        BigRational::zero().into()
    }

    pub(crate) fn one() -> Self {
        BigRational::one().into()
    }

    pub(crate) fn small(value: i64) -> Self {
        exact::small(value).into()
    }

    pub(crate) fn rational(&self) -> &BigRational {
        &self.rational
    }

    pub(crate) fn roots(&self) -> &BTreeMap<BigUint, BigRational> {
        &self.roots
    }

    pub(crate) fn as_rational(&self) -> Option<&BigRational> {
        self.roots.is_empty().then_some(&self.rational)
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.roots.is_empty() && self.rational.is_zero()
    }

    pub(crate) fn is_one(&self) -> bool {
        self.roots.is_empty() && self.rational.is_one()
    }

    pub(crate) fn negated(&self) -> Self {
        Self {
            rational: -&self.rational,
            roots: self.roots.iter().map(|(radicand, factor)| (radicand.clone(), -factor)).collect(),
        }
    }

    pub(crate) fn add(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        let mut sum =
            Self { rational: exact::add(&self.rational, &other.rational, meter)?, roots: self.roots.clone() };
        for (radicand, factor) in &other.roots {
            sum.add_root(radicand.clone(), factor.clone(), meter)?;
        }
        Ok(sum)
    }

    pub(crate) fn subtract(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        self.add(&other.negated(), meter)
    }

    pub(crate) fn multiply(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        let mut product = Self::from(exact::multiply(&self.rational, &other.rational, meter)?);
        for (roots, rational) in [(&self.roots, &other.rational), (&other.roots, &self.rational)] {
            for (radicand, factor) in roots {
                product.add_root(radicand.clone(), exact::multiply(factor, rational, meter)?, meter)?;
            }
        }
        for (left, left_factor) in &self.roots {
            for (right, right_factor) in &other.roots {
                let factor = exact::multiply(left_factor, right_factor, meter)?;
                meter.spend(50 + 8 * ((left.bits() + right.bits()) / 64 + 1).pow(2))?;
                let common = left.gcd(right);
                let outside = BigRational::from_integer(common.clone().into());
                let radicand = (left / &common) * (right / &common);
                product.add_root(radicand, exact::multiply(&factor, &outside, meter)?, meter)?;
            }
        }
        Ok(product)
    }

    pub(crate) fn inverse(&self, meter: &mut Meter) -> Result<Self> {
        if self.is_zero() {
            return Err(MathsError::DivisionByZero);
        }
        if self.roots.is_empty() {
            return Ok(exact::divide(&BigRational::one(), &self.rational, meter)?.into());
        }
        let terms = self.roots.len() + usize::from(!self.rational.is_zero());
        if terms > 2 {
            return Err(MathsError::no_result("a division by a sum of more than two square roots"));
        }
        let mut conjugate = self.clone();
        if let (2, Some(last)) = (terms, conjugate.roots.values_mut().next_back()) {
            *last = -&*last;
        }
        let product = self.multiply(&conjugate, meter)?;
        let Some(norm) = product.as_rational() else {
            return Err(MathsError::no_result("a division by square roots that cannot be removed"));
        };
        let norm = exact::divide(&BigRational::one(), norm, meter)?;
        conjugate.multiply(&norm.into(), meter)
    }

    pub(crate) fn divide(&self, other: &Self, meter: &mut Meter) -> Result<Self> {
        self.multiply(&other.inverse(meter)?, meter)
    }

    /// An integer power; the exponent may be negative.
    pub(crate) fn power(&self, exponent: &BigInt, meter: &mut Meter) -> Result<Self> {
        if let Some(rational) = self.as_rational() {
            return Ok(exact::power(rational, exponent, meter)?.into());
        }
        let repetitions = exponent.magnitude().to_u32().ok_or_else(|| meter.too_many_bits())?;
        let base = if exponent.is_negative() { self.inverse(meter)? } else { self.clone() };
        exact::repeated(base, repetitions, Self::one(), |left, right| left.multiply(right, meter))
    }

    /// The square root of a non-negative rational number.
    pub(crate) fn square_root(&self, meter: &mut Meter) -> Result<Self> {
        let Some(rational) = self.as_rational() else {
            return Err(MathsError::no_result("a square root inside a square root"));
        };
        if rational.is_negative() {
            return Err(MathsError::no_result("the square root of a negative number is not real"));
        }
        if let Some(root) = exact::root(rational, 2, meter)? {
            return Ok(root.into());
        }
        let denominator = BigRational::from_integer(rational.denom().clone());
        let numerator = BigRational::from_integer(rational.numer().clone());
        let inside = exact::multiply(&numerator, &denominator, meter)?;
        let (outside, radicand) = take_squares_out(inside.numer().magnitude().clone(), meter)?;
        let factor = exact::divide(&BigRational::from_integer(outside.into()), &denominator, meter)?;
        let mut root = Self::zero();
        root.add_root(radicand, factor, meter)?;
        Ok(root)
    }

    pub(crate) fn sign(&self, meter: &mut Meter) -> Result<Ordering> {
        if self.roots.is_empty() {
            return Ok(self.rational.cmp(&BigRational::zero()));
        }
        for precision in [64_u32, 256, 1024, 4096, 16384] {
            let (mut low, mut high) = (BigInt::zero(), BigInt::zero());
            let floor = (self.rational.numer() << precision).div_floor(self.rational.denom());
            low += &floor;
            high += floor + 1;
            for (radicand, factor) in &self.roots {
                let size = words(factor.numer()) + words(factor.denom()) + u64::from(precision / 32);
                let size = size + radicand.bits() / 64;
                meter.spend(100 + 8 * size * size)?;
                let squared = factor.numer().magnitude().pow(2) * radicand;
                let scaled: BigUint = (squared << (2 * precision)) / factor.denom().magnitude().pow(2);
                let floor = BigInt::from(scaled.sqrt());
                if factor.is_negative() {
                    low -= &floor + 1;
                    high -= floor;
                } else {
                    low += &floor;
                    high += floor + 1;
                }
            }
            if low.sign() == Sign::Plus {
                return Ok(Ordering::Greater);
            }
            if high.sign() == Sign::Minus {
                return Ok(Ordering::Less);
            }
        }
        Err(MathsError::TooLarge { what: "bits needed to compare two numbers", limit: 16384 })
    }

    pub(crate) fn compare(&self, other: &Self, meter: &mut Meter) -> Result<Ordering> {
        self.subtract(other, meter)?.sign(meter)
    }

    /// Adds `factor · sqrt(radicand)`, keeping the invariants of the type.
    fn add_root(&mut self, radicand: BigUint, factor: BigRational, meter: &mut Meter) -> Result<()> {
        if factor.is_zero() {
            return Ok(());
        }
        if radicand.is_one() {
            self.rational = exact::add(&self.rational, &factor, meter)?;
            return Ok(());
        }
        meter.check_bits(radicand.bits())?;
        let (radicand, factor) = match self.relative(&radicand, meter)? {
            Some((present, ratio)) => (present, exact::multiply(&factor, &ratio, meter)?),
            None => (radicand, factor),
        };
        if radicand.is_one() {
            self.rational = exact::add(&self.rational, &factor, meter)?;
            return Ok(());
        }
        let sum = match self.roots.get(&radicand) {
            Some(present) => exact::add(present, &factor, meter)?,
            None => factor,
        };
        if sum.is_zero() {
            self.roots.remove(&radicand);
        } else {
            self.roots.insert(radicand, sum);
            meter.check_terms(self.roots.len().saturating_mul(16))?;
        }
        Ok(())
    }

    /// An existing radicand (or one) whose root is a rational multiple of the given one's.
    fn relative(&self, radicand: &BigUint, meter: &mut Meter) -> Result<Option<(BigUint, BigRational)>> {
        let doubtful = BigUint::from(SURELY_SQUARE_FREE);
        if self.roots.contains_key(radicand) {
            return Ok(None);
        }
        let candidates = std::iter::once(BigUint::one()).chain(self.roots.keys().cloned());
        for present in candidates {
            if *radicand < doubtful && present < doubtful {
                continue;
            }
            let product = &present * radicand;
            meter.spend(50 + 8 * (product.bits() / 64 + 1).pow(2))?;
            let root = product.sqrt();
            if &root * &root == product {
                let ratio = BigRational::new(root.into(), present.clone().into());
                return Ok(Some((present, ratio)));
            }
        }
        Ok(None)
    }
}

/// Writes a positive integer as `outside² · inside`.
fn take_squares_out(number: BigUint, meter: &mut Meter) -> Result<(BigUint, BigUint)> {
    let mut rest = number;
    let (mut outside, mut inside) = (BigUint::one(), BigUint::one());
    for divisor in std::iter::once(2).chain((3..TRIAL_BOUND).step_by(2)) {
        meter.spend(1 + rest.bits() / 64)?;
        let mut exponent = 0_u32;
        while (&rest % divisor).is_zero() {
            meter.spend(5 + rest.bits() / 64)?;
            rest /= divisor;
            exponent += 1;
        }
        if exponent > 0 {
            outside *= BigUint::from(divisor).pow(exponent / 2);
            inside *= BigUint::from(divisor).pow(exponent % 2);
        }
        // A number without a factor up to its cube root is a prime, a product of two primes, or a square.
        if rest.to_u64().is_some_and(|rest| u64::from(divisor).pow(3) > rest) {
            break;
        }
    }
    let root = Roots::sqrt(&rest);
    if &root * &root == rest {
        outside *= root;
    } else {
        inside *= rest;
    }
    Ok((outside, inside))
}
