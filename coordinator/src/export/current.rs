//! Tests whether a run's exported files are current, so that a complete run is not exported again.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::report::{Format, Report};

/// Whether the folder contains the results of this report and a samples file for every benchmark.
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
    let sampled = |benchmark: &str| names.contains(&format!("samples_{benchmark}_{time}.jsonl"));
    if !report.configurations.iter().all(|configuration| sampled(&configuration.benchmark)) {
        return Ok(false);
    }
    let mut rendered = Vec::new();
    Format::Json.renderer().render(report, &mut rendered)?;
    Ok(fs::read(folder.join(format!("results_{time}.json")))? == rendered)
}
