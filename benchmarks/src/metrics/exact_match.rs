//! Exact match of maths answers (upstream: the comparison at the end of `eval/gsm/run_eval.py` and
//! `eval/svamp/run_eval.py`).

use lumos_environments::maths::number;
use lumos_tasks::python::strip;
use lumos_tasks::{Outcome, Target};
use num_rational::BigRational;
use num_traits::Signed;

use super::text::normalise;
use super::{MetricDefinition, prediction};
use crate::score::{ItemScore, Scoring};

/// Fraction of items whose prediction equals the gold answer.
pub(crate) const EXACT_MATCH: MetricDefinition =
    MetricDefinition::proportion("exact_match", "share of items whose prediction is the gold answer");

/// Scores an outcome with a numeric gold answer. An item without a prediction is wrong. Returns `None` for a
/// fault.
pub(crate) fn score_number(target: &Target, outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
    if outcome.is_fault() {
        return None;
    }
    // The original compares a list with a string, which are never equal.
    let matched = prediction(outcome).is_some_and(|prediction| match scoring {
        Scoring::Paper => prediction == target.text(),
        Scoring::Corrected => same_answer(prediction, target.text()),
    });
    Some(ItemScore::met(EXACT_MATCH.name, matched))
}

/// Whether two answers are equal as numbers, or as strings if one of them is not a number.
fn same_answer(prediction: &str, gold: &str) -> bool {
    match (number(prediction), number(gold)) {
        (Some(left), Some(right)) => same_value((prediction, &left), (gold, &right)),
        _ => strip(prediction) == strip(gold),
    }
}

/// Whether two texts have the same value. If one of them is a fraction, the other one may be truncated.
fn same_value(prediction: (&str, &BigRational), gold: (&str, &BigRational)) -> bool {
    let (left, right) = (prediction.1, gold.1);
    left == right || is_fraction(prediction.0) != is_fraction(gold.0) && nearly_equal(left, right)
}

/// Largest accepted exponent of ten; numbers of 64 bits have at most 324.
const LARGEST_EXPONENT: u32 = 400;

/// Parses a number of a task file's data or of a prediction for it, which may have an exponent: `1e-6`.
pub(crate) fn value(text: &str) -> Option<BigRational> {
    number(text).or_else(|| {
        let (digits, exponent) = text.trim_end().split_once(['e', 'E'])?;
        let exponent: i32 = exponent.parse().ok()?;
        let is_decimal = digits.ends_with(|last: char| last.is_ascii_digit() || last == '.');
        if !is_decimal || is_fraction(digits) || exponent.unsigned_abs() > LARGEST_EXPONENT {
            return None;
        }
        Some(number(digits)? * BigRational::from_integer(10.into()).pow(exponent))
    })
}

/// Scores an answer of a task file's data: by value if both are numbers, with a tolerated relative difference, otherwise
/// as words.
pub(crate) fn score_value(target: &Target, outcome: &Outcome, tolerance: Option<f64>) -> Option<ItemScore> {
    if outcome.is_fault() {
        return None;
    }
    let gold = target.text();
    let matched = prediction(outcome).is_some_and(|prediction| match (value(prediction), value(gold)) {
        (Some(left), Some(right)) => {
            same_value((prediction, &left), (gold, &right))
                || tolerance.is_some_and(|tolerance| are_within(tolerance, &left, &right))
        }
        (None, None) => normalise(prediction) == normalise(gold),
        _ => false,
    });
    Some(ItemScore::met(EXACT_MATCH.name, matched))
}

/// Whether a number differs from the gold answer by at most this share of the gold answer.
fn are_within(tolerance: f64, prediction: &BigRational, gold: &BigRational) -> bool {
    BigRational::from_float(tolerance)
        .is_some_and(|tolerance| (prediction - gold).abs() <= gold.abs() * tolerance)
}

fn is_fraction(answer: &str) -> bool {
    answer.contains('/')
}

/// Whether two numbers differ by at most one millionth of the larger one.
fn nearly_equal(left: &BigRational, right: &BigRational) -> bool {
    let larger = left.abs().max(right.abs());
    (left - right).abs() * BigRational::from_integer(1_000_000.into()) <= larger
}

#[cfg(test)]
mod tests {
    use lumos_tasks::outcome::{PlanEvidence, Value};
    use lumos_tasks::{Ending, Evidence, Fault, FaultKind};

    use super::*;

    fn scored(prediction: Option<Value>, gold: &str, scoring: Scoring) -> Option<bool> {
        let outcome = Outcome {
            ending: Ending::Answered,
            evidence: Some(Evidence::Maths(PlanEvidence { prediction, ..PlanEvidence::default() })),
            steps: Vec::new(),
        };
        let target = Target::Number { answer: gold.to_owned() };
        score_number(&target, &outcome, scoring).map(|score| score.is_full(&EXACT_MATCH))
    }

    fn both(prediction: &str, gold: &str) -> [bool; 2] {
        Scoring::ALL.map(|scoring| scored(Some(prediction.into()), gold, scoring).unwrap())
    }

    #[test]
    fn texts_in_paper_scoring_and_values_in_corrected_scoring() {
        assert_eq!(both("18", "18"), [true, true]);
        assert_eq!(both("18.0", "18"), [false, true]);
        assert_eq!(both(" 18", "18"), [false, true]);
        assert_eq!(both("1,234", "1234"), [false, true]);
        assert_eq!(both("$5", "5"), [false, true]);
        assert_eq!(both("1/2", "0.5"), [false, true]);
        assert_eq!(both("19", "18"), [false, false]);
        assert_eq!(both("x = 18", "18"), [false, false]);
        assert_eq!(both("", "0"), [false, false]);
        assert_eq!(both("-0", "0"), [false, true]);
    }

    #[test]
    fn numbers_of_own_data_may_have_an_exponent() {
        let exact = |text: &str| number(text).unwrap();
        assert_eq!(value("1e-6"), Some(exact("0.000001")));
        assert_eq!(value(" -2.5E+3 "), Some(exact("-2500")));
        assert_eq!((value("1e300").is_some(), value("18")), (true, Some(exact("18"))));
        for refused in
            ["e5", "1e", "1e5.5", "1e401", "1e99999999999", "1/2e5", "5%e2", "1 e5", "one", "1e5 m"]
        {
            assert_eq!(value(refused), None, "{refused}");
        }
        // Answers of the published benchmarks are read as before.
        assert_eq!(both("1e-6", "0.000001"), [false, false]);
    }

    #[test]
    fn a_decimal_may_be_a_fraction_cut_short() {
        assert_eq!(both("7/3", "2.3333333"), [false, true]);
        assert_eq!(both("7/3", "2.333"), [false, false]);
        assert_eq!(both("2.9999999", "3"), [false, false], "two decimals are compared exactly");
    }

    #[test]
    fn lists_and_missing_predictions_are_wrong_and_faults_are_not_scored() {
        let list = Value::List(vec![Some("18".to_owned())]);
        assert_eq!(scored(Some(list), "18", Scoring::Corrected), Some(false));
        assert_eq!(scored(None, "18", Scoring::Paper), Some(false));
        let fault = Fault { kind: FaultKind::Model, message: "gone".to_owned() };
        let outcome = Outcome { ending: Ending::Faulted(fault), evidence: None, steps: Vec::new() };
        let target = Target::Number { answer: "18".to_owned() };
        assert_eq!(score_number(&target, &outcome, Scoring::Paper), None);
    }
}
