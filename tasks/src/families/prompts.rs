//! Texts that the prompts of several families share: those that the published checkpoints were trained on (upstream
//! `run_eval.py` of each evaluation). The families' grounding prompts differ only in their list of actions.

use crate::python::strip;

pub(crate) const PLAN: &str = "Please provide a reasonable subgoal-based plan to solve the given task.\n";

/// The beginning of the grounder's prompts, in the families' own texts.
pub(super) const GROUNDED: &str = "Please ground the given subgoal";

/// The description of an environment that needs none.
pub(crate) const NO_ENVIRONMENT: &str = "None";

pub(crate) const USER: &str = "<|user|>\n";
pub(crate) const ASSISTANT: &str = "\n<|assistant|>\n";

/// The text in the planner's reply that ends planning.
pub const STOP_PLANNING: &str = "Yes, I will stop planning";
/// The text in the planner's reply that continues planning; removed before grounding.
pub const KEEP_PLANNING: &str = "No, I will keep planning.";

/// The planner's first prompt.
pub fn plan(task: &str) -> String {
    plan_in(PLAN, task, NO_ENVIRONMENT)
}

/// The same with another instruction and a description of the environment.
pub(crate) fn plan_in(instruction: &str, task: &str, environment: &str) -> String {
    let task = strip(task);
    format!("{USER}{instruction}Task: {task}; Initial Environment Description: {environment}.{ASSISTANT}")
}

/// Text appended to the planner's prompt after turn `turn`: its reply and the result of its subgoal.
pub fn plan_again(reply: &str, turn: u32, result: &str) -> String {
    let reply = strip(reply);
    format!(
        "{reply}\n\n{USER}The executed result for Subgoal {turn} is {result}. Should we stop planning?{ASSISTANT}"
    )
}

/// The grounder's first prompt, up to the subgoal, or to all subgoals of a one-time episode. `actions` is the
/// family's list of actions.
pub fn ground(actions: &str, task: &str, one_time: bool) -> String {
    let (task, subgoal) = (strip(task), if one_time { "Subgoals" } else { "Subgoal" });
    format!("{USER}{actions}Task: {task} \n{subgoal} to be grounded: ")
}

/// Text appended to the grounder's prompt after a turn: its reply, up to the next subgoal.
pub fn ground_again(reply: &str) -> String {
    let reply = strip(reply);
    format!("{reply}\n\n{USER}Subgoal to be grounded: ")
}

/// The end of a grounder's first prompt: the planner's reply.
pub fn subgoal(plan: &str) -> String {
    let plan = strip(plan);
    format!("{plan}{ASSISTANT}")
}

/// The end of a grounder's later prompt: the planner's reply without its decision to keep planning.
pub fn next_subgoal(plan: &str) -> String {
    subgoal(kept(plan))
}

/// The planner's reply without its decision to keep planning.
pub fn kept(plan: &str) -> &str {
    strip(plan.rsplit(KEEP_PLANNING).next().unwrap_or_default())
}

/// A subgoal's name, which precedes the first colon of the planner's reply: `Subgoal 2`.
pub fn subgoal_name(plan: &str) -> &str {
    kept(strip(plan).split(':').next().unwrap_or_default())
}

/// The prompt of a model that answers on its own.
pub(crate) fn answer(question: &str) -> String {
    let question = strip(question);
    format!("{USER}{question}{ASSISTANT}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subgoals_are_named_by_what_stands_before_the_colon() {
        assert_eq!(subgoal_name("No, I will keep planning. Subgoal 2: Find it: now"), "Subgoal 2");
        assert_eq!(subgoal_name("anything "), "anything");
    }

    #[test]
    fn later_subgoals_lose_the_decision_to_keep_planning() {
        let plan = "No, I will keep planning. Subgoal 2: Find it.\n";
        assert_eq!(subgoal(plan), "No, I will keep planning. Subgoal 2: Find it.\n<|assistant|>\n");
        assert_eq!(next_subgoal(plan), "Subgoal 2: Find it.\n<|assistant|>\n");
    }
}
