//! A session of a run: starts the dispatch, the output of events, and the workers.
//!
//! [`Session::run`] executes the outstanding units with a worker in this process or with the workers of a
//! queue ([`Executor`]), writes the results and determines the exit code. The command modules `run` and `judge`
//! create sessions.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lumos_coordinator::dispatch::{DispatchConfig, DispatchError, Summary, dispatch};
use lumos_coordinator::fleet::{CoordinatorError, CoordinatorSettings, Fleet, run_fleet};
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::report::Format;
use lumos_coordinator::{Checkpoint, CheckpointError, Computing, Event, export, report};
use lumos_models::ModelRegistry;
use lumos_models::Swapping;
use lumos_queue::nats::Server;
use lumos_queue::{MemoryQueue, Queue};
use lumos_tasks::{Assignment, EpisodeUnit, Finished, Item};
use lumos_tools::ToolSets;
use lumos_worker::stall::watch_here;
use lumos_worker::{EpisodeLimits, LeaseTerms, RunTerms, Worker};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::budget::Budget;
use crate::exit::{CommandResult, Exit, Failure};
use crate::interrupt::Interrupts;
use crate::progress::Progress;

/// Capacity of the in-memory queues for units and results.
const QUEUED: usize = 1024;

/// Maximum number of events written together.
const EVENTS: usize = 256;

/// Output options.
pub(crate) struct Output {
    pub(crate) quiet: bool,
    pub(crate) json: bool,
    pub(crate) record: Option<PathBuf>,
    pub(crate) fail_under: Option<f64>,
}

/// A planned run with its models, tools and workers.
pub(crate) struct Session {
    pub(crate) manifest: Manifest,
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) means: Executor,
    /// Whether models take turns in memory.
    pub(crate) in_phases: bool,
}

/// The executor of a run.
pub(crate) enum Executor {
    /// This process.
    Here {
        models: Arc<ModelRegistry>,
        tools: Arc<ToolSets>,
        /// Number of episodes driven at the same time.
        concurrency: usize,
        /// Time without progress before a warning that states the cause; zero disables the warning.
        stall_warning: Duration,
    },
    /// The workers of a queue.
    Fleet { server: Server, settings: CoordinatorSettings },
}

/// Opens a run's checkpoint on a blocking thread.
pub(crate) async fn open(
    folder: &Path,
    how: fn(&Path) -> Result<Checkpoint, CheckpointError>,
) -> Result<Checkpoint, Failure> {
    let folder = folder.join("checkpoint");
    tokio::task::spawn_blocking(move || how(&folder)).await?.map_err(checkpoint_failure)
}

/// A missing checkpoint, or one in use, is a usage error; a disk error is a fault.
pub(crate) fn checkpoint_failure(error: CheckpointError) -> Failure {
    match error {
        CheckpointError::InUse { .. } | CheckpointError::Missing { .. } | CheckpointError::Schema { .. } => {
            Failure::usage(error)
        }
        error => Failure::from(error),
    }
}

