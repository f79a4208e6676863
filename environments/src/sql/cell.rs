//! Cells of a result, formatted as Python prints the values of the original's driver.

use std::fmt::{self, Write};

use lumos_tasks::python::{repr, repr_float};

/// One cell, with the Python type that the original's driver (mysql-connector) returns.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// NULL: `None`.
    Null,
    /// An integer: `int`.
    Integer(i128),
    /// A floating-point number: `float`.
    Float(f64),
    /// `Decimal`, with the digits that the server wrote.
    Decimal(String),
    /// `str`.
    Text(String),
    /// `bytes`.
    Bytes(Vec<u8>),
    /// `bool`.
    Boolean(bool),
    /// `datetime.date`.
    Date {
        /// Year.
        year: u16,
        /// Month, from 1.
        month: u8,
        /// Day, from 1.
        day: u8,
    },
    /// `datetime.datetime`, without a time zone.
    DateTime {
        /// Year.
        year: u16,
        /// Month, from 1.
        month: u8,
        /// Day, from 1.
        day: u8,
        /// Seconds since midnight.
        second_of_day: u32,
        /// Microseconds.
        microsecond: u32,
    },
    /// `datetime.timedelta` (the type of TIME), normalized as in Python: only the days can be negative.
    Duration {
        /// Days.
        days: i64,
        /// Seconds, below 86,400.
        seconds: u32,
        /// Microseconds.
        microseconds: u32,
    },
}

/// One row of a result.
pub type Row = Vec<Cell>;

/// `repr(value)` of bytes.
fn bytes_text(bytes: &[u8]) -> String {
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { b'"' } else { b'\'' };
    let mut text = format!("b{}", char::from(quote));
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            _ if byte == quote => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push(char::from(quote));
    text
}

/// `datetime.timedelta(...)`, without parts that are zero.
fn duration_text(days: i64, seconds: u32, microseconds: u32) -> String {
    let parts = [("days", days), ("seconds", i64::from(seconds)), ("microseconds", i64::from(microseconds))];
    let parts = parts.iter().filter(|(_, value)| *value != 0).map(|(name, value)| format!("{name}={value}"));
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        "datetime.timedelta(0)".to_owned()
    } else {
        format!("datetime.timedelta({})", parts.join(", "))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("None"),
            Self::Integer(value) => write!(formatter, "{value}"),
            Self::Float(value) => formatter.write_str(&repr_float(*value)),
            Self::Decimal(digits) => write!(formatter, "Decimal('{digits}')"),
            Self::Text(text) => formatter.write_str(&repr(text)),
            Self::Bytes(bytes) => formatter.write_str(&bytes_text(bytes)),
            Self::Boolean(value) => formatter.write_str(if *value { "True" } else { "False" }),
            Self::Date { year, month, day } => write!(formatter, "datetime.date({year}, {month}, {day})"),
            Self::DateTime { year, month, day, second_of_day, microsecond } => {
                let (hour, minute) = (second_of_day / 3600, second_of_day / 60 % 60);
                let second = second_of_day % 60;
                write!(formatter, "datetime.datetime({year}, {month}, {day}, {hour}, {minute}")?;
                match (second, microsecond) {
                    (0, 0) => {}
                    (second, 0) => write!(formatter, ", {second}")?,
                    (second, microsecond) => write!(formatter, ", {second}, {microsecond}")?,
                }
                formatter.write_str(")")
            }
            Self::Duration { days, seconds, microseconds } => {
                formatter.write_str(&duration_text(*days, *seconds, *microseconds))
            }
        }
    }
}

/// A row formatted as a Python tuple: `('a', 1)`, `('a',)`.
pub fn row_text(row: &[Cell]) -> String {
    let cells: Vec<String> = row.iter().map(Cell::to_string).collect();
    match cells.as_slice() {
        [only] => format!("({only},)"),
        cells => format!("({})", cells.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_as_python_prints_them() {
        let at = |second_of_day, microsecond| Cell::DateTime {
            year: 2013,
            month: 6,
            day: 30,
            second_of_day,
            microsecond,
        };
        assert_eq!(row_text(&[Cell::Text("it's".to_owned())]), "(\"it's\",)");
        assert_eq!(row_text(&[]), "()");
        assert_eq!(
            row_text(&[Cell::Null, Cell::Decimal("3.5000".to_owned()), Cell::Bytes(b"\0a'".to_vec())]),
            "(None, Decimal('3.5000'), b\"\\x00a'\")"
        );
        assert_eq!(
            row_text(&[at(46_860, 0), at(46_900, 0), at(0, 5)]),
            "(datetime.datetime(2013, 6, 30, 13, 1), datetime.datetime(2013, 6, 30, 13, 1, 40), \
             datetime.datetime(2013, 6, 30, 0, 0, 0, 5))"
        );
        let span = |days, seconds| Cell::Duration { days, seconds, microseconds: 0 };
        assert_eq!(
            row_text(&[span(0, 36_672), span(-1, 1), span(0, 0)]),
            "(datetime.timedelta(seconds=36672), datetime.timedelta(days=-1, seconds=1), datetime.timedelta(0))"
        );
    }
}
