//! Replays rows that record a call of a single function of the original.

mod helpers;
mod maths;
mod qa;

use lumos_tasks::recorded::{self, NotRecorded, RecordedCall};
use lumos_tasks::{ToolCall, ToolReply};
use serde::Deserialize;
use serde_json::Value;

use super::{ReplayResult, compare};

/// A call of one of the original's functions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct UnitRow {
    /// The function: `math.parse_actions`.
    #[serde(rename = "fn")]
    pub(super) function: String,
    /// The arguments.
    pub(super) args: Vec<Value>,
    /// The return value, if the function did not raise.
    #[serde(default)]
    pub(super) out: Value,
    /// `Name: message` of the exception it raised.
    #[serde(default)]
    pub(super) raises: Option<String>,
    /// The tool calls it made.
    #[serde(default)]
    pub(super) tools: Vec<RecordedCall>,
}

impl UnitRow {
    /// Returns an argument that must be a string.
    fn text(&self, index: usize) -> Result<&str, String> {
        self.args
            .get(index)
            .and_then(Value::as_str)
            .ok_or_else(|| format!("argument {} of the row is not a string", index + 1))
    }

    /// Returns the reply to a call if it equals the recorded call at this position.
    fn reply(&self, index: usize, call: &ToolCall) -> Result<ToolReply, NotRecorded> {
        let recorded = self.tools.get(index);
        recorded::answer(call, |key| recorded.filter(|recorded| recorded.key().as_ref() == Some(key)))
    }
}

/// Result of a function: a value, or an exception (with its name if it is known here).
#[derive(Debug, Clone, PartialEq)]
enum Output {
    Value(Value),
    Raised(Option<&'static str>),
}

impl<T: Into<Value>> From<T> for Output {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

/// Replays a row.
pub(super) fn replay_unit(id: &str, row: &UnitRow) -> ReplayResult {
    let output = maths::call(row).or_else(|| qa::call(row)).or_else(|| helpers::call(row));
    match output {
        None => ReplayResult::skip(id, format!("unknown function `{}`", row.function)),
        Some(output) => ReplayResult::of(id, output.and_then(|output| check(row, &output))),
    }
}

/// Compares a function's result with the row. For exceptions, compares only that there is one, because the
/// original's come from the Python interpreter.
fn check(row: &UnitRow, output: &Output) -> Result<(), String> {
    match (&row.raises, output) {
        (Some(_), Output::Raised(None)) => Ok(()),
        (Some(raised), Output::Raised(Some(exception))) if compare::name(raised) == *exception => Ok(()),
        (Some(raised), Output::Raised(Some(exception))) => {
            Err(format!("expected exception {raised}, got {exception}"))
        }
        (Some(raised), Output::Value(value)) => Err(format!("expected exception {raised}, got {value}")),
        (None, Output::Raised(_)) => Err(format!("expected {}, got an exception", row.out)),
        (None, Output::Value(value)) if same(&row.out, value) => Ok(()),
        (None, Output::Value(value)) => Err(format!("expected {}, got {value}", row.out)),
    }
}

/// Whether two values are equal. An integer equals the same number with a decimal point, and a number equals
/// its text (`Count` returns a number in the original, but variables contain strings here).
fn same(recorded: &Value, got: &Value) -> bool {
    match (recorded, got) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Number(left), Value::String(right)) => left.to_string() == *right,
        _ => recorded == got,
    }
}
