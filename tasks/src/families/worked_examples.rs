//! Worked examples of conversations, for models that were not trained on them ([`WorkedExample`]).
//!
//! `worked_examples.json` has the replies of planner and grounder; the user's turns between them are built by the
//! functions that build them in an episode. The families `sql` and `shop` have their own examples in every prompt.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use super::agent::{AgentDefinition, ShownResults};
use super::prompts::{self, ASSISTANT, KEEP_PLANNING, STOP_PLANNING, USER, next_subgoal, subgoal};
use super::{maths, qa, web};
use crate::configuration::Configuration;
use crate::formulation::Formulation;
use crate::item::{AnswerForm, Task};
use crate::request::Role;

/// The source of [`WorkedExample`]s; part of the layout's hash.
pub(super) const SOURCE: &str = include_str!("worked_examples.json");

static EXAMPLES: LazyLock<BTreeMap<String, Vec<WorkedExample>>> =
    LazyLock::new(|| serde_json::from_str(SOURCE).unwrap_or_default());

/// Which examples precede a task's conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExampleSet {
    Maths,
    Entity,
    YesNo,
    Web,
    /// None: the prompts have examples of their own.
    InPrompts,
    /// Those of an agent of a task file.
    Agent(Arc<AgentDefinition>, AnswerForm),
}

impl ExampleSet {
    /// The examples for a task under a configuration.
    pub(crate) fn of(task: &Task, configuration: &Configuration) -> Self {
        match (task, &configuration.agent) {
            (Task::Qa { answer, .. }, Some(agent)) => Self::Agent(Arc::clone(agent), *answer),
            _ => Self::built_in(task),
        }
    }

    fn built_in(task: &Task) -> Self {
        match task {
            Task::Maths { .. } => Self::Maths,
            Task::Qa { answer: AnswerForm::Entity, .. } => Self::Entity,
            Task::Qa { answer: AnswerForm::YesNo, .. } => Self::YesNo,
            Task::Web { .. } => Self::Web,
            Task::Sql { .. } | Task::Shop { .. } | Task::Judge { .. } | Task::Added(_) => Self::InPrompts,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Maths => "maths",
            Self::Entity => "entity",
            Self::YesNo => "yes_no",
            Self::Web => "web",
            Self::InPrompts | Self::Agent(..) => "",
        }
    }

    /// The examples, at most `most`.
    pub(super) fn examples(&self, most: u8) -> impl Iterator<Item = &WorkedExample> {
        let examples = match self {
            Self::Agent(agent, _) => agent.examples.as_slice(),
            set => EXAMPLES.get(set.name()).map_or(&[][..], Vec::as_slice),
        };
        examples.iter().take(most.into())
    }

    /// The planner's first prompt for a task.
    fn plan(&self, task: &str) -> String {
        match self {
            Self::Agent(agent, _) => agent.plan_prompt(task),
            _ => prompts::plan(task),
        }
    }

    /// The grounder's instruction.
    fn actions(&self) -> Cow<'_, str> {
        match self {
            Self::Maths => maths::GROUND.into(),
            Self::Web => web::prompts::GROUND.into(),
            Self::Entity | Self::YesNo | Self::InPrompts => qa::prompts::GROUND.into(),
            Self::Agent(agent, _) => agent.ground().into(),
        }
    }
}

/// A solved task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkedExample {
    /// The task.
    pub task: String,
    /// Its subgoals in order.
    pub subgoals: Vec<WorkedSubgoal>,
    /// Reply with a chain of thought, for models that answer on their own.
    #[serde(default)]
    pub chain: String,
    /// Direct reply, for models that answer on their own.
    #[serde(default)]
    pub answer: String,
}

/// A subgoal of a solved task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkedSubgoal {
    /// The subgoal, without its number.
    pub subgoal: String,
    /// The grounder's reply: actions separated by `; `.
    pub actions: String,
    /// The result that the planner is shown. On web pages: the sentence of the gold action.
    pub result: String,
}

impl WorkedExample {
    /// The user's turns and the replies of a role's model.
    pub(super) fn turns(
        &self,
        role: Role,
        set: &ExampleSet,
        formulation: Formulation,
    ) -> Vec<(String, String)> {
        match (role, formulation) {
            (Role::Planner, Formulation::OneTime) => vec![(set.plan(&self.task), self.all_subgoals())],
            (Role::Planner, _) => self.plan(set),
            (Role::Grounder, Formulation::OneTime) => {
                let actions: Vec<_> = self.subgoals.iter().map(|one| one.actions.as_str()).collect();
                let prompt =
                    prompts::ground(&set.actions(), &self.task, true) + &subgoal(&self.all_subgoals());
                vec![(prompt, actions.join("; "))]
            }
            (Role::Grounder, _) => self.ground(set),
            (_, Formulation::Cot) => self.alone(&self.chain),
            _ => self.alone(&self.answer),
        }
    }

    /// The conversation of a model that answers on its own; none if the example has no such reply.
    fn alone(&self, reply: &str) -> Vec<(String, String)> {
        let turn = || (prompts::answer(&self.task), reply.to_owned());
        (!reply.is_empty()).then(turn).into_iter().collect()
    }

    fn all_subgoals(&self) -> String {
        let named =
            (1..).zip(&self.subgoals).map(|(number, one)| format!("Subgoal {number}: {}", one.subgoal));
        named.collect::<Vec<_>>().join("; ")
    }

