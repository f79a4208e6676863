//! Recorded cases: one item's completions, tool calls and outcome, one JSON object a line.
//!
//! The schema is the one the original's recorded behaviour comes in; `lumos run --record` writes it and
//! `lumos replay` reads it.

mod call;

use serde::{Deserialize, Serialize};

use crate::formulation::Formulation;
use crate::outcome::Value;
use crate::request::Role;

pub use call::{CallKey, NotRecorded, RecordedCall, answer};

/// One recorded case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The case's name.
    pub id: String,
    /// The benchmark.
    pub benchmark: String,
    /// How the modules took turns.
    pub formulation: Formulation,
    /// What the case shows: `plain`, or `mut:<kind>` for what was disturbed.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The raw data record.
    pub item: serde_json::Value,
    /// Completions in the order they were handed out.
    pub script: Script,
    /// The exact prompts, in the same order.
    pub prompts: Script,
    /// Tool calls in order.
    #[serde(default)]
    pub tools: Vec<RecordedCall>,
    /// Planner turns that can influence the outcome.
    #[serde(default)]
    pub effective_turns: Option<u32>,
    /// What came of it.
    pub expected: Expected,
    /// Mind2Web: the verbs that were drawn, each with the bounds it was drawn between.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub randint: Vec<[u32; 3]>,
}

/// Texts by module, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The planner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Vec<String>>,
    /// The grounder's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ground: Option<Vec<String>>,
    /// The single model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Vec<String>>,
}

impl Script {
    /// The texts of one module.
    pub fn of(&self, role: Role) -> &[String] {
        match role {
            Role::Planner => &self.plan,
            Role::Grounder => &self.ground,
            Role::Answerer => &self.answer,
            // What these are asked is a tool call.
            Role::Qa | Role::Judge => &None,
        }
        .as_deref()
        .unwrap_or_default()
    }

    /// Appends a text of one module. What the QA tool and the judge are asked are tool calls and not kept here.
    pub fn push(&mut self, role: Role, text: &str) {
        let texts = match role {
            Role::Planner => &mut self.plan,
            Role::Grounder => &mut self.ground,
            Role::Answerer => &mut self.answer,
            Role::Qa | Role::Judge => return,
        };
        texts.get_or_insert_default().push(text.to_owned());
    }
}

/// What came of a recorded case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The exception that left the original's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raises: Option<String>,
    /// The record's subgoals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subgoals: Option<Vec<String>>,
    /// The record's actions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<String>>,
    /// The record's variables; `Some(None)` after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nullable")]
    pub results: Option<Option<std::collections::BTreeMap<String, Value>>>,
    /// What was compared with the gold answer.
    #[serde(default)]
    pub pred: Option<Value>,
    /// The gold answer as compared.
    #[serde(default)]
    pub answer: serde_json::Value,
    /// Whether it counted as correct.
    #[serde(default)]
    pub correct: Option<bool>,
    /// StrategyQA: what the prediction was taken for, `true` or `false`; `Some(None)` where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nullable")]
    pub final_pred: Option<Option<String>>,
    /// The whole record of a family without predictions (shopping).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<serde_json::Value>,
    /// HotpotQA: 1 where the prediction is the gold answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub em: Option<u8>,
    /// HotpotQA: F1 of the prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f1: Option<f64>,
    /// HotpotQA: 1 where the judge took the prediction for correct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llm_acc: Option<u8>,
    /// The last line that the original printed: `Acc: 1.0`, `EM: 1 LLM_Acc: 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<String>,
    /// Mind2Web: the actions that were carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<WebAction>>,
    /// Mind2Web: how many of them counted as a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corr_em: Option<u32>,
    /// Mind2Web: how many of them were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tot_tags: Option<u32>,
    /// Mind2Web: the exception that ended the original's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Mind2Web: the step it ended in, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_step: Option<u32>,
    /// Mind2Web: how many steps the run went through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
}

/// One recorded action on a web page. What is optional is in the original's recordings only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WebAction {
    /// The gold step, counted from 0.
    pub step: u32,
    /// `CLICK`, `TYPE` or `SELECT`.
    pub action: String,
    /// The element asked for.
    pub query: String,
    /// The text typed or selected.
    #[serde(default)]
    pub text: Option<String>,
    /// The gold actions that the ranker received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_actions: Option<String>,
    /// The gold operation, as the data set has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<serde_json::Value>,
    /// The elements looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_ids: Vec<String>,
    /// What the ranker was asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scorer_query: String,
    /// The distinct texts it was asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unique_tags: Vec<String>,
    /// Its scores, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f64>,
    /// The text that won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_tag: Option<String>,
    /// The text of the first element looked at, which counts as the right one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_tag: Option<String>,
    /// Whether these two are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element_match: Option<bool>,
    /// Whether the action is the gold operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op_match: Option<bool>,
    /// Whether the text is the gold value; of a click it always is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_match: Option<bool>,
    /// How many actions it counted as: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_total: Option<u32>,
    /// The elements with the text that won.
    pub chosen_ids: Vec<String>,
    /// The text of the tenth in the ranking, or of the last.
    pub returned_tag: String,
    /// Whether it counted as a success.
    pub counted_success: u32,
}

/// Keeps `null` apart from a missing field.
fn nullable<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}
