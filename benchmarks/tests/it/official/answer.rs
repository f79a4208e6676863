//! Parses a model's answer.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use lumos_tasks::python::{is_space, strip};
use regex::Regex;

/// Element and action of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedAnswer {
    /// Letter of a choice. For generation, the id of an element, or `None` if none was chosen.
    pub(crate) picked: Option<String>,
    /// Operation and value, separated by a blank.
    pub(crate) action: String,
}

/// Compiles a pattern that is known to be valid.
fn pattern(text: &'static str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

static OPERATION: LazyLock<Regex> = LazyLock::new(|| pattern("Action: (CLICK|SELECT|TYPE)"));
static VALUE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)Value: ([^\n]*)$"));
static LETTER: LazyLock<Regex> = LazyLock::new(|| pattern("Answer: ([A-F])"));
static ELEMENT: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)Element: ([^\n]*)$"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"id=(\d+)"));

fn first<'t>(pattern: &Regex, text: &'t str) -> Option<&'t str> {
    Some(pattern.captures(text)?.get(1)?.as_str())
}

/// Returns operation and value of an answer.
pub(crate) fn action(text: &str) -> String {
    let found = |pattern| strip(first(pattern, text).unwrap_or_default()).to_owned();
    format!("{} {}", found(&OPERATION), found(&VALUE))
}

/// Parses an answer of a model trained to begin with the letter. Returns `None` for an empty answer, for
/// which the original raises `IndexError`.
pub(crate) fn parse_multichoice(text: &str) -> Option<ParsedAnswer> {
    let text = strip(text);
    let picked = text.chars().next()?.to_string();
    Some(ParsedAnswer { picked: Some(picked), action: action(text) })
}

/// Parses an answer of a chat model. The default letter is `A`.
pub(crate) fn parse_multichoice_llm(text: &str) -> ParsedAnswer {
    let text = strip(text);
    let picked = first(&LETTER, text).unwrap_or("A").to_owned();
    ParsedAnswer { picked: Some(picked), action: action(text) }
}

/// Parses an answer that repeats an element: by the number in it, otherwise by similarity to the choices. The
/// original compares a string with a pair of strings there, so only a string of a single character can match.
pub(crate) fn parse_generation(text: &str, choices: &[(String, String)]) -> ParsedAnswer {
    let text = strip(text);
    let action = action(text);
    if text.starts_with("None") {
        return ParsedAnswer { picked: None, action };
    }
    let element = first(&ELEMENT, text).unwrap_or_default();
    let number = first(&NUMBER, element).and_then(|number| number.parse::<usize>().ok());
    let alike = |(id, choice): &&(String, String)| {
        [id, choice]
            .into_iter()
            .filter(|part| part.chars().count() == 1 && element.contains(part.as_str()))
            .count()
    };
    let place = number.filter(|number| *number < choices.len()).unwrap_or_else(|| {
        let best = choices.iter().map(|choice| alike(&choice)).max().unwrap_or(0);
        choices.iter().position(|choice| alike(&choice) == best).unwrap_or(0)
    });
    ParsedAnswer { picked: choices.get(place).map(|(id, _)| id.clone()), action }
}

/// F1 of the multi-choice evaluators, over the sets of words.
pub(crate) fn f1_of_multichoice(prediction: &str, gold: &str) -> f64 {
    of_sets(&words(prediction), &words(gold))
}

/// F1 of the generation evaluator. Words that are a substring of the ASCII punctuation characters do not
/// count.
pub(crate) fn f1_of_generation(prediction: &str, gold: &str) -> f64 {
    const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    let counted = |text| words(text).into_iter().filter(|word| !PUNCTUATION.contains(word)).collect();
    of_sets(&counted(prediction), &counted(gold))
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(is_space).filter(|word| !word.is_empty()).collect()
}

/// F1 between two sets of words; 1 if both are empty, 0 if one is empty.
fn of_sets(prediction: &BTreeSet<&str>, gold: &BTreeSet<&str>) -> f64 {
    if prediction.is_empty() || gold.is_empty() {
        return f64::from(u8::from(prediction.is_empty() && gold.is_empty()));
    }
    let same = prediction.intersection(gold).count() as f64;
    let (precision, recall) = (same / prediction.len() as f64, same / gold.len() as f64);
    if same == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }
}
