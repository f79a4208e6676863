//! Converts GSM8K's worked solutions to replies of a planner and a grounder: each sentence is a subgoal, and
//! its calculation (`<<48/2=24>>`) is an action. The episodes have the length and the vocabulary of a trained
//! agent's, without a trained model.

use std::collections::HashMap;

use async_trait::async_trait;
use lumos_models::{ModelBackend, ModelError};
use lumos_tasks::{Completion, Item, Request, Role};

/// One step of a solution.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    sentence: String,
    calculation: String,
}

/// Worked solutions, by question.
#[derive(Debug, Default)]
pub(crate) struct Rationales(HashMap<String, Vec<Step>>);

impl Rationales {
    /// Extracts the solutions of items. Returns only the items whose solutions contain calculations, in
    /// order.
    pub(crate) fn of(items: Vec<Item>) -> (Self, Vec<Item>) {
        let mut all = Self::default();
        let kept = items
            .into_iter()
            .filter(|item| {
                let field = |name: &str| item.record[name].as_str().unwrap_or_default().to_owned();
                let steps = steps(&field("answer"));
                let some = !steps.is_empty();
                all.0.insert(field("question").trim().to_owned(), steps);
                some
            })
            .collect();
        (all, kept)
    }
}

fn steps(solution: &str) -> Vec<Step> {
    solution
        .lines()
        .filter_map(|line| {
            let (before, rest) = line.split_once("<<")?;
            let (inside, after) = rest.split_once(">>")?;
            let calculation = inside.split_once('=')?.0.to_owned();
            Some(Step { sentence: format!("{before}{after}"), calculation })
        })
        .collect()
}

#[async_trait]
impl ModelBackend for Rationales {
    async fn complete(&self, request: Request) -> Result<Completion, ModelError> {
        let prompt = request.prompt();
        let unknown = || ModelError::Failed("unknown task in the prompt".to_owned());
        let task = prompt.split_once("Task: ").ok_or_else(unknown)?.1;
        let question =
            task.split_once("; Initial Environment").or_else(|| task.split_once(" \nSubgoal to be"));
        let steps = self.0.get(question.ok_or_else(unknown)?.0).ok_or_else(unknown)?;
        let turn = prompt.matches("<|assistant|>").count();
        let reply = match (request.role, steps.get(turn - 1)) {
            (Role::Planner, None) => "Yes, I will stop planning.".to_owned(),
            (Role::Planner, Some(step)) if turn == 1 => format!("Subgoal 1: {}", step.sentence),
            (Role::Planner, Some(step)) => {
                format!("No, I will keep planning. Subgoal {turn}: {}", step.sentence)
            }
            (_, Some(step)) => format!("R{turn} = Calculator({})", step.calculation),
            (_, None) => return Err(unknown()),
        };
        Ok(Completion::recorded(reply))
    }
}
