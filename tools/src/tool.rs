//! The interface of tools: [`Tools`] answers the calls of an episode, or fails with a [`ToolFault`].

use std::sync::Arc;

use async_trait::async_trait;
use lumos_tasks::{EpisodeUnit, ToolCall, ToolReply};
use thiserror::Error;

/// A backend that answers tool calls.
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
    async fn open(&self, _unit: &EpisodeUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        Ok(None)
    }

    /// Ends a session, whatever the outcome of its episode. A session that is dropped without this call (its
    /// episode was cancelled) cleans up by itself.
    async fn close(&self) {}

    /// Shuts down the tool after its last episode. Removes what it created on remote servers.
    async fn shut_down(&self) {}
}

/// A failure of a tool that is not caused by the agent: no network, quota exceeded, timeout.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{tool}: {message}")]
pub struct ToolFault {
    /// Name of the tool.
    pub tool: &'static str,
    /// The cause. Contains no secrets.
    pub message: String,
}
