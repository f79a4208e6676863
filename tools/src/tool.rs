//! The interface of tools: [`Tools`] answers the calls of an episode, or fails with a [`ToolFault`]. The tools of a
//! configuration are a [`ToolSet`], which routes each call to the backend of its tool.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use lumos_tasks::{ToolCall, ToolReply, WorkUnit};
use thiserror::Error;

/// A backend that answers tool calls.
///
/// It sets the limits of its calls and replies itself. A call that never returns ends only with `--time-limit`, or on a
/// worker with `--stall-limit`. Replies are recorded in full: on a queue, a record of more than 64 MiB becomes a fault.
#[async_trait]
pub trait Tools: Send + Sync {
    /// Answers a call. A missing result is a reply; an error is a failure of the infrastructure.
    ///
    /// # Errors
    /// If the tool is not available.
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault>;

    /// Opens a session with separate state for one episode (a shop visit, a database). Returns `None` if
    /// calls do not depend on earlier ones, so that all episodes share the tool.
    ///
    /// # Errors
    /// If the session cannot be opened.
    async fn open(&self, _unit: &WorkUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        Ok(None)
    }

    /// Ends a session, whatever the outcome of its episode. A session that is dropped without this call (its
    /// episode was cancelled) cleans up by itself.
    async fn close(&self) {}

    /// Lists the operations of a tool that describes them: an MCP server. Empty for others.
    ///
    /// # Errors
    /// If the tool is not available.
    async fn operations(&self) -> Result<Vec<ToolOperation>, ToolFault> {
        Ok(Vec::new())
    }

    /// Shuts down the tool after its last episode. Removes what it created on remote servers.
    async fn shut_down(&self) {}
}

/// An operation of a tool that is not part of the program.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOperation {
    /// Its name, which a call contains.
    pub name: String,
    /// What it does, in the tool's own words.
    pub description: String,
    /// JSON Schema of its arguments.
    pub arguments: serde_json::Value,
}

/// A failure of a tool that is not caused by the agent: no network, quota exceeded, timeout.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{tool}: {message}")]
pub struct ToolFault {
    /// Name of the tool.
    pub tool: Cow<'static, str>,
    /// The cause. Contains no secrets.
    pub message: String,
}

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
            None => {
                let tool = call.tool();
                let message = format!("no backend configured; hint: name one with `--tool {tool}=<BACKEND>`");
                Err(ToolFault { tool: tool.to_owned().into(), message })
            }
        }
    }

    async fn open(&self, unit: &WorkUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
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

/// Runs work that takes too long for a thread of the runtime.
pub(super) async fn blocking<T: Send + 'static>(
    tool: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ToolFault> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ToolFault { tool: tool.into(), message: error.to_string() })
}

/// The error of a build without a cargo feature.
#[cfg(not(all(feature = "browser", feature = "mcp", feature = "mysql")))]
pub(super) fn not_built_with(feature: &str) -> String {
    format!("this program was built without `{feature}`; hint: build it with `--features {feature}`")
}

/// Returns the fault for a call that the backend does not support.
pub(super) fn not_mine(call: &ToolCall, backend: &str) -> ToolFault {
    ToolFault {
        tool: call.tool().to_owned().into(),
        message: format!("unsupported call of the backend {backend}"),
    }
}
