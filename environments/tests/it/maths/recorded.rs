//! Compares answers with those recorded from the service.
//!
//! The recorded service rejects some queries that it accepts elsewhere, and returns empty texts, several
//! forms of one value, or remarks about factors. The test counts the differences by kind and fails on an
//! unknown kind.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use lumos_environments::maths::{answer, same_value};
use serde_json::{Value, json};

const FILES: [&str; 6] = [
    "gsm8k_iterative",
    "gsm8k_onetime",
    "svamp_iterative",
    "svamp_onetime",
    "unit_math_execute",
    "unit_math_actions",
];

/// Reads a file of the recorded data. Returns `None`, with a note, if `LUMOS_SHARED` is not set.
pub(crate) fn recorded(name: &str) -> Option<String> {
    let path = lumos_capabilities::shared("golden")?.join(format!("{name}.jsonl.gz"));
    let mut text = String::new();
    GzDecoder::new(File::open(&path).expect("failed to open the recorded file"))
        .read_to_string(&mut text)
        .expect("failed to read the recorded file");
    Some(text)
}

/// Parses one JSON value per line.
pub(crate) fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("invalid JSON")).collect()
}

/// Returns the strings of a string or of a list, in which null entries are skipped.
pub(crate) fn gathered(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Compares answers part by part, in order.
pub(crate) fn same_answers(left: &[String], right: &[String]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same_value(left, right))
}

/// Splits `x = 14 ± 13`, which combines two subpods.
fn without_plus_minus(texts: Vec<String>) -> Vec<String> {
    match texts.as_slice() {
        [text] if text.contains('±') => {
            let sum = text.replace("= ±", "= 0 ±");
            vec![sum.replace('±', "-"), sum.replace('±', "+")]
        }
        _ => texts,
    }
}

/// Returns the kind of difference between a recorded answer and the computed one; `None` if the values
/// differ.
fn kind(output: &Value, ours: &[String]) -> Option<&'static str> {
    match output {
        Value::Null => Some("no text"),
        Value::String(text) if text.is_empty() => Some("empty text"),
        Value::String(text) if text.contains("factor") => Some("remark about factors"),
        Value::Array(parts) if parts.iter().any(Value::is_null) => Some("part without text"),
        Value::Array(parts) => {
            let forms = parts.iter().filter_map(Value::as_str);
            let mut forms = forms.map(|form| form.split(" (alternate").next().unwrap_or(form).to_owned());
            forms.any(|form| same_answers(ours, &[form])).then_some("several forms of one value")
        }
        _ => None,
    }
}

/// Returns why the service gave no answer; `None` for reasons that do not occur in the recordings.
fn refusal(call: &Value) -> Option<&'static str> {
    match call["raises"].as_str() {
        Some("StopIteration") => Some("not understood by the service"),
        Some(raised) if raised.starts_with("Exception: Error ") => Some("failure of the service"),
        _ => None,
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
                    let query = call["input"].as_str().expect("missing query").to_owned();
                    calls.insert((query, call.to_string()), call.clone());
                }
            }
        }
    }
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unknown = Vec::new();
    for ((query, _), call) in &calls {
        let found = match (answer(query), call.get("raises")) {
            (Err(_), Some(_)) => Some("refused by both"),
            (Ok(_), Some(_)) => refusal(call),
            (Ok(answer), None) => {
                let recorded = without_plus_minus(gathered(&call["output"]));
                match same_answers(answer.texts(), &recorded) {
                    true => Some("same"),
                    false => kind(&call["output"], answer.texts()),
                }
            }
            (Err(_), None) => None,
        };
        match found {
            Some(kind) => *kinds.entry(kind).or_default() += 1,
            None => unknown.push(format!("{query}: {:?}, recorded {call}", answer(query))),
        }
    }
    eprintln!("{} calls: {kinds:#?}", calls.len());
    assert_eq!(unknown, Vec::<String>::new());
    // Recordings unrelated to the computed answers would have few equal ones.
    let same = kinds.get("same").copied().unwrap_or(0);
    assert!(same > calls.len() / 2, "{same} of {} are the same", calls.len());
}

#[test]
fn another_value_is_of_no_kind() {
    let ours = ["72".to_owned()];
    assert_eq!(kind(&json!(["72", "2 × 72"]), &ours), Some("several forms of one value"));
    assert_eq!(
        kind(&json!(["3 n + 6 (alternate form)"]), &["3 n + 6".to_owned()]),
        Some("several forms of one value")
    );
    assert_eq!(kind(&json!("factor 72"), &ours), Some("remark about factors"));
    for other in [json!("73"), json!(["73", "2 × 72"]), json!("seventy-two"), json!(72), json!({})] {
        assert_eq!(kind(&other, &ours), None, "{other}");
    }
    assert_eq!(refusal(&json!({"raises": "KeyError: 'x'"})), None);
}
