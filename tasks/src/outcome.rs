//! [`Outcome`]: how an episode ended, with the evidence for scoring, attribution and inspection.
//!
//! Agent errors are scored: they are recorded as [`Ending::GaveUp`] with a [`Reason`]. Infrastructure errors
//! are recorded as [`Ending::Faulted`]: they are retried, reported separately and never scored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::{SqlGrade, ToolCall, ToolReply};
use crate::families::shop::ShopEvidence;
use crate::families::web::WebEvidence;
use crate::request::{DraftCounts, Finish, NanoDollars, Role};

/// The record of one episode. Equal units have equal outcomes on every machine and at any time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// The evidence by family; `None` if a fault occurred before there was any.
    pub evidence: Option<Evidence>,
    /// The steps in order.
    pub steps: Vec<Step>,
}

impl Outcome {
    /// Whether the infrastructure failed, so that the unit must be retried.
    pub fn is_fault(&self) -> bool {
        matches!(self.ending, Ending::Faulted(_))
    }

    /// Prompt and generated tokens of all models, as far as the backends count them.
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

    /// Whether a model replied: with text or with counted tokens. A rejected prompt has neither.
    pub fn has_reply(&self) -> bool {
        let has_text = |step: &Step| match step {
            Step::Generate { reply, .. } => !reply.is_empty(),
            Step::Call { reply: ToolReply::Chat(reply), .. } => !reply.text.is_empty(),
            Step::Call { .. } | Step::Action { .. } => false,
        };
        self.tokens() != (0, 0) || self.steps.iter().any(has_text)
    }
}

/// How an episode ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The episode has a prediction.
    Answered,
    /// The agent produced no prediction.
    GaveUp(Reason),
    /// The infrastructure failed; this is not evidence about the agent.
    Faulted(Fault),
}

impl Ending {
    /// The name of the ending in results and events.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::GaveUp(_) => "gave_up",
            Self::Faulted(_) => "faulted",
        }
    }
}

/// The stage that caused an episode to have no prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The planner wrote no subgoal that can be grounded.
    Planner,
    /// The grounder's reply contains text that is not an action.
    GrounderUnparsable,
    /// The grounder named an action that is not executed.
    GrounderUnknownAction,
    /// The grounder's action has an invalid argument.
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

    /// The name in reports.
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
    /// The stage that caused it.
    pub stage: Stage,
    /// The planner turn in which it happened, counted from 1.
    pub turn: u32,
    /// Details for people.
    pub detail: String,
}

/// An infrastructure failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Fault {
    /// What failed.
    pub kind: FaultKind,
    /// The error message, for people. Contains no secrets.
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

/// A value of the original's `results`: a text, or a list of texts (several subpods, possibly one without
/// text).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Option<String>>),
}

impl Value {
    /// The result of `str(value)` in the original.
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

/// The final data of an episode, by family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "family", rename_all = "snake_case")]
pub enum Evidence {
    /// The evidence of a mathematics episode.
    Maths(PlanEvidence),
    /// The evidence of a question-answering episode.
    Qa(PlanEvidence),
    /// The evidence of a judge's question.
    Judge {
        /// The judge's reply.
        reply: String,
    },
    /// The evidence of an episode on web pages.
    Web(WebEvidence),
    /// The evidence of an episode on a database.
    Sql(SqlEvidence),
    /// The evidence of a shopping episode.
    Shop(ShopEvidence),
    /// The evidence of an episode of a family that a program adds.
    Added {
        /// Subgoals, actions, variables and the prediction, as reports show them.
        plan: PlanEvidence,
        /// Everything else that its scores need, in the family's own form.
        #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
        data: serde_json::Value,
    },
}

impl Evidence {
    /// The record of an episode with subgoals, actions and variables.
    pub fn plan(&self) -> Option<&PlanEvidence> {
        match self {
            Self::Maths(evidence) | Self::Qa(evidence) => Some(evidence),
            Self::Sql(evidence) => Some(&evidence.plan),
            Self::Added { plan, .. } => Some(plan),
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

/// The final data of an episode with subgoals, actions and variables: the record that the original writes,
/// and the value that it compares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEvidence {
    /// The value compared with the gold answer.
    pub prediction: Option<Value>,
    /// Grounded subgoals, stripped. Empty for the single-model formulations.
    pub subgoals: Vec<String>,
    /// Actions, each with ` = value` once it has a value.
    pub actions: Vec<String>,
    /// Variables; `None` after a failure.
    pub results: Option<BTreeMap<String, Value>>,
    /// The planner was still planning when the limit on rounds was reached.
    pub rounds_exhausted: bool,
    /// The exception that ends the original's run at this point: `KeyError`. Paper behaviour only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<String>,
}

/// The final data of an episode on a database.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SqlEvidence {
    /// Subgoals, actions and variables; the prediction is the statement with the highest reward.
    pub plan: PlanEvidence,
    /// The tries in order; for an episode with modules, the submissions.
    pub tries: Vec<SqlTry>,
    /// Number of turns.
    pub turns: u32,
}

impl SqlEvidence {
    /// The highest reward and the first try with that reward; `None` if there were no tries.
    pub fn best(&self) -> Option<(usize, f64)> {
        let tries = self.tries.iter().map(|one| one.reward).enumerate();
        tries.reduce(|best, one| if one.1 > best.1 { one } else { best })
    }
}

/// One try at an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SqlTry {
    /// The statement, or the whole reply if it contains none.
    pub action: String,
    /// The observation that the model is shown.
    pub observation: String,
    /// Whether a statement was executed.
    pub executed: bool,
    /// Its reward.
    pub reward: f64,
    /// Its grade; `None` if the reply contains no statement.
    pub grade: Option<SqlGrade>,
}

/// One step of a trajectory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// A model was queried.
    Generate {
        /// The planner turn, counted from 1.
        turn: u32,
        /// The role of the model.
        role: Role,
        /// The exact prompt.
        prompt: String,
        /// The reply, unstripped.
        reply: String,
        /// Why the reply ended.
        finish: Finish,
        /// Tokens in the prompt, if counted.
        prompt_tokens: Option<u32>,
        /// Tokens in the reply, if counted.
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
    /// An action was executed, or could not be.
    Action {
        /// The planner turn, counted from 1.
        turn: u32,
        /// The action as written by the grounder.
        action: String,
        /// The result.
        observation: Observation,
    },
}

impl Step {
    /// The planner turn, counted from 1.
    pub fn turn(&self) -> u32 {
        let (Self::Generate { turn, .. } | Self::Call { turn, .. } | Self::Action { turn, .. }) = self;
        *turn
    }
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// A value.
    Text(String),
    /// A value for each of several variables.
    List(Vec<String>),
    /// The action could not be executed; the reason, for people.
    Refused(String),
}

/// Data that depends on the schedule and the machine. Never part of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Start in milliseconds since 1970.
    pub started_ms: i64,
    /// Seconds from start to end.
    pub seconds: f64,
    /// Seconds spent waiting for models.
    pub model_seconds: f64,
    /// Seconds spent waiting for tools.
    pub tool_seconds: f64,
    /// Prompt tokens found in a prefix cache.
    pub cached_tokens: u64,
    /// Tokens that lookup decoding drafted; `None` without drafts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drafts: Option<DraftCounts>,
    /// Cost of the models of priced servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoDollars>,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The worker's name.
    pub worker: String,
}
