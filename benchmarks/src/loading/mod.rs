//! Reads data files record by record, without loading whole files.
//!
//! `source` opens a file or the built-in samples, `lines`, `array`, `member`, `csv`, `parquet` and `many` split it into
//! records, `field` reads the fields of a record, and `items` turns records into items with positions and
//! identities. A malformed record is an error in the stream, which continues after it.

mod array;
mod csv;
mod field;
mod items;
mod lines;
mod many;
mod member;
mod parquet;
mod source;

pub(crate) use self::csv::Rows;
pub(crate) use array::Elements;
pub use field::{Content, RecordError};
pub(crate) use field::{describe, optional_text, quoted, required, text};
pub use items::Items;
pub(crate) use items::{Builder, Layout, open, open_records, single};
pub(crate) use lines::Lines;
pub(crate) use many::{Many, open_many};
pub use source::DataSource;

/// Maximum length of a record in bytes, so that a file of another format does not fill the memory.
const MAX_RECORD: u64 = lumos_environments::lines::LONGEST_LINE;

/// A record of a file, and the line in which it starts.
#[derive(Debug)]
pub(crate) struct Located {
    /// Counted from 1. In a Parquet file, the number of the row.
    pub(crate) line: u64,
    /// The record, or the error.
    pub(crate) content: Result<serde_json::Value, Flaw>,
}

/// Error of a record before its fields are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Invalid JSON, with the line of the error.
    Json { line: u64, found: String },
    /// Invalid in another format, with the line of the error.
    Row { line: u64, expected: String, found: String },
    /// The rest of the file cannot be read.
    Broken { expected: String, found: String },
    /// The operating system returned an error.
    Unreadable(String),
}

/// Parses the text of a record that starts in `line`.
fn parse(text: &[u8], line: u64) -> Result<serde_json::Value, Flaw> {
    serde_json::from_slice(text.trim_ascii_end()).map_err(|error| {
        let within = u64::try_from(error.line()).unwrap_or(1).max(1);
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        Flaw::Json {
            line: line + within - 1,
            found: format!("invalid JSON ({message}, column {})", error.column()),
        }
    })
}

/// Returns the error for a record longer than `most` bytes.
fn too_long(most: u64) -> Flaw {
    Flaw::Broken {
        expected: format!("records of at most {} MiB", most >> 20),
        found: "a longer record".to_owned(),
    }
}