    /// The planner's replies of an iterative conversation.
    fn replies(&self) -> impl Iterator<Item = (u32, String, &WorkedSubgoal)> {
        (1..).zip(&self.subgoals).map(|(number, one)| {
            let keep = if number == 1 { String::new() } else { format!("{KEEP_PLANNING} ") };
            (number, format!("{keep}Subgoal {number}: {}", one.subgoal), one)
        })
    }

    fn plan(&self, set: &ExampleSet) -> Vec<(String, String)> {
        let mut turns = Vec::new();
        let mut prompt = set.plan(&self.task);
        for (number, reply, one) in self.replies() {
            turns.push((prompt, reply));
            prompt = match set {
                ExampleSet::Web => web::prompts::plan_again(number, &one.result),
                _ => prompts::plan_again("", number, &one.result),
            };
        }
        turns.push((prompt, format!("{STOP_PLANNING}.")));
        turns
    }

    fn ground(&self, set: &ExampleSet) -> Vec<(String, String)> {
        let mut answers: Vec<(String, &str)> = Vec::new();
        let mut turns = Vec::new();
        for (number, plan, one) in self.replies() {
            let prompt = match number {
                1 => prompts::ground(&set.actions(), &self.task, false) + &subgoal(&plan),
                _ => {
                    let known = answers.iter().map(|(name, answer)| (name.as_str(), *answer));
                    let next = match set {
                        ExampleSet::Maths => subgoal(&plan),
                        ExampleSet::Web => next_subgoal(&plan),
                        ExampleSet::Agent(agent, _) if agent.results == ShownResults::None => {
                            next_subgoal(&plan)
                        }
                        _ => qa::prompts::subgoal_with_results(&plan, known),
                    };
                    prompts::ground_again("") + &next
                }
            };
            turns.push((prompt, one.actions.clone()));
            let answer = match set {
                ExampleSet::Agent(agent, _) if !agent.paper_quirks => qa::answer::own_value(&one.result),
                _ => qa::answer::of_value(&one.result),
            };
            answers.push((format!("Subgoal {number}"), answer));
        }
        turns
    }
}

/// The content of the user's last turn in a text of Lumos's layout, which ends with the model's marker.
pub(super) fn content(text: &str) -> &str {
    let text = text.strip_suffix(ASSISTANT).unwrap_or(text);
    text.rsplit(USER).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::web::ParsedWebAction;
    use crate::prompt_format::PromptFormat;

    const SETS: [ExampleSet; 4] = [ExampleSet::Maths, ExampleSet::Entity, ExampleSet::YesNo, ExampleSet::Web];

    #[test]
    fn every_set_has_the_usual_number_of_examples() {
        let parsed: BTreeMap<String, Vec<WorkedExample>> = serde_json::from_str(SOURCE).unwrap();
        assert_eq!(parsed.len(), SETS.len());
        for set in &SETS {
            assert_eq!(set.examples(u8::MAX).count(), usize::from(PromptFormat::USUAL_EXEMPLARS), "{set:?}");
            assert_eq!((set.examples(0).count(), set.examples(1).count()), (0, 1));
        }
        assert_eq!(ExampleSet::InPrompts.examples(2).count(), 0);
    }

    #[test]
    fn replies_are_single_lines_and_variables_are_numbered() {
        for set in &SETS {
            for example in set.examples(u8::MAX) {
                let turns = example.turns(Role::Grounder, set, Formulation::Iterative);
                let actions: Vec<_> = turns.iter().flat_map(|(_, reply)| reply.split("; ")).collect();
                for (number, action) in (1..).zip(&actions) {
                    assert!(action.starts_with(&format!("R{number} = ")), "{action}");
                    assert!(*set != ExampleSet::Web || ParsedWebAction::strictly(action).is_ok(), "{action}");
                }
                for role in [Role::Planner, Role::Grounder] {
                    for formulation in [Formulation::Iterative, Formulation::OneTime] {
                        for (prompt, reply) in example.turns(role, set, formulation) {
                            assert!(!reply.contains('\n') && !reply.is_empty(), "{reply}");
                            assert!(prompt.ends_with(ASSISTANT) && !content(&prompt).is_empty(), "{prompt}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn answers_of_the_examples_are_extracted_by_the_families() {
        let direct = |set: ExampleSet, formulation| {
            let examples = set.examples(u8::MAX);
            let reply = examples.map(|one| one.turns(Role::Answerer, &set, formulation).remove(0).1);
            reply.collect::<Vec<_>>()
        };
        for (formulation, answer) in [
            (Formulation::Cot, maths::answer::of_chain as fn(&str) -> String),
            (Formulation::Direct, maths::answer::of_direct),
        ] {
            let found: Vec<_> =
                direct(ExampleSet::Maths, formulation).iter().map(|one| answer(one)).collect();
            assert_eq!(found, ["138", "51"]);
            let of = |set, form| -> Vec<_> {
                let replies = direct(set, formulation);
                replies.iter().map(|one| qa::answer::of_reply(one, form, formulation).unwrap()).collect()
            };
            assert_eq!(of(ExampleSet::Entity, AnswerForm::Entity), ["Mediterranean Sea", "Charles Babbage"]);
            assert_eq!(of(ExampleSet::YesNo, AnswerForm::YesNo), ["true", "false"]);
        }
    }
}
