//! Classifies a query and answers it: an expression, a statement, a quantity, or equations to solve.

use super::evaluate::{divisors, evaluate};
use super::expression;
use super::fraction::Fraction;
use super::inequality::{self, Condition};
use super::lexer::{self, Keyword, Reading, Relation, Token};
use super::limits::{Meter, within};
use super::monomial::{Variable, Variables};
use super::polynomial::Polynomial;
use super::printing;
use super::solver::{self, Solutions};
use super::units;
use super::{MathsAnswer, MathsError, Result};

/// Answers one query.
pub(crate) fn answer(text: &str, meter: &mut Meter) -> Result<MathsAnswer> {
    within("bytes of input", text.len(), meter.limits().input_bytes)?;
    let reading = match text.trim_start().get(..5) {
        Some(word) if word.eq_ignore_ascii_case("solve") => Reading::Equation,
        _ => Reading::Value,
    };
    let tokens = lexer::tokens(text, reading, meter)?;
    match tokens.split_first() {
        None => Err(MathsError::not_understood("an empty query")),
        Some((Token::Keyword(Keyword::Solve), rest)) => solve(rest, meter),
        Some((Token::Keyword(Keyword::Expand | Keyword::Calculate), rest)) => value(rest, meter),
        Some(_) => match units::quantity(&tokens, meter)? {
            Some(quantity) => Ok(MathsAnswer::One(quantity)),
            None => value(&tokens, meter),
        },
    }
}

/// An expression, optionally with values for its unknowns, or a relation between numbers.
fn value(tokens: &[Token], meter: &mut Meter) -> Result<MathsAnswer> {
    let variables = Variables::of([tokens], meter)?;
    let (body, bindings) = with_bindings(tokens, &variables, meter)?;
    if body.iter().any(is_relation) {
        return statement(body, &variables, meter);
    }
    let expression = expression::parse(body, &variables, meter)?;
    let value = evaluate(&expression, &bindings, meter)?;
    value.numerator().spend_for_printing(meter)?;
    value.denominator().spend_for_printing(meter)?;
    Ok(MathsAnswer::One(printing::fraction(&value, &variables)))
}

/// `2 + 3 = 5`: numbers only. A false statement and an equation with unknowns have no result.
fn statement(tokens: &[Token], variables: &Variables, meter: &mut Meter) -> Result<MathsAnswer> {
    if variables.len() > 0 {
        return Err(MathsError::not_understood("an equation or inequality without \"Solve\""));
    }
    for condition in chain(tokens, variables, meter)? {
        if !holds(&condition, meter)? {
            return Err(MathsError::no_result("the statement is false"));
        }
    }
    Ok(MathsAnswer::One(printing::ALWAYS.to_owned()))
}

fn holds(condition: &Condition, meter: &mut Meter) -> Result<bool> {
    match condition.difference.as_constant() {
        Some(value) => Ok(condition.relation.admits(value.sign(meter)?)),
        None => Ok(false),
    }
}

/// `expression, where x=2, y=3`: the expression and the values by unknown.
fn with_bindings<'a>(
    tokens: &'a [Token],
    variables: &Variables,
    meter: &mut Meter,
) -> Result<(&'a [Token], Vec<Option<Fraction>>)> {
    let mut bindings = vec![None; variables.len()];
    let Some((body, list)) = split_where(tokens)? else {
        return Ok((tokens, bindings));
    };
    for item in items(list) {
        let [Token::Variable(name), Token::Relation(Relation::Equal), value @ ..] = item else {
            return Err(MathsError::not_understood("something other than values after \"where\""));
        };
        let value = evaluate(&expression::parse(value, variables, meter)?, &bindings, meter)?;
        match variables.find(name).and_then(|variable| bindings.get_mut(variable)) {
            Some(place @ None) => *place = Some(value),
            _ => return Err(MathsError::not_understood(format!("two values for {name}"))),
        }
    }
    Ok((body, bindings))
}

type Halves<'a> = (&'a [Token], &'a [Token]);

