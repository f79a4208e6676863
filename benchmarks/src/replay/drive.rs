//! Drives an episode with recorded replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use lumos_tasks::outcome::PlanEvidence;
use lumos_tasks::recorded::{CallKey, Case, NotRecorded, RecordedCall, Script, answer};
use lumos_tasks::{
    Behaviour, Completion, Configuration, Episode, Formulation, GenerationSettings, Item, Next, Outcome,
    Reply, Role, Setup, ToolBackend, ToolCall, ToolReply, WorkUnit,
};

use super::compare::differing_texts;
use super::web;
use crate::benchmark::Benchmark;

/// Tag of a case that was recorded in behaviour `corrected`.
pub(super) const CORRECTED: &str = "behaviour:corrected";
/// Prefix of the tag of a case that was recorded with a different limit of rounds.
pub(super) const MAX_ROUNDS: &str = "max_rounds:";

/// Returns the behaviour in which a case was recorded.
pub(super) fn behaviour(case: &Case) -> Behaviour {
    if case.tags.iter().any(|tag| tag == CORRECTED) { Behaviour::Corrected } else { Behaviour::Paper }
}

/// A completed episode, and how much of the recording it used.
pub(super) struct Driven {
    pub(super) outcome: Outcome,
    /// Pages of an episode on web pages.
    pub(super) setup: Setup,
    asked: Script,
    calls: usize,
}

impl Driven {
    /// Number of calls of a module.
    pub(super) fn asked(&self, role: Role) -> usize {
        self.asked.of(role).len()
    }

    /// Number of recorded tool calls that were made.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Returns the evidence of the episode.
    pub(super) fn evidence(&self) -> Option<&PlanEvidence> {
        self.outcome.evidence.as_ref().and_then(|evidence| evidence.plan())
    }
}

/// Runs the case's episode. The error describes the first prompt or call that differs.
pub(super) fn drive(case: &Case, item: Item, benchmark: &dyn Benchmark) -> Result<Driven, String> {
    let task = web::with_recorded_verbs(item.task, case);
    let unit = WorkUnit::new(item.id, task, item.setup, Arc::new(configuration_of(case, benchmark)));
    let mut episode = Episode::start(&unit);
    let mut asked = Script::default();
    let mut calls = 0;
    loop {
        let reply = match episode.next() {
            Next::Done => break,
            Next::Generate(request) => {
                let recorded = (&case.prompts, &case.script);
                let reply =
                    completion(recorded, request.role, asked.of(request.role).len(), request.prompt())?;
                asked.push(request.role, request.prompt());
                reply
            }
            Next::Call(ToolCall::Candidates { step, scope }) => {
                Reply::Tool(web::candidates(&unit.setup, *step, *scope)?)
            }
            Next::Call(call) => {
                let reply = match web::recorded_ranking(case, calls, call) {
                    Some(reply) => {
                        calls += 1;
                        reply?
                    }
                    None => answered(case, &mut calls, call)?,
                };
                Reply::Tool(reply)
            }
        };
        episode.feed(reply).map_err(|misfit| misfit.to_string())?;
    }
    Ok(Driven { outcome: episode.finish(), setup: unit.setup, asked, calls })
}

/// Returns the recorded reply to a prompt, if the prompt equals the recorded one.
pub(super) fn completion(
    (prompts, script): (&Script, &Script),
    role: Role,
    index: usize,
    prompt: &str,
) -> Result<Reply, String> {
    let number = index + 1;
    let recorded = prompts
        .of(role)
        .get(index)
        .ok_or_else(|| format!("the {role} was called {number} times, expected {index} prompts"))?;
    if let Some(difference) = differing_texts(recorded, prompt) {
        return Err(format!("{role} prompt {number}: {difference}"));
    }
    let reply = script
        .of(role)
        .get(index)
        .ok_or_else(|| format!("the {role} was called {number} times, expected {index} replies"))?;
    Ok(Reply::Completion(Completion::recorded(reply)))
}

/// Returns the recorded reply to a call if it equals the recorded calls from `calls` on, and advances
/// `calls`.
pub(super) fn answered(case: &Case, calls: &mut usize, call: &ToolCall) -> Result<ToolReply, String> {
    let at = *calls;
    let mut differing = None;
    let found = answer(call, |key| {
        let recorded = case.tools.get(*calls).filter(|recorded| recorded.key().as_ref() == Some(key))?;
        *calls += 1;
        differing = differing.take().or_else(|| recorded.differing_setting(call));
        Some(recorded)
    });
    if let Some(differing) = differing {
        return Err(format!("tool call {}, {differing}", at + 1));
    }
    found.map_err(|error| match error {
        NotRecorded::Missing(asked) => unexpected_call(*calls, &asked, case.tools.get(*calls)),
        NotRecorded::Malformed(_) => format!("tool call {}: invalid recorded reply", at + 1),
    })
}

fn unexpected_call(index: usize, asked: &CallKey, recorded: Option<&RecordedCall>) -> String {
    let number = index + 1;
    let CallKey { tool, text, .. } = asked;
    let Some(recorded) = recorded else {
        return format!("tool call {number}: got {tool} `{text}`, expected only {index} calls");
    };
    match recorded.key() {
        Some(key) if key.tool == *tool => match differing_texts(&key.text, text) {
            Some(difference) => format!("tool call {number}: {difference}"),
            None => {
                format!("tool call {number}: {tool} `{text}` differs from the recorded call")
            }
        },
        _ => format!("tool call {number}: got {tool} `{text}`, expected a call of {}", recorded.tool),
    }
}

/// Returns the configuration for recorded or hand-written replies: no models, behaviour `paper`.
pub fn configuration(
    benchmark: &dyn Benchmark,
    formulation: Formulation,
    tools: Vec<ToolBackend>,
) -> Configuration {
    let behaviour = Behaviour::Paper;
    Configuration {
        benchmark: benchmark.name().to_owned(),
        formulation,
        behaviour,
        max_rounds: benchmark.max_rounds(behaviour),
        models: BTreeMap::new(),
        tools,
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: benchmark.prompts_hash(),
        format: lumos_tasks::PromptFormat::default(),
        agent: benchmark.agent(),
    }
}

fn configuration_of(case: &Case, benchmark: &dyn Benchmark) -> Configuration {
    let behaviour = behaviour(case);
    let tagged = case.tags.iter().find_map(|tag| tag.strip_prefix(MAX_ROUNDS)?.parse().ok());
    let max_rounds = tagged.unwrap_or_else(|| benchmark.max_rounds(behaviour));
    Configuration { behaviour, max_rounds, ..configuration(benchmark, case.formulation, tools(case)) }
}

/// Returns the tools that affect the course of an episode: a browser, if actions were executed in one.
fn tools(case: &Case) -> Vec<ToolBackend> {
    let carried = case.tools.iter().any(|call| call.tool == RecordedCall::CARRY);
    let browser = || ToolBackend { tool: "web".to_owned(), backend: "chromedriver".to_owned(), version: 0 };
    carried.then(browser).into_iter().collect()
}
