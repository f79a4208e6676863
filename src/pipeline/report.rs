//! The last stage: the results files, the table and the exit code of a session.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lumos_coordinator::dispatch::Summary;
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::{Checkpoint, CheckpointReader};
use lumos_reports::report::{self, Format};
use lumos_reports::{export, viewer};
use lumos_tasks::shell::quoted;
use lumos_tasks::{Item, WorkUnit};

use super::Options;
use crate::budget::Budget;
use crate::cli::Verbosity;
use crate::exit::{CommandResult, Exit, Failure};
use crate::interrupt::Interrupts;
use crate::progress::write_line;
use crate::table;

/// An ended session of a run, whose results are not written yet.
pub(crate) struct Report {
    pub(crate) manifest: Manifest,
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) options: Options,
    pub(crate) budget: Option<Budget>,
    pub(crate) summary: Summary,
    /// Address of the queue whose workers executed the session.
    pub(crate) queue: Option<String>,
    /// Watched until the results are published.
    pub(crate) interrupts: Interrupts,
}

impl Report {
    /// Whether the session stopped because of an interrupt or a spent budget.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupts.drain.is_cancelled() && !self.summary.too_many_faults
    }

    /// Writes the results, prints the state of the run and determines the exit code.
    pub(crate) fn publish(self) -> CommandResult {
        let is_interrupted = self.is_interrupted();
        let Self { manifest, folder, checkpoint, options, summary, queue, interrupts: _interrupts, .. } =
            self;
        let report = match write_results(&manifest, &folder, &checkpoint, options.record.as_deref()) {
            Ok(report) => report,
            Err(failure) => {
                checkpoint.abandon();
                return Err(failure);
            }
        };
        checkpoint.close()?;
        if !options.json && !options.verbosity.quiet {
            print_report(&report, &folder, queue.as_deref(), options.verbosity)?;
        }
        let total = &report.total;
        if !total.is_complete() {
            write_line(format_args!(
                "{} units are outstanding and {} faulted: `{}` continues them",
                total.outstanding,
                total.faulted,
                resume_command(&folder, queue.as_deref())
            ));
        }
        match summary {
            Summary { cancelled: true, .. } if !total.is_complete() => {
                write_line(format_args!("the run was cancelled"));
                Ok(Exit::Interrupted)
            }
            _ if is_interrupted && !total.is_complete() => Ok(Exit::Interrupted),
            Summary { too_many_faults: true, faulted, .. } => Err(Failure {
                exit: Exit::Outstanding,
                error: anyhow::anyhow!("stopped: {faulted} items faulted, more than --fail-on-error allows"),
                hint: Some("`lumos show` prints the fault of an item; recorded outcomes are kept".to_owned()),
            }),
            _ if !total.is_complete() => Ok(Exit::Outstanding),
            _ => Ok(check_accuracy(&report, options.fail_under)),
        }
    }
}

/// Checks the accuracy of every configuration.
fn check_accuracy(report: &report::Report, fail_under: Option<f64>) -> Exit {
    let Some(least) = fail_under else { return Exit::Complete };
    for configuration in &report.configurations {
        let percent = configuration.main_value().map(|value| 100.0 * value);
        if let Some(percent) = percent.filter(|percent| *percent < least) {
            let label = &configuration.label;
            write_line(format_args!("{label}: {percent:.1} % is below --fail-under {least} %"));
            return Exit::CheckFailed;
        }
    }
    Exit::Complete
}

/// Returns the command that continues a run, on the same queue.
fn resume_command(folder: &Path, queue: Option<&str>) -> String {
    let resume = format!("lumos resume {}", quoted(&folder.display().to_string()));
    match queue {
        Some(address) => format!("{resume} --queue {}", quoted(address)),
        None => resume,
    }
}

