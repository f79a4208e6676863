//! Families of benchmarks, each with its prompts, its actions and its episode loop.

pub(crate) mod judge;
pub mod maths;
pub mod qa;
pub mod shop;
pub mod sql;
pub mod web;

use crate::outcome::Stage;

/// Why an action or an episode failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The stage that caused the failure.
    pub stage: Stage,
    /// Details for people.
    pub detail: String,
}

impl Failure {
    /// The action has an invalid argument.
    pub(crate) fn argument(detail: impl Into<String>) -> Self {
        Self { stage: Stage::GrounderBadArgument, detail: detail.into() }
    }

    /// The tool had no result.
    pub(crate) fn tool(detail: impl Into<String>) -> Self {
        Self { stage: Stage::Tool, detail: detail.into() }
    }
}
