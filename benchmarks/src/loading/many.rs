//! Reads a data set in several files, each a JSON array, as one stream.

use std::collections::VecDeque;
use std::path::Path;

use serde_json::Value;

use super::items::Builder;
use super::source::{self, Opened};
use super::{DataSource, Elements, Items};
use crate::benchmark::BenchmarkDescription;
use crate::error::DataError;

/// Options for reading the files of a data set.
#[derive(Clone, Copy)]
pub(crate) struct Many {
    pub(crate) about: &'static BenchmarkDescription,
    /// Hint if a file cannot be used.
    pub(crate) remedy: &'static str,
    /// Maximum length of a record in bytes.
    pub(crate) longest: u64,
    /// Removes unneeded fields from a record. Receives the file's path, or `None` for samples.
    pub(crate) prepare: fn(Option<&Path>, Value) -> Value,
}

impl Many {
    fn empty(self, file: &str) -> DataError {
        DataError::Empty { file: file.to_owned(), remedy: self.remedy.to_owned() }
    }
}

/// Opens the first file; opens each further file after the previous one has been read.
pub(crate) fn open_many(many: Many, files: Vec<DataSource>) -> Result<Items, DataError> {
    let mut files = VecDeque::from(files);
    let first = files.pop_front().ok_or_else(|| many.empty(many.about.name))?;
    let opened = open_one(many, first)?;
    let mut builder = Builder::new(many.about, opened.name.clone());
    let mut open = Some(opened);
    let mut items = std::iter::from_fn(move || {
        loop {
            if let Some(file) = &mut open {
                if let Some(mut record) = file.records.next() {
                    file.is_empty = false;
                    record.content = record.content.map(|value| (many.prepare)(file.path(), value));
                    return Some(builder.build(record));
                }
                let empty = file.is_empty.then(|| Err(many.empty(&file.name)));
                open = None;
                if empty.is_some() {
                    return empty;
                }
            }
            let next = files.pop_front()?;
            match open_one(many, next) {
                Ok(file) => {
                    builder.file.clone_from(&file.name);
                    open = Some(file);
                }
                Err(error) => {
                    files.clear();
                    return Some(Err(error));
                }
            }
        }
    });
    match items.next() {
        Some(Err(error @ DataError::Empty { .. })) => Err(error),
        first => Ok(Box::new(first.into_iter().chain(items))),
    }
}

/// The file that is being read.
struct OpenFile {
    name: String,
    source: DataSource,
    records: Elements<Box<dyn std::io::BufRead + Send>>,
    /// Whether no record was read.
    is_empty: bool,
}

impl OpenFile {
    fn path(&self) -> Option<&Path> {
        match &self.source {
            DataSource::File(path) => Some(path),
            DataSource::Samples => None,
        }
    }
}

fn open_one(many: Many, source: DataSource) -> Result<OpenFile, DataError> {
    let opened = source::open(many.about, &source);
    let Opened { name, reader } = opened.map_err(|error| error.with_remedy(many.remedy))?;
    let records = Elements::new(reader).at_most(many.longest);
    Ok(OpenFile { name, source, records, is_empty: true })
}
