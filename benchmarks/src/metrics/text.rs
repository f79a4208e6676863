//! Comparison of short answers (upstream `normalize_answer` and `f1_score` in `eval/hotpotqa/run_eval.py`,
//! which are those of the HotpotQA and SQuAD evaluation scripts).

use std::collections::HashMap;
use std::sync::LazyLock;

use lumos_tasks::python::is_space;
use lumos_tasks::{Outcome, Target};
use regex::Regex;

use super::{EXACT_MATCH, MetricDefinition, prediction};
use crate::score::{ItemScore, Scoring, Share};

/// Mean F1 of the predictions' words.
pub(crate) const F1: MetricDefinition =
    MetricDefinition::unit_mean("f1", "mean F1 between the words of prediction and gold answer");

/// Normalises an answer: lower case, without punctuation and articles, words separated by single blanks.
pub(crate) fn normalise(answer: &str) -> String {
    // Characters matched by Python's `\w`: letters, numbers and the underscore.
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[\p{L}\p{N}_]+").expect("a valid pattern"));
    let plain: String =
        answer.to_lowercase().chars().filter(|character| !character.is_ascii_punctuation()).collect();
    let without_articles = WORD.replace_all(&plain, |word: &regex::Captures<'_>| match &word[0] {
        "a" | "an" | "the" => " ".to_owned(),
        other => other.to_owned(),
    });
    words(&without_articles).collect::<Vec<_>>().join(" ")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

/// F1 between the words of two answers. `yes`, `no` and `noanswer` must match exactly.
pub(crate) fn f1(prediction: &str, gold: &str) -> f64 {
    let (prediction, gold) = (normalise(prediction), normalise(gold));
    let whole = |answer: &str| matches!(answer, "yes" | "no" | "noanswer");
    if prediction != gold && (whole(&prediction) || whole(&gold)) {
        return 0.0;
    }
    let mut left: HashMap<&str, usize> = HashMap::new();
    for word in words(&gold) {
        *left.entry(word).or_default() += 1;
    }
    let mut same = 0usize;
    for word in words(&prediction) {
        if let Some(count) = left.get_mut(word).filter(|count| **count > 0) {
            *count -= 1;
            same += 1;
        }
    }
    if same == 0 {
        return 0.0;
    }
    let precision = same as f64 / words(&prediction).count() as f64;
    let recall = same as f64 / words(&gold).count() as f64;
    2.0 * precision * recall / (precision + recall)
}

/// Scores an outcome with a short gold answer. An item without a prediction is wrong. Returns `None` for a
/// fault. Both scorings are equal.
pub(crate) fn score_words(target: &Target, outcome: &Outcome) -> Option<ItemScore> {
    if outcome.is_fault() {
        return None;
    }
    let gold = target.text();
    let (matched, f1) = match prediction(outcome) {
        Some(prediction) => (normalise(prediction) == normalise(gold), f1(prediction, gold)),
        None => (false, 0.0),
    };
    Some(ItemScore::met(EXACT_MATCH.name, matched).with(F1.name, Share::once(f1)))
}

/// Fraction of items whose yes-or-no prediction matches the gold answer.
pub(crate) const ACCURACY: MetricDefinition =
    MetricDefinition::proportion("accuracy", "share of items answered yes or no as the gold answer says");

/// Interprets the prediction of an episode with tools: `yes` anywhere in it counts as yes (upstream
/// `eval/strategyqa/run_eval.py`).
pub(crate) fn says_yes(prediction: &str) -> bool {
    prediction.to_lowercase().contains("yes")
}

/// Scores an outcome whose gold answer is yes or no; `None` for a fault.
///
/// Paper scoring compares the answer of a single model as a string with `True` or `False`, and interprets a
/// prediction of an episode with tools as yes if it contains `yes`. Corrected scoring uses the first word of
/// both, which must be yes, no, true or false.
pub(crate) fn score_yes_or_no(target: &Target, outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
    if outcome.is_fault() {
        return None;
    }
    let gold = target.text();
    let matched = prediction(outcome).is_some_and(|prediction| match scoring {
        Scoring::Paper if has_subgoals(outcome) => {
            (if says_yes(prediction) { "true" } else { "false" }) == gold.to_lowercase()
        }
        Scoring::Paper => prediction == gold,
        Scoring::Corrected => verdict(prediction).is_some() && verdict(prediction) == verdict(gold),
    });
    Some(ItemScore::met(ACCURACY.name, matched))
}

/// Whether the outcome is from an episode with tools.
fn has_subgoals(outcome: &Outcome) -> bool {
    let plan = outcome.evidence.as_ref().and_then(|evidence| evidence.plan());
    plan.is_some_and(|evidence| evidence.results.is_some() || !evidence.subgoals.is_empty())
}

/// Whether an answer starts with a word for yes; `None` if it starts with none for yes or no.
pub(crate) fn verdict(answer: &str) -> Option<bool> {
    match words(&normalise(answer)).next()? {
        "yes" | "true" => Some(true),
        "no" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lumos_tasks::outcome::{PlanEvidence, Value};
    use lumos_tasks::{Ending, Evidence};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_are_normalised() {
        assert_eq!(normalise("The  U.S. a(n) An_swer, théâtre the"), "us answer théâtre");
        assert_eq!(normalise("an_a"), "ana");
        assert_eq!(normalise("ΟΔΟΣ"), "οδος");
    }

    #[test]
    fn f1_counts_words_as_often_as_they_occur() {
        assert_eq!(f1("U.S. U.S.", "U.S."), 2.0 / 3.0);
        assert_eq!(f1("the Mazda", "Mazda"), 1.0);
        assert_eq!(f1("yes indeed", "yes"), 0.0);
        assert_eq!(f1("", "a"), 0.0);
    }

    fn outcome(prediction: &str, with_tools: bool) -> Outcome {
        let evidence = PlanEvidence {
            prediction: Some(Value::from(prediction)),
            results: with_tools.then(Default::default),
            ..PlanEvidence::default()
        };
        Outcome { ending: Ending::Answered, evidence: Some(Evidence::Qa(evidence)), steps: Vec::new() }
    }

    #[test]
    fn yes_and_no() {
        let target = Target::Text { answer: "True".to_owned() };
        let both = |prediction: &str, with_tools| {
            Scoring::ALL.map(|scoring| {
                let score = score_yes_or_no(&target, &outcome(prediction, with_tools), scoring);
                score.unwrap().is_full(&ACCURACY)
            })
        };
        assert_eq!(both("Yes.", true), [true, true]);
        assert_eq!(both("No, eyes do", true), [true, false]);
        assert_eq!(both("probably", true), [false, false]);
        assert_eq!(both("True", false), [true, true]);
        assert_eq!(both("true", false), [false, true]);
    }

    proptest! {
        #[test]
        fn f1_lies_between_nothing_and_all(left in any::<String>(), right in "[a-z ]{0,12}") {
            let value = f1(&left, &right);
            prop_assert!((0.0..=1.0).contains(&value));
            prop_assert!((f1(&right, &left) - value).abs() < 1e-12);
            let normal = normalise(&left);
            prop_assert_eq!(normalise(&normal), normal);
        }
    }
}
