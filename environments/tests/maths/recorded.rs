//! Agreement with what the recorded service answered.
//!
//! The recorded service is at times moody: it does not understand what it understands elsewhere, gives
//! empty texts, or factors a product. The test holds the number of differences, and every difference
//! where both sides give a value must be one of the known moods.

use std::collections::BTreeMap;

use crate::support::{gathered, recorded, rows, same_answers};
use lumos_environments::maths::answer;
use serde_json::Value;

const FILES: [&str; 6] = [
    "gsm8k_iterative",
    "gsm8k_onetime",
    "svamp_iterative",
    "svamp_onetime",
    "unit_math_execute",
    "unit_math_actions",
];

/// `x = 14 ± 13` is two subpods in one.
fn without_plus_minus(texts: Vec<String>) -> Vec<String> {
    match texts.as_slice() {
        [text] if text.contains('±') => {
            let sum = text.replace("= ±", "= 0 ±");
            vec![sum.replace('±', "-"), sum.replace('±', "+")]
        }
        _ => texts,
    }
}

/// Empty texts, several subpods for one value, factors, other forms.
fn is_mood(output: &Value) -> bool {
    match output {
        Value::Null => true,
        Value::Array(texts) => !texts.iter().all(|text| text.as_str().is_some_and(|text| text.contains('='))),
        Value::String(text) => text.is_empty() || text.contains("factor"),
        _ => false,
    }
}

#[test]
fn recorded_answers() {
    let mut calls = BTreeMap::new();
    for name in FILES {
        let Some(text) = recorded(name) else {
            return;
        };
        for row in rows(&text) {
            for call in row["tools"].as_array().into_iter().flatten() {
                if call["tool"] == "wolfram" {
                    let query = call["input"].as_str().expect("a query").to_owned();
                    calls.insert((query, call.to_string()), call.clone());
                }
            }
        }
    }
    let (mut same, mut moods, mut both_refuse, mut only_ours, mut only_theirs) =
        (0, 0, 0, Vec::new(), Vec::new());
    let mut other = Vec::new();
    for ((query, _), call) in &calls {
        let raised = call.get("raises").is_some();
        match (answer(query), raised) {
            (Err(_), true) => both_refuse += 1,
            (Ok(answer), true) => only_ours.push(format!("{query} = {answer}")),
            (Ok(answer), false) => {
                if same_answers(answer.texts(), &without_plus_minus(gathered(&call["output"]))) {
                    same += 1;
                } else if is_mood(&call["output"]) {
                    moods += 1;
                } else {
                    other.push(format!("{query} = {answer} instead of {}", call["output"]));
                }
            }
            (Err(error), false) => only_theirs.push(format!("{query}: {error}")),
        }
    }
    eprintln!(
        "{} calls: {same} same, {both_refuse} refused by both, {moods} moods, \
         {} answered here only, {} answered there only",
        calls.len(),
        only_ours.len(),
        only_theirs.len()
    );
    eprintln!("answered here only: {only_ours:#?}");
    assert_eq!(only_theirs, Vec::<String>::new());
    assert_eq!(other, Vec::<String>::new());
    assert!(only_ours.len() <= 19, "{} answered here only", only_ours.len());
    assert!(same >= 1035, "{same} same");
}
