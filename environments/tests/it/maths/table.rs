//! Compares answers with this crate's table, and with the table of the recorded data if it is available.

use super::recorded::{gathered, recorded, rows, same_answers};
use lumos_environments::maths::{MathsError, answer};
use serde_json::Value;

fn differences(rows: &[Value]) -> Vec<String> {
    let mut differences = Vec::new();
    for row in rows {
        let query = row["query"].as_str().expect("missing query");
        let expected = match &row["expect"] {
            Value::Object(refusal) => Err(refusal["refused"].as_str().expect("missing kind").to_owned()),
            value => Ok(gathered(value)),
        };
        let actual = answer(query);
        let same = match (&actual, &expected) {
            (Ok(actual), Ok(expected)) => same_answers(actual.texts(), expected),
            (Err(error), Err(kind)) => kind_of(error) == kind,
            _ => false,
        };
        if !same {
            differences.push(format!("{query}: {actual:?} instead of {expected:?}"));
        }
    }
    differences
}

fn kind_of(error: &MathsError) -> &'static str {
    match error {
        MathsError::NotUnderstood { .. } => "not understood",
        MathsError::NoResult { .. } => "no result",
        MathsError::TooLarge { .. } => "too large",
        MathsError::DivisionByZero => "division by zero",
    }
}

#[test]
fn own_table() {
    let rows = rows(include_str!("../../data/maths_table.jsonl"));
    assert!(rows.len() >= 60, "{} rows", rows.len());
    assert_eq!(differences(&rows), Vec::<String>::new());
}

#[test]
fn own_table_word_for_word() {
    for row in rows(include_str!("../../data/maths_table.jsonl")) {
        if let Some(text) = row["text"].as_bool()
            && text
        {
            let actual = answer(row["query"].as_str().expect("missing query")).expect("failed to answer");
            assert_eq!(actual.texts(), gathered(&row["expect"]));
        }
    }
}

#[test]
fn recorded_table() {
    let Some(text) = recorded("math_table") else {
        return;
    };
    let rows = rows(&text);
    assert!(!rows.is_empty());
    assert_eq!(differences(&rows), Vec::<String>::new());
}
