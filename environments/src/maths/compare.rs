//! Compares answers by value.
//!
//! [`same_value`] accepts numbers, expressions with unknowns, equations and inequalities; anything else is
//! compared as text.

use super::Result;
use super::evaluate::evaluate;
use super::expression;
use super::fraction::Fraction;
use super::lexer::{self, Reading, Relation, Token};
use super::limits::{MathsLimits, Meter};
use super::monomial::Variables;
use super::number::number;
use super::roots::position;

/// Whether two answers have the same value, as the mathematics table compares them.
///
/// - numbers by value, as [`number`] reads them or as expressions: `0.5`, `1/2`, `50%`; irrational ones
///   too: `sqrt(8)` and `2 sqrt(2)`;
/// - expressions with unknowns as polynomials (or quotients of such): `8 x - 16` and `8(x - 2)`;
/// - `x = a ∧ y = b` part by part in any order: the left sides must be the same, the right sides of the
///   same value. An equation rewritten (`2 x = 8` for `x = 4`) is not the same answer;
/// - inequalities by their bounds, read from either side: `x>2` and `2 < x`;
/// - anything else (`(no solutions exist)`, `330 hours`) as text, without regard to case and white space.
///
/// Several subpods are compared one by one by the caller.
pub fn same_value(left: &str, right: &str) -> bool {
    if let (Some(left), Some(right)) = (number(left), number(right)) {
        return left == right;
    }
    let mut meter = Meter::new(MathsLimits::default());
    if let Ok(same) = same_meaning(left, right, &mut meter) {
        return same;
    }
    let limit = meter.limits().input_bytes;
    left.len() <= limit && right.len() <= limit && plain(left) == plain(right)
}

fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

fn same_meaning(left: &str, right: &str, meter: &mut Meter) -> Result<bool> {
    let left = lexer::tokens(left, Reading::Equation, meter)?;
    let right = lexer::tokens(right, Reading::Equation, meter)?;
    let variables = Variables::of([left.as_slice(), right.as_slice()], meter)?;
    let left = parts(&left, &variables, meter)?;
    let mut right = parts(&right, &variables, meter)?;
    if left.len() != right.len() {
        return Ok(false);
    }
    for part in left {
        let place = position(&right, |candidate| part.same(candidate, meter))?;
        if place == right.len() {
            return Ok(false);
        }
        right.swap_remove(place);
    }
    Ok(true)
}

/// A value on its own, or a relation between two.
enum Part {
    Value(Fraction),
    Pair(Fraction, Relation, Fraction),
}

impl Part {
    fn same(&self, other: &Self, meter: &mut Meter) -> Result<bool> {
        match (self, other) {
            (Self::Value(left), Self::Value(right)) => left.same(right, meter),
            (Self::Pair(left, relation, right), Self::Pair(other_left, other_relation, other_right)) => {
                Ok(relation == other_relation
                    && left.same(other_left, meter)?
                    && right.same(other_right, meter)?)
            }
            _ => Ok(false),
        }
    }
}

/// The parts joined by `∧`. Chained relations are split, and inequalities are oriented towards the greater
/// side.
fn parts(tokens: &[Token], variables: &Variables, meter: &mut Meter) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for item in tokens.split(|token| *token == Token::And) {
        let mut sides = item.split(|token| matches!(token, Token::Relation(_)));
        let mut left = side(sides.next().unwrap_or_default(), variables, meter)?;
        let mut related = false;
        let relations = item.iter().filter_map(|token| match token {
            Token::Relation(relation) => Some(*relation),
            _ => None,
        });
        for (relation, next) in relations.zip(sides) {
            related = true;
            let right = side(next, variables, meter)?;
            parts.push(match relation {
                Relation::Greater | Relation::GreaterOrEqual => {
                    Part::Pair(right.clone(), relation.reversed(), left)
                }
                _ => Part::Pair(left, relation, right.clone()),
            });
            left = right;
        }
        if !related {
            parts.push(Part::Value(left));
        }
    }
    Ok(parts)
}

fn side(tokens: &[Token], variables: &Variables, meter: &mut Meter) -> Result<Fraction> {
    evaluate(&expression::parse(tokens, variables, meter)?, &[], meter)
}
