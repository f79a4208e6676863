//! The benchmark `albums`, with a family and a tool that have a state per episode: the agent turns the pages of an album,
//! and answers with the number of stamps that it has seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use lumos_eval::benchmarks::task_file::{TaskDefinition, TaskFamily};
use lumos_eval::benchmarks::{BenchmarkBuilder, Content, RecordError};
use lumos_eval::tasks::families::added::FamilyDescription;
use lumos_eval::tasks::families::plan_loop::{Family, LoopState, PlanLoop, Turn};
use lumos_eval::tasks::families::{Failure, prompts};
use lumos_eval::tasks::outcome::{Observation, Value};
use lumos_eval::tasks::{
    AddedTask, Evidence, ExternalReply, Formulation, Setup, Stage, ToolCall, ToolReply, Want, WorkUnit,
};
use lumos_eval::tools::{BackendDescription, BackendError, BackendResources, NamedBackend, ToolFault, Tools};
use serde_json::{Value as Json, json};

pub(crate) fn albums() -> BenchmarkBuilder {
    let mut definition = TaskDefinition::new("albums", TaskFamily::Custom, "albums/items.jsonl");
    definition.title = Some("Albums".to_owned());
    definition.max_rounds = Some(4);
    definition.added_family = Some(&ALBUM);
    definition.tools.insert("album".to_owned(), "pages".to_owned());
    BenchmarkBuilder::new(definition).samples(include_bytes!("../albums.jsonl")).read(read)
}

/// Reads a record: `{"owner": "Mira", "pages": [3, 5]}`. The pages are hidden from the agent.
fn read(record: &Json) -> Result<Content, RecordError> {
    let owner = record["owner"].as_str().unwrap_or("Mira");
    let pages = pages_in(&record["pages"]).ok_or_else(|| {
        RecordError::new("pages", "a list of whole numbers", record["pages"].to_string(), "TypeError")
    })?;
    let task = AddedTask::new(format!("How many stamps are in {owner}'s album?"), Json::Null);
    let sum: u64 = pages.iter().map(|&stamps| u64::from(stamps)).sum();
    Ok(Content::added(task, Setup::Added { data: json!(pages) }, sum.to_string()))
}

fn pages_in(data: &Json) -> Option<Vec<u32>> {
    data.as_array()?.iter().map(|page| u32::try_from(page.as_u64()?).ok()).collect()
}

static ALBUM: FamilyDescription = FamilyDescription {
    name: "album",
    version: 1,
    formulations: &[Formulation::Iterative],
    tools: &["album"],
    start: |task, configuration| {
        let actions = "Please ground the given subgoal to the action Turn(), which turns the page.\n\n";
        let (plan, ground) = (prompts::plan(&task.task), prompts::ground(actions, &task.task, false));
        PlanLoop::start(Reader::default(), configuration.max_rounds, plan, ground)
    },
};

/// What the agent has seen of the album.
#[derive(Debug, Default)]
struct Reader {
    stamps: Vec<u32>,
}

impl Family for Reader {
    fn stops(&self, plan: &str) -> bool {
        plan.contains(prompts::STOP_PLANNING)
    }

    fn subgoal(&self, plan: &str, _: &LoopState) -> String {
        prompts::subgoal(plan)
    }

    fn execute(&mut self, action: &str, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
        if action.trim() != "Turn()" {
            let failure = Failure::new(Stage::GrounderUnknownAction, format!("unknown action `{action}`"));
            return Err(self.end(Err(failure), state));
        }
        let shown = match turn.replies.first() {
            None => {
                let (name, operation) = ("album".to_owned(), "turn".to_owned());
                return Err(ToolCall::External { name, operation, arguments: json!({}) }.into());
            }
            Some(ToolReply::External(ExternalReply::Text(stamps))) => {
                self.stamps.extend(stamps.parse::<u32>());
                stamps
            }
            Some(ToolReply::External(ExternalReply::Refused(message))) => message,
            Some(_) => "nothing",
        };
        state.actions.push(format!("{action} = {shown}"));
        state.observe(action, Observation::Text(shown.to_owned()));
        Ok(())
    }

    fn conclude(&mut self, _: &[ToolReply], state: &mut LoopState) -> Want {
        let sum: u64 = self.stamps.iter().map(|&stamps| u64::from(stamps)).sum();
        self.end(Ok(Value::Text(sum.to_string())), state)
    }
}

impl Reader {
    fn end(&self, prediction: Result<Value, Failure>, state: &mut LoopState) -> Want {
        let data = json!({ "stamps": self.stamps });
        state.end_with(prediction, None, None, |plan| Evidence::Added { plan, data })
    }
}

pub(crate) static PAGES: BackendDescription = BackendDescription {
    tool: Some("album"),
    forms: &["pages"],
    parse: |_, backend| Ok((backend == "pages").then(|| Box::new(Shelf) as Box<dyn NamedBackend>)),
};

/// Opens an album for each episode.
struct Shelf;

impl NamedBackend for Shelf {
    fn version(&self) -> u32 {
        1
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        Ok(Arc::new(Self))
    }
}

#[async_trait]
impl Tools for Shelf {
    async fn call(&self, _: &ToolCall) -> Result<ToolReply, ToolFault> {
        Err(fault("the episode has no album"))
    }

    async fn open(&self, unit: &WorkUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        let Setup::Added { data } = &unit.setup else { return Ok(None) };
        let pages = pages_in(data).ok_or_else(|| fault("invalid pages"))?;
        Ok(Some(Arc::new(Album { pages, turned: AtomicUsize::new(0) })))
    }
}

/// The album of one episode.
struct Album {
    pages: Vec<u32>,
    turned: AtomicUsize,
}

#[async_trait]
impl Tools for Album {
    async fn call(&self, _: &ToolCall) -> Result<ToolReply, ToolFault> {
        let page = self.turned.fetch_add(1, Ordering::Relaxed);
        Ok(ToolReply::External(match self.pages.get(page) {
            Some(stamps) => ExternalReply::Text(stamps.to_string()),
            None => ExternalReply::Refused("the album has no more pages".to_owned()),
        }))
    }
}

fn fault(message: &str) -> ToolFault {
    ToolFault { tool: "album".into(), message: message.to_owned() }
}
