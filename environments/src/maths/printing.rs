//! Formats values as text, in the format of the mathematics table.

use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

use super::fraction::Fraction;
use super::inequality::{End, Range};
use super::monomial::{Monomial, Variables};
use super::polynomial::Polynomial;
use super::solver::Solution;
use super::surd::Real;

/// The text of an empty set of solutions.
pub(crate) const NO_SOLUTIONS: &str = "(no solutions exist)";

/// The text of relations that always hold.
pub(crate) const ALWAYS: &str = "True";

/// `24`, `3.5`, `7/3`.
pub(crate) fn rational(value: &BigRational) -> String {
    terminating(value).unwrap_or_else(|| value.to_string())
}

/// The decimal form, if it terminates.
fn terminating(value: &BigRational) -> Option<String> {
    if value.denom().is_one() {
        return Some(value.numer().to_string());
    }
    let mut rest = value.denom().clone();
    let twos = rest.trailing_zeros().unwrap_or(0);
    rest >>= twos;
    let mut fives = 0_u64;
    let five = BigInt::from(5);
    while rest.is_multiple_of(&five) {
        rest /= &five;
        fives += 1;
    }
    if !rest.is_one() {
        return None;
    }
    let places = usize::try_from(twos.max(fives)).ok()?;
    let scale = BigInt::from(10).pow(u32::try_from(places).ok()?);
    let digits = (value.numer().abs() * scale / value.denom()).to_string();
    let padded = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = padded.split_at_checked(padded.len() - places)?;
    let sign = if value.is_negative() { "-" } else { "" };
    Some(format!("{sign}{whole}.{fraction}"))
}

/// `3.5`, `15 - sqrt(2)`, `(3 sqrt(2))/2`.
pub(crate) fn real(value: &Real) -> String {
    value.as_rational().map_or_else(|| joined(&real_terms(value, "")), rational)
}

/// The value of an expression: a number, a polynomial or a quotient.
pub(crate) fn fraction(value: &Fraction, variables: &Variables) -> String {
    if let Some(constant) = value.as_constant() {
        return real(&constant);
    }
    if let Some(polynomial) = value.as_polynomial() {
        return self::polynomial(polynomial, variables);
    }
    let denominator = value.denominator();
    if let (Some((monomial, _)), 1) = (denominator.leading(), denominator.len()) {
        let terms: Vec<Written> = value
            .numerator()
            .terms()
            .rev()
            .flat_map(|(own, coefficient)| {
                let common = own.common(monomial);
                let over = own.divide(&common).unwrap_or_default();
                let under = monomial.divide(&common).unwrap_or_default();
                coefficient_terms(coefficient, &over, &under, variables)
            })
            .collect();
        return joined(&terms);
    }
    let numerator = polynomial(value.numerator(), variables);
    format!("({numerator})/({})", polynomial(denominator, variables))
}

/// Terms by descending degree; `31 - y` rather than `-y + 31`.
pub(crate) fn polynomial(value: &Polynomial, variables: &Variables) -> String {
    let one = Monomial::default();
    let mut terms: Vec<Written> = value
        .terms()
        .rev()
        .flat_map(|(monomial, coefficient)| coefficient_terms(coefficient, monomial, &one, variables))
        .collect();
    if value.degree() == 1
        && terms.first().is_some_and(|term| term.negative)
        && let Some(place) = terms.iter().position(|term| !term.negative)
    {
        let positive = terms.remove(place);
        terms.insert(0, positive);
    }
    joined(&terms)
}

/// `x = 15 ∧ y = 40`.
pub(crate) fn solution(values: &Solution, variables: &Variables) -> String {
    values
        .iter()
        .map(|(variable, value)| format!("{} = {}", variables.name(*variable), fraction(value, variables)))
        .collect::<Vec<_>>()
        .join(" ∧ ")
}

/// `x>2`, `-1<x<=3`, `x = 3`.
pub(crate) fn range(range: &Range, name: &str) -> String {
    let sign = |end: &End| if end.included { "<=" } else { "<" };
    match (&range.lower, &range.upper) {
        (None, None) => ALWAYS.to_owned(),
        (Some(lower), None) => format!("{name}{}{}", sign(lower).replace('<', ">"), real(&lower.value)),
        (None, Some(upper)) => format!("{name}{}{}", sign(upper), real(&upper.value)),
        (Some(lower), Some(upper)) if lower == upper => format!("{name} = {}", real(&lower.value)),
        (Some(lower), Some(upper)) => {
            format!("{}{}{name}{}{}", real(&lower.value), sign(lower), sign(upper), real(&upper.value))
        }
    }
}

/// A term without its sign.
struct Written {
    negative: bool,
    body: String,
}

fn joined(terms: &[Written]) -> String {
    let mut text = String::new();
    for (place, Written { negative, body }) in terms.iter().enumerate() {
        text.push_str(match (place, negative) {
            (0, true) => "-",
            (0, false) => "",
            (_, true) => " - ",
            (_, false) => " + ",
        });
        text.push_str(body);
    }
    if text.is_empty() { "0".to_owned() } else { text }
}

/// One coefficient times a product of unknowns, over another.
fn coefficient_terms(
    coefficient: &Real,
    over: &Monomial,
    under: &Monomial,
    variables: &Variables,
) -> Vec<Written> {
    let over = product(over, variables);
    let mut terms = real_terms(coefficient, &over);
    if under.degree() == 0 {
        return terms;
    }
    let divisor = match under.powers().count() {
        1 => product(under, variables),
        _ => format!("({})", product(under, variables)),
    };
    for term in &mut terms {
        let simple = term.body.chars().all(|character| character.is_ascii_alphanumeric());
        term.body =
            if simple { format!("{}/{divisor}", term.body) } else { format!("({})/{divisor}", term.body) };
    }
    terms
}

/// `x^2 y`.
fn product(monomial: &Monomial, variables: &Variables) -> String {
    monomial
        .powers()
        .map(|(variable, exponent)| match exponent {
            1 => variables.name(variable).to_owned(),
            _ => format!("{}^{exponent}", variables.name(variable)),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// The parts of a number, each times a product of unknowns.
fn real_terms(value: &Real, product: &str) -> Vec<Written> {
    let rational = (!value.rational().is_zero()).then(|| term(value.rational(), None, product));
    let roots = value.roots().iter().map(|(radicand, factor)| term(factor, Some(radicand), product));
    rational.into_iter().chain(roots).collect()
}

fn term(factor: &BigRational, radicand: Option<&BigUint>, product: &str) -> Written {
    let mut parts = Vec::new();
    let numerator = factor.numer().magnitude();
    if !numerator.is_one() {
        parts.push(numerator.to_string());
    }
    parts.extend(radicand.map(|radicand| format!("sqrt({radicand})")));
    if !product.is_empty() {
        parts.push(product.to_owned());
    }
    let body = match parts.as_slice() {
        [] => "1".to_owned(),
        parts => parts.join(" "),
    };
    let body = match factor.denom() {
        denominator if denominator.is_one() => body,
        denominator if body.contains(' ') => format!("({body})/{denominator}"),
        denominator => format!("{body}/{denominator}"),
    };
    Written { negative: factor.is_negative(), body }
}
