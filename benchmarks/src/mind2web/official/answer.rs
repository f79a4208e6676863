//! Reading a model's answer.

use std::sync::LazyLock;

use lumos_tasks::python::strip;
use regex::Regex;

use crate::mind2web::f1::{of_sets, words};

/// What an answer picks, and what it does there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The letter of a choice; in generation the id of an element, `None` where none is picked.
    pub picked: Option<String>,
    /// Operation and value, a blank between them.
    pub action: String,
}

/// A pattern that is known to be valid.
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

/// Operation and value of an answer.
pub(super) fn action(text: &str) -> String {
    let found = |pattern| strip(first(pattern, text).unwrap_or_default()).to_owned();
    format!("{} {}", found(&OPERATION), found(&VALUE))
}

/// Reads an answer of a model trained to begin with the letter; `None` where there is no first character (the original
/// raises `IndexError`).
pub fn parse_multichoice(text: &str) -> Option<Answer> {
    let text = strip(text);
    let picked = text.chars().next()?.to_string();
    Some(Answer { picked: Some(picked), action: action(text) })
}

/// Reads an answer of a chat model; without a letter it is `A`.
pub fn parse_multichoice_llm(text: &str) -> Answer {
    let text = strip(text);
    let picked = first(&LETTER, text).unwrap_or("A").to_owned();
    Answer { picked: Some(picked), action: action(text) }
}

/// Reads an answer that repeats an element: by the number in it, or else by how alike it is to the choices. There the
/// original compares a text with a pair of texts, in which only a whole text that is one character long can be found.
pub fn parse_generation(text: &str, choices: &[(String, String)]) -> Answer {
    let text = strip(text);
    let action = action(text);
    if text.starts_with("None") {
        return Answer { picked: None, action };
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
    Answer { picked: choices.get(place).map(|(id, _)| id.clone()), action }
}

/// F1 of the multi-choice evaluators: over the sets of words.
pub fn f1_of_multichoice(prediction: &str, gold: &str) -> f64 {
    crate::mind2web::f1::f1(prediction, gold)
}

/// F1 of the generation evaluator: words that are a run of punctuation, as it stands in ASCII order, do not count.
pub fn f1_of_generation(prediction: &str, gold: &str) -> f64 {
    const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    let counted = |text| words(text).into_iter().filter(|word| !PUNCTUATION.contains(word)).collect();
    of_sets(&counted(prediction), &counted(gold))
}
