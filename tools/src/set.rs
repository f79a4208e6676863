//! The tools of a configuration: each call is routed to the backend of its tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use lumos_tasks::{EpisodeUnit, ToolCall, ToolReply};

use super::{ToolFault, Tools};

/// Backends by tool.
#[derive(Clone, Default)]
pub(super) struct ToolSet {
    backends: BTreeMap<String, Arc<dyn Tools>>,
}

impl ToolSet {
    /// Sets a tool's backend.
    pub(super) fn set(&mut self, tool: &str, backend: Arc<dyn Tools>) {
        self.backends.insert(tool.to_owned(), backend);
    }
}

#[async_trait]
impl Tools for ToolSet {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        match self.backends.get(call.tool()) {
            Some(backend) => backend.call(call).await,
            None => Err(not_set_up(call)),
        }
    }

    async fn open(&self, unit: &EpisodeUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        let mut opened: Option<Self> = None;
        for (tool, backend) in &self.backends {
            match backend.open(unit).await {
                Ok(None) => {}
                Ok(Some(session)) => opened.get_or_insert_with(|| self.clone()).set(tool, session),
                Err(fault) => {
                    if let Some(opened) = &opened {
                        opened.close().await;
                    }
                    return Err(fault);
                }
            }
        }
        Ok(opened.map(|set| -> Arc<dyn Tools> { Arc::new(set) }))
    }

    async fn close(&self) {
        for backend in self.backends.values() {
            backend.close().await;
        }
    }
}

/// Returns the fault for a call whose tool has no backend.
fn not_set_up(call: &ToolCall) -> ToolFault {
    let tool = call.tool();
    ToolFault {
        tool,
        message: format!("no backend configured; hint: name one with `--tool {tool}=<BACKEND>`"),
    }
}

/// Returns the fault for a call that the backend does not support.
pub(super) fn not_mine(call: &ToolCall, backend: &str) -> ToolFault {
    ToolFault { tool: call.tool(), message: format!("unsupported call of the backend {backend}") }
}
