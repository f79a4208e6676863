//! Solves equations and systems of equations.
//!
//! Unknowns that occur linearly are eliminated by substitution; an equation with one remaining unknown is
//! solved by its roots, and every root is followed separately.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::fraction::Fraction;
use super::limits::{Meter, within};
use super::monomial::Variable;
use super::polynomial::Polynomial;
use super::roots;
use super::surd::Real;
use super::{MathsError, Result};

/// Values of the solved unknowns in terms of the free ones.
pub(crate) type Solution = BTreeMap<Variable, Fraction>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Solutions {
    /// Every value satisfies the equations.
    Everything,
    /// The solutions over the real numbers, ascending; may be empty.
    These(Vec<Solution>),
}

#[derive(Debug, Clone)]
struct State {
    equations: Vec<Polynomial>,
    values: BTreeMap<Variable, Polynomial>,
}

/// Solves `difference = 0` for all differences together, eliminating unknowns in the given order. Solutions
/// that make a divisor zero are excluded.
pub(crate) fn solve(
    differences: &[Fraction],
    divisors: &[Polynomial],
    order: &[Variable],
    meter: &mut Meter,
) -> Result<Solutions> {
    if let [difference] = differences
        && let Some(solution) = isolated(difference, order, meter)?
    {
        return Ok(Solutions::These(vec![solution]));
    }
    let equations = differences.iter().map(|difference| difference.numerator().clone()).collect();
    let mut open = vec![State { equations, values: BTreeMap::new() }];
    let mut solved = Vec::new();
    let mut everything = false;
    while let Some(mut state) = open.pop() {
        within("solutions followed at the same time", open.len() + solved.len(), meter.limits().branches)?;
        state.equations.retain(|equation| !equation.is_zero());
        if state.equations.iter().any(|equation| equation.as_constant().is_some()) {
            continue;
        }
        if state.equations.is_empty() {
            everything |= state.values.is_empty();
            if allowed(&state.values, divisors, meter)? {
                solved.push(state.values);
            }
        } else if let Some((variable, value)) = linear(&state.equations, order, meter)? {
            open.push(state.with(variable, &value, meter)?);
        } else if let Some((variable, coefficients)) = in_one_unknown(&state.equations) {
            for root in roots::real_roots(&coefficients, meter)? {
                open.push(state.clone().with(variable, &Polynomial::constant(root), meter)?);
            }
        } else if let Some(equations) = combined(&state.equations, meter)? {
            open.push(State { equations, ..state });
        } else {
            return Err(MathsError::no_result("equations that substitution does not solve"));
        }
    }
    if everything && !solved.is_empty() {
        return Ok(Solutions::Everything);
    }
    Ok(Solutions::These(in_order(solved, meter)?.into_iter().map(as_fractions).collect()))
}

impl State {
    /// Substitutes a value everywhere and records it.
    fn with(mut self, variable: Variable, value: &Polynomial, meter: &mut Meter) -> Result<Self> {
        for polynomial in self.equations.iter_mut().chain(self.values.values_mut()) {
            *polynomial = polynomial.substitute(variable, value, meter)?;
        }
        self.values.insert(variable, value.clone());
        Ok(self)
    }
}

fn as_fractions(values: BTreeMap<Variable, Polynomial>) -> Solution {
    values.into_iter().map(|(variable, value)| (variable, value.into())).collect()
}

/// The first unknown, in order, that occurs linearly with a number as its coefficient, and its value.
fn linear(
    equations: &[Polynomial],
    order: &[Variable],
    meter: &mut Meter,
) -> Result<Option<(Variable, Polynomial)>> {
    for variable in order {
        for equation in equations {
            let coefficients = equation.coefficients_in(*variable, meter)?;
            let [constant, factor] = coefficients.as_slice() else {
                continue;
            };
            if let Some(factor) = factor.as_constant() {
                let value = constant.negated().scale(&factor.inverse(meter)?, meter)?;
                return Ok(Some((*variable, value)));
            }
        }
    }
    Ok(None)
}

