//! Exports of a run to a folder of their own.
//!
//! [`convert()`] writes to a temporary folder and renames it, so that the output folder is complete or missing. A file
//! in it names the export; only folders with that file are replaced.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use jiff::Timestamp;
use lumos_benchmarks::Scoring;
use lumos_coordinator::CheckpointReader;
use lumos_coordinator::manifest::Manifest;
use serde_json::json;

use crate::model_id::ModelNames;
use crate::report::format_named;

use super::annotations::AnnotationOptions;
use super::lm_eval::file_time;
use super::source::RunSource;
use super::write_file;
use super::{ExportError, annotations, create_folder, csv, every_eval_ever, inspect, latex, lm_eval};

/// File that identifies the folder of an export.
const MARK: &str = ".lumos-export.json";

/// Target of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// Logs of inspect_ai.
    Inspect,
    /// The layout of lm-evaluation-harness.
    LmEval,
    /// Records of every_eval_ever.
    EveryEvalEver,
    /// A Parquet file with a row per unit.
    Parquet,
    /// A CSV file with a line per unit.
    Csv,
    /// A LaTeX table of models and benchmarks.
    Latex,
    /// Training annotations in the layout of the original's data.
    Annotations,
}

impl ExportFormat {
    /// All formats.
    pub const ALL: [Self; 7] = [
        Self::Inspect,
        Self::LmEval,
        Self::EveryEvalEver,
        Self::Parquet,
        Self::Csv,
        Self::Latex,
        Self::Annotations,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inspect => "inspect",
            Self::LmEval => "lm-eval",
            Self::EveryEvalEver => "every-eval-ever",
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Latex => "latex",
            Self::Annotations => "annotations",
        }
    }
}

impl FromStr for ExportFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        format_named(&Self::ALL, Self::name, word)
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
    let written = fill(&temporary, &source, format, options, now).and_then(|summary| {
        let mark = temporary.join(MARK);
        let about = json!({"format": format.name(), "run": manifest.identity, "created": now.to_string()});
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

/// Writes the files of a format.
fn fill(
    folder: &Path,
    source: &RunSource<'_>,
    format: ExportFormat,
    options: &ExportOptions,
    now: Timestamp,
) -> Result<ExportSummary, ExportError> {
    let names = &options.names;
    let total = &source.report.total;
    let (files, rows) = match format {
        ExportFormat::Inspect => inspect::write(folder, source, names)?,
        ExportFormat::LmEval => {
            let below = folder.join(names.of_run(source.manifest).sanitized());
            create_folder(&below)?;
            (lm_eval::write(&below, source, &file_time(now), names)?, total.settled())
        }
        ExportFormat::EveryEvalEver => every_eval_ever::write(folder, source, names, now)?,
        ExportFormat::Csv => {
            let file = folder.join("units.csv");
            let rows = csv::write(&file, source, names)?;
            (vec![file], rows)
        }
        ExportFormat::Parquet => {
            let file = folder.join("units.parquet");
            let rows = parquet(&file, source, names)?;
            (vec![file], rows)
        }
        ExportFormat::Latex => {
            let file = folder.join("table.tex");
            let matrix = source.matrix(names)?;
            let scoring = source.main_scoring().name();
            write_file(&file, |out| latex::write(&matrix, scoring, out).map_err(ExportError::at(&file)))?;
            (vec![file], matrix.rows.len() as u64)
        }
        ExportFormat::Annotations => return annotations::write(folder, source, &options.annotations),
    };
    let mut skipped = BTreeMap::new();
    let mut leave_out = |reason: &str, count: u64| {
        if count > 0 {
            skipped.insert(reason.to_owned(), count);
        }
    };
    leave_out("outstanding", total.outstanding);
    if format == ExportFormat::EveryEvalEver {
        leave_out("faulted", total.faulted);
    }
    Ok(ExportSummary { files, rows, skipped })
}

#[cfg(feature = "parquet")]
use super::parquet::write as parquet;

/// The error of a build without Parquet.
#[cfg(not(feature = "parquet"))]
fn parquet(_: &Path, _: &RunSource<'_>, _: &ModelNames) -> Result<u64, ExportError> {
    Err(ExportError::NotBuilt("parquet"))
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
