//! Recorded cases: one item's completions, tool calls and outcome, one JSON object a line.
//!
//! The schema is the one the original's recorded behaviour comes in; `lumos run --record` writes it and
//! `lumos replay` reads it.

use serde::{Deserialize, Serialize};

use crate::call::{MathsReply, ToolCall, ToolReply};
use crate::formulation::Formulation;
use crate::outcome::Value;
use crate::request::Role;

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
        }
        .as_deref()
        .unwrap_or_default()
    }

    /// Appends a text of one module.
    pub fn push(&mut self, role: Role, text: &str) {
        match role {
            Role::Planner => &mut self.plan,
            Role::Grounder => &mut self.ground,
            Role::Answerer => &mut self.answer,
        }
        .get_or_insert_default()
        .push(text.to_owned());
    }
}

/// A recorded tool call: its input and what came back, or what it raised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedCall {
    /// The tool's name in the recording (`wolfram`).
    pub tool: String,
    /// What it was given.
    pub input: serde_json::Value,
    /// What it gave, where it did not raise.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub output: Option<serde_json::Value>,
    /// `Name: message` of what it raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raises: Option<String>,
}

/// Keeps `"output": null` apart from a missing `output`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(deserializer).map(Some)
}

/// What the original's client raises when the service has no result pod.
const NO_RESULT: &str = "StopIteration";

impl RecordedCall {
    /// Writes a call and its reply down.
    pub fn new(call: &ToolCall, reply: &ToolReply) -> Self {
        let (ToolCall::Maths { query }, ToolReply::Maths(reply)) = (call, reply);
        let (output, raises) = match reply {
            MathsReply::One(text) => (Some(text.as_str().into()), None),
            MathsReply::Many(texts) => (Some(serde_json::json!(texts)), None),
            MathsReply::Empty => (Some(serde_json::Value::Null), None),
            MathsReply::NoResult { .. } => (None, Some(NO_RESULT.to_owned())),
        };
        Self { tool: "wolfram".to_owned(), input: query.as_str().into(), output, raises }
    }

    /// Whether this is the recording of `call`.
    pub fn records(&self, call: &ToolCall) -> bool {
        let ToolCall::Maths { query } = call;
        self.tool == "wolfram" && self.input.as_str() == Some(query)
    }

    /// The reply; `None` where the record is not one of the mathematics service.
    ///
    /// A recorded exception is a reply without a result: the original swallows both alike.
    pub fn reply(&self) -> Option<ToolReply> {
        if self.tool != "wolfram" {
            return None;
        }
        let reply = match (&self.raises, &self.output) {
            (Some(raised), _) => MathsReply::NoResult { message: raised.clone() },
            (None, Some(serde_json::Value::String(text))) => MathsReply::One(text.clone()),
            (None, Some(serde_json::Value::Array(texts))) => {
                MathsReply::Many(texts.iter().map(|text| text.as_str().map(str::to_owned)).collect())
            }
            (None, Some(serde_json::Value::Null)) => MathsReply::Empty,
            (None, _) => return None,
        };
        Some(ToolReply::Maths(reply))
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
}

/// Keeps `null` apart from a missing field.
fn nullable<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_output_is_not_a_missing_one() {
        let call: RecordedCall =
            serde_json::from_str(r#"{"tool":"wolfram","input":"1","output":null}"#).unwrap();
        assert_eq!(call.reply(), Some(ToolReply::Maths(MathsReply::Empty)));
        let call: RecordedCall = serde_json::from_str(r#"{"tool":"wolfram","input":"1"}"#).unwrap();
        assert_eq!(call.reply(), None);
    }

    #[test]
    fn calls_round_trip() {
        let call = ToolCall::Maths { query: "1 + 2".to_owned() };
        for reply in [
            MathsReply::One("3".to_owned()),
            MathsReply::Many(vec![Some("3".to_owned()), None]),
            MathsReply::Empty,
        ] {
            let reply = ToolReply::Maths(reply);
            let recorded = RecordedCall::new(&call, &reply);
            let text = serde_json::to_string(&recorded).unwrap();
            let read: RecordedCall = serde_json::from_str(&text).unwrap();
            assert!(read.records(&call));
            assert_eq!(read.reply(), Some(reply));
        }
    }
}
