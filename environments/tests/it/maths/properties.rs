//! Compares random queries with independent calculations.

use std::panic::catch_unwind;

use lumos_environments::maths::{MathsAnswer, answer, number, same_value};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, Zero};
use proptest::prelude::*;

/// An expression tree with its own evaluator.
#[derive(Debug, Clone)]
enum Tree {
    Whole(u32),
    Decimal(u32, u8),
    Percent(u32),
    Negative(Box<Tree>),
    Add(Box<Tree>, Box<Tree>),
    Subtract(Box<Tree>, Box<Tree>),
    Multiply(Box<Tree>, Box<Tree>, &'static str),
    Divide(Box<Tree>, Box<Tree>),
    Power(Box<Tree>, i8),
}

fn whole(value: impl Into<BigInt>) -> BigRational {
    BigRational::from_integer(value.into())
}

impl Tree {
    fn value(&self) -> Option<BigRational> {
        Some(match self {
            Self::Whole(value) => whole(*value),
            Self::Decimal(value, places) => whole(*value) / whole(10).pow(i32::from(*places)),
            Self::Percent(value) => whole(*value) / whole(100),
            Self::Negative(inner) => -inner.value()?,
            Self::Add(left, right) => left.value()? + right.value()?,
            Self::Subtract(left, right) => left.value()? - right.value()?,
            Self::Multiply(left, right, _) => left.value()? * right.value()?,
            Self::Divide(left, right) => {
                let divisor = right.value()?;
                if divisor.is_zero() {
                    return None;
                }
                left.value()? / divisor
            }
            Self::Power(base, exponent) => {
                let base = base.value()?;
                if base.is_zero() && *exponent <= 0 {
                    return None;
                }
                base.pow(i32::from(*exponent))
            }
        })
    }

