//! Parses StrategyQA records: `{"question", "answer"}` in the Lumos file, also `qid`, `term`, `facts` and
//! more in the official files, and `{"input", "target_scores"}` in the BIG-bench task file. Facts and
//! decompositions are never shown to the agent.

use lumos_tasks::{AnswerForm, Setup, Target, Task};
use serde_json::Value;

use crate::loading::{Content, RecordError, describe, optional_text, required, text};

const ANSWER: &str = "answer";
const TRUE_OR_FALSE: &str = "true or false";

/// Parses a record.
pub(super) fn read(record: &Value) -> Result<Content, RecordError> {
    if record.get("target_scores").is_some() {
        return read_big_bench(record);
    }
    let question = text(record, "question")?;
    match required(record, ANSWER, TRUE_OR_FALSE)? {
        Value::Bool(answer) => Ok(content(record, question, python_text(*answer))),
        other => Err(RecordError::new(ANSWER, TRUE_OR_FALSE, describe(other), "TypeError")),
    }
}

/// Parses a record as the original does: `str` of any value of `answer`.
pub(super) fn read_as_original(record: &Value) -> Result<Content, RecordError> {
    let question = text(record, "question")?;
    let answer = as_python_text(required(record, ANSWER, TRUE_OR_FALSE)?);
    Ok(content(record, question, &answer))
}

/// The original's `str(answer)`.
pub(crate) fn as_python_text(answer: &Value) -> String {
    match answer {
        Value::Bool(answer) => python_text(*answer).to_owned(),
        Value::Null => "None".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn python_text(answer: bool) -> &'static str {
    if answer { "True" } else { "False" }
}

fn content(record: &Value, question: &str, answer: &str) -> Content {
    Content {
        name: optional_text(record, "qid"),
        group: None,
        task: Task::Qa { question: question.to_owned(), answer: AnswerForm::YesNo },
        setup: Setup::None,
        target: Target::Text { answer: answer.to_owned() },
    }
}

fn read_big_bench(record: &Value) -> Result<Content, RecordError> {
    const SCORES: &str = "target_scores";
    let question = text(record, "input")?;
    let scores = required(record, SCORES, "an object")?;
    let score = |name: &str| scores.get(name).and_then(Value::as_f64);
    match (score("Yes"), score("No")) {
        (Some(yes), Some(no)) if yes != no => Ok(content(record, question, python_text(yes > no))),
        _ => {
            Err(RecordError::new(SCORES, "different scores of `Yes` and `No`", describe(scores), "KeyError"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_kinds_of_files() {
        let target = |record: Value| read(&record).map(|content| content.target.text().to_owned());
        assert_eq!(target(json!({"question": "Is it?", "answer": true})).as_deref(), Ok("True"));
        let official = json!({"qid": "7", "question": "Is it?", "answer": false, "facts": ["It is not."]});
        assert_eq!(target(official).as_deref(), Ok("False"));
        let task_file = json!({"input": "Is it?", "target_scores": {"Yes": 1, "No": 0}, "target": "Yes."});
        assert_eq!(target(task_file).as_deref(), Ok("True"));
    }

    #[test]
    fn what_the_original_takes_for_an_answer_is_refused() {
        for answer in [json!("no"), json!(null), json!(1)] {
            let record = json!({"question": "Is it?", "answer": answer});
            assert_eq!(read(&record).unwrap_err().field, "answer");
            assert!(read_as_original(&record).is_ok());
        }
    }
}
