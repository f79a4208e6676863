//! Result of a function.

use serde_json::Value;

/// A value, or an exception (with its name if it is known here).
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

/// Whether two values are equal. An integer equals the same number with a decimal point, and a number equals
/// its text (`Count` returns a number in the original, but variables contain strings here).
pub(super) fn same(recorded: &Value, got: &Value) -> bool {
    match (recorded, got) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Number(left), Value::String(right)) => left.to_string() == *right,
        _ => recorded == got,
    }
}
