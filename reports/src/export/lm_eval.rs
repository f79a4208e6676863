//! The layout of lm-evaluation-harness: one results file, and one samples file per key of the results.
//!
//! Readers find the samples of a key by the file's name, and take every line for a scored item. Faulted units are
//! therefore in a file of their own, `faults_<time>.jsonl`.

use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::model_id::ModelNames;
use crate::report::json::render;

use super::convert::{ExportFormat, ExportSummary};
use super::source::RunSource;
use super::{ExportError, create_folder, sample::sample, write_file, write_line};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "lm-eval",
    about: "the layout of lm-evaluation-harness",
    rows: "units",
    write: |folder, source, options, now| {
        let below = folder.join(options.names.of_run(source.manifest).sanitized());
        create_folder(&below)?;
        let files = write(&below, source, &file_time(now), &options.names)?;
        Ok(ExportSummary::new(files, source.report.total.settled(), source))
    },
};

/// Formats a time as in lm-eval's file names, which are valid on every file system.
pub(super) fn file_time(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H-%M-%S.%6f").to_string()
}

/// Name of the samples file of a configuration.
pub(super) fn samples_name(key: &str, time: &str) -> String {
    format!("samples_{key}_{time}.jsonl")
}

/// Name of the file of faulted units.
pub(super) fn faults_name(time: &str) -> String {
    format!("faults_{time}.jsonl")
}

/// Writes results, samples and faults to a folder. Returns the files, results first.
pub(super) fn write(
    folder: &Path,
    source: &RunSource<'_>,
    time: &str,
    names: &ModelNames,
) -> Result<Vec<PathBuf>, ExportError> {
    let results = folder.join(format!("results_{time}.json"));
    write_file(&results, |out| render(&source.report, names, out).map_err(ExportError::at(&results)))?;
    let mut files = vec![results];
    for (position, key, ..) in source.cells() {
        let file = folder.join(samples_name(key, time));
        write_file(&file, |out| lines(source, position, false, &file, out))?;
        files.push(file);
    }
    if source.report.total.faulted > 0 {
        let file = folder.join(faults_name(time));
        write_file(&file, |out| {
            source.cells().try_for_each(|(position, ..)| lines(source, position, true, &file, out))
        })?;
        files.push(file);
    }
    Ok(files)
}

/// Writes the settled or the faulted units of a configuration.
fn lines(
    source: &RunSource<'_>,
    position: usize,
    faulted: bool,
    file: &Path,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let key = &source.keys[position];
    source.for_each_recorded(position, |unit| match unit.is_fault() == faulted {
        true => write_line(out, &sample(unit, key)).map_err(ExportError::at(file)),
        false => Ok(()),
    })
}
