//! Sources of records.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use crate::benchmark::{Benchmark, BenchmarkDescription};
use crate::error::DataError;

/// Source of a benchmark's items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataSource {
    /// A file in the benchmark's official format.
    File(PathBuf),
    /// The built-in samples: a few items for a first test.
    Samples,
}

impl DataSource {
    /// Returns the benchmark's file in a data folder.
    pub fn in_folder(folder: &Path, benchmark: &dyn Benchmark) -> Self {
        Self::File(folder.join(benchmark.data_file()))
    }
}

/// An opened source: its name for messages, and a reader.
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) reader: Box<dyn BufRead + Send>,
}

/// Returns the hint for a benchmark's file that cannot be used.
pub(super) fn remedy(benchmark: &str) -> String {
    format!("run `lumos fetch {benchmark}`, or set the data folder with `--data PATH`")
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
        ErrorKind::NotFound => DataError::Missing { file: name.clone(), remedy: remedy(benchmark) },
        ErrorKind::IsADirectory => DataError::Folder { file: name.clone(), remedy: remedy(benchmark) },
        _ => {
            DataError::Unreadable { file: name.clone(), reason: error.to_string(), remedy: remedy(benchmark) }
        }
    };
    let file = File::open(path).map_err(|error| refused(&error))?;
    if file.metadata().map_err(|error| refused(&error))?.is_dir() {
        return Err(DataError::Folder { file: name, remedy: remedy(benchmark) });
    }
    let mut reader = BufReader::new(file);
    // Some editors write a byte order mark.
    if reader.fill_buf().map_err(|error| refused(&error))?.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    Ok(Opened { name, reader: Box::new(reader) })
}
