//! The derived files in a run's folder: results, samples and reports.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use lumos_benchmarks::Scoring;
use lumos_coordinator::CheckpointReader;
use lumos_coordinator::atomic_file::sync_folder;
use lumos_coordinator::manifest::Manifest;

use crate::model_id::ModelNames;
use crate::report::json::keys;
use crate::report::{Format, Report};
use crate::viewer::{PAGE, ViewerSource, write_viewer};

use super::lm_eval::{self, faults_name, file_time, samples_name};
use super::source::RunSource;
use super::{ExportError, VIEWER, write_file};

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
    let source = RunSource::read(manifest, checkpoint, scorings)?;
    let mut files = Vec::new();
    let markdown = folder.join("report.md");
    write_file(&markdown, |out| {
        source.report.render(Format::MARKDOWN, out).map_err(ExportError::at(&markdown))
    })?;
    files.extend(lm_eval::write(folder, &source, &file_time(now), &ModelNames::default())?);
    let viewer = ViewerSource { manifest, checkpoint, scorings: &source.scorings };
    write_viewer(&folder.join(VIEWER), Some(&folder.join("report.html")), &source.report, &viewer)?;
    remove_older(folder, &files).map_err(ExportError::at(folder))?;
    Ok(source.report)
}

fn remove_older(folder: &Path, kept: &[PathBuf]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let ours = (name.starts_with("results_") && name.ends_with(".json"))
            || ((name.starts_with("samples_") || name.starts_with("faults_")) && name.ends_with(".jsonl"));
        if ours && !kept.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    sync_folder(folder)
}

/// Whether the folder contains the results of this report, the viewer, a samples file for every configuration, and the file of
/// faulted units if there are any.
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
    let has_samples = keys(report).iter().all(|key| names.contains(&samples_name(key, &time)));
    if !has_samples || (report.total.faulted > 0 && !names.contains(&faults_name(&time))) {
        return Ok(false);
    }
    let mut rendered = Vec::new();
    report.render(Format::JSON, &mut rendered)?;
    Ok(fs::read(folder.join(format!("results_{time}.json")))? == rendered)
}