impl Session {
    /// Runs the outstanding units, writes the results and prints the state of the run.
    pub(crate) async fn run(self, output: &Output) -> CommandResult {
        let interrupts = Interrupts::watch();
        let dispatched = self.dispatch(output, &interrupts, None).await;
        let summary = match dispatched {
            Ok(summary) => summary,
            Err(failure) => {
                // A database whose disk failed may never close. Acknowledged records are on disk.
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

    /// Runs the outstanding units, as far as the budget allows.
    pub(crate) async fn dispatch(
        &self,
        output: &Output,
        interrupts: &Interrupts,
        budget: Option<&Arc<Budget>>,
    ) -> Result<Summary, Failure> {
        let (events, received) = mpsc::channel(1024);
        let at_hand = match &self.means {
            Executor::Here { concurrency, .. } => *concurrency,
            // Units on a queue may already be held by workers.
            Executor::Fleet { .. } => 0,
        };
        if budget.is_some_and(|budget| budget.is_reached()) {
            interrupts.drain.cancel();
        }
        let computing = self.begin()?;
        let spending = budget.map(|budget| (Arc::clone(budget), at_hand, interrupts.drain.clone()));
        let watching = tokio::spawn(watch(received, output.quiet, output.json, spending));
        let ended = self.dispatch_by(&events, interrupts).await;
        drop(events);
        watching.await??;
        if let (Ok(_), Some(computing)) = (&ended, computing) {
            self.end(computing)?;
        }
        ended
    }

    /// Records how this process will compute models; `None` if it computes none.
    fn begin(&self) -> Result<Option<Computing>, Failure> {
        let Executor::Here { concurrency, .. } = &self.means else { return Ok(None) };
        let mut models =
            self.manifest.configurations.iter().flat_map(|one| one.configuration.models.values());
        // Only models of engines have a data type.
        let computes = models.any(|model| model.dtype.is_some());
        if !computes || self.checkpoint.settled() >= self.manifest.planned() {
            return Ok(None);
        }
        let computing = Computing {
            device: self.manifest.spec.device.clone(),
            in_phases: self.in_phases,
            concurrency: *concurrency as u64,
            ..Computing::default()
        };
        self.checkpoint.session_begins(&computing)?;
        Ok(Some(computing))
    }

    /// Records the cost of swapping models.
    fn end(&self, computing: Computing) -> Result<(), Failure> {
        let Executor::Here { models, .. } = &self.means else { return Ok(()) };
        let Swapping { loads, time } = models.swapping();
        let computing = Computing { loads, load_seconds: time.as_secs_f64(), ..computing };
        Ok(self.checkpoint.session_ends(&computing)?)
    }

    async fn dispatch_by(
        &self,
        events: &mpsc::Sender<Event>,
        interrupts: &Interrupts,
    ) -> Result<Summary, Failure> {
        match &self.means {
            Executor::Here { models, tools, concurrency, stall_warning } => {
                let worker = self.worker(models, tools, *concurrency);
                let watched = CancellationToken::new();
                let activity = worker.terms.activity.clone();
                let watch = watch_here(*stall_warning, activity, Arc::clone(models), watched.clone());
                let watch = tokio::spawn(watch);
                let dispatched = self.dispatch_here(worker, events, &interrupts.drain).await;
                watched.cancel();
                watch.await?;
                dispatched
            }
            Executor::Fleet { server, settings } => run_fleet(Fleet {
                manifest: &self.manifest,
                checkpoint: &self.checkpoint,
                server,
                terms: DispatchConfig::of(&self.manifest),
                settings: settings.clone(),
                events,
                drain: &interrupts.drain,
            })
            .await
            .map_err(fleet_failure),
        }
    }

    fn worker(&self, models: &Arc<ModelRegistry>, tools: &Arc<ToolSets>, concurrency: usize) -> Arc<Worker> {
        let time_limit = self.manifest.spec.limits.time_limit;
        let limits =
            EpisodeLimits { time: time_limit.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) };
        Arc::new(Worker {
            name: format!("local-{}", std::process::id()),
            concurrency,
            models: Arc::clone(models),
            tools: Arc::clone(tools),
            runs: Arc::new(RunTerms { limits, ..RunTerms::default() }),
            terms: LeaseTerms::default(),
        })
    }

    /// Runs the session with in-memory queues and one worker.
    async fn dispatch_here(
        &self,
        worker: Arc<Worker>,
        events: &mpsc::Sender<Event>,
        drain: &CancellationToken,
    ) -> Result<Summary, Failure> {
        let work: MemoryQueue<Assignment> = MemoryQueue::bounded(QUEUED);
        let results: MemoryQueue<Finished> = MemoryQueue::bounded(QUEUED);
        let terms = DispatchConfig {
            window: QUEUED,
            at_once: worker.concurrency,
            ..DispatchConfig::of(&self.manifest)
        };
        let serving = {
            let (work, results, drain) = (work.clone(), results.clone(), drain.clone());
            tokio::spawn(async move {
                let served = worker.serve(Arc::new(work), Arc::new(results.clone()), drain).await;
                // No more results follow.
                results.close();
                served
            })
        };
        let dispatched =
            dispatch(&self.manifest, &terms, &self.checkpoint, &work, &results, events, drain).await;
        if dispatched.is_err() {
            serving.abort();
        }
        let served = serving.await;
        let summary = dispatched.map_err(dispatch_failure)?;
        served??;
        Ok(summary)
    }
}

fn dispatch_failure(error: DispatchError) -> Failure {
    match error {
        DispatchError::Checkpoint(error) => checkpoint_failure(error),
        error => Failure::from(error),
    }
}

/// A run that another coordinator owns, or a refusal by the server, is a usage error; the message contains a
/// hint.
fn fleet_failure(error: CoordinatorError) -> Failure {
    match error {
        CoordinatorError::Dispatch(error) => dispatch_failure(error),
        error @ CoordinatorError::Interrupted => Failure { exit: Exit::Interrupted, ..Failure::usage(error) },
        error => Failure::usage(error),
    }
}

/// Writes events as progress or JSON lines until the sender is dropped. Ends the session when its budget is
/// used up.
async fn watch(
    mut events: mpsc::Receiver<Event>,
    quiet: bool,
    json: bool,
    spending: Option<(Arc<Budget>, usize, CancellationToken)>,
) -> std::io::Result<()> {
    let mut progress = Progress::new(quiet || json);
    let mut gathered = Vec::with_capacity(EVENTS);
    let mut lines = Vec::new();
    while events.recv_many(&mut gathered, EVENTS).await > 0 {
        for event in gathered.drain(..) {
            if json {
                serde_json::to_writer(&mut lines, &event)?;
                lines.push(b'\n');
            }
            if let (Event::Settled { cost, .. }, Some((budget, at_hand, drain))) = (&event, &spending)
                && budget.spend(*cost, *at_hand)
            {
                drain.cancel();
            }
            progress.record(&event);
        }
        // Writes everything received so far at once, without further buffering.
        std::io::stdout().lock().write_all(&lines)?;
        lines.clear();
    }
    Ok(())
}

/// Writes results, samples and reports to the run's folder unless they are current, and the recorded cases if
/// requested.
pub(crate) fn write_results(
    manifest: &Manifest,
    folder: &Path,
    checkpoint: &Checkpoint,
    output: &Output,
) -> Result<report::Report, Failure> {
    let report = report::report(manifest, checkpoint, &[])?;
    report.check()?;
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
    checkpoint.for_each_settled(manifest, |planned, item, record| {
        let Item { id, task, setup, .. } = item.clone();
        let unit = EpisodeUnit::new(id, task, setup, Arc::clone(&planned.configuration));
        let case = lumos_benchmarks::replay::record(item, &unit, &record.outcome)?;
        serde_json::to_writer(&mut out, &case)?;
        out.write_all(b"\n").map_err(unwritable)
    })?;
    out.flush().map_err(unwritable)
}

/// Returns tables of the width of standard output, or of 80 columns if it is not a terminal.
pub(crate) fn terminal() -> Format {
    Format::Terminal { width: console::Term::stdout().size_checked().map_or(80, |(_, width)| width) }
}

/// Prints the state of the run and determines the exit code.
fn conclude(
    report: &report::Report,
    folder: &Path,
    summary: Summary,
    interrupted: bool,
    output: &Output,
) -> CommandResult {
    if !output.json {
        let mut out = std::io::stdout().lock();
        report.render(terminal(), &mut out)?;
        writeln!(out, "\nreport: {}", folder.join("report.html").display())?;
        writeln!(
            out,
            "results, samples and checkpoint are in the same folder; `lumos show {} 0` prints an item",
            folder.display()
        )?;
    }
    let total = &report.total;
    if !total.is_complete() {
        eprintln!(
            "{} units are outstanding and {} faulted: `lumos resume {}` continues them",
            total.outstanding,
            total.faulted,
            folder.display()
        );
    }
    if summary.cancelled && !total.is_complete() {
        eprintln!("the run was cancelled");
        return Ok(Exit::Interrupted);
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
            hint: Some("`lumos show` prints the fault of an item; recorded outcomes are kept".to_owned()),
        });
    }
    if !total.is_complete() {
        return Ok(Exit::Outstanding);
    }
    let below = output.fail_under.and_then(|least| {
        let figures = report.configurations.iter().filter_map(|one| Some((one, 100.0 * one.main_value()?)));
        figures.into_iter().find(|(_, percent)| *percent < least).map(|found| (least, found))
    });
    if let Some((least, (configuration, percent))) = below {
        eprintln!("{}: {percent:.1} % is below --fail-under {least} %", configuration.label);
        return Ok(Exit::CheckFailed);
    }
    Ok(Exit::Complete)
}
