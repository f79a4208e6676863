//! One session of a run in this process: queues in memory, one worker, the coordinator, and whoever watches.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lumos_coordinator::checkpoint::CheckpointError;
use lumos_coordinator::dispatch::{DispatchError, Summary, Terms, dispatch};
use lumos_coordinator::events::Event;
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::report::Format;
use lumos_coordinator::walk::{UnitState, walk};
use lumos_coordinator::{Checkpoint, export, report};
use lumos_queue::{MemoryQueue, Queue};
use lumos_tasks::{Assignment, EpisodeUnit, Finished, Item};
use lumos_worker::tools::ToolSets;
use lumos_worker::{Limits, Models, Worker};
use tokio::sync::mpsc;

use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt::Interrupts;
use crate::progress::Progress;

/// Units that wait to be claimed, results that wait to be recorded.
const QUEUED: usize = 1024;

/// What a person gets to see.
pub(crate) struct Output {
    pub(crate) quiet: bool,
    pub(crate) json: bool,
    pub(crate) record: Option<PathBuf>,
    pub(crate) fail_under: Option<f64>,
}

/// A planned run and what it is computed with.
pub(crate) struct Session {
    pub(crate) manifest: Manifest,
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) models: Arc<Models>,
    pub(crate) tools: Arc<ToolSets>,
    pub(crate) places: usize,
}

/// Opens a run's checkpoint off the runtime's threads.
pub(crate) async fn open(
    folder: &Path,
    how: fn(&Path) -> Result<Checkpoint, CheckpointError>,
) -> Result<Checkpoint, Failure> {
    let folder = folder.join("checkpoint");
    tokio::task::spawn_blocking(move || how(&folder)).await?.map_err(checkpoint_failure)
}

/// A checkpoint that is in use, or is none, is wrong usage; a disk that fails is a fault.
pub(crate) fn checkpoint_failure(error: CheckpointError) -> Failure {
    match error {
        CheckpointError::InUse { .. } | CheckpointError::Missing { .. } | CheckpointError::Schema { .. } => {
            Failure::usage(error)
        }
        error => Failure::from(error),
    }
}

impl Session {
    /// Runs what is outstanding, writes the results and says how it stands.
    pub(crate) async fn run(self, output: &Output) -> Outcome {
        let interrupts = Interrupts::watch();
        let dispatched = self.dispatch(output, &interrupts).await;
        let summary = match dispatched {
            Ok(summary) => summary,
            Err(failure) => {
                // A database whose disk failed may never close; what it acknowledged is on disk.
                self.checkpoint.abandon();
                return Err(failure);
            }
        };
        let interrupted = interrupts.drain.is_cancelled() && !summary.too_many_faults;
        let Self { manifest, folder, checkpoint, .. } = self;
        let written = write_results(&manifest, &folder, &checkpoint, output);
        match written {
            Ok(report) => {
                checkpoint.close()?;
                conclude(&report, &folder, summary, interrupted, output)
            }
            Err(failure) => {
                checkpoint.abandon();
                Err(failure)
            }
        }
    }

    async fn dispatch(&self, output: &Output, interrupts: &Interrupts) -> Result<Summary, Failure> {
        let limits = &self.manifest.spec.limits;
        let terms = Terms::of(&self.manifest);

        let work: MemoryQueue<Assignment> = MemoryQueue::bounded(QUEUED);
        let results: MemoryQueue<Finished> = MemoryQueue::bounded(QUEUED);
        let worker = Arc::new(Worker {
            name: format!("local-{}", std::process::id()),
            places: self.places,
            limits: Limits {
                time: limits.time_limit.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            },
            models: Arc::clone(&self.models),
            tools: Arc::clone(&self.tools),
        });
        let serving = {
            let (work, results, drain) = (work.clone(), results.clone(), interrupts.drain.clone());
            tokio::spawn(async move {
                let served = worker.serve(Arc::new(work), Arc::new(results.clone()), drain).await;
                // No result comes after this.
                results.close();
                served
            })
        };
        let (events, received) = mpsc::channel(1024);
        let watching = tokio::spawn(watch(received, output.quiet, output.json));
        let dispatched =
            dispatch(&self.manifest, &terms, &self.checkpoint, &work, &results, &events, &interrupts.drain)
                .await;
        drop(events);
        if dispatched.is_err() {
            serving.abort();
        }
        let served = serving.await;
        watching.await??;
        let summary = dispatched.map_err(|error| match error {
            DispatchError::Checkpoint(error) => checkpoint_failure(error),
            error => Failure::from(error),
        })?;
        served??;
        Ok(summary)
    }
}

