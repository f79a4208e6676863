//! Sources of records.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use lumos_tasks::shell::quoted_path;

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

/// Default data folder of `lumos fetch`.
const DEFAULT_DATA_FOLDER: &str = "data";

/// Returns the hint for a benchmark's file that cannot be used.
pub(super) fn remedy(about: &BenchmarkDescription, file: &str) -> String {
    match about.origin {
        Origin::TaskFile(own) => format!("check `data.file` in {}", own.path.display()),
        Origin::Program { .. } => "set the data folder with `--data PATH`".to_owned(),
        Origin::BuiltIn => match data_folder(about, Path::new(file)) {
            Some(folder) if folder != Path::new(DEFAULT_DATA_FOLDER) => {
                let folder = quoted_path(folder);
                format!("run `lumos fetch {} --data {folder}`", about.name)
            }
            _ => format!("run `lumos fetch {}`, or set the data folder with `--data PATH`", about.name),
        },
    }
}

/// Returns the data folder that contains `file`, or `None` if `file` is not at the benchmark's default path.
fn data_folder<'a>(about: &BenchmarkDescription, file: &'a Path) -> Option<&'a Path> {
    let inner = Path::new(about.data_file);
    file.ancestors().nth(inner.components().count()).filter(|_| file.ends_with(inner))
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
        return Err(DataError::Folder { remedy: remedy(about, &name), file: name });
    }
    Ok((name, file))
}

/// Returns the error for a file that the operating system does not open.
fn refused(about: &BenchmarkDescription, name: &str, error: &std::io::Error) -> DataError {
    let (file, remedy) = (name.to_owned(), remedy(about, name));
    match error.kind() {
        ErrorKind::NotFound => DataError::Missing { file, remedy },
        ErrorKind::IsADirectory => DataError::Folder { file, remedy },
        _ => DataError::Unreadable { file, reason: error.to_string(), remedy },
    }
}
