//! The derived files in a run's folder: results, samples and reports.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
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

/// The report as one page, and as Markdown.
const PAGES: [&str; 2] = ["report.html", "report.md"];

/// Writes results, samples and reports to a run's folder. Each file is written atomically. Older results and
/// samples in the folder are removed after the new ones were written. Returns the report. Callers must not
/// export to one folder concurrently: each export would remove the other's files.
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
    let [html, markdown] = PAGES.map(|name| folder.join(name));
    // Results first: the folder can count as current until new ones are written.
    let files = lm_eval::write(folder, &source, &file_time(now), &ModelNames::default())?;
    write_file(&markdown, |out| {
        source.report.render(Format::MARKDOWN, out).map_err(ExportError::at(&markdown))
    })?;
    let viewer = ViewerSource { manifest, checkpoint, scorings: &source.scorings };
    write_viewer(&folder.join(VIEWER), Some(&html), &source.report, &viewer)?;
    remove_older(folder, &files).map_err(ExportError::at(folder))?;
    Ok(source.report)
}

/// Whether a file in a run's folder contains results, samples or faults.
fn is_exported(name: &str) -> bool {
    (name.starts_with("results_") && name.ends_with(".json"))
        || ((name.starts_with("samples_") || name.starts_with("faults_")) && name.ends_with(".jsonl"))
}

fn remove_older(folder: &Path, kept: &[PathBuf]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_exported(name) && !kept.contains(&path) {
            remove(&path)?;
        }
    }
    sync_folder(folder)
}

/// Removes a file, which another process may have removed where folders cannot be locked.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether the folder contains the results of this report, the viewer, the pages, a samples file for every
/// configuration, the file of faulted units if there are any, and no results, samples or faults of earlier exports.
///
/// Results are written first and older files are removed last, so an interrupted export is not current. Equal records
/// render to equal reports, so equal bytes mean that nothing has changed.
///
/// # Errors
/// If the folder or the results cannot be read.
pub fn is_current(folder: &Path, report: &Report) -> io::Result<bool> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        found.extend(entry?.file_name().into_string().ok().filter(|name| is_exported(name)));
    }
    let time = |name: &String| Some(name.strip_prefix("results_")?.strip_suffix(".json")?.to_owned());
    let Some(time) = found.iter().find_map(time) else { return Ok(false) };
    let results = format!("results_{time}.json");
    let mut expected: BTreeSet<String> = keys(report).iter().map(|key| samples_name(key, &time)).collect();
    expected.extend((report.total.faulted > 0).then(|| faults_name(&time)));
    expected.insert(results.clone());
    let is_page = |name: &str| folder.join(name).is_file();
    if found != expected || !PAGES.into_iter().all(is_page) || !folder.join(VIEWER).join(PAGE).is_file() {
        return Ok(false);
    }
    let mut rendered = Vec::new();
    report.render(Format::JSON, &mut rendered)?;
    Ok(fs::read(folder.join(results))? == rendered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_process_removed_is_not_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results_2025.json");
        fs::write(&file, "{}").unwrap();
        for _ in 0..2 {
            remove(&file).unwrap();
        }
        assert!(remove(folder.path()).is_err(), "a folder");
    }
}
