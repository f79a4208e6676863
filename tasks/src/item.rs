//! A benchmark item: what the episode sees, what only its session may read, and what nobody but the scorer sees.

use serde::{Deserialize, Serialize};

use crate::identity::ItemId;
use crate::request::Message;

/// One item of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Identity by content.
    pub id: ItemId,
    /// Position in the data set, counted from 0; for people and for selections, never part of an identity.
    pub index: u64,
    /// The data set's own name of the item (`chal-691`), where it has one.
    pub name: Option<String>,
    /// The group the benchmark breaks its figures down by (SVAMP's Type), where it has one.
    pub group: Option<String>,
    /// The task, seen by the episode.
    pub task: Task,
    /// What the item's session may read and the episode may not.
    pub setup: Setup,
    /// The gold answer; stays with the coordinator.
    pub target: Target,
    /// The raw record, as it stood in the file.
    pub record: serde_json::Value,
}

/// What an episode knows of its item.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "family", rename_all = "snake_case")]
pub enum Task {
    /// A word problem.
    Maths {
        /// The problem's text, as it enters the prompts (white space around it is stripped there).
        question: String,
    },
    /// A question that takes several facts.
    Qa {
        /// The question's text, as it enters the prompts (white space around it is stripped there).
        question: String,
        /// The form its answer has.
        answer: AnswerForm,
    },
    /// What a judge is asked about a prediction, in a pass of its own.
    Judge {
        /// The conversation; it holds the gold answer.
        messages: Vec<Message>,
        /// The most tokens of the reply.
        max_new_tokens: u32,
    },
}

/// The form of an answer: the published scripts treat the two a little differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// A few words (HotpotQA).
    Entity,
    /// Yes or no (StrategyQA).
    YesNo,
}

/// What an item's session needs beside the task: the goal of a shop, gold SQL, candidates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Setup {
    /// The family needs no session.
    #[default]
    None,
}

/// The gold answer of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Target {
    /// A number, as the text that the original compares with.
    Number {
        /// The cleaned text (`1,234` became `1234`).
        answer: String,
    },
    /// A text.
    Text {
        /// The text that the original compares with, before it is normalised.
        answer: String,
    },
}

impl Target {
    /// The gold answer as text.
    pub fn text(&self) -> &str {
        match self {
            Self::Number { answer } | Self::Text { answer } => answer,
        }
    }
}
