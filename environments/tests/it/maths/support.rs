//! What the tests share: reading rows, and comparing answers of several parts.

use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use lumos_environments::maths::same_value;
use serde_json::Value;

/// The text of a file of the recorded data, or `None` (with a note) where `LUMOS_SHARED` is not set.
pub(crate) fn recorded(name: &str) -> Option<String> {
    let path = lumos_capabilities::shared("golden")?.join(format!("{name}.jsonl.gz"));
    let mut text = String::new();
    GzDecoder::new(File::open(&path).expect("the recorded file"))
        .read_to_string(&mut text)
        .expect("gzip with UTF-8 text");
    Some(text)
}

/// One JSON value per line.
pub(crate) fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// A string or a list of strings (an entry may be null).
pub(crate) fn gathered(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Part by part, in order.
pub(crate) fn same_answers(left: &[String], right: &[String]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same_value(left, right))
}
