//! Parses HotpotQA records: `{"question", "answer", "type"}` in the Lumos file, and also `_id`, `level`,
//! `supporting_facts` and `context` in the official files. The paragraphs of `context` contain the answer and
//! are never shown to the agent.

use lumos_tasks::{AnswerForm, Setup, Target, Task};
use serde_json::Value;

use crate::loading::{Content, RecordError, optional_text, text};

/// Parses a record. Its group is the type, followed by the level if the file has one: `bridge, hard`.
pub(super) fn read(record: &Value) -> Result<Content, RecordError> {
    let question = text(record, "question")?.to_owned();
    let answer = text(record, "answer")?.to_owned();
    let group = match (optional_text(record, "type"), optional_text(record, "level")) {
        (Some(kind), Some(level)) => Some(format!("{kind}, {level}")),
        (kind, level) => kind.or(level),
    };
    Ok(Content {
        name: optional_text(record, "_id"),
        group,
        task: Task::Qa { question, answer: AnswerForm::Entity },
        setup: Setup::None,
        target: Target::Text { answer },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_kinds_of_files() {
        let lumos = read(&json!({"question": "Who?", "answer": "Ada", "type": "bridge"})).unwrap();
        assert_eq!((lumos.name, lumos.group.as_deref()), (None, Some("bridge")));
        let official = json!({
            "_id": "5a8b", "question": "Who?", "answer": "Ada", "type": "comparison", "level": "hard",
            "supporting_facts": [["Ada", 0]], "context": [["Ada", ["A sentence."]]],
        });
        let official = read(&official).unwrap();
        assert_eq!(official.name.as_deref(), Some("5a8b"));
        assert_eq!(official.group.as_deref(), Some("comparison, hard"));
        assert!(!serde_json::to_string(&official.task).unwrap().contains("sentence"));
    }
}
