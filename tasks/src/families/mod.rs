//! Families of benchmarks: each with its prompts, its actions and its loop.

pub(crate) mod judge;
pub mod maths;
pub mod qa;
pub mod shop;
pub mod sql;
pub mod web;

use crate::outcome::Stage;

/// Why an action, or an episode, came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Whose doing it was.
    pub stage: Stage,
    /// What happened, for people.
    pub detail: String,
}

impl Failure {
    /// The action has an argument it cannot be carried out with.
    pub(crate) fn argument(detail: impl Into<String>) -> Self {
        Self { stage: Stage::GrounderBadArgument, detail: detail.into() }
    }

    /// The tool had no result.
    pub(crate) fn tool(detail: impl Into<String>) -> Self {
        Self { stage: Stage::Tool, detail: detail.into() }
    }
}
