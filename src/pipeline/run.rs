//! The third stage: a run whose folder and checkpoint are open.
//!
//! [`Run::execute`] executes the outstanding units with a worker in this process or with the workers of a queue. It
//! also writes the events as progress or JSON lines.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lumos_coordinator::dispatch::{DispatchConfig, DispatchError, RunProgress, Summary, dispatch};
use lumos_coordinator::fleet::{CoordinatorError, Fleet, run_fleet};
use lumos_coordinator::manifest::{Manifest, ManifestError};
use lumos_coordinator::{Checkpoint, CheckpointError, Computing, Event};
use lumos_models::Swapping;
use lumos_queue::{MemoryQueue, Queue};
use lumos_reports::live::StatusFile;
use lumos_tasks::{Assignment, Finished};
use lumos_worker::stall::{Wait, reminded, watch_here};
use lumos_worker::{EpisodeLimits, LeaseTerms, RunTerms, Worker};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::status::{LocalStatus, write_status};
use super::{Executor, Options, Report};
use crate::budget::Budget;
use crate::cli::Verbosity;
use crate::exit::{CommandResult, Exit, Failure};
use crate::interrupt::Interrupts;
use crate::progress::Progress;
use crate::settings;

/// Capacity of the in-memory queues for units and results.
const QUEUED: usize = 1024;

/// Maximum number of events written together.
const EVENTS: usize = 256;

/// Maximum time of a write to standard output. A longer one would stop the run once the channel of the events is full,
/// for which the stall warning, after a minute by default, would name the disk.
const UNREAD: Duration = Duration::from_secs(60);

/// The emptied buffer of a write to standard output, and its result.
type Written = (Vec<u8>, std::io::Result<()>);

/// A planned run with its open checkpoint and its executor.
pub(crate) struct Run {
    pub(crate) manifest: Manifest,
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) executor: Executor,
    /// Whether models take turns in memory; `None` if the models are not prepared yet.
    pub(crate) in_phases: Option<bool>,
    pub(crate) budget: Option<Budget>,
}

impl Run {
    /// Executes the run, publishes its results and releases its tools.
    pub(crate) async fn finish(self) -> CommandResult {
        let tools = Arc::clone(&self.executor.tools);
        let outcome = self.execute().await.and_then(Report::publish);
        tools.close().await;
        outcome
    }

    /// Executes the outstanding units, as far as the budget allows.
    pub(crate) async fn execute(mut self) -> Result<Report, Failure> {
        let in_phases = match self.in_phases {
            Some(in_phases) => Ok(in_phases),
            None if self.checkpoint.settled() >= self.manifest.planned() => Ok(false),
            None => self.executor.prepare(&self.manifest).await,
        };
        let in_phases = match in_phases {
            Ok(in_phases) => in_phases,
            Err(failure) => {
                self.checkpoint.close()?;
                return Err(failure);
            }
        };
        let interrupts = Interrupts::watch();
        let dispatched = self.dispatch(in_phases, &interrupts.drain).await;
        let dispatched = dispatched.and_then(|mut summary| {
            if self.manifest.stop(std::mem::take(&mut summary.stopped)) {
                let mut written = self.manifest.clone();
                // Those of the file stay; see `continued`.
                if let Some(mark) = self.checkpoint.plan()?.filter(|mark| !mark.scoring.is_empty()) {
                    written.spec.scoring = mark.scoring;
                }
                written.write(&self.folder).map_err(manifest_failure)?;
            }
            Ok(summary)
        });
        let Self { manifest, folder, checkpoint, executor: Executor { options, .. }, budget, .. } = self;
        match dispatched {
            Ok(summary) => Ok(Report { manifest, folder, checkpoint, options, budget, summary, interrupts }),
            Err(failure) => {
                // A database whose disk failed may never close. Acknowledged records are on disk.
                checkpoint.abandon();
                Err(failure)
            }
        }
    }

