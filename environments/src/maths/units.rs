//! Quantities such as `11 * 30 hours`: one unit, treated as an unknown during the computation.

use num_rational::BigRational;
use num_traits::{One, Zero};

use super::evaluate::evaluate;
use super::expression;
use super::fraction::Fraction;
use super::lexer::Token;
use super::limits::Meter;
use super::monomial::Variables;
use super::printing;
use super::{MathsError, Result};

/// A unit with its singular and plural form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    singular: &'static str,
    plural: &'static str,
}

macro_rules! units {
    ($($singular:literal $plural:literal),* $(,)?) => {
        &[$(Unit { singular: $singular, plural: $plural }),*]
    };
}

const UNITS: &[Unit] = units![
    "second" "seconds", "minute" "minutes", "hour" "hours", "day" "days", "week" "weeks",
    "month" "months", "year" "years", "inch" "inches", "foot" "feet", "yard" "yards",
    "mile" "miles", "centimeter" "centimeters", "meter" "meters", "kilometer" "kilometers",
    "ounce" "ounces", "pound" "pounds", "gram" "grams", "kilogram" "kilograms",
    "liter" "liters", "gallon" "gallons",
];

pub(crate) fn find(word: &str) -> Option<&'static Unit> {
    UNITS.iter().find(|unit| unit.singular == word || unit.plural == word)
}

/// Computes an expression that contains a unit; `None` if it contains none.
pub(crate) fn quantity(tokens: &[Token], meter: &mut Meter) -> Result<Option<String>> {
    let Some(unit) = tokens.iter().find_map(as_unit) else {
        return Ok(None);
    };
    if tokens.iter().any(|token| as_unit(token).is_some_and(|other| other != unit)) {
        return Err(MathsError::not_understood("two different units"));
    }
    if tokens.iter().any(|token| matches!(token, Token::Variable(_))) {
        return Err(MathsError::not_understood("a unit beside an unknown"));
    }
    let renamed: Vec<Token> = tokens
        .iter()
        .map(|token| if as_unit(token).is_some() { Token::Variable("u".into()) } else { token.clone() })
        .collect();
    let variables = Variables::of([renamed.as_slice()], meter)?;
    let expression = expression::parse(&renamed, &variables, meter)?;
    let value = evaluate(&expression, &[], meter)?;
    let Some(coefficient) = multiple_of_unit(&value) else {
        return Err(MathsError::not_understood("a unit that is not a factor of the whole"));
    };
    let name = if coefficient.is_one() { unit.singular } else { unit.plural };
    Ok(Some(format!("{} {name}", printing::rational(&coefficient))))
}

/// The number that a single unit is multiplied by.
fn multiple_of_unit(value: &Fraction) -> Option<BigRational> {
    let polynomial = value.as_polynomial()?;
    if polynomial.is_zero() {
        return Some(BigRational::zero());
    }
    match polynomial.univariate(0)?.as_slice() {
        [constant, linear] if constant.is_zero() => linear.as_rational().cloned(),
        _ => None,
    }
}

fn as_unit(token: &Token) -> Option<&'static Unit> {
    match token {
        Token::Unit(unit) => Some(unit),
        _ => None,
    }
}
