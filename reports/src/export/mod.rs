//! Writes runs for other tools: the files of a run's folder, and exports.
//!
//! [`export()`] writes results and samples with lm-eval's fields, and the reports, to the run's folder;
//! [`is_current`] tests whether they match a report, so that a complete run is not written again. [`convert()`] writes
//! an [`ExportFormat`] to a folder of its own. All of them read a `source::RunSource`: the report, and the recorded
//! units with their scores, one at a time.
//!
//! `convert` has the table of them.
//!
//! | format | module |
//! |---|---|
//! | lm-eval | `lm_eval`, `sample` |
//! | inspect | `inspect`, `transcript` |
//! | every-eval-ever | `every_eval_ever`, `transcript` |
//! | csv, parquet | `csv`, `parquet` |
//! | latex | `latex` |
//! | annotations | `annotations` |

mod annotations;
mod convert;
mod csv;
mod every_eval_ever;
mod inspect;
mod latex;
mod lm_eval;
#[cfg(feature = "parquet")]
mod parquet;
mod run_folder;
mod sample;
mod source;
mod transcript;

/// The Parquet format in a build without the feature `parquet`.
#[cfg(not(feature = "parquet"))]
mod parquet {
    use super::{ExportError, ExportFormat};

    pub(super) const FORMAT: ExportFormat = ExportFormat {
        name: "parquet",
        about: "a row per unit",
        rows: "units",
        write: |_, _, _, _| Err(ExportError::NotBuilt("parquet")),
    };
}

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lumos_coordinator::CheckpointError;
use lumos_coordinator::atomic_file::write_whole;
use thiserror::Error;

use crate::results::ScoreError;

pub use annotations::{AnnotatedModule, AnnotationOptions};
pub use convert::{EXPORT_FORMATS, ExportFormat, ExportOptions, ExportSummary, convert};
pub use run_folder::{export, is_current};
pub(crate) use transcript::tokens_by_role;

/// Folder of the item viewer in a run's folder.
pub const VIEWER: &str = "report";

/// Error of an export.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The run cannot be scored.
    #[error(transparent)]
    Score(#[from] ScoreError),
    /// A file cannot be written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The output folder exists and is not empty.
    #[error("output folder is not empty: {}", .0.display())]
    NotEmpty(PathBuf),
    /// The output folder exists and was not written by an export, so it is not replaced.
    #[error("{}: not the folder of an export", .0.display())]
    NotAnExport(PathBuf),
    /// Nothing is left to export.
    #[error("nothing to export: {0}")]
    Nothing(String),
    /// Everything that could be exported is an item of a test set.
    #[error("nothing to export but items of test sets: {0}")]
    OnlyTestItems(String),
    /// The format is not part of this build.
    #[error("this program was built without `{0}`")]
    NotBuilt(&'static str),
}

impl ExportError {
    /// Returns a function that adds the file to an I/O error.
    pub(crate) fn at(file: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let file = file.to_owned();
        move |source| Self::Io { file: file.clone(), source }
    }
}

impl From<CheckpointError> for ExportError {
    fn from(error: CheckpointError) -> Self {
        Self::Score(error.into())
    }
}

/// Writes a file atomically. Errors of the content are kept separate from errors of the file.
fn write_file(
    file: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let mut failed = None;
    let written = write_whole(file, |out| {
        fill(out).map_err(|error| {
            failed = Some(error);
            io::Error::other("the content cannot be written")
        })
    });
    match failed {
        Some(error) => Err(error),
        None => written.map_err(ExportError::at(file)),
    }
}

/// Writes a line of JSON.
fn write_line(out: &mut dyn Write, line: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Creates a folder and its parents.
fn create_folder(folder: &Path) -> Result<(), ExportError> {
    fs::create_dir_all(folder).map_err(ExportError::at(folder))
}

#[cfg(test)]
mod tests;