fn in_one_unknown(equations: &[Polynomial]) -> Option<(Variable, Vec<Real>)> {
    equations.iter().find_map(|equation| {
        let unknowns = equation.variables();
        let variable = unknowns.first().copied().filter(|_| unknowns.len() == 1)?;
        Some((variable, equation.univariate(variable)?))
    })
}

/// A single equation in several unknowns, one of which occurs linearly with other unknowns as its
/// coefficient: `x*y = 12` gives `y = 12/x`.
fn isolated(difference: &Fraction, order: &[Variable], meter: &mut Meter) -> Result<Option<Solution>> {
    let equation = difference.numerator();
    if equation.variables().len() < 2 || linear(std::slice::from_ref(equation), order, meter)?.is_some() {
        return Ok(None);
    }
    for variable in order {
        if let [constant, factor] = equation.coefficients_in(*variable, meter)?.as_slice() {
            let value = Fraction::new(constant.negated(), factor, meter)?;
            return Ok(Some(BTreeMap::from([(*variable, value)])));
        }
    }
    Ok(None)
}

/// Eliminates products of unknowns as if each were an unknown: the sum and the difference of `x^2 + y^2 = 25`
/// and `x^2 - y^2 = 7` contain one unknown each. `None` if that changes nothing.
fn combined(equations: &[Polynomial], meter: &mut Meter) -> Result<Option<Vec<Polynomial>>> {
    let mut reduced: Vec<Polynomial> = Vec::with_capacity(equations.len());
    for equation in equations {
        let mut rest = equation.clone();
        for pivot in &reduced {
            rest = without_leading(&rest, pivot, meter)?;
        }
        if rest.is_zero() {
            continue;
        }
        for pivot in &mut reduced {
            *pivot = without_leading(pivot, &rest, meter)?;
        }
        reduced.push(rest);
    }
    let changed =
        reduced.len() != equations.len() || reduced.iter().zip(equations).any(|(new, old)| new != old);
    Ok(changed.then_some(reduced))
}

/// Subtracts a multiple of the pivot so that its leading product of unknowns vanishes.
fn without_leading(equation: &Polynomial, pivot: &Polynomial, meter: &mut Meter) -> Result<Polynomial> {
    let Some((monomial, leading)) = pivot.leading() else {
        return Ok(equation.clone());
    };
    let Some(coefficient) = equation.coefficient(monomial) else {
        return Ok(equation.clone());
    };
    let factor = coefficient.divide(leading, meter)?;
    equation.subtract(&pivot.scale(&factor, meter)?, meter)
}

/// Whether no divisor of the equations vanishes.
fn allowed(
    values: &BTreeMap<Variable, Polynomial>,
    divisors: &[Polynomial],
    meter: &mut Meter,
) -> Result<bool> {
    for divisor in divisors {
        let mut divisor = divisor.clone();
        for (variable, value) in values {
            divisor = divisor.substitute(*variable, value, meter)?;
        }
        if divisor.is_zero() {
            return Ok(false);
        }
    }
    Ok(true)
}

type Values = BTreeMap<Variable, Polynomial>;

fn in_order(solutions: Vec<Values>, meter: &mut Meter) -> Result<Vec<Values>> {
    let mut sorted: Vec<Values> = Vec::with_capacity(solutions.len());
    for solution in solutions {
        let place =
            roots::position(&sorted, |present| Ok(compare(&solution, present, meter)? == Ordering::Less))?;
        sorted.insert(place, solution);
    }
    Ok(sorted)
}

/// Orders by the value of the first unknown that differs; values that contain unknowns count as equal.
fn compare(left: &Values, right: &Values, meter: &mut Meter) -> Result<Ordering> {
    for (left, right) in left.values().zip(right.values()) {
        if let (Some(left), Some(right)) = (left.as_constant(), right.as_constant()) {
            let ordering = left.compare(&right, meter)?;
            if ordering != Ordering::Equal {
                return Ok(ordering);
            }
        }
    }
    Ok(Ordering::Equal)
}