    async fn dispatch(&mut self, in_phases: bool, drain: &CancellationToken) -> Result<Summary, Failure> {
        if self.budget.as_ref().is_some_and(Budget::is_reached) {
            drain.cancel();
        }
        let concurrency = settings::concurrency(&self.manifest.spec, in_phases);
        let computing = self.computing(in_phases, concurrency);
        if let Some(computing) = &computing {
            self.checkpoint.session_begins(computing)?;
        }
        let queue = self.executor.fleet.as_ref().map(|(_, settings)| settings.address.as_str());
        self.checkpoint.set_queue(queue)?;
        let (events, received) = mpsc::channel(1024);
        let Options { verbosity: Verbosity { quiet, .. }, json, .. } = self.executor.options;
        let watching = tokio::spawn(watch(received, quiet, json, self.budget.take(), drain.clone()));
        let ended = match &self.executor.fleet {
            None => self.dispatch_here(concurrency, &events, drain).await,
            Some((server, settings)) => run_fleet(Fleet {
                manifest: &self.manifest,
                checkpoint: &self.checkpoint,
                server,
                terms: DispatchConfig::of(&self.manifest),
                settings: settings.clone(),
                events: &events,
                drain,
            })
            .await
            .map_err(fleet_failure),
        };
        drop(events);
        self.budget = watching.await??;
        if let (Ok(_), Some(computing)) = (&ended, computing) {
            let Swapping { loads, time } = self.executor.models.swapping();
            let servers = self.executor.models.servers();
            let computing = Computing { loads, load_seconds: time.as_secs_f64(), servers, ..computing };
            self.checkpoint.session_ends(&computing)?;
        }
        ended
    }

    /// Describes how this process will compute models; `None` if it computes none.
    fn computing(&self, in_phases: bool, concurrency: usize) -> Option<Computing> {
        let Manifest { configurations, spec, .. } = &self.manifest;
        // Only models of engines have a data type. Those with an address are on servers.
        let mut models = configurations.iter().flat_map(|one| one.configuration.models.values());
        let computes = self.executor.fleet.is_none()
            && models.any(|model| model.dtype.is_some() || model.name.contains("://"));
        let is_outstanding = self.checkpoint.settled() < self.manifest.planned();
        (computes && is_outstanding).then(|| Computing {
            device: spec.device.clone(),
            in_phases,
            concurrency: concurrency as u64,
            ..Computing::default()
        })
    }

    /// Dispatches over in-memory queues to one worker in this process.
    async fn dispatch_here(
        &self,
        concurrency: usize,
        events: &mpsc::Sender<Event>,
        drain: &CancellationToken,
    ) -> Result<Summary, Failure> {
        let Self { manifest, executor: Executor { models, tools, options, .. }, .. } = self;
        let time_limit = manifest.spec.limits.time_limit;
        let limits =
            EpisodeLimits { time: time_limit.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) };
        let worker = Arc::new(Worker {
            name: format!("local-{}", std::process::id()),
            concurrency,
            models: Arc::clone(models),
            tools: Arc::clone(tools),
            runs: Arc::new(RunTerms { limits, ..RunTerms::default() }),
            terms: LeaseTerms::default(),
        });
        let ended = CancellationToken::new();
        let activity = worker.terms.activity.clone();
        let progress = RunProgress::new(manifest);
        let local = LocalStatus {
            file: StatusFile::in_folder(&self.folder),
            progress: progress.clone(),
            activity: activity.clone(),
            models: Arc::clone(models),
            worker: worker.name.clone(),
            device: manifest.spec.device.to_string(),
            concurrency,
        };
        let status = tokio::spawn(write_status(local, ended.clone()));
        let stalls =
            tokio::spawn(watch_here(options.stall_warning, activity, Arc::clone(models), ended.clone()));
        let ended = ended.drop_guard();
        let work: MemoryQueue<Assignment> = MemoryQueue::bounded(QUEUED);
        let results: MemoryQueue<Finished> = MemoryQueue::bounded(QUEUED);
        let serving = {
            let (work, results, drain) = (work.clone(), results.clone(), drain.clone());
            tokio::spawn(async move {
                let results = CloseOnDrop(results);
                worker.serve(Arc::new(work), Arc::new(results.0.clone()), drain).await
            })
        };
        let terms = DispatchConfig { window: QUEUED, at_once: concurrency, ..DispatchConfig::of(manifest) };
        let sink = progress.sink(events);
        let dispatched = dispatch(manifest, &terms, &self.checkpoint, &work, &results, sink, drain).await;
        if dispatched.is_err() {
            serving.abort();
        }
        let served = serving.await;
        drop(ended);
        let _ = status.await;
        let _ = stalls.await;
        let summary = dispatched.map_err(dispatch_failure)?;
        served.map_err(worker_failure)??;
        Ok(summary)
    }
}

