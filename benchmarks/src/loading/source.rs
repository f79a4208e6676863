//! Sources of records.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

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
    let (name, file) = open_file(about, path)?;
    let mut reader = BufReader::new(file);
    // Some editors write a byte order mark.
    if reader.fill_buf().map_err(|error| refused(about, &name, &error))?.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    Ok(Opened { name, reader: Box::new(reader) })
}

/// Opens a file of a benchmark. Returns its name for messages too.
pub(super) fn open_file(
    about: &'static BenchmarkDescription,
    path: &Path,
) -> Result<(String, File), DataError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| refused(about, &name, &error))?;
    if file.metadata().map_err(|error| refused(about, &name, &error))?.is_dir() {
        return Err(DataError::Folder { file: name, remedy: remedy(about) });
    }
    Ok((name, file))
}

/// Returns the error for a file that the operating system does not open.
fn refused(about: &BenchmarkDescription, name: &str, error: &std::io::Error) -> DataError {
    let (file, remedy) = (name.to_owned(), remedy(about));
    match error.kind() {
        ErrorKind::NotFound => DataError::Missing { file, remedy },
        ErrorKind::IsADirectory => DataError::Folder { file, remedy },
        _ => DataError::Unreadable { file, reason: error.to_string(), remedy },
    }
}
