//! The exact texts of shopping (upstream `eval/webshop/run_eval.py`): the prompts of the published checkpoints.

use super::execution::ShopValue;
use super::exemplars::Exemplars;
use crate::dialogue::Dialogue;
use crate::families::prompts::{self, ASSISTANT, KEEP_PLANNING, PLAN, USER};
use crate::identity::ContentHash;
use crate::python::strip;

const GROUND: &str = "Please ground the given subgoal to corresponding executable actions for solving the \
given task. The grounded actions must be the one in available action list.\n\n\
The available action list is 'Search', 'FeatureRetrieve', 'Pick' and 'Click'.\n\
Search(Query): Search related items according to the Query; FeatureRetrieve(Feature_list, Query): Select the most \
relevant features from Feature_list according to Query; Pick(Item_names, Item_features, Query): Pick the most relevant \
item from Item_names according to Query, Item_names and Item_features; Click(Item): Click the Item to check more \
information.\n\n";

/// The start of the grounder's first reply.
pub(super) const FIRST_VARIABLE: &str = "R1 = ";

/// Hash of everything that reaches a model: these texts and the exemplars.
pub fn hash(exemplars: &Exemplars) -> ContentHash {
    let texts = (PLAN, GROUND, USER, ASSISTANT, KEEP_PLANNING, FIRST_VARIABLE);
    ContentHash::of_json(&(texts, exemplars, "prompts/shop/1"))
}

/// The planner's first prompt.
pub(super) fn plan(exemplars: &Exemplars, task: &str) -> Dialogue {
    let mut prompt = String::new();
    for exemplar in &exemplars.plan {
        prompt.push_str(&prompts::plan(&exemplar.instruction));
        for (index, (subgoal, result)) in exemplar.subgoals().iter().enumerate() {
            let (subgoal, number) = (strip(subgoal), index + 1);
            prompt.push_str(&format!(
                "{subgoal}\n\n{USER}The execution result for Subgoal {number} is {result}.{ASSISTANT}"
            ));
        }
        prompt.push_str("\n\n");
    }
    Dialogue::with_examples(&prompt, &prompts::plan(task))
}

/// Text appended to the planner's prompt for the next turn.
pub(super) fn plan_again(plan: &str, turn: u32, result: &ShopValue) -> String {
    let (plan, result) = (strip(plan), result.to_python_text());
    format!("{plan}\n\n{USER}The executed result for Subgoal {turn} is {result}{ASSISTANT}")
}

/// The grounder's first prompt, up to the subgoal.
pub(super) fn ground(exemplars: &Exemplars, task: &str) -> Dialogue {
    let mut prompt = String::new();
    for (planned, exemplar) in exemplars.plan.iter().zip(&exemplars.ground) {
        prompt.push_str(&prompts::ground(GROUND, &exemplar.instruction, false));
        for (index, ((subgoal, _), actions)) in planned.subgoals().iter().zip(exemplar.grounded()).enumerate()
        {
            if index > 0 {
                prompt.push_str(&prompts::ground_again(""));
            }
            prompt.push_str(&format!("{subgoal}{ASSISTANT}{}", actions.join("; ")));
        }
        prompt.push_str("\n\n");
    }
    Dialogue::with_examples(&prompt, &prompts::ground(GROUND, task, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::prompts::next_subgoal;

    #[test]
    fn prompts_of_the_modules() {
        let exemplars = Exemplars::shipped();
        let again = ShopValue::Clickables(vec!["back to search".to_owned(), "it's".to_owned()]);
        let planner =
            plan(&exemplars, "Find me a lamp").into_text() + &plan_again(" Subgoal 1: Search. ", 1, &again);
        let grounder = ground(&exemplars, "Find me a lamp").into_text()
            + &next_subgoal("No, I will keep planning. Subgoal 1: Search.")
            + FIRST_VARIABLE
            + &prompts::ground_again("R1 = Search(lamp) ")
            + &next_subgoal("Subgoal 2: Look.");
        insta::assert_snapshot!(format!("{planner}\n=====\n{grounder}"));
    }
}
