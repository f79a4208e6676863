//! Driving an episode with recorded replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use lumos_tasks::recorded::{Case, Script};
use lumos_tasks::{
    Behaviour, Completion, Configuration, Episode, EpisodeUnit, Evidence, GenerationSettings, Item, Next,
    Outcome, Reply, Role,
};

use super::compare::differing_texts;
use crate::benchmark::Benchmark;

/// The tag of a case that was recorded in corrected behaviour.
pub(super) const CORRECTED: &str = "behaviour:corrected";
/// Starts the tag of a case that was recorded with another limit of rounds.
pub(super) const MAX_ROUNDS: &str = "max_rounds:";

/// The behaviour a case was recorded in.
pub(super) fn behaviour(case: &Case) -> Behaviour {
    if case.tags.iter().any(|tag| tag == CORRECTED) { Behaviour::Corrected } else { Behaviour::Paper }
}

/// An episode that was driven to its end, and how much of the recording it took.
pub(super) struct Driven {
    pub(super) outcome: Outcome,
    asked: Script,
    calls: usize,
}

impl Driven {
    /// How often a module was asked.
    pub(super) fn asked(&self, role: Role) -> usize {
        self.asked.of(role).len()
    }

    /// How many of the recorded tool calls were made.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// What a mathematics episode ended with.
    pub(super) fn evidence(&self) -> Option<&lumos_tasks::outcome::PlanEvidence> {
        match &self.outcome.evidence {
            Some(Evidence::Maths(evidence)) => Some(evidence),
            None => None,
        }
    }
}

/// Runs the case's episode; the error is the first prompt or call that differs.
pub(super) fn drive(case: &Case, item: Item, benchmark: &dyn Benchmark) -> Result<Driven, String> {
    let unit = EpisodeUnit::new(item.id, item.task, item.setup, Arc::new(configuration(case, benchmark)));
    let mut episode = Episode::start(&unit);
    let mut asked = Script::default();
    let mut calls = 0;
    loop {
        let reply = match episode.next() {
            Next::Done => break,
            Next::Generate(request) => {
                let reply = completion(case, request.role, asked.of(request.role).len(), request.prompt())?;
                asked.push(request.role, request.prompt());
                reply
            }
            Next::Call(call) => {
                let reply = match case.tools.get(calls) {
                    Some(recorded) if recorded.records(call) => recorded
                        .reply()
                        .ok_or_else(|| format!("tool call {}: its recorded reply is not one", calls + 1))?,
                    recorded => {
                        let lumos_tasks::ToolCall::Maths { query } = call;
                        return Err(unexpected_call(calls, query, recorded));
                    }
                };
                calls += 1;
                Reply::Tool(reply)
            }
        };
        episode.feed(reply).map_err(|misfit| misfit.to_string())?;
    }
    Ok(Driven { outcome: episode.finish(), asked, calls })
}

/// The recorded reply to a prompt, if the prompt is the recorded one.
fn completion(case: &Case, role: Role, index: usize, prompt: &str) -> Result<Reply, String> {
    let number = index + 1;
    let recorded = case
        .prompts
        .of(role)
        .get(index)
        .ok_or_else(|| format!("the {role} is asked {number} times; recorded are {index} prompts"))?;
    if let Some(difference) = differing_texts(recorded, prompt) {
        return Err(format!("{role} prompt {number}: {difference}"));
    }
    let reply = case
        .script
        .of(role)
        .get(index)
        .ok_or_else(|| format!("the {role} is asked {number} times; recorded are {index} replies"))?;
    Ok(Reply::Completion(Completion::recorded(reply)))
}

fn unexpected_call(
    index: usize,
    query: &str,
    recorded: Option<&lumos_tasks::recorded::RecordedCall>,
) -> String {
    let number = index + 1;
    match recorded {
        None => format!("tool call {number}: asked `{query}`, recorded are only {index} calls"),
        Some(recorded) => match recorded.input.as_str() {
            Some(input) if recorded.tool == "wolfram" => {
                let difference = differing_texts(input, query).unwrap_or_default();
                format!("tool call {number}: {difference}")
            }
            _ => format!("tool call {number}: asked wolfram `{query}`, recorded is one of {}", recorded.tool),
        },
    }
}

fn configuration(case: &Case, benchmark: &dyn Benchmark) -> Configuration {
    let behaviour = behaviour(case);
    let tagged = case.tags.iter().find_map(|tag| tag.strip_prefix(MAX_ROUNDS)?.parse().ok());
    Configuration {
        benchmark: case.benchmark.clone(),
        formulation: case.formulation,
        behaviour,
        max_rounds: tagged.unwrap_or_else(|| benchmark.max_rounds(behaviour)),
        models: BTreeMap::new(),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: benchmark.prompts_hash(),
    }
}
