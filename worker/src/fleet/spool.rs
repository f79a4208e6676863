//! Sends results to the server. A result that cannot be sent is written to a file while sending is retried, so that
//! neither an unreachable server nor the end of this process loses it.
//!
//! Publishing returns only once the server has stored the result, however long that takes: the unit keeps its
//! slot and its lease until then, and its work message is acknowledged after that, never before. An
//! unreachable server delivers no other work, so the worker loses no time; a server whose results stream is
//! full should not deliver more. If the work were acknowledged while the result is only in a file, the loss
//! of a disk would lose a result that is never computed again. The file only avoids that the unit is executed
//! twice when this process ends before the server is reachable again. When its run ends first, the file is
//! removed.
//!
//! Results that finish while an earlier message is being sent are sent together, as one message: see
//! [`ResultBatcher`].

use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lumos_queue::{Lease, Queue, QueueError};
use lumos_tasks::fleet::{ResultBatch, ResultMessage, RunState};
use lumos_tasks::{FaultKind, Finished, RunToken, Throughput};
use tokio::time::{sleep, timeout};

use super::result_batcher::ResultBatcher;
use super::source::ResultsSink;
use super::spool_files as files;
use crate::serve::{Runs, faulted};

/// Time limit for sending a result before it is also written to a file.
const PROMPT: Duration = Duration::from_secs(2);
/// Maximum delay between two attempts.
const LONGEST: Duration = Duration::from_secs(10);
/// Number of batchers above which those that send nothing are dropped. Opening one again costs nothing.
const BATCHERS: usize = 64;

/// Sends results to the server, and stores those that cannot be sent.
pub(crate) struct Spool {
    sink: Arc<dyn ResultsSink>,
    folder: Option<PathBuf>,
    meter: Arc<Throughput>,
    /// Source of the runs that have ended.
    terms: Arc<dyn Runs>,
    waiting: AtomicU64,
    /// The batcher of each run's results. A batcher that a task is using stays here, so that a run never has two
    /// batchers with waiting results.
    runs: Mutex<BTreeMap<RunToken, Arc<ResultBatcher>>>,
    /// The error of the last result that could not be sent.
    refused: Mutex<Option<String>>,
}

/// Counts a result as waiting until dropped.
struct Waiting<'a>(&'a AtomicU64);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The file of a result that is not sent yet. When dropped, for example because its publication was cancelled, the file
/// is removed if the run has ended; otherwise it is kept for the next worker.
struct SpooledFile {
    path: PathBuf,
    run: RunToken,
    terms: Arc<dyn Runs>,
}

impl Deref for SpooledFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl Drop for SpooledFile {
    fn drop(&mut self) {
        if self.terms.has_ended(&self.run)
            && let Err(error) = files::remove(&self.path)
        {
            tracing::warn!(
                %error, file = %self.path.display(),
                "failed to remove a spooled result whose run has ended"
            );
        }
    }
}

