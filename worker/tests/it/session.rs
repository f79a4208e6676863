//! A tool's session is closed when its episode ends, whatever the ending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use lumos_models::{ModelBackend, ModelError};
use lumos_tasks::{
    Behaviour, Completion, Configuration, ContentHash, Ending, FaultKind, Formulation, GenerationSettings,
    ItemId, ModelIdentity, Outcome, Request, Role, Setup, Task, ToolCall, ToolReply, WorkUnit,
};
use lumos_tools::{ToolFault, Tools};
use lumos_worker::activity::EpisodeProgress;
use lumos_worker::{Backends, EpisodeLimits, drive};

/// Counts its sessions. Does not open a session for the question `no session`.
#[derive(Default)]
struct World {
    opened: AtomicU32,
    closed: Arc<AtomicU32>,
}

struct Session(Arc<AtomicU32>);

#[async_trait]
impl Tools for Session {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        panic!("{call:?}")
    }

    async fn close(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Tools for World {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        panic!("{call:?}")
    }

    async fn open(&self, unit: &WorkUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        match &unit.task {
            Task::Maths { question } if question == "no session" => {
                Err(ToolFault { tool: "world".into(), message: "no free slot".to_owned() })
            }
            _ => {
                self.opened.fetch_add(1, Ordering::SeqCst);
                Ok(Some(Arc::new(Session(Arc::clone(&self.closed)))))
            }
        }
    }
}

struct Model {
    works: bool,
}

#[async_trait]
impl ModelBackend for Model {
    async fn complete(&self, _request: Request) -> Result<Completion, ModelError> {
        if self.works {
            Ok(Completion::recorded("Answer is 5."))
        } else {
            Err(ModelError::Failed("no".to_owned()))
        }
    }
}

async fn outcome(question: &str, works: bool, world: &Arc<World>) -> Outcome {
    let identity =
        ModelIdentity { name: "model".to_owned(), content: ContentHash::of_bytes(b""), dtype: None };
    let configuration = Configuration {
        benchmark: "gsm8k".to_owned(),
        formulation: Formulation::Cot,
        behaviour: Behaviour::Paper,
        max_rounds: 8,
        models: BTreeMap::from([(Role::Answerer, identity)]),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b""),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    };
    let item = ItemId { content: ContentHash::of_bytes(question.as_bytes()), occurrence: 0 };
    let task = Task::Maths { question: question.to_owned() };
    let unit = WorkUnit::new(item, task, Setup::None, Arc::new(configuration));
    let model: Arc<dyn ModelBackend> = Arc::new(Model { works });
    let tools: Arc<dyn Tools> = Arc::<World>::clone(world);
    let backends = Backends { models: BTreeMap::from([(Role::Answerer, model)]), tools };
    drive(&unit, &backends, EpisodeLimits::default(), &EpisodeProgress::default()).await.0
}

#[tokio::test]
async fn a_session_is_closed_however_its_episode_ends() {
    let world = Arc::new(World::default());
    assert_eq!(outcome("2 + 3?", true, &world).await.ending, Ending::Answered);
    assert!(outcome("2 + 3?", false, &world).await.is_fault());
    assert_eq!((world.opened.load(Ordering::SeqCst), world.closed.load(Ordering::SeqCst)), (2, 2));
}

#[tokio::test]
async fn no_session_is_a_fault_of_the_tool() {
    let world = Arc::new(World::default());
    match outcome("no session", true, &world).await.ending {
        Ending::Faulted(fault) => assert_eq!(fault.kind, FaultKind::Tool),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.opened.load(Ordering::SeqCst), 0);
}
