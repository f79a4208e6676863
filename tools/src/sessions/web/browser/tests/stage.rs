//! A session on pages, and calls to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use lumos_tasks::families::web::{
    ActionName, Obstacle, PageAction, PageExecution, WebResult, WebStep, prompts_hash,
};
use lumos_tasks::{
    Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, ItemId, Setup, Task, ToolCall,
    ToolReply, WorkUnit,
};

use crate::browser::webdriver::tests::support::TestPool;
use crate::sessions::web::BrowserPages;
use crate::{ToolFault, Tools};

/// An episode's pages in a separate pool of browsers.
pub(crate) struct Stage {
    pub(crate) pool: TestPool,
    session: Arc<dyn Tools>,
}

/// The action was executed, and the gold element can be clicked.
pub(crate) const DONE: PageExecution =
    PageExecution { action: WebResult::Done, truth: Some(WebResult::Done) };

pub(crate) fn step(page: &str, positives: &[&str]) -> WebStep {
    WebStep {
        page: page.to_owned(),
        positives: positives.iter().map(|&id| id.to_owned()).collect(),
        negatives: Vec::new(),
    }
}

pub(crate) fn unit(steps: Vec<WebStep>) -> WorkUnit {
    let configuration = Configuration {
        benchmark: "mind2web".to_owned(),
        formulation: Formulation::Iterative,
        behaviour: Behaviour::Corrected,
        max_rounds: 15,
        models: BTreeMap::new(),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: prompts_hash(),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    };
    let item = ItemId { content: ContentHash::of_bytes(b"item"), occurrence: 0 };
    let task = Task::Web {
        task: "Buy it".to_owned(),
        steps: u32::try_from(steps.len()).unwrap(),
        teacher_forced_history: Vec::new(),
        verbs: Vec::new(),
    };
    WorkUnit::new(item, task, Setup::Web { steps }, Arc::new(configuration))
}

impl Stage {
    pub(crate) async fn new(steps: Vec<WebStep>) -> Self {
        Self::with(TestPool::new(1), steps, None).await
    }

    pub(crate) async fn with(pool: TestPool, steps: Vec<WebStep>, screenshots: Option<PathBuf>) -> Self {
        let pages = BrowserPages::new(pool.pool.clone(), screenshots);
        let session = pages.open(&unit(steps)).await.unwrap().unwrap();
        Self { pool, session }
    }

    /// Opens other pages in the same browsers.
    pub(crate) async fn again(self, steps: Vec<WebStep>, screenshots: Option<PathBuf>) -> Self {
        let Self { pool, session } = self;
        drop(session);
        Self::with(pool, steps, screenshots).await
    }

    pub(crate) async fn call(&self, call: ToolCall) -> Result<ToolReply, ToolFault> {
        self.session.call(&call).await
    }

    pub(crate) async fn carry(
        &self,
        step: u32,
        action: ActionName,
        element: &str,
        text: Option<&str>,
    ) -> Result<PageExecution, ToolFault> {
        let (element, text) = (element.to_owned(), text.map(str::to_owned));
        let attempt = PageAction { step, page: step, element, action, text };
        match self.call(ToolCall::Carry(attempt)).await? {
            ToolReply::Carried(carried) => Ok(carried),
            other => panic!("{other:?}"),
        }
    }

    /// Executes an action on the first page. Returns the obstacle, or `None` if the action was executed.
    pub(crate) async fn obstacle(&self, action: ActionName, element: &str, text: &str) -> Option<Obstacle> {
        match self.carry(0, action, element, Some(text)).await.unwrap().action {
            WebResult::Done => None,
            WebResult::Refused(obstacle) => Some(obstacle),
        }
    }

    /// Ends the session and checks that no browser process is left.
    pub(crate) fn end(self) {
        drop(self.session);
        let left = self.pool.left();
        assert!(left.is_empty(), "{left:?}");
    }
}