/// Closes the results when the worker that sends them ends, also by a panic. The session waits for further ones until then.
struct CloseOnDrop(MemoryQueue<Finished>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Writes events as progress or JSON lines until the sender is dropped. Cancels `drain` when the budget is used
/// up, and returns it. The run does not depend on the reader of its output: when lines cannot be written within
/// [`UNREAD`], no more are.
async fn watch(
    mut events: mpsc::Receiver<Event>,
    quiet: bool,
    json: bool,
    mut budget: Option<Budget>,
    drain: CancellationToken,
) -> std::io::Result<Option<Budget>> {
    let mut progress = Progress::new(quiet || json);
    let mut gathered = Vec::with_capacity(EVENTS);
    let mut lines = Vec::new();
    let mut is_read = json;
    while events.recv_many(&mut gathered, EVENTS).await > 0 {
        for event in gathered.drain(..) {
            if is_read {
                serde_json::to_writer(&mut lines, &event)?;
                lines.push(b'\n');
            }
            if let Some(budget) = &mut budget
                && let Event::Settled {
                    cost, prompt_tokens, completion_tokens, has_reply: true, at_hand, ..
                } = &event
                && budget.spend(*cost, (*prompt_tokens, *completion_tokens), *at_hand)
            {
                drain.cancel();
            }
            progress.record(&event);
        }
        if lines.is_empty() {
            continue;
        }
        // A slow reader must not block a thread of the runtime, on which claims and leases are renewed.
        let writing = tokio::task::spawn_blocking(move || write_lines(lines));
        let (buffer, written) = within(UNREAD, writing).await?;
        lines = buffer;
        if let Err(error) = written {
            is_read = false;
            let hint = match error.kind() {
                ErrorKind::TimedOut => "\nhint: write the events to a file, and read that file",
                _ => "",
            };
            if error.kind() != ErrorKind::BrokenPipe {
                tracing::warn!(
                    "failed to write events to standard output: {error}; the run continues without them{hint}"
                );
            }
        }
    }
    Ok(budget)
}

/// Waits for a write, which continues in the background if it takes longer than `limit`.
async fn within(limit: Duration, writing: JoinHandle<Written>) -> std::io::Result<Written> {
    if let Ok(written) = tokio::time::timeout(limit, writing).await {
        return Ok(written?);
    }
    let error = format!("its reader has not read them for {} s", limit.as_secs());
    Ok((Vec::new(), Err(std::io::Error::new(ErrorKind::TimedOut, error))))
}

/// Writes everything received so far at once, without further buffering. Returns the emptied buffer.
fn write_lines(mut lines: Vec<u8>) -> Written {
    let written = std::io::stdout().lock().write_all(&lines);
    lines.clear();
    (lines, written)
}

/// Opens a run's checkpoint on a blocking thread.
pub(crate) async fn open_checkpoint(
    folder: &Path,
    how: fn(&Path) -> Result<Checkpoint, CheckpointError>,
    stall_warning: Duration,
) -> Result<Checkpoint, Failure> {
    let folder = folder.to_owned();
    let opening = tokio::task::spawn_blocking(move || {
        let checkpoint = how(&folder.join("checkpoint"))?;
        // Removes the status of a killed session, which `lumos serve` would show as that of this one.
        drop(StatusFile::in_folder(&folder));
        Ok(checkpoint)
    });
    reminded(stall_warning, Wait::Checkpoint, opening).await?.map_err(checkpoint_failure)
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

/// A manifest that cannot be used is a usage error; a full disk is a fault.
pub(crate) fn manifest_failure(error: ManifestError) -> Failure {
    match error {
        ManifestError::Io { ref source, .. } if source.kind() == ErrorKind::StorageFull => {
            Failure::from(error)
        }
        ManifestError::Differs { .. } => {
            Failure::usage(error).hint("choose another name with --name, or use the settings of the run")
        }
        ManifestError::Missing { .. } => Failure::usage(error).hint("list the runs: lumos ls"),
        error => Failure::usage(error),
    }
}

fn dispatch_failure(error: DispatchError) -> Failure {
    match error {
        DispatchError::Checkpoint(error) => checkpoint_failure(error),
        error => Failure::from(error),
    }
}

/// A panic of the worker in this process is a fault.
fn worker_failure(error: JoinError) -> Failure {
    let error = anyhow::Error::new(error).context("the worker of this process panicked");
    Failure::from(error).hint("recorded outcomes are safe; run the same command again")
}

/// A run that another coordinator owns, or a refusal by the server, is a usage error; the message contains a
/// hint. A panic is a fault.
fn fleet_failure(error: CoordinatorError) -> Failure {
    match error {
        CoordinatorError::Dispatch(error) => dispatch_failure(error),
        error @ CoordinatorError::Panicked(_) => Failure::from(error),
        error @ CoordinatorError::Interrupted => Failure { exit: Exit::Interrupted, ..Failure::usage(error) },
        error => Failure::usage(error),
    }
}

#[cfg(test)]
mod tests {
    use lumos_models::Price;
    use lumos_tasks::{ContentHash, UnitId};

    use super::*;

    #[tokio::test]
    async fn a_rejected_prompt_costs_nothing() {
        let is_reached = async |has_reply: bool| {
            let (events, received) = mpsc::channel(1);
            let settled = Event::Settled {
                unit: UnitId::new(ContentHash::of_bytes(b"question")),
                configuration: 0,
                item: 0,
                attempt: 1,
                status: "answered",
                correct: None,
                prompt_tokens: 0,
                completion_tokens: 0,
                seconds: 0.0,
                drafts: None,
                cost: None,
                has_reply,
                at_hand: 0,
            };
            events.send(settled).await.unwrap();
            drop(events);
            let budget = Budget::new(1.0, Some(Price { read: 10.0, written: 10.0 }));
            let drain = CancellationToken::new();
            let budget = watch(received, true, false, Some(budget), drain.clone()).await.unwrap().unwrap();
            (budget.is_reached(), drain.is_cancelled())
        };
        assert_eq!(is_reached(false).await, (false, false));
        // A server that does not report usage.
        assert_eq!(is_reached(true).await, (true, true));
    }

    #[tokio::test]
    async fn a_worker_that_panics_ends_the_run() {
        async fn panicking(_results: CloseOnDrop) {
            panic!("no slot 7");
        }
        let results = MemoryQueue::bounded(1);
        let serving = tokio::spawn(panicking(CloseOnDrop(results.clone())));
        let claimed = tokio::time::timeout(UNREAD, results.claim(1)).await.expect("the results are closed");
        assert!(claimed.unwrap().is_empty());
        let failure = worker_failure(serving.await.unwrap_err());
        assert_eq!((failure.exit, failure.hint.is_some()), (Exit::Fault, true));
    }

    #[tokio::test]
    async fn a_write_without_a_reader_is_given_up() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let blocked = tokio::task::spawn_blocking(move || {
            let _ = released.recv();
            (Vec::new(), Ok(()))
        });
        let (_, written) = within(Duration::from_millis(10), blocked).await.unwrap();
        assert_eq!(written.unwrap_err().kind(), ErrorKind::TimedOut);
        // The runtime waits for its blocking threads.
        drop(release);
        let done = tokio::task::spawn_blocking(|| (vec![1], Ok(())));
        let (buffer, written) = within(UNREAD, done).await.unwrap();
        assert!(written.is_ok() && buffer == [1]);
    }
}
