//! Web pages, parsed natively: `--tool web=native`. A session holds the unit's pages and returns the texts of
//! their candidates. A page is parsed when it is requested.

use std::sync::Arc;

use async_trait::async_trait;
use lumos_environments::dom;
use lumos_tasks::families::web::{CandidateScope, WebStep};
use lumos_tasks::{Setup, ToolCall, ToolReply, WorkUnit};

use crate::tool::{ToolFault, Tools, blocking};

/// Name of the tool.
const TOOL: &str = "web";
/// Version of the actions in a browser.
pub(crate) const BROWSER_VERSION: u32 = 1;

/// Opens sessions on the pages contained in units.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WebPages;

impl WebPages {
    /// Version of the code that determines the replies.
    pub(crate) const VERSION: u32 = 1;
}

#[async_trait]
impl Tools for WebPages {
    async fn call(&self, _call: &ToolCall) -> Result<ToolReply, ToolFault> {
        Err(fault("web pages are only available in an episode's session"))
    }

    async fn open(&self, unit: &WorkUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        match &unit.setup {
            Setup::Web { steps } => Ok(Some(Arc::new(Pages::of(steps)))),
            _ => Ok(None),
        }
    }
}

/// The pages of one episode.
pub(super) struct Pages {
    steps: Vec<Arc<WebStep>>,
}

impl Pages {
    pub(super) fn of(steps: &[WebStep]) -> Self {
        Self { steps: steps.iter().cloned().map(Arc::new).collect() }
    }

    /// Returns the page of a gold step.
    pub(super) fn page(&self, step: u32) -> Result<Arc<WebStep>, ToolFault> {
        self.steps.get(step as usize).cloned().ok_or_else(|| fault(format!("page {step} not found")))
    }

    /// Returns the texts of a page's candidates.
    pub(super) async fn candidates(&self, step: u32, scope: CandidateScope) -> Result<ToolReply, ToolFault> {
        let page = self.page(step)?;
        // A large page takes tens of milliseconds, which is too long for a thread of the runtime.
        blocking(TOOL, move || match dom::candidates(&page, scope) {
            Ok(elements) => ToolReply::Candidates(elements),
            Err(error) => ToolReply::Raised { message: format!("{}: {error}", error.exception()) },
        })
        .await
    }
}

#[async_trait]
impl Tools for Pages {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        match call {
            ToolCall::Candidates { step, scope } => self.candidates(*step, *scope).await,
            _ => Err(fault("unsupported call of the web pages")),
        }
    }
}

/// Creates a fault of this tool.
pub(super) fn fault(message: impl Into<String>) -> ToolFault {
    ToolFault { tool: TOOL.into(), message: message.into() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lumos_tasks::families::web::prompts_hash;
    use lumos_tasks::{Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, ItemId, Task};

    use super::*;

    fn unit(setup: Setup) -> WorkUnit {
        let configuration = Configuration {
            benchmark: "mind2web".to_owned(),
            formulation: Formulation::Iterative,
            behaviour: Behaviour::Paper,
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
            steps: 1,
            teacher_forced_history: Vec::new(),
            verbs: Vec::new(),
        };
        WorkUnit::new(item, task, setup, Arc::new(configuration))
    }

    #[tokio::test]
    async fn a_session_shows_the_candidates_of_its_pages() {
        let page = |page: &str| WebStep {
            page: page.to_owned(),
            positives: vec!["2".to_owned()],
            negatives: Vec::new(),
        };
        let steps = vec![page("<a backend_node_id=\"1\"><b backend_node_id=\"2\"/></a>"), page("<a")];
        let session = WebPages.open(&unit(Setup::Web { steps })).await.unwrap().unwrap();
        let call = |step| ToolCall::Candidates { step, scope: CandidateScope::Published };
        let ToolReply::Candidates(elements) = session.call(&call(0)).await.unwrap() else { panic!() };
        assert_eq!(elements[0].text, "ancestors: /a\ntarget: (b id=0 )");
        let broken = session.call(&call(1)).await.unwrap();
        assert!(matches!(broken, ToolReply::Raised { message } if message.starts_with("XMLSyntaxError: ")));
        assert!(session.call(&call(2)).await.is_err());
        assert!(WebPages.open(&unit(Setup::None)).await.unwrap().is_none());
    }
}
