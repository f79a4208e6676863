//! Parses SVAMP records: `{"ID", "Body", "Question", "Equation", "Answer", "Type"}`.

use lumos_tasks::python::Integer;
use lumos_tasks::{Setup, Target, Task};
use serde_json::{Number, Value};

use crate::loading::{Content, RecordError, describe, optional_text, required, text};

const ANSWER: &str = "Answer";
const WHOLE_NUMBER: &str = "a whole number";

/// Parses a record.
pub(super) fn read(record: &Value) -> Result<Content, RecordError> {
    let (body, question) = (text(record, "Body")?, text(record, "Question")?);
    let answer = gold_answer(required(record, ANSWER, WHOLE_NUMBER)?)?;
    Ok(Content {
        name: optional_text(record, "ID"),
        group: optional_text(record, "Type").map(spelled),
        task: Task::Maths { question: format!("{body} {question}") },
        setup: Setup::None,
        target: Target::Number { answer },
    })
}

/// The original's `str(int(answer))`: a number is truncated, a string must contain an integer.
fn gold_answer(answer: &Value) -> Result<String, RecordError> {
    let whole = match answer {
        Value::Number(number) => truncated(number),
        Value::String(text) => Integer::parse(text).map(|integer| integer.to_string()),
        other => return Err(RecordError::new(ANSWER, WHOLE_NUMBER, describe(other), "TypeError")),
    };
    whole.ok_or_else(|| RecordError::new(ANSWER, WHOLE_NUMBER, describe(answer), "ValueError"))
}

/// `str(int(number))`.
fn truncated(number: &Number) -> Option<String> {
    if number.is_i64() || number.is_u64() {
        return Some(number.to_string());
    }
    let value = number.as_f64()?.trunc();
    // Adding 0 converts -0 to 0.
    value.is_finite().then(|| format!("{:.0}", value + 0.0))
}

/// Corrects the misspelled type of one record in the published file, which would otherwise form a separate
/// group.
fn spelled(group: String) -> String {
    if group == "Common-Divison" { "Common-Division".to_owned() } else { group }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gold_answers_are_whole_numbers() {
        let gold = |answer: Value| gold_answer(&answer).ok();
        assert_eq!(gold(json!(8.0)).as_deref(), Some("8"));
        assert_eq!(gold(json!(7.9)).as_deref(), Some("7"));
        assert_eq!(gold(json!(-0.5)).as_deref(), Some("0"));
        assert_eq!(gold(json!(1e22)).as_deref(), Some("10000000000000000000000"));
        assert_eq!(gold(json!(12)).as_deref(), Some("12"));
        assert_eq!(gold(json!(" 1_2 ")).as_deref(), Some("12"));
        for refused in ["7.5", "7 apples", "1,2,3", ""] {
            assert_eq!(gold_answer(&json!(refused)).unwrap_err().exception, "ValueError", "{refused}");
        }
        assert_eq!(gold_answer(&json!(null)).unwrap_err().exception, "TypeError");
    }

    #[test]
    fn body_and_question_are_joined_and_the_group_is_the_type() {
        let record = json!({
            "ID": "lumos-1", "Body": "A is 1. ", "Question": "What is A?", "Answer": 1.0, "Type": "Common-Divison",
        });
        let content = read(&record).unwrap();
        assert_eq!(content.task, Task::Maths { question: "A is 1.  What is A?".to_owned() });
        assert_eq!(
            (content.name.as_deref(), content.group.as_deref()),
            (Some("lumos-1"), Some("Common-Division"))
        );
    }
}
