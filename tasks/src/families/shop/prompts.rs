//! The exact texts of shopping (upstream `eval/webshop/run_eval.py`): the prompts of the published checkpoints.

use super::execution::ShopValue;
use super::exemplars::Exemplars;
use crate::identity::ContentHash;
use crate::python::strip;

const PLAN: &str = "Please provide a reasonable subgoal-based plan to solve the given task.\n";

const GROUND: &str = "Please ground the given subgoal to corresponding executable actions for solving the \
given task. The grounded actions must be the one in available action list.\n\n\
The available action list is 'Search', 'FeatureRetrieve', 'Pick' and 'Click'.\n\
Search(Query): Search related items according to the Query; FeatureRetrieve(Feature_list, Query): Select the most \
relevant features from Feature_list according to Query; Pick(Item_names, Item_features, Query): Pick the most relevant \
item from Item_names according to Query, Item_names and Item_features; Click(Item): Click the Item to check more \
information.\n\n";

const USER: &str = "<|user|>\n";
const ASSISTANT: &str = "\n<|assistant|>\n";

/// The text in the planner's reply that continues planning; removed before grounding.
pub(super) const KEEP_PLANNING: &str = "No, I will keep planning.";

/// The start of the grounder's first reply.
pub(super) const FIRST_VARIABLE: &str = "R1 = ";

/// Hash of everything that reaches a model: these texts and the exemplars.
pub fn hash(exemplars: &Exemplars) -> ContentHash {
    let texts = (PLAN, GROUND, USER, ASSISTANT, KEEP_PLANNING, FIRST_VARIABLE);
    ContentHash::of_json(&(texts, exemplars, "prompts/shop/1"))
}

/// The planner's first prompt.
pub(super) fn plan(exemplars: &Exemplars, task: &str) -> String {
    let mut prompt = String::new();
    for exemplar in &exemplars.plan {
        prompt.push_str(&plan_task(strip(&exemplar.instruction)));
        for (index, (subgoal, result)) in exemplar.subgoals().iter().enumerate() {
            let (subgoal, number) = (strip(subgoal), index + 1);
            prompt.push_str(&format!(
                "{subgoal}\n\n{USER}The execution result for Subgoal {number} is {result}.{ASSISTANT}"
            ));
        }
        prompt.push_str("\n\n");
    }
    prompt + &plan_task(task)
}

fn plan_task(task: &str) -> String {
    format!("{USER}{PLAN}Task: {task}; Initial Environment Description: None.{ASSISTANT}")
}

/// Text appended to the planner's prompt for the next turn.
pub(super) fn plan_again(plan: &str, turn: u32, result: &ShopValue) -> String {
    let (plan, result) = (strip(plan), result.to_python_text());
    format!("{plan}\n\n{USER}The executed result for Subgoal {turn} is {result}{ASSISTANT}")
}

/// The grounder's first prompt.
pub(super) fn ground(exemplars: &Exemplars, task: &str, plan: &str) -> String {
    let mut prompt = String::new();
    for (planned, exemplar) in exemplars.plan.iter().zip(&exemplars.ground) {
        prompt.push_str(&format!("{USER}{GROUND}Task: {}", strip(&exemplar.instruction)));
        for (index, ((subgoal, _), actions)) in planned.subgoals().iter().zip(exemplar.grounded()).enumerate()
        {
            prompt.push_str(&if index == 0 { first_subgoal(subgoal) } else { next_subgoal(subgoal) });
            prompt.push_str(&actions.join("; "));
        }
        prompt.push_str("\n\n");
    }
    format!("{prompt}{USER}{GROUND}Task: {task}{}{FIRST_VARIABLE}", first_subgoal(subgoal_of(plan)))
}

/// Text appended to the grounder's prompt for the next turn.
pub(super) fn ground_again(ground: &str, plan: &str) -> String {
    format!("{}{}", strip(ground), next_subgoal(subgoal_of(plan)))
}

fn first_subgoal(subgoal: &str) -> String {
    format!(" \nSubgoal to be grounded: {subgoal}{ASSISTANT}")
}

fn next_subgoal(subgoal: &str) -> String {
    format!("\n\n{USER}Subgoal to be grounded: {subgoal}{ASSISTANT}")
}

/// The subgoal in the planner's reply.
fn subgoal_of(plan: &str) -> &str {
    strip(plan.rsplit(KEEP_PLANNING).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_of_the_modules() {
        let exemplars = Exemplars::shipped();
        let again = ShopValue::Clickables(vec!["back to search".to_owned(), "it's".to_owned()]);
        let planner = plan(&exemplars, "Find me a lamp") + &plan_again(" Subgoal 1: Search. ", 1, &again);
        let grounder = ground(&exemplars, "Find me a lamp", "No, I will keep planning. Subgoal 1: Search.")
            + &ground_again("R1 = Search(lamp) ", "Subgoal 2: Look.");
        insta::assert_snapshot!(format!("{planner}\n=====\n{grounder}"));
    }
}
