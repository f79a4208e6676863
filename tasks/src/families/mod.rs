//! Families of benchmarks. Each has its prompts, its actions with their parser, and its record.
//!
//! | family | loop |
//! |---|---|
//! | `maths`, `qa`, `shop`, `sql`, `web` | plan, ground, execute: `plan_loop` |
//! | agents of task files ([`agent`]) | the same, on the machine of `qa` |
//! | families that a program adds ([`added`]) | the same, or their own |
//! | `maths`, `qa` with one model and no tools | one request: `one_request` |
//! | the judge | one request: `one_request` |
//! | `sql` with try-again | its own: `sql::try_again` |
//!
//! `plan_loop` drives a `Family`, which supplies texts and executes actions. `parse`, `execution` and `prompts`
//! have what several families share; `conversation` splits prompts into messages again. `chat_layout` has the messages
//! before a conversation, for models that were not trained on it.

pub mod added;
pub mod agent;
mod chat_layout;
mod conversation;
pub(crate) mod execution;
pub mod maths;
pub(crate) mod one_request;
pub mod parse;
pub mod plan_loop;
pub mod prompts;
pub mod qa;
pub mod shop;
pub mod sql;
#[cfg(test)]
mod tests;
pub mod web;
mod worked_examples;

pub use chat_layout::chat_layout_hash;
pub(crate) use chat_layout::{ExampleSet, opening};

pub use conversation::{conversation, ends_planning};
pub use worked_examples::{WorkedExample, WorkedSubgoal};

use crate::outcome::{Ending, Reason, Stage};

/// An error in an episode: something that a module named and that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedError {
    pub(crate) turn: u32,
    /// What does not exist, if known.
    pub(crate) name: Option<String>,
    pub(crate) detail: String,
}

/// Why an action or an episode failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The stage that caused the failure.
    pub stage: Stage,
    /// Details for people.
    pub detail: String,
}

impl Failure {
    /// Creates a failure.
    pub fn new(stage: Stage, detail: impl Into<String>) -> Self {
        Self { stage, detail: detail.into() }
    }

    /// The action has an invalid argument.
    pub(crate) fn argument(detail: impl Into<String>) -> Self {
        Self::new(Stage::GrounderBadArgument, detail)
    }

    /// The tool had no result.
    pub(crate) fn tool(detail: impl Into<String>) -> Self {
        Self::new(Stage::Tool, detail)
    }

    /// The exception in the detail of a call that raised: `Name` of `Name: message`.
    pub(crate) fn exception(&self) -> String {
        self.detail.split(':').next().unwrap_or_default().to_owned()
    }

    /// The ending of an episode that failed in this turn.
    pub(crate) fn ending(self, turn: u32) -> Ending {
        Ending::GaveUp(Reason { stage: self.stage, turn, detail: self.detail })
    }
}