    fn text(&self) -> String {
        match self {
            Self::Whole(value) => value.to_string(),
            Self::Decimal(value, places) => {
                let places = usize::from(*places);
                let digits = format!("{value:0>width$}", width = places + 1);
                let (whole, fraction) = digits.split_at(digits.len() - places);
                format!("{whole}.{fraction}")
            }
            Self::Percent(value) => format!("{value}%"),
            Self::Negative(inner) => format!("(-{})", inner.text()),
            Self::Add(left, right) => format!("({} + {})", left.text(), right.text()),
            Self::Subtract(left, right) => format!("({}-{})", left.text(), right.text()),
            Self::Multiply(left, right, sign) => format!("(({}){sign}({}))", left.text(), right.text()),
            Self::Divide(left, right) => format!("({} / {})", left.text(), right.text()),
            Self::Power(base, exponent) => format!("(({})^({exponent}))", base.text()),
        }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        (0_u32..2000).prop_map(Tree::Whole),
        (0_u32..100_000, 1_u8..5).prop_map(|(value, places)| Tree::Decimal(value, places)),
        (0_u32..300).prop_map(Tree::Percent),
    ];
    leaf.prop_recursive(5, 24, 2, |inner| {
        let pair = (inner.clone(), inner.clone()).prop_map(|(left, right)| (Box::new(left), Box::new(right)));
        prop_oneof![
            inner.clone().prop_map(|inner| Tree::Negative(Box::new(inner))),
            pair.clone().prop_map(|(left, right)| Tree::Add(left, right)),
            pair.clone().prop_map(|(left, right)| Tree::Subtract(left, right)),
            (pair.clone(), prop_oneof![Just("*"), Just(""), Just(" × "), Just(" ")])
                .prop_map(|((left, right), sign)| Tree::Multiply(left, right, sign)),
            pair.prop_map(|(left, right)| Tree::Divide(left, right)),
            (inner, -3_i8..4).prop_map(|(base, exponent)| Tree::Power(Box::new(base), exponent)),
        ]
    })
}

/// Sums, products and quotients without parentheses, which test the precedence of operators.
fn flat() -> impl Strategy<Value = (String, Option<BigRational>)> {
    let factor = (1_u32..50, prop_oneof![Just('*'), Just('/')]);
    let term = (prop_oneof![Just('+'), Just('-')], prop::collection::vec(factor, 1..4));
    prop::collection::vec(term, 1..5).prop_map(|terms| {
        let mut text = String::new();
        let mut sum = whole(0);
        for (sign, factors) in terms {
            text.push(sign);
            let mut product = whole(1);
            for (place, (factor, operator)) in factors.into_iter().enumerate() {
                if place > 0 {
                    text.push(operator);
                }
                text.push_str(&factor.to_string());
                let factor = whole(factor);
                product = if place > 0 && operator == '/' { product / factor } else { product * factor };
            }
            sum = if sign == '-' { sum - product } else { sum + product };
        }
        (text, Some(sum))
    })
}

fn one(query: &str) -> Result<String, TestCaseError> {
    match answer(query) {
        Ok(MathsAnswer::One(text)) => Ok(text),
        other => Err(TestCaseError::fail(format!("{query}: {other:?}"))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn expressions_have_their_value(tree in tree()) {
        let query = tree.text();
        match tree.value() {
            Some(value) => {
                let text = one(&query)?;
                prop_assert_eq!(number(&text), Some(value), "{} gave {}", query, text);
            }
            None => prop_assert!(answer(&query).is_err(), "{}", query),
        }
    }

    #[test]
    fn signs_bind_as_usual((text, value) in flat()) {
        prop_assert_eq!(number(&one(&text)?), value);
    }

    #[test]
    fn numbers_survive_printing(numerator in -1_000_000_000_000_i64..1_000_000_000_000, denominator in 1_i64..5000) {
        let value = BigRational::new(numerator.into(), denominator.into());
        let text = one(&format!("({numerator})/{denominator}"))?;
        prop_assert_eq!(number(&text), Some(value));
        prop_assert_eq!(one(&text)?, text);
    }

    #[test]
    fn polynomials_survive_printing(
        terms in prop::collection::vec((-40_i64..40, 1_u32..12, 0_u32..4, 0_u32..4), 1..7),
        divisor in 0_u32..3,
    ) {
        let sum: Vec<String> = terms
            .iter()
            .map(|(numerator, denominator, first, second)| {
                format!("({numerator}/{denominator}) * x^{first} * y^{second}")
            })
            .collect();
        let query = format!("Expand ({}) / x^{divisor}", sum.join(" + "));
        let text = one(&query)?;
        prop_assert_eq!(one(&text)?, text.clone(), "{}", &query);
        prop_assert!(same_value(&text, &query["Expand ".len()..]));
        for (x, y) in [(2, 3), (-1, 5), (7, -2)] {
            let value: BigRational = terms.iter().fold(whole(0), |sum, (numerator, denominator, first, second)| {
                let power = whole(x).pow(*first as i32) * whole(y).pow(*second as i32);
                sum + BigRational::new((*numerator).into(), (*denominator).into()) * power
            }) / whole(x).pow(divisor as i32);
            let text = one(&format!("Calculate {text}, where x={x}, y={y}"))?;
            prop_assert_eq!(number(&text), Some(value));
        }
    }

    #[test]
    fn square_roots_survive_printing(whole in -50_i64..50, factor in 1_i64..20, radicand in 1_u64..5000, divisor in 1_i64..9) {
        let text = one(&format!("({whole} - {factor} sqrt({radicand}))/{divisor}"))?;
        prop_assert_eq!(one(&text)?, text.clone());
        let back = one(&format!("((({text}) * {divisor} - ({whole}))/{factor})^2"))?;
        prop_assert_eq!(back, radicand.to_string());
    }

    #[test]
    fn linear_systems_hold_when_substituted_back(
        (rows, unknowns) in (1_usize..5).prop_flat_map(|unknowns| {
            let row = (prop::collection::vec(-9_i64..10, unknowns), -50_i64..50);
            (prop::collection::vec(row, 1..5), Just(unknowns))
        })
    ) {
        let names = ["a", "b", "c", "d"];
        let written: Vec<(String, i64)> = rows
            .iter()
            .map(|(factors, right)| {
                let terms = factors.iter().zip(names).map(|(factor, name)| format!("({factor}){name}"));
                (terms.collect::<Vec<_>>().join(" + "), *right)
            })
            .collect();
        let equations: Vec<String> = written.iter().map(|(left, right)| format!("{left} = {right}")).collect();
        let text = one(&format!("Solve {}", equations.join(", ")))?;
        let matrix: Vec<Vec<BigRational>> = rows
            .iter()
            .map(|(factors, right)| factors.iter().chain([right]).map(|value| whole(*value)).collect())
            .collect();
        match text.as_str() {
            "(no solutions exist)" => prop_assert!(rank(&matrix, unknowns + 1) > rank(&matrix, unknowns)),
            "True" => prop_assert!(matrix.iter().flatten().all(Zero::is_zero)),
            _ => {
                prop_assert_eq!(rank(&matrix, unknowns + 1), rank(&matrix, unknowns));
                let values = text.replace(" ∧ ", ", ");
                prop_assert_eq!(values.matches('=').count(), rank(&matrix, unknowns));
                for (left, right) in written {
                    let back = one(&format!("Calculate {left}, where {values}"))?;
                    prop_assert_eq!(back, right.to_string(), "{} in {}", values, left);
                }
            }
        }
    }

    #[test]
    fn quadratics_hold_when_substituted_back(square in 1_i64..6, linear in -20_i64..20, constant in -40_i64..40) {
        let left = format!("{square}x^2 + ({linear})x + ({constant})");
        let discriminant = linear * linear - 4 * square * constant;
        let found = answer(&format!("Solve {left} = 0")).map_err(|error| TestCaseError::fail(error.to_string()))?;
        if discriminant < 0 {
            prop_assert_eq!(found, MathsAnswer::One("(no solutions exist)".into()));
        } else {
            prop_assert_eq!(found.texts().len(), if discriminant == 0 { 1 } else { 2 });
            for root in found.texts() {
                prop_assert_eq!(one(&format!("Calculate {left}, where {root}"))?, "0");
            }
        }
    }

    #[test]
    fn inequalities_hold_inside_and_not_outside(
        factors in prop::collection::vec((-3_i64..4, -6_i64..7), 1..4),
        relation in prop_oneof![Just("<"), Just("<="), Just(">"), Just(">=")],
        point in -30_i64..30,
    ) {
        let product: Vec<String> = factors.iter().map(|(slope, shift)| format!("({slope}x + ({shift}))")).collect();
        let found = answer(&format!("Solve {} {relation} 0", product.join("*")))
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        let point = BigRational::new(point.into(), 4.into());
        let value = factors
            .iter()
            .fold(whole(1), |product, (slope, shift)| product * (whole(*slope) * &point + whole(*shift)));
        let expected = match relation {
            "<" => value.is_negative(),
            "<=" => !value.is_positive(),
            ">" => value.is_positive(),
            _ => !value.is_negative(),
        };
        let holds = |text: &String| match text.as_str() {
            "True" => true,
            "(no solutions exist)" => false,
            text => answer(&text.replace('x', &format!("({point})"))) == Ok(MathsAnswer::One("True".into())),
        };
        prop_assert_eq!(found.texts().iter().any(holds), expected, "{:?} at {}", found, point);
    }

    #[test]
    fn arbitrary_texts_do_not_panic(text in "\\PC*") {
        prop_assert!(catch_unwind(|| (answer(&text).is_ok(), number(&text).is_some(), same_value(&text, &text))).is_ok());
    }

    #[test]
    fn texts_of_known_parts_do_not_panic(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "Solve ", "Expand ", "Calculate ", ", where ", " and ", " for ", "x", "y", "xy", "R2", "hours", "sqrt",
                "abs", "1", "0", "2.5", "1,000", "1e9", "13", "(", ")", "(", ")", "+", "-", "*", "/", "^", "%", "!",
                "=", "<", ">=", "≠", ",", " ", ".", "$", "of", " x ", "∧", "²", "√", "i", "e",
            ]),
            0..24,
        )
    ) {
        let text = parts.concat();
        prop_assert!(catch_unwind(|| (answer(&text).is_ok(), same_value(&text, "x = 1"))).is_ok(), "{}", text);
    }
}

/// Returns the rank of the first columns of a matrix, by elimination.
fn rank(matrix: &[Vec<BigRational>], columns: usize) -> usize {
    let mut matrix = matrix.to_vec();
    let mut rank = 0;
    for column in 0..columns {
        let Some(pivot) = (rank..matrix.len()).find(|row| !matrix[*row][column].is_zero()) else {
            continue;
        };
        matrix.swap(rank, pivot);
        let pivot_row = matrix[rank].clone();
        for row in &mut matrix[rank + 1..] {
            let factor = &row[column] / &pivot_row[column];
            for (value, pivot) in row.iter_mut().zip(&pivot_row) {
                *value -= &factor * pivot;
            }
        }
        rank += 1;
    }
    rank
}
