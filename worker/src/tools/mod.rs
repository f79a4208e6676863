//! Tools: who answers an episode's calls.

mod dpr;
mod maths;
mod recorded;
mod registry;
mod set;
mod wolfram;

use async_trait::async_trait;
use lumos_tasks::{ToolCall, ToolReply};
use thiserror::Error;

pub use dpr::DprRanker;
pub use maths::NativeMaths;
pub use recorded::RecordedTools;
pub use registry::{TOOLS, ToolSetError, ToolSets, maths_backend, rank_backend};
pub use wolfram::{Wolfram, WolframSettings};

/// Something that answers tool calls.
#[async_trait]
pub trait Tools: Send + Sync {
    /// Answers one call. That a tool has no result is a reply; an error is a failure of the infrastructure.
    ///
    /// # Errors
    /// If the tool could not be asked.
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault>;
}

/// A tool that could not be asked: no network, quota spent, time-out. Says nothing about the agent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{tool}: {message}")]
pub struct ToolFault {
    /// The tool.
    pub tool: &'static str,
    /// What happened; holds no secrets.
    pub message: String,
}
