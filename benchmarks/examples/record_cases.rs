//! Records scripted episodes as cases: reads scenarios from standard input and writes cases to standard
//! output.
//!
//! `cargo run -p lumos-benchmarks --example record_cases < tests/cases/maths_scenarios.jsonl >
//! tests/cases/maths.jsonl`
//!
//! The question-answering cases are created in the same way from `qa_scenarios.jsonl`.
//!
//! A scenario is a JSON object: `id`, `benchmark`, `formulation`, `tags`, `sample` (the position of a
//! built-in sample) or `item` (a record), the replies in `plan` and `ground` or in `answer`, and in `service`
//! the maths service's replies to some queries (all others are computed). The service's replies have the
//! format of recorded calls; `{"no_result": "why"}` means that there is no result. Pages come from the
//! benchmark's sample corpus, passages are ranked by the number of words they share with the question, and
//! `chat` contains the chat model's replies, in order. `raises` is the name of the exception with which the
//! published scripts end on this episode.

mod support;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;

use lumos_benchmarks::{Benchmark, DataSource, get, replay};
use lumos_tasks::recorded::{Case, Expected};
use lumos_tasks::{
    Behaviour, Completion, Configuration, ContentHash, Episode, Formulation, Item, ItemId, MathsReply, Next,
    Reply, Role, ToolCall, ToolReply, WorkUnit,
};
use serde::Deserialize;
use serde_json::Value;

use support::{World, mathematics};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    id: String,
    benchmark: String,
    formulation: Formulation,
    tags: Vec<String>,
    sample: Option<usize>,
    item: Option<Value>,
    #[serde(default)]
    plan: Vec<String>,
    #[serde(default)]
    ground: Vec<String>,
    #[serde(default)]
    answer: Vec<String>,
    #[serde(default)]
    service: BTreeMap<String, Value>,
    #[serde(default)]
    chat: Vec<String>,
    raises: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let scenario: Scenario = serde_json::from_str(&line?)?;
        let case = record(&scenario).map_err(|error| format!("{}: {error}", scenario.id))?;
        writeln!(out, "{}", serde_json::to_string(&case)?)?;
    }
    Ok(())
}

fn record(scenario: &Scenario) -> Result<Case, Box<dyn Error>> {
    let benchmark = get(&scenario.benchmark)?;
    let item = item(scenario, benchmark)?;
    let behaviour = match scenario.tags.iter().any(|tag| tag == "behaviour:corrected") {
        true => Behaviour::Corrected,
        false => Behaviour::Paper,
    };
    let configuration = Arc::new(Configuration {
        behaviour,
        max_rounds: benchmark.max_rounds(behaviour),
        ..replay::configuration(benchmark, scenario.formulation, Vec::new())
    });
    let unit = WorkUnit::new(item.id.clone(), item.task.clone(), item.setup.clone(), configuration);
    let mut episode = Episode::start(&unit);
    let mut asked: BTreeMap<Role, usize> = BTreeMap::new();
    let world = World::of(benchmark);
    let mut chat = scenario.chat.iter();
    loop {
        let reply = match episode.next() {
            Next::Done => break,
            Next::Generate(request) => {
                let replies = match request.role {
                    Role::Planner => &scenario.plan,
                    Role::Grounder => &scenario.ground,
                    Role::Answerer => &scenario.answer,
                    Role::Qa | Role::Judge => {
                        return Err(format!("unexpected request for the {}", request.role).into());
                    }
                };
                let index = asked.entry(request.role).or_default();
                let reply =
                    replies.get(*index).ok_or_else(|| format!("no reply {index} of {}", request.role))?;
                *index += 1;
                Reply::Completion(Completion::recorded(reply))
            }
            Next::Call(ToolCall::Maths { query }) => Reply::Tool(ToolReply::Maths(said(scenario, query)?)),
            Next::Call(call @ ToolCall::Chat { .. }) => {
                let reply = chat.next().ok_or("the scenario has too few `chat` replies")?;
                Reply::Tool(world.answer(call, |_| reply.clone()))
            }
            Next::Call(call) => Reply::Tool(world.answer(call, |_| String::new())),
        };
        episode.feed(reply)?;
    }
    if chat.next().is_some() {
        return Err("the scenario has unused `chat` replies".into());
    }
    let mut case = replay::record(&item, &unit, &episode.finish())?;
    case.id.clone_from(&scenario.id);
    for tag in &scenario.tags {
        if !case.tags.contains(tag) {
            case.tags.push(tag.clone());
        }
    }
    if let Some(exception) = &scenario.raises {
        case.expected = Expected { raises: Some(exception.clone()), ..Expected::default() };
    }
    match replay::replay(&case).difference {
        Some(difference) => Err(difference.into()),
        None => Ok(case),
    }
}

fn item(scenario: &Scenario, benchmark: &dyn Benchmark) -> Result<Item, Box<dyn Error>> {
    if let Some(index) = scenario.sample {
        return Ok(benchmark.open(DataSource::Samples)?.nth(index).ok_or("sample not found")??);
    }
    let record = scenario.item.clone().ok_or("missing `sample` or `item`")?;
    let content = benchmark.read(&record)?;
    Ok(Item {
        id: ItemId { content: ContentHash::of_json(&record), occurrence: 0 },
        index: 0,
        name: content.name,
        group: content.group,
        task: content.task,
        setup: content.setup,
        target: content.target,
        record,
    })
}

/// Returns the service's reply to a query.
fn said(scenario: &Scenario, query: &str) -> Result<MathsReply, Box<dyn Error>> {
    let Some(given) = scenario.service.get(query) else {
        return Ok(mathematics(query));
    };
    Ok(match given {
        Value::String(text) => MathsReply::One(text.clone()),
        Value::Array(texts) => {
            MathsReply::Many(texts.iter().map(|text| text.as_str().map(str::to_owned)).collect())
        }
        Value::Null => MathsReply::Empty,
        Value::Object(_) => MathsReply::NoResult { message: "scripted".to_owned() },
        Value::Bool(_) | Value::Number(_) => return Err(format!("`{query}`: invalid service reply").into()),
    })
}
