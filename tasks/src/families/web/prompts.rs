//! The exact texts of acting on web pages (upstream `eval/mind2web/run_eval.py`): the prompts that the published
//! checkpoints were trained on.

use super::sentence::{CLICK, SELECT, TYPE};
use crate::identity::ContentHash;
use crate::python::strip;

const PLAN: &str = "Please provide a reasonable subgoal-based plan to solve the given task.\n";

const GROUND: &str = "Please ground the given subgoal to corresponding executable actions for solving the \
given task. The grounded actions must be the one in available action list.\n\n\
The available action list is 'CLICK', 'TYPE', 'SELECT'.\n\
CLICK(Env, Query): Click the relevant html region in Env according to Query; TYPE(Env, Query, Text): Type Text into \
the relevant html region in Env according to Query; SELECT(Env, Query, Text): Select the value Text of the relevant \
selection box in Env according to Query.\n\n";

const USER: &str = "<|user|>\n";
const ASSISTANT: &str = "\n<|assistant|>\n";
/// The text in the planner's reply that continues planning; removed before grounding.
const KEEP_PLANNING: &str = "No, I will keep planning.";

/// Hash of everything in this file that reaches a model.
pub fn hash() -> ContentHash {
    ContentHash::of_json(&(
        (plan("."), plan_again(1, "A."), ground(".", "."), ground_again(".", "."), KEEP_PLANNING),
        (question(".", "."), option_hint("."), CLICK, TYPE, SELECT, "prompts/web/1"),
    ))
}

/// The planner's first prompt.
pub(super) fn plan(task: &str) -> String {
    let task = strip(task);
    format!("{USER}{PLAN}Task: {task}; Initial Environment Description: None.{ASSISTANT}")
}

/// Text appended to the planner's prompt after step `step` (counted from 1): the sentence of the gold action.
pub(super) fn plan_again(step: u32, sentence: &str) -> String {
    let mut characters = sentence.chars();
    let first = characters.next().map(|first| first.to_lowercase().collect::<String>()).unwrap_or_default();
    let done = format!("{first}{}", characters.as_str());
    format!("Subgoal {step}: {sentence}\n\n{USER}We have already {done}. Should we stop planning?{ASSISTANT}")
}

/// The grounder's first prompt.
pub(super) fn ground(task: &str, subgoal: &str) -> String {
    let (task, subgoal) = (strip(task), strip(subgoal));
    format!("{USER}{GROUND}Task: {task} \nSubgoal to be grounded: {subgoal}{ASSISTANT}")
}

/// Text appended to the grounder's prompt: its reply and the next subgoal.
pub(super) fn ground_again(reply: &str, subgoal: &str) -> String {
    let subgoal = strip(subgoal.rsplit(KEEP_PLANNING).next().unwrap_or_default());
    format!("{}\n\n{USER}Subgoal to be grounded: {subgoal}{ASSISTANT}", strip(reply))
}

/// The ranker's question.
pub(super) fn question(query: &str, previous: &str) -> String {
    format!("task is: {query}\nPrevious actions: {previous}")
}

/// Text appended to a query if an option is selected.
pub fn option_hint(text: &str) -> String {
    format!(" The option contents should be close to '{text}'.")
}
