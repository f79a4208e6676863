//! The table of export formats, and exports of a run to a folder of their own.
//!
//! A format is a module with an [`ExportFormat`], and a line of [`EXPORT_FORMATS`].
//! [`convert()`] writes to a temporary folder and renames it, so that the output folder is complete or missing. A file
//! in it names the export; only folders with that file are replaced.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use jiff::Timestamp;
use lumos_benchmarks::Scoring;
use lumos_coordinator::CheckpointReader;
use lumos_coordinator::manifest::Manifest;
use serde_json::json;

use super::annotations::AnnotationOptions;
use super::source::RunSource;
use super::{ExportError, create_folder, write_file};
use super::{annotations, csv, every_eval_ever, inspect, latex, lm_eval, parquet};
use crate::model_id::ModelNames;
use crate::report::format_named;

/// File that identifies the folder of an export.
const MARK: &str = ".lumos-export.json";

/// All formats, in the order of messages.
pub static EXPORT_FORMATS: [ExportFormat; 7] = [
    inspect::FORMAT,
    lm_eval::FORMAT,
    every_eval_ever::FORMAT,
    parquet::FORMAT,
    csv::FORMAT,
    latex::FORMAT,
    annotations::FORMAT,
];

/// Target of an export.
#[derive(Clone, Copy)]
pub struct ExportFormat {
    /// Name on the command line.
    pub name: &'static str,
    /// What it is, for help texts.
    pub about: &'static str,
    /// What [`ExportSummary::rows`] counts.
    pub rows: &'static str,
    /// Writes the files to an empty folder.
    pub(super) write: Write,
}

pub(super) type Write =
    fn(&Path, &RunSource<'_>, &ExportOptions, Timestamp) -> Result<ExportSummary, ExportError>;

impl fmt::Debug for ExportFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl FromStr for ExportFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        format_named(&EXPORT_FORMATS, |format| format.name, word)
    }
}

/// Options of an export.
#[derive(Debug, Clone, Default)]
pub struct ExportOptions {
    /// The scorings, the main one first; those of the run if empty.
    pub scorings: Vec<Scoring>,
    /// Names of models.
    pub names: ModelNames,
    /// Which units become annotations.
    pub annotations: AnnotationOptions,
    /// Whether the folder of an earlier export is replaced.
    pub replace: bool,
}

/// What an export wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportSummary {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Number of rows, samples or annotations.
    pub rows: u64,
    /// Numbers of units that were left out, by reason. Formats other than annotations leave out only units that have no
    /// place in them.
    pub skipped: BTreeMap<String, u64>,
    /// What to take care of when the files are used.
    pub warning: Option<&'static str>,
}

impl ExportSummary {
    /// Of a format that has a place for every recorded unit.
    pub(super) fn new(files: Vec<PathBuf>, rows: u64, source: &RunSource<'_>) -> Self {
        Self { files, rows, ..Self::default() }.without("outstanding", source.report.total.outstanding)
    }

    /// Adds a number of units that were left out.
    pub(super) fn without(mut self, reason: &str, count: u64) -> Self {
        if count > 0 {
            self.skipped.insert(reason.to_owned(), count);
        }
        self
    }
}

/// Writes a run in a format to a folder, which must be missing or empty.
///
/// # Errors
/// If the run cannot be read, the folder cannot be written or is not empty, or nothing is left to export.
pub fn convert(
    folder: &Path,
    manifest: &Manifest,
    checkpoint: &CheckpointReader,
    format: ExportFormat,
    options: &ExportOptions,
    now: Timestamp,
) -> Result<ExportSummary, ExportError> {
    check_replaceable(folder, options.replace)?;
    let source = RunSource::read(manifest, checkpoint, &options.scorings)?;
    let mut name = folder.file_name().ok_or_else(|| ExportError::NotAnExport(folder.to_owned()))?.to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let temporary = folder.with_file_name(name);
    create_folder(&temporary)?;
    let written = (format.write)(&temporary, &source, options, now).and_then(|summary| {
        let mark = temporary.join(MARK);
        let about = json!({"format": format.name, "run": manifest.identity, "created": now.to_string()});
        write_file(&mark, |out| {
            serde_json::to_writer(out, &about).map_err(|error| ExportError::at(&mark)(error.into()))
        })?;
        install(&temporary, folder).map_err(ExportError::at(folder))?;
        Ok(summary)
    });
    let mut summary = written.inspect_err(|_| drop(fs::remove_dir_all(&temporary)))?;
    for file in &mut summary.files {
        if let Ok(below) = file.strip_prefix(&temporary) {
            *file = folder.join(below);
        }
    }
    Ok(summary)
}

/// Checks that a folder is missing or empty, or that it is an export and may be replaced.
fn check_replaceable(folder: &Path, replace: bool) -> Result<(), ExportError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries.count(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ExportError::at(folder)(error)),
    };
    match (entries, replace) {
        (0, _) => Ok(()),
        (_, false) => Err(ExportError::NotEmpty(folder.to_owned())),
        (_, true) if folder.join(MARK).is_file() => Ok(()),
        (_, true) => Err(ExportError::NotAnExport(folder.to_owned())),
    }
}

/// Renames a complete folder to its place. A folder that is there is removed after the new one is in place.
fn install(temporary: &Path, folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return fs::rename(temporary, folder);
    }
    let mut old = temporary.as_os_str().to_owned();
    old.push(".old");
    let old = PathBuf::from(old);
    fs::rename(folder, &old)?;
    fs::rename(temporary, folder)?;
    fs::remove_dir_all(old)
}
