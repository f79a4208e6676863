//! Turns records into items.

use std::collections::HashMap;

use lumos_tasks::{ContentHash, Item, ItemId};
use serde_json::Value;

use super::source::{Opened, remedy};
use super::{
    Content, DataSource, Elements, Flaw, Lines, Located, RecordError, Rows, member, parquet, source,
};
use crate::benchmark::BenchmarkDescription;
use crate::error::DataError;

/// A stream of items. Records that cannot be read are errors in the stream.
pub type Items = Box<dyn Iterator<Item = Result<Item, DataError>> + Send>;

/// File format of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// JSON lines.
    Lines,
    /// One JSON array.
    Array,
    /// A JSON array or JSON lines, detected by the first character.
    Either,
    /// As `Either`, or a JSON object over several lines that contains the records as an array in this field.
    EitherOrMember(&'static str),
    /// Comma-separated values with a header.
    Csv,
    /// Parquet; lines are the numbers of rows.
    Parquet,
}

/// The records of a file.
pub(crate) type Records = Box<dyn Iterator<Item = Located> + Send>;

/// Opens a source of a benchmark as a stream of items.
pub(crate) fn open(
    about: &'static BenchmarkDescription,
    data: &DataSource,
    layout: Layout,
) -> Result<Items, DataError> {
    let (name, records) = open_records(about, data, layout)?;
    let mut builder = Builder::new(about, name);
    Ok(Box::new(records.map(move |record| builder.build(record))))
}

/// Opens a source of a benchmark as a stream of records. Returns its name for messages too.
pub(crate) fn open_records(
    about: &'static BenchmarkDescription,
    data: &DataSource,
    layout: Layout,
) -> Result<(String, Records), DataError> {
    if let (Layout::Parquet, DataSource::File(path)) = (layout, data) {
        let (name, file) = source::open_file(about, path)?;
        let refused =
            |reason| DataError::Unreadable { file: name.clone(), reason, remedy: remedy(about, &name) };
        let records = parquet::open(file).map_err(refused)?;
        return not_empty(about, name, records);
    }
    let Opened { name, mut reader } = source::open(about, data)?;
    let unreadable = |error: std::io::Error| DataError::Unreadable {
        file: name.clone(),
        reason: error.to_string(),
        remedy: remedy(about, &name),
    };
    let records: Records = match layout {
        // Samples are never Parquet.
        Layout::Lines | Layout::Parquet => Box::new(Lines::new(reader)),
        Layout::Csv => Box::new(Rows::new(reader)),
        Layout::Array => Box::new(Elements::new(reader)),
        Layout::Either | Layout::EitherOrMember(_) => {
            let start = reader.fill_buf().map_err(unreadable)?;
            match layout {
                _ if start.trim_ascii_start().starts_with(b"[") => Box::new(Elements::new(reader)),
                Layout::EitherOrMember(field) if !starts_with_a_record(start) => {
                    match member::seek(&mut reader, field).map_err(unreadable)? {
                        Some(line) => Box::new(Elements::within_object(reader, line)),
                        None => {
                            let remedy = remedy(about, &name);
                            return Err(DataError::Empty { file: name, remedy });
                        }
                    }
                }
                _ => Box::new(Lines::new(reader)),
            }
        }
    };
    not_empty(about, name, records)
}

/// Returns the records of a file if there are any.
fn not_empty(
    about: &'static BenchmarkDescription,
    name: String,
    mut records: Records,
) -> Result<(String, Records), DataError> {
    match records.next() {
        None => Err(DataError::Empty { remedy: remedy(about, &name), file: name }),
        Some(first) => Ok((name, Box::new(std::iter::once(first).chain(records)))),
    }
}

/// Whether the first line is a complete record, well-formed or not, and not the start of an object over
/// several lines. A line too long to be buffered counts as a record.
fn starts_with_a_record(start: &[u8]) -> bool {
    let mut lines = start.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    match (lines.next(), lines.next()) {
        (Some(line), Some(_)) => {
            let read = serde_json::from_slice::<serde::de::IgnoredAny>(line);
            !(line.trim_ascii_start().starts_with(b"{") && read.is_err_and(|error| error.is_eof()))
        }
        _ => true,
    }
}

/// Builds items; counts positions and equal records.
pub(crate) struct Builder {
    about: &'static BenchmarkDescription,
    pub(super) file: String,
    index: u64,
    seen: HashMap<ContentHash, u32>,
}

impl Builder {
    pub(crate) fn new(about: &'static BenchmarkDescription, file: String) -> Self {
        Self { about, file, index: 0, seen: HashMap::new() }
    }

    pub(crate) fn build(&mut self, Located { line, content }: Located) -> Result<Item, DataError> {
        let file = || self.file.clone();
        let index = self.index;
        self.index += 1;
        let record = content.map_err(|flaw| match flaw {
            Flaw::Json { line, found } => DataError::Record {
                file: file(),
                line,
                field: None,
                expected: "a JSON object".to_owned(),
                found,
            },
            Flaw::Row { line, expected, found } => {
                DataError::Record { file: file(), line, field: None, expected, found }
            }
            Flaw::Broken { expected, found } => DataError::Broken { file: file(), line, expected, found },
            Flaw::Unreadable(reason) => {
                DataError::Unreadable { file: file(), reason, remedy: remedy(self.about, &self.file) }
            }
        })?;
        let Content { name, group, task, setup, target } =
            (self.about.read)(&record).map_err(|error| DataError::Record {
                file: file(),
                line,
                field: Some(error.field),
                expected: error.expected,
                found: error.found,
            })?;
        let content = ContentHash::of_json(&canonical(&record));
        let occurrences = self.seen.entry(content.clone()).or_default();
        let id = ItemId { content, occurrence: *occurrences };
        *occurrences += 1;
        Ok(Item { id, index, name, group, task, setup, target, record })
    }
}

/// Returns the record with the fields of every object in alphabetical order, so that equal records have equal
/// texts.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> =
                fields.iter().map(|(name, value)| (name.clone(), canonical(value))).collect();
            sorted.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(sorted.into_iter().collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(canonical).collect()),
        other => other.clone(),
    }
}

/// Returns the item of a single record, as if it were the only one in a file.
pub(crate) fn single(
    record: &Value,
    read: impl FnOnce(&Value) -> Result<Content, RecordError>,
) -> Result<Item, RecordError> {
    let Content { name, group, task, setup, target } = read(record)?;
    let id = ItemId { content: ContentHash::of_json(&canonical(record)), occurrence: 0 };
    Ok(Item { id, index: 0, name, group, task, setup, target, record: record.clone() })
}
