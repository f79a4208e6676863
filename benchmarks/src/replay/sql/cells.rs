//! Recorded cells: JSON values, and objects with a Python type for values that JSON does not have.

use lumos_environments::sql::{Cell, row_text};
use serde_json::Value;

/// Formats a row like Python prints it.
///
/// # Errors
/// If a cell has an unknown form.
pub(super) fn printed(row: &[Value]) -> Result<String, String> {
    let cells = row.iter().map(|value| cell(value).ok_or_else(|| format!("not a recorded cell: {value}")));
    cells.collect::<Result<Vec<_>, _>>().map(|cells| row_text(&cells))
}

fn cell(value: &Value) -> Option<Cell> {
    let Value::Object(fields) = value else {
        return match value {
            Value::Null => Some(Cell::Null),
            Value::Bool(value) => Some(Cell::Boolean(*value)),
            Value::Number(number) => number.to_string().parse().ok().map(Cell::Integer),
            Value::String(text) => Some(Cell::Text(text.clone())),
            Value::Array(_) | Value::Object(_) => None,
        };
    };
    let written = fields.get("v")?;
    let text = written.as_str();
    match fields.get("t")?.as_str()? {
        "float" => text?.parse().ok().map(Cell::Float),
        "decimal" => text.map(|digits| Cell::Decimal(digits.to_owned())),
        "bytes" | "bytearray" => bytes(text?).map(Cell::Bytes),
        "bool" => written.as_bool().map(Cell::Boolean),
        "date" => {
            let [year, month, day] = numbers(text?)?;
            Some(Cell::Date {
                year: year.try_into().ok()?,
                month: month.try_into().ok()?,
                day: day.try_into().ok()?,
            })
        }
        "datetime" => {
            let (date, time) = text?.split_at_checked(10)?;
            let [year, month, day] = numbers(date)?;
            let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
            let [hour, minute, second] = numbers(time)?;
            let [fraction] = numbers(&format!("{fraction:0<6}"))?;
            Some(Cell::DateTime {
                year: year.try_into().ok()?,
                month: month.try_into().ok()?,
                day: day.try_into().ok()?,
                second_of_day: hour
                    .checked_mul(3600)?
                    .checked_add(minute.checked_mul(60)?)?
                    .checked_add(second)?,
                microsecond: fraction,
            })
        }
        "timedelta" => {
            let part = |index: usize| written.get(index).and_then(Value::as_i64);
            Some(Cell::Duration {
                days: part(0)?,
                seconds: part(1)?.try_into().ok()?,
                microseconds: part(2)?.try_into().ok()?,
            })
        }
        _ => None,
    }
}

/// Returns the numbers in a text, with any separators.
fn numbers<const COUNT: usize>(text: &str) -> Option<[u32; COUNT]> {
    let parts = text.split(|character: char| !character.is_ascii_digit()).filter(|part| !part.is_empty());
    let parts: Option<Vec<u32>> = parts.map(|part| part.parse().ok()).collect();
    parts?.try_into().ok()
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let pairs = hexadecimal.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_of_every_type_are_printed() {
        let typed = |kind: &str, value: Value| json!({ "t": kind, "v": value });
        let row = [
            json!(1),
            json!(null),
            json!("it's"),
            typed("float", json!("3.0")),
            typed("decimal", json!("3.50")),
            typed("date", json!("1990-01-02")),
            typed("datetime", json!("2013-06-30 13:01:40.5")),
            typed("datetime", json!("2013-06-30T13:01:00")),
            typed("timedelta", json!([0, 36672, 0])),
            typed("bytes", json!("00ff")),
            typed("bool", json!(true)),
        ];
        let expected = "(1, None, \"it's\", 3.0, Decimal('3.50'), datetime.date(1990, 1, 2), \
                        datetime.datetime(2013, 6, 30, 13, 1, 40, 500000), datetime.datetime(2013, 6, 30, 13, 1), \
                        datetime.timedelta(seconds=36672), b'\\x00\\xff', True)";
        assert_eq!(printed(&row).as_deref(), Ok(expected));
    }

    #[test]
    fn what_is_not_a_cell_is_an_error() {
        for value in [json!([1]), json!({ "t": "float" }), json!({ "t": "complex", "v": "1" }), json!(1.5)] {
            assert!(printed(&[value]).is_err());
        }
    }
}
