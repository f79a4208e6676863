//! Recorded cases: one item's completions, tool calls and outcome, one JSON object per line.
//!
//! The schema is that of the original's recorded behaviour. `lumos run --record` writes it and `lumos replay`
//! reads it.

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
    /// The kind of case: `plain`, or `mut:<kind>` for a mutated recording.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The raw data record.
    pub item: serde_json::Value,
    /// Completions in the order in which they were used.
    pub script: Script,
    /// The exact prompts, in the same order.
    pub prompts: Script,
    /// Tool calls in order.
    #[serde(default)]
    pub tools: Vec<RecordedCall>,
    /// Planner turns that can influence the outcome.
    #[serde(default)]
    pub effective_turns: Option<u32>,
    /// The expected result.
    pub expected: Expected,
    /// Mind2Web: the random verbs, each with the bounds of the draw.
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
            // Requests to these roles are tool calls.
            Role::Qa | Role::Judge => &None,
        }
        .as_deref()
        .unwrap_or_default()
    }

    /// Appends a text of one module. Requests to the QA tool's model and the judge are tool calls and are not
    /// stored here.
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

/// The result of a recorded case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The exception that ended the original's run.
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
    /// The value compared with the gold answer.
    #[serde(default)]
    pub pred: Option<Value>,
    /// The gold answer as compared.
    #[serde(default)]
    pub answer: serde_json::Value,
    /// Whether it was scored as correct.
    #[serde(default)]
    pub correct: Option<bool>,
    /// StrategyQA: how the prediction was interpreted, `true` or `false`; `Some(None)` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nullable")]
    pub final_pred: Option<Option<String>>,
    /// The whole record of a family without predictions (shopping).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<serde_json::Value>,
    /// HotpotQA: 1 if the prediction equals the gold answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub em: Option<u8>,
    /// HotpotQA: F1 of the prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f1: Option<f64>,
    /// HotpotQA: 1 if the judge accepted the prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llm_acc: Option<u8>,
    /// The last line that the original printed: `Acc: 1.0`, `EM: 1 LLM_Acc: 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<String>,
    /// Mind2Web: the chosen actions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<WebAction>>,
    /// Mind2Web: number of actions scored as a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corr_em: Option<u32>,
    /// Mind2Web: number of actions counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tot_tags: Option<u32>,
    /// Mind2Web: the exception that ended the original's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Mind2Web: the step in which it ended, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_step: Option<u32>,
    /// Mind2Web: number of steps in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
}

/// One recorded action on a web page. Optional fields occur only in the original's recordings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WebAction {
    /// The gold step, counted from 0.
    pub step: u32,
    /// `CLICK`, `TYPE` or `SELECT`.
    pub action: String,
    /// The query for the element.
    pub query: String,
    /// The text typed or selected.
    #[serde(default)]
    pub text: Option<String>,
    /// The gold actions that the ranker received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_actions: Option<String>,
    /// The gold operation as in the data set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<serde_json::Value>,
    /// The candidates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_ids: Vec<String>,
    /// The ranker's question.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scorer_query: String,
    /// The distinct texts that it ranked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unique_tags: Vec<String>,
    /// Its scores, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f64>,
    /// The text with the highest score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_tag: Option<String>,
    /// The text of the first candidate, which counts as the correct one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_tag: Option<String>,
    /// Whether these two texts are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element_match: Option<bool>,
    /// Whether the action equals the gold operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op_match: Option<bool>,
    /// Whether the text equals the gold value; always true for a click.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_match: Option<bool>,
    /// The number of actions that it counted as: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_total: Option<u32>,
    /// The candidates with the highest-ranked text.
    pub chosen_ids: Vec<String>,
    /// The text of the tenth in the ranking, or of the last.
    pub returned_tag: String,
    /// Whether it was scored as a success.
    pub counted_success: u32,
}

/// Distinguishes `null` from a missing field.
fn nullable<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}
