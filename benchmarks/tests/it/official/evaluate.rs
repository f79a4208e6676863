//! Evaluates a step by choosing among five elements at a time.

use std::collections::VecDeque;

use lumos_environments::dom::{
    Brackets, IdNumbers, PageError, PageText, PruneLimits, Pruner, TextError, Tree,
};
use thiserror::Error;

use super::answer::{
    ParsedAnswer, f1_of_generation, f1_of_multichoice, parse_generation, parse_multichoice,
    parse_multichoice_llm,
};
use super::sample::Sample;

/// Number of choices per round.
const CHOICES: usize = 5;

/// The official evaluators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evaluator {
    /// For models trained to answer with a letter.
    MultiChoice,
    /// For chat models.
    Llm,
    /// For models that repeat the element.
    Generation,
}

/// One round of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Round {
    /// The elements to choose from.
    pub(crate) candidates: Vec<String>,
    /// The same elements in the order of the page, each with its first words.
    pub(crate) choices: Vec<(String, String)>,
    /// The question after the page.
    pub(crate) question: String,
}

/// The final prediction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// The element.
    pub(crate) element: String,
    /// Operation and value.
    pub(crate) action: String,
}

/// Result of evaluating a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Evaluation {
    /// Whether a correct element is among the candidates.
    pub(crate) can_be_right: bool,
    /// The rounds.
    pub(crate) rounds: Vec<Round>,
    /// The prediction; `None` scores zero.
    pub(crate) prediction: Option<Prediction>,
    /// 1 if the element is correct.
    pub(crate) element: f64,
    /// F1 of operation and value.
    pub(crate) f1: f64,
    /// 1 if both are correct.
    pub(crate) step: f64,
}

/// Error of evaluating a step.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum EvaluationError {
    /// The page cannot be parsed.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The candidates cannot be formatted.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The answer has no first character; the original raises `IndexError`.
    #[error("the answer is empty")]
    EmptyAnswer,
}

/// Evaluates a step. `shuffled` are its candidates below rank `top_k`, in the order in which they are shown.
/// `ask` returns the model's answer to a round.
///
/// # Errors
/// See [`EvaluationError`].
pub(crate) fn evaluate(
    evaluator: Evaluator,
    sample: &Sample,
    top_k: u64,
    shuffled: &[String],
    mut ask: impl FnMut(&Round) -> String,
) -> Result<Evaluation, EvaluationError> {
    let mut evaluation = Evaluation {
        can_be_right: false,
        rounds: Vec::new(),
        prediction: None,
        element: 0.0,
        f1: 0.0,
        step: 0.0,
    };
    let positives = sample.positives(top_k);
    if positives.is_empty() {
        return Ok(evaluation);
    }
    evaluation.can_be_right = true;
    let tree = Tree::parse(&sample.cleaned_html)?;
    let (mut pruner, mut text) = (Pruner::new(&tree), PageText::new(&tree));
    let brackets = if evaluator == Evaluator::Llm { Brackets::Angle } else { Brackets::Round };
    let mut waiting: VecDeque<String> = shuffled.iter().cloned().collect();
    let mut prediction: Option<Prediction> = None;
    while waiting.len() > 1 {
        let candidates: Vec<String> = waiting.drain(..waiting.len().min(CHOICES)).collect();
        let ids: Vec<&str> = candidates.iter().map(String::as_str).collect();
        let view = pruner.prune(&ids, PruneLimits::default())?;
        let mut numbers = IdNumbers::default();
        text.tree_text(&view, &mut numbers, brackets)?;
        let choices = text.choices(&view, &mut numbers, brackets)?;
        let round = Round { candidates, question: sample.question(&choices), choices };
        let answer = ask(&round);
        match (evaluator, picked(evaluator, &answer, &round.choices)?) {
            (_, Picked::Element(element, action)) => {
                waiting.push_back(element.clone());
                prediction = Some(Prediction { element, action });
            }
            (Evaluator::Llm, Picked::Beyond) => prediction = None,
            (_, Picked::Beyond | Picked::Nothing) => {}
        }
        evaluation.rounds.push(round);
    }
    if waiting.is_empty() {
        prediction = None;
    }
    if let Some(prediction) = &prediction {
        evaluation.element = f64::from(positives.contains(&prediction.element.as_str()));
        let gold = sample.gold_action();
        evaluation.f1 = match evaluator {
            Evaluator::Generation => f1_of_generation(&prediction.action, &gold),
            Evaluator::MultiChoice | Evaluator::Llm => f1_of_multichoice(&prediction.action, &gold),
        };
        evaluation.step = f64::from(evaluation.element == 1.0 && evaluation.f1 == 1.0);
    }
    evaluation.prediction = prediction;
    Ok(evaluation)
}

/// The choice of an answer.
enum Picked {
    Nothing,
    /// A letter without a choice.
    Beyond,
    Element(String, String),
}

fn picked(
    evaluator: Evaluator,
    answer: &str,
    choices: &[(String, String)],
) -> Result<Picked, EvaluationError> {
    let ParsedAnswer { picked, action } = match evaluator {
        Evaluator::MultiChoice => parse_multichoice(answer).ok_or(EvaluationError::EmptyAnswer)?,
        Evaluator::Llm => parse_multichoice_llm(answer),
        Evaluator::Generation => {
            let ParsedAnswer { picked, action } = parse_generation(answer, choices);
            return Ok(picked.map_or(Picked::Nothing, |element| Picked::Element(element, action)));
        }
    };
    let letter = picked.as_deref().and_then(|picked| picked.chars().next()).unwrap_or('A');
    if letter == 'A' {
        return Ok(Picked::Nothing);
    }
    // Letters before `B` count from the end, as negative indices do in Python.
    let place = i64::from(u32::from(letter)) - i64::from(u32::from('B'));
    let place = if place < 0 { place + choices.len() as i64 } else { place };
    let choice = usize::try_from(place).ok().and_then(|place| choices.get(place));
    Ok(choice.map_or(Picked::Beyond, |(id, _)| Picked::Element(id.clone(), action)))
}
