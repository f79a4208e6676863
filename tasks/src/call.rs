//! Calls that touch the world, each at the lowest level there is, so that it can be recorded, cached and replayed.

use serde::{Deserialize, Serialize};

/// One call to a tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "tool", rename_all = "snake_case")]
pub enum ToolCall {
    /// One query to the mathematics service (WolframAlpha in the original).
    Maths {
        /// The query's text: `2 + 3`, `Solve x + 1 = 2`, `Expand 2x + x`.
        query: String,
    },
}

impl ToolCall {
    /// The tool's name: the word before `=` in `--tool maths=native`.
    pub fn tool(&self) -> &'static str {
        match self {
            Self::Maths { .. } => "maths",
        }
    }
}

/// What a tool replied. A fault of the infrastructure is no reply: the driver reports it apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "tool", content = "reply", rename_all = "snake_case")]
pub enum ToolReply {
    /// The mathematics service's first result pod.
    Maths(MathsReply),
}

/// The mathematics service's first result pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MathsReply {
    /// A pod with one subpod: its plain text.
    One(String),
    /// A pod with several subpods: their plain texts; one without text is `None`.
    Many(Vec<Option<String>>),
    /// A pod with one subpod that has no plain text.
    Empty,
    /// No result pod: the service did not understand, or there is no result.
    NoResult {
        /// What a person may want to know about it.
        message: String,
    },
}
