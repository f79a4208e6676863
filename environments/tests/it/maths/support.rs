//! Helpers of the tests: reading rows, and comparing answers with several parts.

use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use lumos_environments::maths::same_value;
use serde_json::Value;

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
