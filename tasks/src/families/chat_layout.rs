//! What a model that was not trained on Lumos's conversations is given before one: instructions for its role, and worked
//! examples. `docs/reference/chat-layout.md` documents the messages.

pub(crate) use super::worked_examples::ExampleSet;
use super::worked_examples::{SOURCE, content};
use crate::formulation::Formulation;
use crate::identity::ContentHash;
use crate::item::AnswerForm;
use crate::request::{Message, Role};

const PLANNER: &str = "You plan how to solve a task, one subgoal at a time. Reply with one line and nothing else. Your \
first reply has the form `Subgoal 1: <what to do first>`. After each subgoal you receive its result. If the task is not \
solved yet, reply `No, I will keep planning. Subgoal <number>: <what to do next>`. If it is solved, reply `Yes, I will \
stop planning.`";

const ONE_TIME_PLANNER: &str = "You plan how to solve a task. Reply with one line that has all subgoals in their order, \
and nothing else: `Subgoal 1: <what to do first>; Subgoal 2: <what to do next>`.";

const GROUNDER: &str = "You turn subgoals of a task into actions. Use only actions of the available action list. Reply \
with one line that has the actions in their order, and nothing else: `R1 = <Action>(<arguments>); R2 = \
<Action>(<arguments>)`. Continue the numbers of the variables through the whole conversation. Actions can use earlier \
variables.";

const CHAIN: &str = "You answer questions. Reason briefly, then state the answer, all in one line.";
const DIRECT: &str = "You answer questions. Reply with the answer in one line and nothing else.";

/// The form of answers, by the set of examples.
fn answer_form(set: &ExampleSet, formulation: Formulation) -> &'static str {
    match (set, formulation) {
        (ExampleSet::Entity | ExampleSet::Agent(_, AnswerForm::Entity), Formulation::Cot) => {
            " End with `Based on these evidences and decomposed questions, the answer is <answer>.`"
        }
        (ExampleSet::Entity | ExampleSet::Agent(_, AnswerForm::Entity), _) => "",
        (ExampleSet::YesNo | ExampleSet::Agent(_, AnswerForm::YesNo), _) => {
            " End with `Answer is true.` or `Answer is false.`"
        }
        _ => " End with `Answer is <answer>.`",
    }
}

fn instructions(role: Role, set: &ExampleSet, formulation: Formulation) -> String {
    match (role, formulation) {
        (Role::Planner, Formulation::OneTime) => ONE_TIME_PLANNER.to_owned(),
        (Role::Planner, _) => PLANNER.to_owned(),
        (Role::Grounder, _) => GROUNDER.to_owned(),
        (_, Formulation::Cot) => format!("{CHAIN}{}", answer_form(set, formulation)),
        _ => format!("{DIRECT}{}", answer_form(set, formulation)),
    }
}

/// The messages before a conversation: instructions and worked examples, at most `most`.
pub(crate) fn opening(role: Role, set: &ExampleSet, formulation: Formulation, most: u8) -> Vec<Message> {
    let message = |role: &str, content: String| Message { role: role.to_owned(), content };
    let mut messages = vec![message("system", instructions(role, set, formulation))];
    for example in set.examples(most) {
        for (prompt, reply) in example.turns(role, set, formulation) {
            messages.push(message("user", content(&prompt).to_owned()));
            messages.push(message("assistant", reply));
        }
    }
    messages
}

/// Hash of the instructions and worked examples that models with a chat interface receive.
pub fn chat_layout_hash() -> ContentHash {
    let forms: Vec<_> = [ExampleSet::Maths, ExampleSet::Entity, ExampleSet::YesNo]
        .into_iter()
        .flat_map(|set| {
            [Formulation::Cot, Formulation::Direct].map(|formulation| answer_form(&set, formulation))
        })
        .collect();
    ContentHash::of_json(&(
        "chat-layout/1",
        PLANNER,
        ONE_TIME_PLANNER,
        GROUNDER,
        CHAIN,
        DIRECT,
        forms,
        SOURCE,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_before_a_conversation() {
        let shown = |role, set, formulation| {
            let messages = opening(role, &set, formulation, 1);
            messages
                .iter()
                .map(|one| format!("[{}]\n{}", one.role, one.content))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let texts = [
            shown(Role::Planner, ExampleSet::Maths, Formulation::Iterative),
            shown(Role::Grounder, ExampleSet::Entity, Formulation::Iterative),
            shown(Role::Planner, ExampleSet::Web, Formulation::Iterative),
            shown(Role::Planner, ExampleSet::Maths, Formulation::OneTime),
            shown(Role::Grounder, ExampleSet::Maths, Formulation::OneTime),
            shown(Role::Answerer, ExampleSet::YesNo, Formulation::Cot),
            shown(Role::Grounder, ExampleSet::InPrompts, Formulation::Iterative),
        ];
        insta::assert_snapshot!(texts.join("\n=====\n"));
    }
}
