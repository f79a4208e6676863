//! The last stage: the results files, the table and the exit code of a session.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lumos_coordinator::dispatch::Summary;
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::{Checkpoint, CheckpointReader};
use lumos_reports::report::{self, Format};
use lumos_reports::{export, trajectory, viewer};
use lumos_tasks::shell::{quoted, quoted_path};
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
        let Self { manifest, folder, checkpoint, options, summary, interrupts: _interrupts, .. } = self;
        let report = match write_results(&manifest, &folder, &checkpoint, options.record.as_deref()) {
            Ok(report) => report,
            Err(failure) => {
                checkpoint.abandon();
                return Err(failure);
            }
        };
        checkpoint.close()?;
        if !options.json && !options.verbosity.quiet {
            print_report(&report, &folder, options.verbosity)?;
        }
        let total = &report.total;
        if !total.is_complete() {
            write_line(format_args!(
                "{} units are outstanding and {} faulted: `{}` continues them",
                total.outstanding,
                total.faulted,
                resume_command(&folder, report.queue.as_deref())
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
    let resume = format!("lumos resume {}", quoted_path(folder));
    match queue {
        Some(address) => format!("{resume} --queue {}", quoted(address)),
        None => resume,
    }
}

/// Prints a report in the width of [`table::width`]. The path of the report's page and the next command follow. It is
/// not an error if the reader closes its pipe (`lumos run … | head`).
pub(crate) fn print_report(
    report: &report::Report,
    folder: &Path,
    verbosity: Verbosity,
) -> Result<(), Failure> {
    match write_report(report, folder, verbosity) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

fn write_report(report: &report::Report, folder: &Path, verbosity: Verbosity) -> std::io::Result<()> {
    let width = table::width();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    report.render(Format::Terminal { width, detail: verbosity.detail }, &mut out)?;
    writeln!(out)?;
    let page = folder.join(export::VIEWER).join(viewer::PAGE);
    if page.is_file() {
        writeln!(out, "report: {}", page.display())?;
    }
    if let Some(line) = next_line(report, folder) {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// Returns the last line of a printed report: the command that follows or continues an incomplete run, or that shows an
/// item of a complete one.
fn next_line(report: &report::Report, folder: &Path) -> Option<String> {
    let run = quoted_path(folder);
    if report.total.is_complete() {
        let (benchmark, item) = report.first_failure().or_else(|| first_item(folder))?;
        return Some(format!("next: lumos show {run} {item} --task {benchmark}"));
    }
    if report.in_progress {
        return Some(format!("the run is in progress; follow it: lumos serve {run}"));
    }
    Some(format!("next: {}", resume_command(folder, report.queue.as_deref())))
}

/// Returns the benchmark of the first item of a run, and the item as an argument of `lumos show`.
fn first_item(folder: &Path) -> Option<(String, String)> {
    let manifest = Manifest::read(folder).ok()?;
    let checkpoint = CheckpointReader::open(&folder.join("checkpoint")).ok()?;
    trajectory::first_item(&manifest, &checkpoint)
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
    use lumos_coordinator::samples::{configuration, item, manifest_of};

    use super::*;

    #[test]
    fn a_run_in_progress_is_followed_and_one_that_ended_is_continued_on_its_queue() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let manifest = manifest_of(&[configuration(0)], &[item(0)]);
        let checkpoint = Checkpoint::create(&path).unwrap();
        let next = || {
            let reader = CheckpointReader::open(&path).unwrap();
            next_line(&report::report(&manifest, &reader, &[]).unwrap(), Path::new("runs/my run")).unwrap()
        };
        assert_eq!(next(), "the run is in progress; follow it: lumos serve 'runs/my run'");
        checkpoint.close().unwrap();
        assert_eq!(next(), "next: lumos resume 'runs/my run'");
        let checkpoint = Checkpoint::open(&path).unwrap();
        checkpoint.set_queue(Some("nats://head:4222")).unwrap();
        checkpoint.close().unwrap();
        assert_eq!(next(), "next: lumos resume 'runs/my run' --queue nats://head:4222");
    }

    #[test]
    fn a_run_is_continued_on_its_queue() {
        let folder = Path::new("runs/my run");
        assert_eq!(resume_command(folder, None), "lumos resume 'runs/my run'");
        let command = resume_command(folder, Some("nats://head:4222"));
        assert_eq!(command, "lumos resume 'runs/my run' --queue nats://head:4222");
    }
}
