//! The one thread that writes records: group commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use lumos_tasks::UnitId;
use tokio::sync::{mpsc, oneshot};

use super::codec::encode;
use super::error::CheckpointError;
use super::index::{SettledIndex, record_key};
use super::record::{Record, Recorded};
use super::store::{Batch, Store};

/// Records that share a flush at most.
const TOGETHER: usize = 256;
/// Records that may wait for the writer before those who record have to wait.
const WAITING: usize = 1024;

type Answer = oneshot::Sender<Result<Recorded, CheckpointError>>;

struct Job {
    record: Record,
    answer: Answer,
}

/// Handle of the writer's thread.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

impl Writer {
    pub(super) fn start(
        store: impl Store,
        index: Arc<Mutex<SettledIndex>>,
        duplicates: Arc<AtomicU64>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("checkpoint-writer".to_owned())
            .spawn(move || serve(store, queue, &index, &duplicates))?;
        Ok(Self { jobs, thread })
    }

    pub(super) async fn record(&self, record: Record) -> Result<Recorded, CheckpointError> {
        let (answer, answered) = oneshot::channel();
        self.jobs.send(Job { record, answer }).await.map_err(|_| CheckpointError::Ended)?;
        answered.await.map_err(|_| CheckpointError::Ended)?
    }

    /// Lets the thread finish what it has and waits for it.
    pub(super) fn stop(self) {
        drop(self.jobs);
        if self.thread.join().is_err() {
            tracing::error!("the checkpoint's writer panicked");
        }
    }

    /// Leaves the thread alone: it may hang on a full disk.
    pub(super) fn leave(self) {
        drop(self);
    }
}

fn lock(index: &Mutex<SettledIndex>) -> MutexGuard<'_, SettledIndex> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    mut store: impl Store,
    mut queue: mpsc::Receiver<Job>,
    index: &Mutex<SettledIndex>,
    duplicates: &AtomicU64,
) {
    let mut jobs = Vec::with_capacity(TOGETHER);
    loop {
        jobs.clear();
        if queue.blocking_recv_many(&mut jobs, TOGETHER) == 0 {
            return;
        }
        if let Err(error) = commit(&mut store, &mut jobs, index, duplicates) {
            tracing::debug!(folder = %store.folder().display(), %error, "the checkpoint takes no more records");
            // sled's clean-up may wait for a full disk for ever.
            std::mem::forget(store);
            refuse_the_rest(queue, &error);
            return;
        }
    }
}

/// Writes and flushes a batch, then answers.
fn commit(
    store: &mut impl Store,
    jobs: &mut Vec<Job>,
    index: &Mutex<SettledIndex>,
    duplicates: &AtomicU64,
) -> Result<(), CheckpointError> {
    let mut batch = Batch::default();
    let mut pending = PendingIndex { index, added: Vec::new() };
    let mut verdicts = Vec::with_capacity(jobs.len());
    let mut dropped = 0;
    for job in jobs.iter() {
        let Record { unit, attempt, outcome, .. } = &job.record;
        let fault = outcome.is_fault();
        let verdict = match pending.classify(unit, *attempt, fault) {
            Recorded::Duplicate => {
                dropped += 1;
                Ok(Recorded::Duplicate)
            }
            recorded => match encode(&job.record) {
                Ok(value) => {
                    batch.records.push((record_key(unit, *attempt, fault).to_vec(), value));
                    pending.added.push((unit.clone(), *attempt, fault));
                    Ok(recorded)
                }
                Err(error) => Err(error.at(store.folder())),
            },
        };
        verdicts.push(verdict);
    }
    if dropped > 0 {
        batch.duplicates = Some(duplicates.load(Ordering::Relaxed) + dropped);
    }
    if let Err(error) = store.write(batch) {
        for job in jobs.drain(..) {
            // Whoever gave up waiting needs no answer.
            let _ = job.answer.send(Err(error.clone()));
        }
        return Err(error);
    }
    duplicates.fetch_add(dropped, Ordering::Relaxed);
    pending.settle();
    for (job, verdict) in jobs.drain(..).zip(verdicts) {
        let _ = job.answer.send(verdict);
    }
    Ok(())
}

/// The index as it will be once the batch is flushed; nobody else sees it before.
struct PendingIndex<'a> {
    index: &'a Mutex<SettledIndex>,
    added: Vec<(UnitId, u32, bool)>,
}

impl PendingIndex<'_> {
    fn classify(&self, unit: &UnitId, attempt: u32, fault: bool) -> Recorded {
        // Few records of one batch share a unit, and a batch is small.
        for (added, added_attempt, added_fault) in &self.added {
            if added == unit && (!added_fault || (fault && *added_attempt == attempt)) {
                return Recorded::Duplicate;
            }
        }
        lock(self.index).classify(unit, attempt, fault)
    }

    fn settle(self) {
        let mut index = lock(self.index);
        for (unit, attempt, fault) in self.added {
            index.take(&unit, attempt, fault);
        }
    }
}

/// Answers everyone who still comes, until the checkpoint is let go.
fn refuse_the_rest(mut queue: mpsc::Receiver<Job>, error: &CheckpointError) {
    while let Some(job) = queue.blocking_recv() {
        let _ = job.answer.send(Err(error.clone()));
    }
}
