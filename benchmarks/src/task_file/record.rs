//! Reads records as a task file says.

use lumos_tasks::{AnswerForm, Setup, Target, Task};
use regex::Regex;
use serde_json::{Number, Value};

use super::{AnswerKind, TaskDefinition, TaskFamily, TaskFields};
use crate::intercode_sql::checked_gold;
use crate::loading::{Content, RecordError, describe, quoted};
use crate::metrics::{value, verdict};
use crate::strategyqa::as_python_text;

/// Returns the function that reads the records of a definition.
pub(super) fn reader(
    definition: &'static TaskDefinition,
) -> impl Fn(&Value) -> Result<Content, RecordError> + Send + Sync {
    let pattern = definition.answer.pattern.as_deref().and_then(|pattern| Regex::new(pattern).ok());
    move |record| read(definition, pattern.as_ref(), record)
}

fn read(
    definition: &'static TaskDefinition,
    pattern: Option<&Regex>,
    record: &Value,
) -> Result<Content, RecordError> {
    let fields = &definition.fields;
    let kind = definition.answer_kind();
    let content = match definition.family {
        // These have formats of their own.
        TaskFamily::Web | TaskFamily::Shop => definition.family.base().read(record)?,
        TaskFamily::Sql => statement(definition, record)?,
        TaskFamily::Maths => Content {
            task: Task::Maths { question: question(fields, record)? },
            ..answered(target(record, &fields.answer, kind, pattern)?)
        },
        TaskFamily::Qa | TaskFamily::Custom => {
            let answer = if kind == AnswerKind::YesNo { AnswerForm::YesNo } else { AnswerForm::Entity };
            Content {
                task: Task::Qa { question: question(fields, record)?, answer },
                ..answered(target(record, &fields.answer, kind, pattern)?)
            }
        }
    };
    let name = fields.id.as_deref().map(|name| plain(record, name)).transpose()?;
    let group = match fields.group.as_deref() {
        Some(name) => optional(record, name)?,
        None => content.group,
    };
    // Reports read the cluster, without errors.
    if let Some(name) = fields.cluster.as_deref() {
        optional(record, name)?;
    }
    Ok(Content { name: name.or(content.name), group, ..content })
}

/// Returns the question, with its context.
fn question(fields: &'static TaskFields, record: &Value) -> Result<String, RecordError> {
    let question = words(record, &fields.question)?;
    Ok(match &fields.context {
        Some(context) => format!("{} {question}", words(record, context)?),
        None => question,
    })
}

/// An item with a gold answer, without its task.
fn answered(target: Target) -> Content {
    let task = Task::Maths { question: String::new() };
    Content { name: None, group: None, task, setup: Setup::None, target }
}

/// Returns a question to a database, whose answer is a query.
fn statement(definition: &'static TaskDefinition, record: &Value) -> Result<Content, RecordError> {
    let fields = &definition.fields;
    let database = words(record, fields.database.as_deref().unwrap_or("database"))?;
    let gold = checked_gold(&fields.answer, words(record, &fields.answer)?)?;
    Ok(Content {
        task: Task::Sql { question: question(fields, record)?, database: database.clone() },
        setup: Setup::Sql { database, gold: gold.clone() },
        ..answered(Target::Text { answer: gold })
    })
}

/// Reads a record as the published script does whose quirks the agent has: any value is a gold answer.
pub(super) fn read_as_original(
    definition: &'static TaskDefinition,
    record: &Value,
) -> Result<Content, RecordError> {
    if !(definition.has_paper_quirks() && definition.answer_kind() == AnswerKind::YesNo) {
        return reader(definition)(record);
    }
    let fields = &definition.fields;
    let answer = as_python_text(field(record, &fields.answer, "an answer")?);
    let task = Task::Qa { question: question(fields, record)?, answer: AnswerForm::YesNo };
    Ok(Content { task, ..answered(Target::Text { answer }) })
}

