//! The variables of a question-answering episode, the prediction of a one-time one, and the answers in
//! replies (upstream `run_eval.py` of HotpotQA and StrategyQA).

use std::collections::BTreeMap;

use super::prompts::{ANSWER, QUESTION};
use crate::families::Failure;
use crate::families::execution::{invalid_variable, last_variable};
use crate::families::maths::answer::{of_chain, of_direct};
use crate::formulation::{Behaviour, Formulation};
use crate::item::AnswerForm;
use crate::outcome::Value;
use crate::python::{Characters, strip};

/// Values by variable, in the order in which the variables were first assigned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Variables {
    values: BTreeMap<String, (usize, Value)>,
}

impl Variables {
    /// A variable's value.
    pub(crate) fn get(&self, variable: &str) -> Option<&Value> {
        self.values.get(variable).map(|(_, value)| value)
    }

    /// Assigns a value; a variable that has a value already keeps its position.
    pub(crate) fn insert(&mut self, variable: String, value: Value) {
        let place = self.values.len();
        self.values.entry(variable).or_insert((place, Value::Text(String::new()))).1 = value;
    }

    /// Whether there are no variables.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The values in order.
    pub(crate) fn in_order(&self) -> Vec<&Value> {
        let mut values: Vec<_> = self.values.values().collect();
        values.sort_by_key(|(place, _)| *place);
        values.into_iter().map(|(_, value)| value).collect()
    }

    /// The values by variable.
    pub(crate) fn into_values(self) -> BTreeMap<String, Value> {
        self.values.into_iter().map(|(variable, (_, value))| (variable, value)).collect()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }
}

/// The prediction of a one-time episode: the value of the variable with the highest number; in StrategyQA
/// (and in corrected behaviour) that of `Output` if it exists. The error is what the original raises for a
/// variable of another form, in which case it skips the item; corrected behaviour skips such variables. `cut` is
/// [`of_value`] or [`own_value`].
pub(super) fn prediction(
    variables: &Variables,
    form: AnswerForm,
    behaviour: Behaviour,
    cut: fn(&str) -> &str,
) -> Result<String, Failure> {
    const OUTPUT: &str = "Output";
    let takes_output = form == AnswerForm::YesNo || behaviour == Behaviour::Corrected;
    let variable = if takes_output && variables.get(OUTPUT).is_some() {
        OUTPUT.to_owned()
    } else {
        last_variable(variables.names(), behaviour)?
    };
    match variables.get(&variable) {
        Some(Value::Text(text)) => Ok(cut(text).to_owned()),
        Some(Value::List(_)) => Err(Failure::argument(format!("`{variable}` holds passages, not an answer"))),
        None => Err(invalid_variable(&variable)),
    }
}

/// The text after `Answer: ` (up to the next one); the whole text without the marker.
pub(crate) fn of_value(value: &str) -> &str {
    value.split(ANSWER).nth(1).unwrap_or(value)
}

/// The same for agents without a published script, which may have tools of their own: only a reply of the question-answering
/// tool or its calculator is cut, whose text begins with the question.
pub(crate) fn own_value(value: &str) -> &str {
    if value.starts_with(QUESTION) { of_value(value) } else { value }
}

/// The answer in a single model's reply; `None` if the original finds none and skips the item.
pub fn of_reply(reply: &str, form: AnswerForm, formulation: Formulation) -> Option<String> {
    match (form, formulation) {
        (AnswerForm::Entity, Formulation::Cot) => entity_of_chain(reply),
        (AnswerForm::Entity, _) => Some(as_yes_or_no(strip(reply))),
        // StrategyQA's script parses replies as the mathematics ones do.
        (AnswerForm::YesNo, Formulation::Cot) => Some(of_chain(reply)),
        (AnswerForm::YesNo, _) => Some(of_direct(reply)),
    }
}

/// The text after the marker, without its last character (the full stop).
fn entity_of_chain(reply: &str) -> Option<String> {
    const MARKER: &str = "decomposed questions, the answer is";
    let answer = Characters::new(strip(reply.split(MARKER).nth(1)?)).slice(0, -1);
    Some(as_yes_or_no(&answer))
}

/// HotpotQA's gold answers are yes and no; the checkpoints were trained to answer true and false.
fn as_yes_or_no(answer: &str) -> String {
    match answer.to_lowercase().as_str() {
        "false" | "false." => "no".to_owned(),
        "true" | "true." => "yes".to_owned(),
        _ => answer.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(entries: &[(&str, &str)]) -> Variables {
        let mut variables = Variables::default();
        for (name, value) in entries {
            variables.insert((*name).to_owned(), Value::from(*value));
        }
        variables
    }

    #[test]
    fn variables_keep_their_places() {
        let mut variables = variables(&[("R2", "a"), ("R1", "b")]);
        variables.insert("R2".to_owned(), "c".into());
        assert_eq!(variables.in_order(), [&Value::from("c"), &Value::from("b")]);
        assert_eq!(variables.into_values().len(), 2);
    }

    #[test]
    fn the_highest_number_wins() {
        let values = variables(&[("R9", "Answer: a"), ("R10", "Question: q; Answer: b")]);
        for behaviour in Behaviour::ALL {
            assert_eq!(prediction(&values, AnswerForm::Entity, behaviour, of_value).as_deref(), Ok("b"));
        }
        let empty = variables(&[("R1", "a"), ("", "")]);
        assert!(prediction(&empty, AnswerForm::Entity, Behaviour::Paper, of_value).is_err());
        assert_eq!(
            prediction(&empty, AnswerForm::Entity, Behaviour::Corrected, of_value).as_deref(),
            Ok("a")
        );
    }

    #[test]
    fn output_counts_where_the_original_looks_for_it() {
        let values = variables(&[("R1", "a"), ("Output", "b")]);
        assert_eq!(prediction(&values, AnswerForm::YesNo, Behaviour::Paper, of_value).as_deref(), Ok("b"));
        assert!(prediction(&values, AnswerForm::Entity, Behaviour::Paper, of_value).is_err());
        assert_eq!(
            prediction(&values, AnswerForm::Entity, Behaviour::Corrected, of_value).as_deref(),
            Ok("b")
        );
    }

    #[test]
    fn answers_are_cut_as_the_original_cuts_them() {
        assert_eq!(of_value("Question: Who?; Answer: Ada"), "Ada");
        assert_eq!(of_value("Question: Who?; No answer."), "Question: Who?; No answer.");
        assert_eq!(own_value("Question: Who?; Answer: Ada"), "Ada");
        let text = "Q: capital? Answer: Oslo. Next Answer: see map";
        assert_eq!((own_value(text), of_value(text)), (text, "Oslo. Next "));
        let cot = |reply| of_reply(reply, AnswerForm::Entity, Formulation::Cot);
        assert_eq!(cot("… decomposed questions, the answer is Ada L. ").as_deref(), Some("Ada L"));
        assert_eq!(cot("… decomposed questions, the answer is False.").as_deref(), Some("no"));
        assert_eq!(cot("The answer is Ada."), None);
        let direct = |reply, form| of_reply(reply, form, Formulation::Direct);
        assert_eq!(direct(" True. ", AnswerForm::Entity).as_deref(), Some("yes"));
        assert_eq!(direct("Answer is True.", AnswerForm::YesNo).as_deref(), Some("True"));
        assert_eq!(direct("True.", AnswerForm::YesNo).as_deref(), Some(""));
    }
}
