//! Writes the files of a run: results and samples with lm-eval's fields, reports and the item viewer.
//!
//! [`export()`] writes all of them to the run's folder, next to the checkpoint. [`is_current`] tests whether
//! the files in a folder match a report, so that a complete run is not exported again, and `sample`
//! formats one line of a samples file.

mod sample;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use lumos_benchmarks::Scoring;
use thiserror::Error;

use crate::atomic_file::{sync_folder, write_whole};
use crate::checkpoint::{CheckpointError, CheckpointReader};
use crate::judge::Verdicts;
use crate::manifest::Manifest;
use crate::report::{Format, Report, report};
use crate::unit_view::{ScoreError, for_each_unit};
use crate::viewer::{PAGE, ViewerSource, write_viewer};

use sample::sample;

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

/// Writes results, samples and reports to a run's folder. Each file is written atomically. Older results and
/// samples in the folder are removed after the new ones were written. Returns the report.
///
/// # Errors
/// If the checkpoint cannot be read or a file cannot be written.
pub fn export(
    folder: &Path,
    manifest: &Manifest,
    checkpoint: &CheckpointReader,
    scorings: &[Scoring],
    now: Timestamp,
) -> Result<Report, ExportError> {
    let report = report(manifest, checkpoint, scorings)?;
    let verdicts = Verdicts::beside(checkpoint)?;
    let scorings: Vec<Scoring> =
        if scorings.is_empty() { manifest.spec.scoring.clone() } else { scorings.to_vec() };
    // lm-eval's time format, which is a valid file name on every file system.
    let time = now.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H-%M-%S.%6f").to_string();
    let mut files = Vec::new();
    let results = folder.join(format!("results_{time}.json"));
    for (file, format) in [(results, Format::Json), (folder.join("report.md"), Format::Markdown)] {
        write_whole(&file, |out| report.render(format, out))
            .map_err(|source| ExportError::Io { file: file.clone(), source })?;
        files.push(file);
    }
    let benchmarks: BTreeSet<&str> =
        report.configurations.iter().map(|configuration| configuration.benchmark.as_str()).collect();
    for benchmark in benchmarks {
        let file = folder.join(format!("samples_{benchmark}_{time}.jsonl"));
        samples(&file, benchmark, manifest, checkpoint, (&scorings, verdicts.as_ref()))?;
        files.push(file);
    }
    let source = ViewerSource { manifest, checkpoint, scorings: &scorings };
    write_viewer(&folder.join(VIEWER), Some(&folder.join("report.html")), &report, &source)?;
    remove_older(folder, &files).map_err(|source| ExportError::Io { file: folder.to_owned(), source })?;
    Ok(report)
}

fn samples(
    file: &Path,
    benchmark: &str,
    manifest: &Manifest,
    checkpoint: &CheckpointReader,
    (scorings, verdicts): (&[Scoring], Option<&Verdicts>),
) -> Result<(), ExportError> {
    let unwritable = |source: io::Error| ExportError::Io { file: file.to_owned(), source };
    // Keeps errors of the content separate from errors of the file.
    let mut failed = None;
    let mut chosen = manifest.clone();
    chosen.configurations.retain(|configuration| configuration.configuration.benchmark == benchmark);
    let written = write_whole(file, |out| {
        for_each_unit(&chosen, checkpoint, |view| {
            let Some(line) = sample(view, scorings, verdicts)? else { return Ok(()) };
            serde_json::to_writer(&mut *out, &line).map_err(|error| unwritable(error.into()))?;
            out.write_all(b"\n").map_err(unwritable)
        })
        .map_err(|error| match error {
            ExportError::Io { source, .. } => source,
            ExportError::Score(_) => {
                failed = Some(error);
                io::Error::other("the record cannot be scored")
            }
        })
    });
    match failed {
        Some(error) => Err(error),
        None => written.map_err(unwritable),
    }
}

fn remove_older(folder: &Path, kept: &[PathBuf]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let ours = (name.starts_with("results_") && name.ends_with(".json"))
            || (name.starts_with("samples_") && name.ends_with(".jsonl"));
        if ours && !kept.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    sync_folder(folder)
}

/// Whether the folder contains the results of this report, the viewer, and a samples file for every benchmark.
///
/// Results are written before samples, so an interrupted export is not current. Equal records render to equal
/// reports, so equal bytes mean that nothing has changed.
///
/// # Errors
/// If the folder or the results cannot be read.
pub fn is_current(folder: &Path, report: &Report) -> io::Result<bool> {
    let names: BTreeSet<String> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    let time = |name: &String| Some(name.strip_prefix("results_")?.strip_suffix(".json")?.to_owned());
    let mut times = names.iter().filter_map(time);
    let (Some(time), None) = (times.next(), times.next()) else { return Ok(false) };
    if !folder.join(VIEWER).join(PAGE).is_file() {
        return Ok(false);
    }
    let sampled = |benchmark: &str| names.contains(&format!("samples_{benchmark}_{time}.jsonl"));
    if !report.configurations.iter().all(|configuration| sampled(&configuration.benchmark)) {
        return Ok(false);
    }
    let mut rendered = Vec::new();
    report.render(Format::Json, &mut rendered)?;
    Ok(fs::read(folder.join(format!("results_{time}.json")))? == rendered)
}

#[cfg(test)]
mod tests;
