//! What a function gave.

use serde_json::Value;

/// A value, or an exception (with its name where the code here knows it).
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Output {
    Value(Value),
    Raised(Option<&'static str>),
}

impl<T: Into<Value>> From<T> for Output {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

/// Whether two values are equal; a whole number and the same number with a point are, and so are a number and
/// its text (`Count` gives a number in the original, variables hold texts here).
pub(super) fn same(recorded: &Value, got: &Value) -> bool {
    match (recorded, got) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Number(left), Value::String(right)) => left.to_string() == *right,
        _ => recorded == got,
    }
}