/// Returns the cluster of a record, if the definition names a field for it and the record has a value there.
pub(super) fn cluster(definition: &'static TaskDefinition, record: &Value) -> Option<String> {
    optional(record, definition.fields.cluster.as_deref()?).ok().flatten()
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Returns a required field. A name with dots also finds a field within objects.
fn field<'a>(record: &'a Value, name: &'static str, expected: &str) -> Result<&'a Value, RecordError> {
    let Value::Object(fields) = record else {
        return Err(RecordError::new(name, "a JSON object with this field", describe(record), "TypeError"));
    };
    let nested = || name.split('.').try_fold(record, |value, part| value.get(part));
    fields.get(name).or_else(nested).ok_or_else(|| {
        let names = fields.keys().take(12).cloned().collect::<Vec<_>>().join(", ");
        RecordError::new(name, expected, format!("no such field; the record has {names}"), "KeyError")
    })
}

/// Returns a text that is not blank.
fn words(record: &Value, name: &'static str) -> Result<String, RecordError> {
    match field(record, name, "a string")? {
        Value::String(text) if is_blank(text) => {
            Err(RecordError::new(name, "a string", "an empty string", "ValueError"))
        }
        Value::String(text) => Ok(text.clone()),
        other => Err(RecordError::new(name, "a string", describe(other), "TypeError")),
    }
}

/// Returns a string, a number without an exponent, or a truth value as text.
fn plain(record: &Value, name: &'static str) -> Result<String, RecordError> {
    const EXPECTED: &str = "a string or a number";
    match field(record, name, EXPECTED)? {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(digits(number)),
        Value::Bool(value) => Ok(value.to_string()),
        other => Err(RecordError::new(name, EXPECTED, describe(other), "TypeError")),
    }
}

/// Returns the text of a required field; `None` for null and for blank texts, such as empty cells of a CSV file.
fn optional(record: &Value, name: &'static str) -> Result<Option<String>, RecordError> {
    match field(record, name, "a string or a number")? {
        Value::Null => Ok(None),
        _ => Ok(Some(plain(record, name)?).filter(|text| !is_blank(text))),
    }
}

/// Formats a number as a record writes it, but without an exponent: `0.000001` for `1e-6`.
fn digits(number: &Number) -> String {
    let text = number.to_string();
    match number.as_f64() {
        Some(value) if text.contains('e') => value.to_string(),
        _ => text,
    }
}

fn target(
    record: &Value,
    name: &'static str,
    kind: AnswerKind,
    pattern: Option<&Regex>,
) -> Result<Target, RecordError> {
    let given = match (kind, field(record, name, "a string or a number")?) {
        (AnswerKind::YesNo, value @ Value::Bool(_)) => as_python_text(value),
        _ => plain(record, name)?,
    };
    let answer = match pattern {
        None => given.trim(),
        Some(pattern) => match pattern.captures(&given).and_then(|found| found.get(1)) {
            Some(group) => group.as_str().trim(),
            None => {
                let expected = format!("a text that matches `{pattern}`");
                return Err(RecordError::new(name, expected, quoted(&given), "ValueError"));
            }
        },
    };
    let fits = match kind {
        AnswerKind::Number => value(answer).is_some(),
        AnswerKind::Value | AnswerKind::Text => !answer.is_empty(),
        AnswerKind::YesNo => verdict(answer).is_some(),
    };
    if !fits {
        let expected = match kind {
            AnswerKind::Number => "a number or a fraction",
            AnswerKind::YesNo => "yes, no, true or false",
            AnswerKind::Value | AnswerKind::Text => "an answer",
        };
        return Err(RecordError::new(name, expected, quoted(answer), "ValueError"));
    }
    let answer = answer.to_owned();
    Ok(match kind {
        AnswerKind::Number => Target::Number { answer },
        AnswerKind::Value | AnswerKind::Text | AnswerKind::YesNo => Target::Text { answer },
    })
}
