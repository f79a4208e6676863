//! Fields of a record.

use lumos_tasks::{Setup, Target, Task};
use serde_json::Value;
use thiserror::Error;

/// What a benchmark reads out of one record.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// The data set's own name of the item.
    pub name: Option<String>,
    /// The group figures are broken down by.
    pub group: Option<String>,
    /// What the episode sees.
    pub task: Task,
    /// What its session may read.
    pub setup: Setup,
    /// The gold answer.
    pub target: Target,
}

/// Why a record is no item.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("field `{field}`: expected {expected}, found {found}")]
pub struct RecordError {
    /// The field.
    pub field: &'static str,
    /// What was expected there.
    pub expected: String,
    /// What stood there.
    pub found: String,
    /// The exception the original evaluation ends with on such a record.
    pub exception: &'static str,
}

impl RecordError {
    pub(crate) fn new(
        field: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
        exception: &'static str,
    ) -> Self {
        Self { field, expected: expected.into(), found: found.into(), exception }
    }
}

/// A field that must be there.
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

/// A field that must be there and be a text.
pub(crate) fn text<'a>(record: &'a Value, field: &'static str) -> Result<&'a str, RecordError> {
    match required(record, field, "a string")? {
        Value::String(text) => Ok(text),
        other => Err(RecordError::new(field, "a string", describe(other), "TypeError")),
    }
}

/// A field that may be missing; anything but a text counts as missing.
pub(crate) fn optional_text(record: &Value, field: &str) -> Option<String> {
    record.get(field).and_then(Value::as_str).map(str::to_owned)
}

/// A value in words.
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

/// A text in words: `the text "…"`, shortened.
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