impl Spool {
    /// Creates a spool that sends results to `sink`. Results that cannot be sent are stored in `folder`
    /// meanwhile, if there is one, until the run that `terms` describes ends.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(crate) fn new(
        sink: Arc<dyn ResultsSink>,
        folder: Option<PathBuf>,
        meter: Arc<Throughput>,
        terms: Arc<dyn Runs>,
    ) -> io::Result<Self> {
        if let Some(folder) = &folder {
            files::create_folder(folder)?;
        }
        let (waiting, runs, refused) = Default::default();
        Ok(Self { sink, folder, meter, terms, waiting, runs, refused })
    }

    /// Returns the number of results that wait to be sent.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns why results wait: the error of the last one that could not be sent.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_refused(&self, why: Option<String>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Lists the results that earlier processes left in the folder.
    pub(crate) async fn leftovers(&self) -> Vec<PathBuf> {
        let Some(folder) = self.folder.clone() else { return Vec::new() };
        blocking(move || files::list(&folder)).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to list the spool folder");
            Vec::new()
        })
    }

    /// Sends results that earlier processes left. Returns those that must wait because their run is unknown
    /// or the server cannot be reached.
    pub(crate) async fn send_leftovers(
        &self,
        left: Vec<PathBuf>,
        state_of: impl Fn(&RunToken) -> Option<RunState>,
    ) -> Vec<PathBuf> {
        let mut still = Vec::new();
        for path in left {
            let reading = path.clone();
            let Some(message) = blocking(move || files::read(&reading)).await.unwrap_or_else(|error| {
                tracing::warn!(%error, file = %path.display(), "failed to read a spooled result");
                None
            }) else {
                continue;
            };
            match state_of(&message.run) {
                Some(RunState::Active) => {
                    let message = Arc::new(message);
                    match self.send(&message).await {
                        Ok(()) => {
                            tracing::info!(run = %message.run, unit = %message.unit, "sent a result left by an earlier worker");
                            self.discard(Some(&path)).await;
                        }
                        Err(error) => {
                            tracing::debug!(%error, "failed to send a spooled result; retrying later");
                            still.push(path);
                        }
                    }
                }
                Some(RunState::Cancelled | RunState::Ended) => {
                    tracing::info!(
                        run = %message.run, unit = %message.unit,
                        "dropped a spooled result: its run has ended"
                    );
                    self.discard(Some(&path)).await;
                }
                None => still.push(path),
            }
        }
        still
    }

    /// Sends a result, retrying until the server has stored it.
    async fn deliver(&self, id: &str, message: ResultMessage) -> Result<(), QueueError> {
        let mut message = Arc::new(message);
        let mut error = match timeout(PROMPT, self.send_with_others(&message)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => QueueError::Unreachable("no acknowledgement from the server yet".to_owned()),
        };
        let _waiting = Waiting::new(&self.waiting);
        let mut file = self.store(id, &message).await;
        let mut pause = Duration::from_millis(100);
        loop {
            match error {
                QueueError::Closed => return Err(QueueError::Closed),
                // Retrying cannot help, so the unit's result becomes a fault with this cause.
                QueueError::TooLarge { bytes, limit, .. } => {
                    tracing::warn!(
                        unit = %message.unit, bytes, limit,
                        "a result is too large to send; recording a fault for the unit"
                    );
                    let why = format!(
                        "the record of the episode has {bytes} bytes, more than the queue's limit of {limit} \
                         bytes"
                    );
                    Arc::make_mut(&mut message).outcome = faulted(FaultKind::Worker, why);
                    self.discard(file.take().as_deref()).await;
                }
                error => {
                    tracing::debug!(unit = %message.unit, %error, "failed to send a result; retrying");
                    self.set_refused(Some(error.to_string()));
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
            match self.send(&message).await {
                Ok(()) => break,
                Err(again) => error = again,
            }
        }
        self.set_refused(None);
        self.discard(file.as_deref()).await;
        Ok(())
    }

    /// Sends a result in one message with other waiting results of its run.
    async fn send_with_others(&self, message: &Arc<ResultMessage>) -> Result<(), QueueError> {
        self.line(&message.run).await?.send(message).await
    }

    /// Sends a result in a message of its own.
    async fn send(&self, message: &Arc<ResultMessage>) -> Result<(), QueueError> {
        let line = self.line(&message.run).await?;
        line.send_batch(ResultBatch::from(Arc::clone(message))).await
    }

    async fn line(&self, run: &RunToken) -> Result<Arc<ResultBatcher>, QueueError> {
        if let Some(line) = self.runs().get(run) {
            return Ok(Arc::clone(line));
        }
        let line = Arc::new(ResultBatcher::new(self.sink.open(run).await?));
        let mut runs = self.runs();
        if runs.len() >= BATCHERS {
            // Waiting results belong to tasks, which hold their batcher.
            runs.retain(|_, line| Arc::strong_count(line) > 1);
        }
        // Another task may have opened one in the meantime.
        Ok(Arc::clone(runs.entry(run.clone()).or_insert(line)))
    }

    async fn store(&self, id: &str, message: &Arc<ResultMessage>) -> Option<SpooledFile> {
        let folder = self.folder.clone()?;
        let (id, message, terms) = (id.to_owned(), Arc::clone(message), Arc::clone(&self.terms));
        // Created by the task that writes the file, so that it is also dropped if nothing waits for that task anymore.
        let writing = move || {
            let written = files::write(&folder, &id, &message);
            written.map(|path| SpooledFile { path, run: message.run.clone(), terms })
        };
        match blocking(writing).await {
            Ok(file) => Some(file),
            Err(error) => {
                tracing::warn!(%error, "failed to write a result to the spool folder; keeping it in memory");
                None
            }
        }
    }

    async fn discard(&self, path: Option<&Path>) {
        let Some(path) = path.map(Path::to_owned) else { return };
        let shown = path.clone();
        if let Err(error) = blocking(move || files::remove(&path)).await {
            tracing::warn!(
                %error, file = %shown.display(),
                "failed to remove a spooled result that was sent"
            );
        }
    }

    /// Returns the batchers.
    pub(super) fn runs(&self) -> MutexGuard<'_, BTreeMap<RunToken, Arc<ResultBatcher>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[async_trait]
impl Queue<Finished> for Spool {
    async fn publish(&self, id: &str, body: Finished) -> Result<(), QueueError> {
        let (read, written) = body.outcome.tokens();
        let Some(message) = ResultMessage::pack(body) else {
            return Err(QueueError::Refused("the result has no run".to_owned()));
        };
        self.deliver(id, message).await?;
        self.meter.count(Instant::now(), read + written);
        Ok(())
    }

    async fn claim(&self, _max: usize) -> Result<Vec<Lease<Finished>>, QueueError> {
        Err(QueueError::Refused("cannot claim: this end of the results only publishes".to_owned()))
    }

    fn close(&self) {
        for line in self.runs().values() {
            line.close();
        }
    }
}
