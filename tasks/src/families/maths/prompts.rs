//! The exact texts the published mathematics checkpoints were trained on (upstream `eval/gsm/run_eval.py`,
//! `eval/svamp/run_eval.py`).

use crate::identity::ContentHash;
use crate::python::strip;

const PLAN: &str = "Please provide a reasonable subgoal-based plan to solve the given task.\n";

const GROUND: &str = "Please ground the given subgoal to corresponding executable actions for solving the \
given task. The grounded actions must be the one in available action list.\n\n\
The available action list is 'Calculator', 'SetEquation', 'SolveEquation', 'Count', 'SolveInequality', \
'Code', and 'Define'.\n\
Calculator(formula): Calculate the input formula; SetEquation(equation): Set up an equation to be solved; \
SolveEquation(equation): Solve the previous set equation; Count(list): Count the number of elements in the \
given list; SolveInequality(inequality): Solve the previous set inequality; Code(pseudo_code): Generate a \
Python function that corresponds to the pseudo code; Define(variable/number): Define a variable or a number \
for latter usage.\n\n";

const USER: &str = "<|user|>\n";
const ASSISTANT: &str = "\n<|assistant|>\n";

/// The text in the planner's reply that ends planning.
pub(crate) const STOP_PLANNING: &str = "Yes, I will stop planning";

/// Hash of everything in this file that reaches a model.
pub fn hash() -> ContentHash {
    ContentHash::of_json(&(PLAN, GROUND, USER, ASSISTANT, STOP_PLANNING, "prompts/maths/1"))
}

/// The planner's first prompt.
pub(crate) fn plan(question: &str) -> String {
    let question = strip(question);
    format!("{USER}{PLAN}Task: {question}; Initial Environment Description: None.{ASSISTANT}")
}

/// Text appended to the planner's prompt after turn `turn`: its reply and the result of its subgoal.
pub(crate) fn plan_again(reply: &str, turn: u32, result: &str) -> String {
    let reply = strip(reply);
    format!(
        "{reply}\n\n{USER}The executed result for Subgoal {turn} is {result}. Should we stop planning?{ASSISTANT}"
    )
}

/// The grounder's first prompt of an iterative episode, up to the subgoal.
pub(crate) fn ground(question: &str) -> String {
    let question = strip(question);
    format!("{USER}{GROUND}Task: {question} \nSubgoal to be grounded: ")
}

/// Text appended to the grounder's prompt after a turn: its reply, up to the next subgoal.
pub(crate) fn ground_again(reply: &str) -> String {
    let reply = strip(reply);
    format!("{reply}\n\n{USER}Subgoal to be grounded: ")
}

/// The grounder's prompt of a one-time episode, up to the subgoals.
pub(crate) fn ground_all(question: &str) -> String {
    let question = strip(question);
    format!("{USER}{GROUND}Task: {question} \nSubgoals to be grounded: ")
}

/// The end of a grounder's prompt: the planner's reply.
pub(crate) fn subgoal(plan: &str) -> String {
    let plan = strip(plan);
    format!("{plan}{ASSISTANT}")
}

/// The prompt of the single-model formulations.
pub(crate) fn answer(question: &str) -> String {
    let question = strip(question);
    format!("{USER}{question}{ASSISTANT}")
}
