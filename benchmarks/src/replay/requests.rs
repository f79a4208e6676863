//! [`recorded_requests`]: the requests to models of a recorded outcome, from its episode with the recorded replies.
//!
//! A record has the conversations in Lumos's own layout. The messages that other layouts are rendered from, with
//! instructions and worked examples, follow from the unit, so they are not recorded.

use lumos_tasks::{
    Completion, Episode, Next, Outcome, Reply, Request, Step, ToolCall, ToolReply, UnitId, WorkUnit,
};

use super::web;

/// A request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    /// The planner turn, counted from 1.
    pub turn: u32,
    /// The request, with the conversation as the model's backend receives it.
    pub request: Request,
}

/// Returns the requests of planner, grounder and answerer of a recorded outcome, in order. Requests of tools are not
/// included.
///
/// # Errors
/// If this version prompts differently from the one that recorded the outcome. The error is a message.
pub fn recorded_requests(unit: &WorkUnit, recorded: &Outcome) -> Result<Vec<RecordedRequest>, String> {
    let mut episode = Episode::start(unit);
    let mut requests = Vec::new();
    for step in &recorded.steps {
        let reply = match (episode.next(), step) {
            (_, Step::Action { .. }) => continue,
            (
                Next::Generate(request),
                Step::Generate { turn, prompt, reply, finish, prompt_tokens, completion_tokens, .. },
            ) if request.prompt() == prompt => {
                requests.push(RecordedRequest { turn: *turn, request: request.clone() });
                Reply::Completion(Completion {
                    finish: *finish,
                    prompt_tokens: *prompt_tokens,
                    completion_tokens: *completion_tokens,
                    ..Completion::recorded(reply)
                })
            }
            // Records leave out the texts of page elements.
            (Next::Call(ToolCall::Candidates { step, scope }), Step::Call { reply, .. }) => {
                Reply::Tool(match reply {
                    ToolReply::Candidates(_) => web::candidates(&unit.setup, *step, *scope)?,
                    reply => reply.clone(),
                })
            }
            (Next::Call(_), Step::Call { reply, .. }) => Reply::Tool(reply.clone()),
            _ => return Err(differing(&unit.id)),
        };
        episode.feed(reply).map_err(|_| differing(&unit.id))?;
    }
    Ok(requests)
}

fn differing(unit: &UnitId) -> String {
    format!("unit {} was recorded with other prompts than those of this version", unit.short())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lumos_tasks::{
        ContentHash, Formulation, Input, ItemId, MathsReply, PromptFormat, PromptTemplate, Role, Setup, Task,
    };

    use super::super::drive::configuration;
    use super::*;

    /// The unit of a word problem with a prompt template, its outcome, and the requests that were made.
    fn driven(template: PromptTemplate) -> (WorkUnit, Outcome, Vec<Request>) {
        let benchmark = crate::get("gsm8k").unwrap();
        let mut configuration = configuration(benchmark, Formulation::Iterative, Vec::new());
        configuration.format = PromptFormat { template, exemplars: Some(1) };
        let item = ItemId { content: ContentHash::of_bytes(b"item"), occurrence: 0 };
        let task = Task::Maths { question: "Add 2 and 3, then double the sum.".to_owned() };
        let unit = WorkUnit::new(item, task, Setup::None, Arc::new(configuration));
        let mut planned = ["Subgoal 1: Add.", "Subgoal 2: Double.", "Yes, I will stop planning."].into_iter();
        let mut requests = Vec::new();
        let mut episode = Episode::start(&unit);
        while *episode.next() != Next::Done {
            let reply = match episode.next() {
                Next::Generate(request) => {
                    requests.push(request.clone());
                    let text = match request.role {
                        Role::Planner => planned.next().unwrap(),
                        _ => "R1 = Calculator(2 + 3)",
                    };
                    Reply::Completion(Completion::recorded(text))
                }
                _ => Reply::Tool(ToolReply::Maths(MathsReply::One("5".to_owned()))),
            };
            episode.feed(reply).unwrap();
        }
        (unit, episode.finish(), requests)
    }

    #[test]
    fn requests_are_those_that_were_made() {
        for template in [PromptTemplate::Tulu, PromptTemplate::Chatml] {
            let (unit, outcome, made) = driven(template.clone());
            assert!(made.len() >= 5, "{made:?}");
            let recorded = recorded_requests(&unit, &outcome).unwrap();
            let turns: Vec<u32> = recorded.iter().map(|one| one.turn).collect();
            assert_eq!(turns[..5], [1, 1, 2, 2, 3]);
            assert_eq!(recorded.into_iter().map(|one| one.request).collect::<Vec<_>>(), made);
            let first = recorded_requests(&unit, &outcome).unwrap().remove(0).request.input;
            let has_instructions =
                matches!(first, Input::Templated(prompt) if prompt.messages[0].role == "system");
            assert_eq!(has_instructions, template != PromptTemplate::Tulu);
        }
    }

    #[test]
    fn a_record_of_other_prompts_is_refused() {
        let (unit, mut outcome, _) = driven(PromptTemplate::Chatml);
        let second = outcome.steps.iter_mut().filter_map(|step| match step {
            Step::Generate { prompt, .. } => Some(prompt),
            _ => None,
        });
        second.skip(1).take(1).for_each(|prompt| prompt.push('x'));
        let refused = recorded_requests(&unit, &outcome).unwrap_err();
        assert!(refused.contains(unit.id.short()) && refused.contains("other prompts"), "{refused}");
    }
}