/// Prints a report in the width of [`table::width`]. The path of the report's page and the next command follow, which
/// continues an incomplete run on `queue`. It is not an error if the reader closes its pipe (`lumos run … | head`).
pub(crate) fn print_report(
    report: &report::Report,
    folder: &Path,
    queue: Option<&str>,
    verbosity: Verbosity,
) -> Result<(), Failure> {
    match write_report(report, folder, queue, verbosity) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

fn write_report(
    report: &report::Report,
    folder: &Path,
    queue: Option<&str>,
    verbosity: Verbosity,
) -> std::io::Result<()> {
    let width = table::width();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    report.render(Format::Terminal { width, detail: verbosity.detail }, &mut out)?;
    writeln!(out)?;
    let page = folder.join(export::VIEWER).join(viewer::PAGE);
    if page.is_file() {
        writeln!(out, "report: {}", page.display())?;
    }
    let run = quoted(&folder.display().to_string());
    match report.first_failure() {
        _ if !report.total.is_complete() => writeln!(out, "next: {}", resume_command(folder, queue))?,
        Some((benchmark, item)) => writeln!(out, "next: lumos show {run} {item} --task {benchmark}")?,
        None => {
            if let Some(item) = first_item(folder) {
                writeln!(out, "next: lumos show {run} {item}")?;
            }
        }
    }
    out.flush()
}

/// Returns the position of the first item of a run. It is not 0 if the run has selected items or is one of several parts.
fn first_item(folder: &Path) -> Option<u64> {
    let manifest = Manifest::read(folder).ok()?;
    let items = CheckpointReader::open(&folder.join("checkpoint")).ok()?;
    manifest.data.iter().find_map(|data| items.item_ids(&data.benchmark).next()?.ok()).map(|(at, _)| at)
}

/// Locks the results of a run's folder until the returned file is dropped, because two exports at the same time would
/// each remove the files of the other. Waits for a process that holds the lock, with a warning. Open a run that may be
/// in progress only after this call, so that results that it has written are not replaced by older ones. Returns `None`
/// if the folder cannot be opened, as on Windows. On file systems without locks, the returned file holds no lock.
pub(crate) fn lock_results(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        tracing::warn!("waiting for another process that writes the results in `{}`", folder.display());
        // Where locks are not supported, exports are not serialized.
        let _ = file.lock();
    }
    Some(file)
}

/// Writes results, samples and reports to the run's folder unless they are current, and the recorded cases to
/// a file if requested.
pub(crate) fn write_results(
    manifest: &Manifest,
    folder: &Path,
    checkpoint: &CheckpointReader,
    record: Option<&Path>,
) -> Result<report::Report, Failure> {
    // `lumos score` also writes results during a run.
    let _lock = lock_results(folder);
    let report = report::report(manifest, checkpoint, &[])?;
    report.check()?;
    if !export::is_current(folder, &report)? {
        export::export(folder, manifest, checkpoint, &[], jiff::Timestamp::now())?;
    }
    if let Some(path) = record {
        record_cases(manifest, checkpoint, path)?;
    }
    Ok(report)
}

/// Writes every settled unit as a recorded case.
fn record_cases(manifest: &Manifest, checkpoint: &CheckpointReader, path: &Path) -> Result<(), Failure> {
    let unwritable =
        |error: std::io::Error| Failure::input(format!("cannot write {}: {error}", path.display()));
    let mut out = std::io::BufWriter::new(std::fs::File::create(path).map_err(unwritable)?);
    checkpoint.for_each_settled(manifest, |planned, item, record| {
        let Item { id, task, setup, .. } = item.clone();
        let unit = WorkUnit::new(id, task, setup, Arc::clone(&planned.configuration));
        let benchmark = manifest.spec.benchmark(&planned.configuration.benchmark)?;
        let case = lumos_benchmarks::replay::record_on(item, &unit, &record.outcome, benchmark)?;
        serde_json::to_writer(&mut out, &case)?;
        out.write_all(b"\n").map_err(unwritable)
    })?;
    out.flush().map_err(unwritable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_continued_on_its_queue() {
        let folder = Path::new("runs/my run");
        assert_eq!(resume_command(folder, None), "lumos resume 'runs/my run'");
        let command = resume_command(folder, Some("nats://head:4222"));
        assert_eq!(command, "lumos resume 'runs/my run' --queue nats://head:4222");
    }
}