/// The tokens before and after `, where`.
fn split_where(tokens: &[Token]) -> Result<Option<Halves<'_>>> {
    let mut parts = tokens.split(|token| *token == Token::Where);
    let (Some(body), Some(list)) = (parts.next(), parts.next()) else {
        return Ok(None);
    };
    if parts.next().is_some() {
        return Err(MathsError::not_understood("more than one \"where\""));
    }
    Ok(Some((body.strip_suffix(&[Token::Comma]).unwrap_or(body), list)))
}

/// Splits at commas and "and", outside parentheses; `, and` separates once.
fn items(tokens: &[Token]) -> Vec<&[Token]> {
    let mut items = Vec::new();
    let mut depth = 0_usize;
    let mut start = 0;
    let mut after_comma = false;
    for (position, token) in tokens.iter().enumerate() {
        match token {
            Token::Open => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            Token::And if after_comma && depth == 0 => start = position + 1,
            Token::Comma | Token::And if depth == 0 => {
                items.push(tokens.get(start..position).unwrap_or_default());
                start = position + 1;
            }
            _ => {}
        }
        after_comma = *token == Token::Comma;
    }
    items.push(tokens.get(start..).unwrap_or_default());
    items
}

fn is_relation(token: &Token) -> bool {
    matches!(token, Token::Relation(_))
}

fn solve(tokens: &[Token], meter: &mut Meter) -> Result<MathsAnswer> {
    let variables = Variables::of([tokens], meter)?;
    let (tokens, targets) = split_targets(tokens, &variables)?;
    let (body, list) = split_where(tokens)?.unwrap_or((tokens, &[]));
    if !body.iter().any(is_relation) {
        return match list {
            [] => Err(MathsError::no_result("nothing to solve: there is no equation")),
            _ => value(tokens, meter),
        };
    }
    let mut relations = items(body);
    if !list.is_empty() {
        relations.extend(items(list));
    }
    within("relations", relations.len(), meter.limits().relations)?;
    let mut conditions = Vec::new();
    for relation in relations {
        conditions.extend(chain(relation, &variables, meter)?);
    }
    within("relations", conditions.len(), meter.limits().relations)?;
    if conditions.iter().all(|condition| condition.relation == Relation::Equal) {
        equations(&conditions, &targets, &variables, meter)
    } else {
        inequalities(&conditions, &variables, meter)
    }
}

/// Removes `for x, y` from the end.
fn split_targets<'a>(tokens: &'a [Token], variables: &Variables) -> Result<(&'a [Token], Vec<Variable>)> {
    let Some(place) = tokens.iter().position(|token| *token == Token::For) else {
        return Ok((tokens, Vec::new()));
    };
    let body = tokens.get(..place).unwrap_or_default();
    let list = tokens.get(place + 1..).unwrap_or_default();
    let targets = items(list).into_iter().map(|item| match item {
        [Token::Variable(name)] => variables.find(name),
        _ => None,
    });
    match targets.collect() {
        Some(targets) => Ok((body, targets)),
        None => Err(MathsError::not_understood("something other than unknowns after \"for\"")),
    }
}

/// `a < b <= c` as conditions on neighbours. The whole may be in parentheses.
fn chain(tokens: &[Token], variables: &Variables, meter: &mut Meter) -> Result<Vec<Condition>> {
    let tokens = without_outer_parentheses(tokens);
    let relations = tokens.iter().filter_map(|token| match token {
        Token::Relation(relation) => Some(*relation),
        _ => None,
    });
    within("relations", relations.clone().count(), meter.limits().relations)?;
    let mut sides = Vec::new();
    for side in tokens.split(is_relation) {
        let expression = expression::parse(side, variables, meter)?;
        sides.push((evaluate(&expression, &[], meter)?, divisors(&expression, meter)?));
    }
    let mut conditions = Vec::new();
    for (relation, pair) in relations.zip(sides.windows(2)) {
        if let [(left, left_divisors), (right, right_divisors)] = pair {
            let difference = left.subtract(right, meter)?;
            let divisors = [left_divisors.as_slice(), right_divisors.as_slice()].concat();
            conditions.push(Condition { difference, relation, divisors });
        }
    }
    if conditions.is_empty() {
        return Err(MathsError::not_understood("an expression where an equation should stand"));
    }
    Ok(conditions)
}

