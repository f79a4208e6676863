//! Extracts answers from replies (upstream `run_eval.py` of HotpotQA and StrategyQA).

use super::prompts::ANSWER;
use crate::formulation::Formulation;
use crate::item::AnswerForm;
use crate::python::{Characters, strip};

/// The text after `Answer: ` (up to the next one); the whole text without the marker.
pub fn of_value(value: &str) -> &str {
    value.split(ANSWER).nth(1).unwrap_or(value)
}

/// The answer in a single model's reply; `None` if the original finds none and skips the item.
pub fn of_reply(reply: &str, form: AnswerForm, formulation: Formulation) -> Option<String> {
    use crate::families::maths::answer::{of_chain, of_direct};
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

    #[test]
    fn answers_are_cut_as_the_original_cuts_them() {
        assert_eq!(of_value("Question: Who?; Answer: Ada"), "Ada");
        assert_eq!(of_value("Question: Who?; No answer."), "Question: Who?; No answer.");
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
