//! Reads fields of a record.

use lumos_tasks::{AddedTask, AnswerForm, Setup, Target, Task};
use serde_json::Value;
use thiserror::Error;

/// Data that a benchmark reads from a record.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// Name of the item in the data set.
    pub name: Option<String>,
    /// Group by which figures are reported.
    pub group: Option<String>,
    /// The task, visible to the episode.
    pub task: Task,
    /// Data that the session of its tools may read.
    pub setup: Setup,
    /// The gold answer.
    pub target: Target,
}

/// Error of parsing a record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("field `{field}`: expected {expected}, found {found}")]
pub struct RecordError {
    /// The field.
    pub field: &'static str,
    /// The expected value.
    pub expected: String,
    /// The value that was found.
    pub found: String,
    /// The exception with which the original evaluation ends on such a record.
    pub exception: &'static str,
}

impl Content {
    /// A word problem whose answer is a number, for the agent of the family `maths`.
    pub fn maths(question: impl Into<String>, answer: impl Into<String>) -> Self {
        let task = Task::Maths { question: question.into() };
        Self::of(task, Target::Number { answer: answer.into() })
    }

    /// A question whose answer is a text, for the agents of the families `qa` and `custom`.
    pub fn question(question: impl Into<String>, answer: impl Into<String>) -> Self {
        let task = Task::Qa { question: question.into(), answer: AnswerForm::Entity };
        Self::of(task, Target::Text { answer: answer.into() })
    }

    /// A task of a family that the program adds, whose gold answer is a text. `setup` is the hidden input of its tool's
    /// session: `Setup::Added`, or `Setup::None`.
    pub fn added(task: AddedTask, setup: Setup, answer: impl Into<String>) -> Self {
        Self { setup, ..Self::of(Task::Added(task), Target::Text { answer: answer.into() }) }
    }

    fn of(task: Task, target: Target) -> Self {
        Self { name: None, group: None, task, setup: Setup::None, target }
    }
}

impl RecordError {
    /// Creates the error of a field. `exception` is the exception of Python with which an evaluation in Python would
    /// end: `KeyError`, `TypeError` or `ValueError`.
    pub fn new(
        field: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
        exception: &'static str,
    ) -> Self {
        Self { field, expected: expected.into(), found: found.into(), exception }
    }
}

/// Returns a required field.
pub(crate) fn required<'a>(
    record: &'a Value,
    field: &'static str,
    expected: &str,
) -> Result<&'a Value, RecordError> {
    match record {
        Value::Object(fields) => fields.get(field).ok_or_else(|| {
            let names = fields.keys().map(String::as_str).take(12).collect::<Vec<_>>().join(", ");
            let found = if names.is_empty() {
                "a record without fields".to_owned()
            } else {
                format!("no such field, only {}", shortened(&names))
            };
            RecordError::new(field, expected, found, "KeyError")
        }),
        other => Err(RecordError::new(field, "a JSON object with this field", describe(other), "TypeError")),
    }
}

/// Returns a required field that must be a string.
pub(crate) fn text<'a>(record: &'a Value, field: &'static str) -> Result<&'a str, RecordError> {
    match required(record, field, "a string")? {
        Value::String(text) => Ok(text),
        other => Err(RecordError::new(field, "a string", describe(other), "TypeError")),
    }
}

/// Returns an optional field; any value other than a string counts as missing.
pub(crate) fn optional_text(record: &Value, field: &str) -> Option<String> {
    record.get(field).and_then(Value::as_str).map(str::to_owned)
}

/// Describes a value.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("{value}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => quoted(text),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Quotes and shortens a string for a message.
pub(crate) fn quoted(text: &str) -> String {
    format!("the string {:?}", shortened(text))
}

fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