/// Removes parentheses only if they enclose the whole relation: those of `(x + 1)(y)` do not match each
/// other.
fn without_outer_parentheses(tokens: &[Token]) -> &[Token] {
    let mut tokens = tokens;
    while let [Token::Open, inner @ .., Token::Close] = tokens {
        let mut depth = 0_usize;
        let around = inner.iter().any(|token| {
            match token {
                Token::Open => depth += 1,
                Token::Close => depth = depth.saturating_sub(1),
                _ => {}
            }
            is_relation(token) && depth == 0
        });
        let mut open = 0_i64;
        let balanced = inner.iter().all(|token| {
            open += match token {
                Token::Open => 1,
                Token::Close => -1,
                _ => 0,
            };
            open >= 0
        });
        if !around || !balanced {
            break;
        }
        tokens = inner;
    }
    tokens
}

fn equations(
    conditions: &[Condition],
    targets: &[Variable],
    variables: &Variables,
    meter: &mut Meter,
) -> Result<MathsAnswer> {
    let differences: Vec<Fraction> =
        conditions.iter().map(|condition| condition.difference.clone()).collect();
    let divisors: Vec<Polynomial> =
        conditions.iter().flat_map(|condition| condition.divisors.clone()).collect();
    // The service solves one equation for its last unknown and a system for its first ones.
    let mut order: Vec<Variable> = (0..variables.len()).collect();
    if differences.len() == 1 {
        order.reverse();
    }
    order.sort_by_key(|variable| !targets.contains(variable));
    Ok(match solver::solve(&differences, &divisors, &order, meter)? {
        Solutions::Everything => MathsAnswer::One(printing::ALWAYS.to_owned()),
        Solutions::These(solutions) => {
            listed(solutions.iter().map(|solution| printing::solution(solution, variables)).collect())
        }
    })
}

fn inequalities(conditions: &[Condition], variables: &Variables, meter: &mut Meter) -> Result<MathsAnswer> {
    match variables.len() {
        0 => {
            for condition in conditions {
                if !holds(condition, meter)? {
                    return Ok(listed(Vec::new()));
                }
            }
            Ok(MathsAnswer::One(printing::ALWAYS.to_owned()))
        }
        1 => {
            let ranges = inequality::ranges(conditions, 0, meter)?;
            let name = variables.name(0);
            Ok(listed(ranges.iter().map(|range| printing::range(range, name)).collect()))
        }
        _ => match conditions {
            [condition] => half_plane(condition, variables, meter),
            _ => Err(MathsError::no_result("inequalities beside other relations in several unknowns")),
        },
    }
}

/// One linear inequality in several unknowns, solved for the last: `y>5 - x`.
fn half_plane(condition: &Condition, variables: &Variables, meter: &mut Meter) -> Result<MathsAnswer> {
    let unsolved = || MathsError::no_result("an inequality in several unknowns that is not linear");
    let difference = condition.difference.as_polynomial().ok_or_else(unsolved)?;
    let variable = difference.variables().last().copied().ok_or_else(unsolved)?;
    let coefficients = difference.coefficients_in(variable, meter)?;
    let [constant, factor] = coefficients.as_slice() else {
        return Err(unsolved());
    };
    let factor = factor.as_constant().ok_or_else(unsolved)?;
    let bound = constant.negated().scale(&factor.inverse(meter)?, meter)?;
    let relation = match (factor.sign(meter)?, condition.relation) {
        (std::cmp::Ordering::Less, relation) => relation.reversed(),
        (_, relation) => relation,
    };
    let (name, sign) = (variables.name(variable), relation.text());
    Ok(MathsAnswer::One(format!("{name}{sign}{}", printing::fraction(&bound.into(), variables))))
}

fn listed(mut texts: Vec<String>) -> MathsAnswer {
    match texts.len() {
        0 => MathsAnswer::One(printing::NO_SOLUTIONS.to_owned()),
        1 => MathsAnswer::One(texts.remove(0)),
        _ => MathsAnswer::Many(texts),
    }
}