/// Shows events as progress or as JSON lines, until the run drops its end.
async fn watch(mut events: mpsc::Receiver<Event>, quiet: bool, json: bool) -> std::io::Result<()> {
    let mut progress = Progress::new(quiet || json);
    while let Some(event) = events.recv().await {
        if json {
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, &event)?;
            out.write_all(b"\n")?;
        }
        progress.see(&event);
    }
    Ok(())
}

/// Writes results, samples and reports into the run's folder, unless they are there already, and the recorded cases
/// where they were asked for.
fn write_results(
    manifest: &Manifest,
    folder: &Path,
    checkpoint: &Checkpoint,
    output: &Output,
) -> Result<report::Report, Failure> {
    let report = report::report(manifest, checkpoint, &[])?;
    report.total.check()?;
    for configuration in &report.configurations {
        configuration.ledger.check()?;
    }
    if !export::is_current(folder, &report)? {
        export::export(folder, manifest, checkpoint, &[], jiff::Timestamp::now())?;
    }
    if let Some(path) = &output.record {
        record_cases(manifest, checkpoint, path)?;
    }
    Ok(report)
}

/// Writes every settled unit as a recorded case.
fn record_cases(manifest: &Manifest, checkpoint: &Checkpoint, path: &Path) -> Result<(), Failure> {
    let unwritable =
        |error: std::io::Error| Failure::input(format!("cannot write {}: {error}", path.display()));
    let mut out = std::io::BufWriter::new(std::fs::File::create(path).map_err(unwritable)?);
    walk(manifest, checkpoint, |visit| {
        let UnitState::Settled(record) = &visit.state else { return Ok(()) };
        let Item { id, task, setup, .. } = visit.item.clone();
        let unit = EpisodeUnit::new(id, task, setup, Arc::clone(&visit.configuration.configuration));
        let case = lumos_benchmarks::replay::record(visit.item, &unit, &record.outcome)?;
        serde_json::to_writer(&mut out, &case)?;
        out.write_all(b"\n").map_err(unwritable)
    })?;
    out.flush().map_err(unwritable)
}

/// Says how the run stands and decides the exit code.
fn conclude(
    report: &report::Report,
    folder: &Path,
    summary: Summary,
    interrupted: bool,
    output: &Output,
) -> Outcome {
    if !output.json {
        let mut out = std::io::stdout().lock();
        Format::Terminal.renderer().render(report, &mut out)?;
        writeln!(out, "\nreport: {}", folder.join("report.html").display())?;
        writeln!(
            out,
            "results, samples and the checkpoint are beside it; `lumos show {} 0` shows an item",
            folder.display()
        )?;
    }
    let total = &report.total;
    if !total.is_complete() {
        eprintln!(
            "{} units are outstanding and {} faulted: `lumos resume {}` goes on with them",
            total.outstanding,
            total.faulted,
            folder.display()
        );
    }
    if interrupted && !total.is_complete() {
        return Ok(Exit::Interrupted);
    }
    if summary.too_many_faults {
        return Err(Failure {
            exit: Exit::Outstanding,
            error: anyhow::anyhow!(
                "stopped: {} items faulted, more than --fail-on-error allows",
                summary.faulted
            ),
            hint: Some("`lumos show` tells what happened to each; what was recorded is kept".to_owned()),
        });
    }
    if !total.is_complete() {
        return Ok(Exit::Outstanding);
    }
    let below = output.fail_under.and_then(|least| {
        let figures = report
            .configurations
            .iter()
            .filter_map(|one| Some((one, 100.0 * one.main()?.estimate.as_ref()?.value)));
        figures.into_iter().find(|(_, percent)| *percent < least).map(|found| (least, found))
    });
    if let Some((least, (configuration, percent))) = below {
        eprintln!("{}: {percent:.1} % is below the {least} % of --fail-under", configuration.label);
        return Ok(Exit::CheckFailed);
    }
    Ok(Exit::Complete)
}
