//! Tools: the backends for the calls of an episode.

mod address;
mod bm25;
mod browsers;
mod corpus;
mod cross_encoder;
mod dpr;
mod live;
mod maths;
mod name;
mod pace;
mod recorded;
mod registry;
mod remembering;
mod set;
mod wolfram;

use std::sync::Arc;

use async_trait::async_trait;
use lumos_tasks::{EpisodeUnit, ToolCall, ToolReply};
use thiserror::Error;

pub use bm25::Bm25Ranking;
pub use corpus::Corpus;
pub use cross_encoder::{CrossEncoderRanker, rank_backend};
pub use dpr::DprRanker;
pub use live::{LiveWiki, WikiSettings};
pub use maths::NativeMaths;
pub use name::{TOOLS, ToolSetError, backends};
pub use recorded::RecordedTools;
pub use registry::ToolSets;
pub use remembering::Remembering;
pub use wolfram::{Wolfram, WolframSettings};

/// Something that answers tool calls.
#[async_trait]
pub trait Tools: Send + Sync {
    /// Answers one call. That a tool has no result is a reply; an error is a failure of the infrastructure.
    ///
    /// # Errors
    /// If the tool could not be asked.
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault>;

    /// Opens a session of one episode: a world of its own that its calls change (a shop's page, a database). `None`
    /// where calls do not depend on earlier ones, so that all episodes share the tool.
    ///
    /// # Errors
    /// If no session can be had.
    async fn open(&self, _unit: &EpisodeUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        Ok(None)
    }

    /// Ends a session in order, however its episode ended. A session that is dropped without it (its episode was
    /// broken off) cleans up by itself.
    async fn close(&self) {}

    /// Ends the tool itself, when no episode will ask it again: what it made elsewhere is removed.
    async fn shut_down(&self) {}
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
