//! How an episode ended, with the evidence that scoring, attribution and a reader need.
//!
//! What the agent does wrong is data: it stands in [`Ending::GaveUp`] with a [`Reason`]. What the
//! infrastructure does wrong is an [`Ending::Faulted`]: retried, reported apart, never scored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::{SqlGrade, ToolCall, ToolReply};
use crate::families::shop::ShopEvidence;
use crate::families::web::WebEvidence;
use crate::request::{Finish, NanoDollars, Role};

/// The record of one episode. Equal for equal units wherever and whenever they run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// What it ended with; `None` when it faulted before it could.
    pub evidence: Option<Evidence>,
    /// What happened, in order.
    pub steps: Vec<Step>,
}

impl Outcome {
    /// Whether the infrastructure failed, so that the unit is to be tried again.
    pub fn is_fault(&self) -> bool {
        matches!(self.ending, Ending::Faulted(_))
    }

    /// Tokens the models read and wrote, where the backends count them.
    pub fn tokens(&self) -> (u64, u64) {
        self.steps.iter().fold((0, 0), |(read, written), step| match step {
            Step::Generate { prompt_tokens, completion_tokens, .. } => (
                read + u64::from(prompt_tokens.unwrap_or(0)),
                written + u64::from(completion_tokens.unwrap_or(0)),
            ),
            Step::Call { reply: ToolReply::Chat(reply), .. } => (
                read + u64::from(reply.prompt_tokens.unwrap_or(0)),
                written + u64::from(reply.completion_tokens.unwrap_or(0)),
            ),
            Step::Call { .. } | Step::Action { .. } => (read, written),
        })
    }
}

/// How an episode ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With a prediction.
    Answered,
    /// Without one, by the agent's own doing.
    GaveUp(Reason),
    /// The infrastructure failed; says nothing about the agent.
    Faulted(Fault),
}

/// The stage whose doing it was that an episode has no prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The planner wrote no subgoal that could be grounded.
    Planner,
    /// The grounder's reply holds something that is no action.
    GrounderUnparsable,
    /// The grounder named an action that is not carried out.
    GrounderUnknownAction,
    /// The grounder's action has an argument it cannot be carried out with.
    GrounderBadArgument,
    /// The tool had no result for a well-formed action.
    Tool,
    /// A limit on rounds or tokens was reached.
    Limit,
}

impl Stage {
    /// All stages, in the order of reports.
    pub const ALL: [Self; 6] = [
        Self::Planner,
        Self::GrounderUnparsable,
        Self::GrounderUnknownAction,
        Self::GrounderBadArgument,
        Self::Tool,
        Self::Limit,
    ];

    /// The words in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::GrounderUnparsable => "grounder: unparsable",
            Self::GrounderUnknownAction => "grounder: unknown action",
            Self::GrounderBadArgument => "grounder: bad argument",
            Self::Tool => "tool: no result",
            Self::Limit => "limit",
        }
    }
}

/// Why an episode gave up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Whose doing it was.
    pub stage: Stage,
    /// The planner turn it happened in, counted from 1.
    pub turn: u32,
    /// What happened, for people.
    pub detail: String,
}

/// A failure of the infrastructure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Fault {
    /// What failed.
    pub kind: FaultKind,
    /// What it said, for people. Holds no secrets.
    pub message: String,
}

/// The part of the infrastructure that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A model backend.
    Model,
    /// A tool's backend.
    Tool,
    /// The item's time limit.
    Timeout,
    /// The worker itself.
    Worker,
}

impl std::fmt::Display for FaultKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Timeout => "time limit",
            Self::Worker => "worker",
        })
    }
}

/// A value of the original's `results`: a text, or a list of texts (several subpods, one perhaps without text).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Option<String>>),
}

impl Value {
    /// `str(value)` of the original.
    pub fn to_python_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(entries) => crate::python::repr_list(entries.iter().map(Option::as_deref)),
        }
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// What an episode ended with, by family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "family", rename_all = "snake_case")]
pub enum Evidence {
    /// Of a mathematics episode.
    Maths(PlanEvidence),
    /// Of a question-answering episode.
    Qa(PlanEvidence),
    /// Of a judge's question.
    Judge {
        /// The judge's reply.
        reply: String,
    },
    /// Of an episode on web pages.
    Web(WebEvidence),
    /// Of an episode on a database.
    Sql(SqlEvidence),
    /// Of an episode of shopping.
    Shop(ShopEvidence),
}

