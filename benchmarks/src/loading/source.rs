//! Sources of records.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::PathBuf;

use crate::benchmark::{BenchmarkDescription, Origin};
use crate::error::DataError;

/// Source of a benchmark's items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataSource {
    /// A file in the benchmark's official format.
    File(PathBuf),
    /// The built-in samples: a few items for a first test.
    Samples,
}

/// An opened source: its name for messages, and a reader.
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) reader: Box<dyn BufRead + Send>,
}

/// Returns the hint for a benchmark's file that cannot be used.
pub(super) fn remedy(about: &BenchmarkDescription) -> String {
    match about.origin {
        Origin::TaskFile(own) => format!("check `data.file` in {}", own.path.display()),
        Origin::Program { .. } => "set the data folder with `--data PATH`".to_owned(),
        Origin::BuiltIn => {
            format!("run `lumos fetch {}`, or set the data folder with `--data PATH`", about.name)
        }
    }
}

/// Opens a source of a benchmark.
pub(super) fn open(about: &'static BenchmarkDescription, source: &DataSource) -> Result<Opened, DataError> {
    let benchmark = about.name;
    let DataSource::File(path) = source else {
        let name = format!("built-in samples of {benchmark}");
        return Ok(Opened { name, reader: Box::new(about.samples) });
    };
    let name = path.display().to_string();
    let refused = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => DataError::Missing { file: name.clone(), remedy: remedy(about) },
        ErrorKind::IsADirectory => DataError::Folder { file: name.clone(), remedy: remedy(about) },
        _ => DataError::Unreadable { file: name.clone(), reason: error.to_string(), remedy: remedy(about) },
    };
    let file = File::open(path).map_err(|error| refused(&error))?;
    if file.metadata().map_err(|error| refused(&error))?.is_dir() {
        return Err(DataError::Folder { file: name, remedy: remedy(about) });
    }
    let mut reader = BufReader::new(file);
    // Some editors write a byte order mark.
    if reader.fill_buf().map_err(|error| refused(&error))?.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    Ok(Opened { name, reader: Box::new(reader) })
}
