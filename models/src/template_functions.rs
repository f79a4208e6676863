//! Functions of Hugging Face's chat templates that minijinja does not have: `tojson` as Python writes JSON, and
//! `strftime_now`.
//!
//! [`strftime_now`] formats a fixed date ([`TODAY`]), so that a prompt, and with it a result, does not depend on the
//! day on which a run is computed, resumed or verified.

use std::io;

use jiff::civil::DateTime;
use jiff::fmt::strtime;
use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// The date of all prompts: the one that Llama 3's templates write without a clock.
pub(super) const TODAY: DateTime = jiff::civil::date(2024, 7, 26).at(0, 0, 0, 0);

/// Maximum length of a date's format in bytes. A field of three bytes is at most 255 wide.
const LONGEST_FORMAT: usize = 128;
/// Maximum length of a separator in bytes.
const LONGEST_SEPARATOR: usize = 16;
/// Maximum width of an indentation. Python has no limit.
pub(super) const WIDEST_INDENT: usize = 16;

fn invalid(reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// Formats [`TODAY`] like Python's `strftime`.
///
/// # Errors
/// If the format is invalid, or longer than 128 bytes.
#[allow(clippy::needless_pass_by_value)] // what a function of a template takes
pub(super) fn strftime_now(format: String) -> Result<String, Error> {
    if format.len() > LONGEST_FORMAT {
        return Err(invalid(format!("the format of strftime_now is longer than {LONGEST_FORMAT} bytes")));
    }
    strtime::format(&format, TODAY).map_err(|error| invalid(format!("strftime_now: {error}")))
}

/// Writes a value as Python's `json.dumps` does, with `ensure_ascii=False` by default as in transformers. Keywords:
/// `ensure_ascii`, `indent` (at most 16), `separators` (two texts of at most 16 bytes) and `sort_keys`. The caller limits the value's size.
///
/// # Errors
/// If the value or a keyword is invalid.
#[allow(clippy::needless_pass_by_value)] // what a filter takes
pub(super) fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    if indent.is_some_and(|width| width > WIDEST_INDENT) {
        return Err(invalid(format!("tojson: indent is larger than {WIDEST_INDENT}")));
    }
    let separators: Option<Vec<String>> = options.get("separators")?;
    let [item, key] = match separators {
        None => [if indent.is_some() { "," } else { ", " }, ": "].map(str::to_owned),
        Some(separators) => {
            separators.try_into().map_err(|_| invalid("tojson: separators are not two texts"))?
        }
    };
    if item.len().max(key.len()) > LONGEST_SEPARATOR {
        return Err(invalid(format!("tojson: a separator is longer than {LONGEST_SEPARATOR} bytes")));
    }
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let failed = |error: serde_json::Error| invalid(format!("tojson: {error}"));
    let mut value = serde_json::to_value(value).map_err(failed)?;
    if sorted.unwrap_or(false) {
        value.sort_all_objects();
    }
    let style = Python { item, key, indent, ascii: ascii.unwrap_or(false), depth: 0, is_empty: true };
    let mut written = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut written, style)).map_err(failed)?;
    String::from_utf8(written).map_err(|error| invalid(format!("tojson: {error}")))
}

/// Writes JSON in the style of Python.
struct Python {
    item: String,
    key: String,
    indent: Option<usize>,
    ascii: bool,
    depth: usize,
    /// Whether the innermost list or map has no items yet.
    is_empty: bool,
}

impl Python {
    fn open<W: io::Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.is_empty = true;
        out.write_all(bracket)
    }

    fn close<W: io::Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if !self.is_empty {
            self.new_line(out)?;
        }
        self.is_empty = false;
        out.write_all(bracket)
    }

    fn begin<W: io::Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(self.item.as_bytes())?;
        }
        self.is_empty = false;
        self.new_line(out)
    }

    fn new_line<W: io::Write + ?Sized>(&self, out: &mut W) -> io::Result<()> {
        match self.indent {
            Some(width) => write!(out, "\n{:1$}", "", width * self.depth),
            None => Ok(()),
        }
    }
}

impl Formatter for Python {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        if !self.ascii {
            return out.write_all(text.as_bytes());
        }
        let mut units = [0; 2];
        for character in text.chars() {
            if character.is_ascii() {
                write!(out, "{character}")?;
            } else {
                for unit in character.encode_utf16(&mut units) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }

    fn begin_array<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: io::Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.begin(out, first)
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: io::Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.begin(out, first)
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.key.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(json: &str, options: &[(&str, Value)]) -> String {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        let options: Kwargs = options.iter().map(|(name, value)| (*name, value.clone())).collect();
        tojson(&Value::from(minijinja::value::Serde(value)), options).unwrap()
    }

    /// The expected texts are what Python's `json.dumps` writes.
    #[test]
    fn json_is_written_as_by_python() {
        let json = r#"{"b": [1, 2.5, true, null], "a": {"é": "<'\"\n>"}, "c": [], "d": {}}"#;
        assert_eq!(
            written(json, &[]),
            r#"{"b": [1, 2.5, true, null], "a": {"é": "<'\"\n>"}, "c": [], "d": {}}"#
        );
        assert_eq!(
            written(r#"{"b": 1, "a": "😀"}"#, &[("sort_keys", true.into())]),
            r#"{"a": "😀", "b": 1}"#
        );
        assert_eq!(written(r#"["é😀"]"#, &[("ensure_ascii", true.into())]), r#"["\u00e9\ud83d\ude00"]"#);
        let separators = Value::from(vec![",", ":"]);
        assert_eq!(written(r#"{"a": [1, 2]}"#, &[("separators", separators)]), r#"{"a":[1,2]}"#);
        let indented = "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}";
        assert_eq!(written(r#"{"a": [1, {}], "b": []}"#, &[("indent", 2.into())]), indented);
    }

    #[test]
    fn invalid_options_are_errors() {
        let failed = |name: &str, value: Value| {
            tojson(&Value::from(1), [(name, value)].into_iter().collect()).unwrap_err().to_string()
        };
        assert!(failed("indent", 17.into()).contains("larger than 16"));
        assert!(failed("separators", Value::from(vec![","])).contains("two texts"));
        let long = Value::from(vec![",".repeat(17), ":".to_owned()]);
        assert!(failed("separators", long).contains("longer than 16 bytes"));
        assert!(failed("indents", 2.into()).contains("indents"));
    }

    #[test]
    fn the_date_is_fixed() {
        let format = |format: &str| strftime_now(format.to_owned());
        assert_eq!(format("%d %b %Y").unwrap(), "26 Jul 2024");
        assert_eq!(format("%B %-d, %Y (%A) %H:%M").unwrap(), "July 26, 2024 (Friday) 00:00");
        assert!(format("%Q").unwrap_err().to_string().contains("strftime_now"));
        assert!(format(&"%255Y".repeat(30)).unwrap_err().to_string().contains("128 bytes"));
        assert!(format(&"%255Y".repeat(25)).unwrap().len() <= 255 * 25);
    }
}
