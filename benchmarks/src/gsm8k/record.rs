//! Parses GSM8K records: `{"question", "answer"}`, where the answer is a worked solution that ends in `####
//! N`.

use std::sync::LazyLock;

use lumos_tasks::python::strip;
use lumos_tasks::{Setup, Target, Task};
use regex::Regex;
use serde_json::Value;

use crate::loading::{Content, RecordError, quoted, text};
use crate::python_float::float;

const ANSWER: &str = "answer";
const MARKER: &str = "####";

/// Parses a record.
pub(super) fn read(record: &Value) -> Result<Content, RecordError> {
    let question = text(record, "question")?;
    let answer = gold_answer(text(record, ANSWER)?)?;
    Ok(Content {
        name: None,
        group: None,
        task: Task::Maths { question: question.to_owned() },
        setup: Setup::None,
        target: Target::Number { answer },
    })
}

/// Returns the gold answer of a worked solution: the text between the first and the second `####`, stripped,
/// without commas between digits. It must be a valid number for Python's `float`.
///
/// Commas are removed like the original's `re.sub(r"(\d),(\d)", r"\1\2", …)`, without overlapping matches:
/// `1,2,3` keeps its second comma.
pub(crate) fn gold_answer(solution: &str) -> Result<String, RecordError> {
    static COMMA: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(\d),(\d)").expect("a valid pattern"));
    let Some(marked) = solution.split(MARKER).nth(1) else {
        let last = solution.lines().next_back().unwrap_or_default();
        return Err(RecordError::new(
            ANSWER,
            "`#### ` and a number at the end",
            format!("{} as the last line", quoted(last)),
            "IndexError",
        ));
    };
    let answer = COMMA.replace_all(strip(marked), "${1}${2}");
    if float(&answer).is_none() {
        return Err(RecordError::new(ANSWER, "a number after `####`", quoted(&answer), "ValueError"));
    }
    Ok(answer.into_owned())
}

/// Whether a gold answer is 0, which the original rejects by mistake.
pub(crate) fn is_zero(answer: &str) -> bool {
    float(answer) == Some(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn gold_answers_are_cleaned_as_the_original_cleans_them() {
        let gold = |solution| gold_answer(solution).ok();
        assert_eq!(gold("2+3=<<2+3=5>>5\n#### 5").as_deref(), Some("5"));
        assert_eq!(gold("####\u{1c} 1,234,567 ").as_deref(), Some("1234567"));
        assert_eq!(gold("#### 7 #### 8").as_deref(), Some("7"));
        assert_eq!(gold("#### ١,٢٣٤").as_deref(), Some("١٢٣٤"));
        assert_eq!(gold("#### -0.5").as_deref(), Some("-0.5"));
        assert_eq!(gold("#### 0").as_deref(), Some("0"));
        assert!(is_zero("0") && is_zero("-0.0") && !is_zero("nan") && !is_zero("10"));
    }

    #[test]
    fn what_is_no_gold_answer_is_refused_as_the_original_refuses_it() {
        let exception = |solution| gold_answer(solution).unwrap_err().exception;
        assert_eq!(exception("the answer is 5"), "IndexError");
        assert_eq!(exception("#### 7 apples"), "ValueError");
        assert_eq!(exception("#### 1,2,3"), "ValueError");
        assert_eq!(exception("##### 5"), "ValueError");
    }

    proptest! {
        #[test]
        fn arbitrary_records_never_panic(question in ".{0,20}", solution in "[#0-9, a\n]{0,30}") {
            let _ = read(&json!({ "question": question, "answer": solution }));
        }
    }
}
