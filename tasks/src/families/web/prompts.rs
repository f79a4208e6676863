//! The exact texts of acting on web pages (upstream `eval/mind2web/run_eval.py`): the prompts that the published
//! checkpoints were trained on, and the sentences that describe gold actions (upstream `translate_action`).

use thiserror::Error;

use crate::families::prompts::{
    ASSISTANT, KEEP_PLANNING, USER, ground, ground_again, next_subgoal, plan, subgoal,
};
use crate::identity::ContentHash;
use crate::python::{Characters, strip};

pub(crate) const GROUND: &str = "Please ground the given subgoal to corresponding executable actions for solving the \
given task. The grounded actions must be the one in available action list.\n\n\
The available action list is 'CLICK', 'TYPE', 'SELECT'.\n\
CLICK(Env, Query): Click the relevant html region in Env according to Query; TYPE(Env, Query, Text): Type Text into \
the relevant html region in Env according to Query; SELECT(Env, Query, Text): Select the value Text of the relevant \
selection box in Env according to Query.\n\n";

/// Verbs for clicking.
const CLICK: [&str; 4] = ["Visit", "Click", "Find and go into", "Enter"];
/// Verbs for typing.
const TYPE: [&str; 3] = ["Type", "Input", "Put text"];
/// Verbs for selecting.
const SELECT: [&str; 3] = ["Select", "Choose", "Pick up"];

/// Hash of the texts in this file that reach a model: the prompts, and the verbs of the sentences.
pub fn hash() -> ContentHash {
    let grounder = (ground(GROUND, ".", false) + &subgoal("."), ground_again(".") + &next_subgoal("."));
    ContentHash::of_json(&(
        (plan("."), plan_again(1, "A."), grounder.0, grounder.1, KEEP_PLANNING),
        (question(".", "."), option_hint("."), CLICK, TYPE, SELECT, "prompts/web/1"),
    ))
}

/// Text appended to the planner's prompt after step `step` (counted from 1): the sentence of the gold action.
pub(crate) fn plan_again(step: u32, sentence: &str) -> String {
    let mut characters = sentence.chars();
    let first = characters.next().map(|first| first.to_lowercase().collect::<String>()).unwrap_or_default();
    let done = format!("{first}{}", characters.as_str());
    format!("Subgoal {step}: {sentence}\n\n{USER}We have already {done}. Should we stop planning?{ASSISTANT}")
}

/// The ranker's question.
pub(super) fn question(query: &str, previous: &str) -> String {
    format!("task is: {query}\nPrevious actions: {previous}")
}

/// Text appended to a query if an option is selected.
pub fn option_hint(text: &str) -> String {
    format!(" The option contents should be close to '{text}'.")
}

/// An action's representation has no ` -> `; the original raises `IndexError`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the action's representation has no ` -> `")]
pub struct NoArrow;

/// The sentence of an action's representation, `[tag]  words -> OP: value`. `draw` returns a number below its
/// argument, which selects one of that many verbs.
///
/// # Errors
/// Fails if ` -> ` is missing.
pub fn sentence(representation: &str, draw: impl FnOnce(u32) -> u32) -> Result<String, NoArrow> {
    let mut parts = representation.split(" -> ");
    let (element, operation) = (parts.next().unwrap_or_default(), parts.next().ok_or(NoArrow)?);
    let element = Characters::new(element);
    let closing = element.find("]");
    let tag = element.slice(element.find("[") + 1, closing);
    let words = element.from(closing + 1);
    let words = strip(&words);
    let verb = |verbs: &[&'static str]| {
        let drawn = draw(verbs.len() as u32) as usize;
        verbs.get(drawn).or(verbs.first()).copied().unwrap_or_default()
    };
    let value = |marker: &str| strip(operation.rsplit(marker).next().unwrap_or_default()).to_owned();
    Ok(if operation.contains("CLICK") || operation.contains("HOVER") {
        format!("{} {tag} {words}", verb(&CLICK))
    } else if operation.contains("TYPE") {
        format!("{} {} in the {tag} {words}", verb(&TYPE), value("TYPE:"))
    } else if operation.contains("SELECT") {
        format!("{} {} in the {tag} {words}", verb(&SELECT), value("SELECT:"))
    } else {
        let name = strip(operation.split(':').next().unwrap_or_default()).to_lowercase();
        format!("{name} {tag} {words}.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn representations_become_sentences() {
        for (representation, drawn, expected) in [
            ("[button]  Search -> CLICK", 2, "Find and go into button Search"),
            ("[textbox]  City -> TYPE: Boston ", 1, "Input Boston in the textbox City"),
            ("[select]  Size -> SELECT: L", 0, "Select L in the select Size"),
            ("[textbox]   -> ENTER", 0, "enter textbox ."),
            ("[box]  a -> b -> CLICK", 0, "b box a."),
            ("[box]  a -> TYPE: CLICK here", 0, "Visit box a"),
            ("words -> CLICK", 0, "Visit word words"),
        ] {
            assert_eq!(sentence(representation, |_| drawn).unwrap(), expected);
        }
        assert_eq!(sentence("[box] a", |_| 0), Err(NoArrow));
    }
}
