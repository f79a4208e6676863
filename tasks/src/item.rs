//! [`Item`]: one record of a benchmark in three parts: the [`Task`] that the episode sees, the [`Setup`] that
//! only its session may read, and the [`Target`] that only the scorer sees.

use serde::{Deserialize, Serialize};

use crate::families::shop::Exemplars;
use crate::families::web::WebStep;
use crate::identity::ItemId;
use crate::request::Message;

/// One item of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Identity by content.
    pub id: ItemId,
    /// Index in the data set, counted from 0; for display and selection, never part of an identity.
    pub index: u64,
    /// The data set's own name of the item (`chal-691`), if it has one.
    pub name: Option<String>,
    /// The group by which the benchmark breaks down its figures (SVAMP's Type), if it has one.
    pub group: Option<String>,
    /// The task, visible to the episode.
    pub task: Task,
    /// The session's input, hidden from the episode.
    pub setup: Setup,
    /// The gold answer; stays with the coordinator.
    pub target: Target,
    /// The raw record as in the file.
    pub record: serde_json::Value,
}

/// The episode's view of its item.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "family", rename_all = "snake_case")]
pub enum Task {
    /// A word problem.
    Maths {
        /// The problem's text as used in the prompts, which strip white space around it.
        question: String,
    },
    /// A question that requires several facts.
    Qa {
        /// The question's text as used in the prompts, which strip white space around it.
        question: String,
        /// The form of its answer.
        answer: AnswerForm,
    },
    /// A judge's question about a prediction, in a separate pass.
    Judge {
        /// The conversation, which contains the gold answer.
        messages: Vec<Message>,
        /// Maximum number of tokens in the reply.
        max_new_tokens: u32,
    },
    /// A task on web pages, with several gold steps.
    Web {
        /// The task's text as used in the prompts, which strip white space around it.
        task: String,
        /// Number of gold steps.
        steps: u32,
        /// The gold actions, `[tag]  words -> OP: value`. The episode is teacher-forced: before each step the
        /// prompt contains the gold actions of the preceding steps, and never that of the current step.
        teacher_forced_history: Vec<String>,
        /// The verbs that describe the gold actions, if they were recorded; otherwise they are drawn with a
        /// seed of the item and the run, so that all models get the same verbs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        verbs: Vec<u32>,
    },
    /// A question to a database.
    Sql {
        /// The question's text as used in the prompts.
        question: String,
        /// The database's name.
        database: String,
    },
    /// A shopping task.
    Shop {
        /// The customer's instruction as used in the prompts, which strip white space around it.
        instruction: String,
        /// The worked tasks at the start of the prompts, if they are not those that ship with the project.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exemplars: Option<Exemplars>,
    },
    /// A task of a family that a program adds.
    Added(AddedTask),
}

/// A task of a family that a program adds ([`families::added`](crate::families::added)).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddedTask {
    /// The family's name.
    pub name: String,
    /// The family's version. An episode starts only in a program that has this version. `None` in runs of earlier versions
    /// of lumos, which did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The task's text, as reports show it.
    pub task: String,
    /// Everything else that the family's episodes may see, in its own form.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub data: serde_json::Value,
}

impl AddedTask {
    /// Creates a task. `lumos_benchmarks::BenchmarkBuilder` sets name and version of the family.
    pub fn new(task: impl Into<String>, data: serde_json::Value) -> Self {
        Self { name: String::new(), version: None, task: task.into(), data }
    }
}

/// The form of an answer; the published scripts differ slightly between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// A few words (HotpotQA).
    Entity,
    /// Yes or no (StrategyQA).
    YesNo,
}

/// The session's additional input: the goal of a shop, gold SQL, candidates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Setup {
    /// The family needs no session.
    #[default]
    None,
    /// The pages of a task, one per gold step.
    Web {
        /// The pages with their candidates.
        steps: Vec<WebStep>,
    },
    /// A database for this episode only.
    Sql {
        /// The database's name.
        database: String,
        /// The gold query, by which results are graded.
        gold: String,
    },
    /// A shop session.
    Shop {
        /// The goal as JSON, by which a purchase is rewarded.
        goal: serde_json::Value,
    },
    /// The input of the sessions of a tool that a program adds.
    Added {
        /// In the tool's own form.
        data: serde_json::Value,
    },
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
        /// The text that the original compares with, before normalization.
        answer: String,
    },
    /// Actions on web pages.
    Web {
        /// The correct actions, step by step.
        steps: Vec<GoldStep>,
        /// All of it as text, for display.
        words: String,
    },
}

/// The correct action of one step on a web page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoldStep {
    /// The data set's id of the step.
    pub action_uid: String,
    /// The element the original compares with: the first of the positives followed by the negatives.
    pub reference: String,
    /// The ids of all correct elements.
    pub positives: Vec<String>,
    /// The correct elements that are among the first fifty of the official candidate ranking; all of them if
    /// there are no ranks.
    pub ranked_positives: Vec<String>,
    /// `CLICK`, `TYPE` or `SELECT`.
    pub operation: String,
    /// The text typed or selected.
    pub value: String,
}

impl Target {
    /// The gold answer as text.
    pub fn text(&self) -> &str {
        match self {
            Self::Number { answer } | Self::Text { answer } => answer,
            Self::Web { words, .. } => words,
        }
    }
}