impl Evidence {
    /// The record of an episode of subgoals, actions and variables.
    pub fn plan(&self) -> Option<&PlanEvidence> {
        match self {
            Self::Maths(evidence) | Self::Qa(evidence) => Some(evidence),
            Self::Sql(evidence) => Some(&evidence.plan),
            Self::Judge { .. } | Self::Shop(_) | Self::Web(_) => None,
        }
    }

    /// The record of an episode on web pages.
    pub fn web(&self) -> Option<&WebEvidence> {
        match self {
            Self::Web(evidence) => Some(evidence),
            _ => None,
        }
    }
}

/// What an episode of subgoals, actions and variables ended with: the record the original writes, and what it was
/// compared by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEvidence {
    /// What is compared with the gold answer.
    pub prediction: Option<Value>,
    /// Subgoals that were grounded, stripped. Empty for the single-model formulations.
    pub subgoals: Vec<String>,
    /// Actions, each with ` = value` once it has one.
    pub actions: Vec<String>,
    /// Variables; `None` after a failure.
    pub results: Option<BTreeMap<String, Value>>,
    /// The planner was still planning when its rounds were used up.
    pub rounds_exhausted: bool,
    /// The exception that ends the original's run here: `KeyError`. Paper behaviour only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<String>,
}

/// What an episode on a database ended with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SqlEvidence {
    /// Subgoals, actions and variables; the prediction is the statement with the highest reward.
    pub plan: PlanEvidence,
    /// What was tried, in order; of an episode with modules: what was submitted.
    pub tries: Vec<SqlTry>,
    /// Turns taken.
    pub turns: u32,
}

impl SqlEvidence {
    /// The highest reward and the first try that earned it; `None` where nothing was tried.
    pub fn best(&self) -> Option<(usize, f64)> {
        let tries = self.tries.iter().map(|one| one.reward).enumerate();
        tries.reduce(|best, one| if one.1 > best.1 { one } else { best })
    }
}

/// One try at an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SqlTry {
    /// The statement, or the reply that holds none.
    pub action: String,
    /// What the model is shown.
    pub observation: String,
    /// Whether a statement was carried out.
    pub executed: bool,
    /// What it earned.
    pub reward: f64,
    /// How it was graded; `None` where the reply holds no statement.
    pub grade: Option<SqlGrade>,
}

/// One step of a trajectory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// A module was asked.
    Generate {
        /// The planner turn, counted from 1.
        turn: u32,
        /// The module.
        role: Role,
        /// The exact prompt.
        prompt: String,
        /// The reply, unstripped.
        reply: String,
        /// Why the reply ended.
        finish: Finish,
        /// Tokens of the prompt, where counted.
        prompt_tokens: Option<u32>,
        /// Tokens of the reply, where counted.
        completion_tokens: Option<u32>,
    },
    /// A tool was called.
    Call {
        /// The planner turn, counted from 1.
        turn: u32,
        /// The call.
        call: ToolCall,
        /// The reply.
        reply: ToolReply,
    },
    /// An action was carried out, or could not be.
    Action {
        /// The planner turn, counted from 1.
        turn: u32,
        /// The action as the grounder wrote it.
        action: String,
        /// What came of it.
        observation: Observation,
    },
}

/// What came of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// A value.
    Text(String),
    /// A value for each of several variables.
    List(Vec<String>),
    /// It could not be carried out; why, for people.
    Refused(String),
}

/// Facts that depend on the schedule and the machine. Never part of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Start, milliseconds since 1970.
    pub started_ms: i64,
    /// Seconds from start to end.
    pub seconds: f64,
    /// Seconds spent waiting for models.
    pub model_seconds: f64,
    /// Seconds spent waiting for tools.
    pub tool_seconds: f64,
    /// Prompt tokens that a cache already held.
    pub cached_tokens: u64,
    /// What models of priced servers cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoDollars>,
    /// The attempt this was, counted from 1.
    pub attempt: u32,
    /// The worker's name.
    pub worker: String,
}
