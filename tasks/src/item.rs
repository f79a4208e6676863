//! A benchmark item: what the episode sees, what only its session may read, and what nobody but the scorer sees.

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
    /// A task on web pages, one gold step after the other.
    Web {
        /// The task's text, as it enters the prompts (white space around it is stripped there).
        task: String,
        /// How many gold steps there are.
        steps: u32,
        /// The gold actions, `[tag]  words -> OP: value`. The episode is teacher forced: before each step it is told
        /// what was to be done in the steps before, and never what is to be done now.
        teacher_forced_history: Vec<String>,
        /// Which verbs the gold actions are told with, where that was recorded; where not, drawn by a seed of the item
        /// and the run, so that all models are told the same.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        verbs: Vec<u32>,
    },
    /// A question to a database.
    Sql {
        /// The question's text, as it enters the prompts.
        question: String,
        /// The database's name.
        database: String,
    },
    /// Something to be bought.
    Shop {
        /// What the customer asks for, as it enters the prompts (white space around it is stripped there).
        instruction: String,
        /// The worked tasks in front of the prompts, where they are not those that ship with the project.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exemplars: Option<Exemplars>,
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
    /// The pages of a task, one for each gold step.
    Web {
        /// The pages with their candidates.
        steps: Vec<WebStep>,
    },
    /// A database of the episode's own.
    Sql {
        /// The database's name.
        database: String,
        /// The gold query, which results are graded by.
        gold: String,
    },
    /// A visit to the shop.
    Shop {
        /// The goal, as JSON, by which a purchase is rewarded.
        goal: serde_json::Value,
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
        /// The text that the original compares with, before it is normalised.
        answer: String,
    },
    /// Actions on web pages.
    Web {
        /// What is right, step by step.
        steps: Vec<GoldStep>,
        /// All of it in words, for people.
        words: String,
    },
}

/// What is right in one step on a web page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoldStep {
    /// What the data set calls the step.
    pub action_uid: String,
    /// The element the original compares with: the first of the positives followed by the negatives.
    pub reference: String,
    /// The ids of all elements that are right.
    pub positives: Vec<String>,
    /// Those of them that the official candidate ranking has among its first fifty; all where there are no ranks.
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
