//! The thread that writes all records, with group commit.
//!
//! [`Writer`] sends jobs to the thread. The thread takes all jobs that are queued, classifies their records
//! with the index, writes them as one [`Batch`] to the [`Store`], and sends the results after the flush.
//! After an error it rejects all further jobs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::catalogue::{Catalogue, lock};
use super::codec::encode;
use super::error::CheckpointError;
use super::index::{SettledIndex, Settlement, pack};
use super::journal::Location;
use super::store::{Batch, Store};
use super::{Record, Recorded};
use crate::unit_key::UnitKey;

/// Maximum number of jobs that share a flush.
const TOGETHER: usize = 256;
/// Number of queued jobs before recording waits for the writer.
const WAITING: usize = 1024;

type Answer = Result<Vec<Recorded>, CheckpointError>;

/// Records that are written together or not at all.
struct Job {
    records: Vec<Record>,
    answer: oneshot::Sender<Answer>,
}

/// Handle of the writer thread.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

impl Writer {
    pub(super) fn start(
        store: impl Store,
        catalogue: Arc<Mutex<Catalogue>>,
        duplicates: Arc<AtomicU64>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("checkpoint-writer".to_owned())
            .spawn(move || serve(store, queue, &catalogue, &duplicates))?;
        Ok(Self { jobs, thread })
    }

    pub(super) async fn record(&self, records: Vec<Record>) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.jobs.send(Job { records, answer }).await.map_err(|_| CheckpointError::Ended)?;
        answered.await.map_err(|_| CheckpointError::Ended)?
    }

    /// Waits for the thread to finish the queued jobs.
    pub(super) fn stop(self) {
        drop(self.jobs);
        if self.thread.join().is_err() {
            tracing::error!("the checkpoint's writer panicked");
        }
    }

    /// Detaches the thread, which may hang on a full disk.
    pub(super) fn leave(self) {
        drop(self);
    }
}

fn serve(
    mut store: impl Store,
    mut queue: mpsc::Receiver<Job>,
    catalogue: &Mutex<Catalogue>,
    duplicates: &AtomicU64,
) {
    let mut jobs = Vec::with_capacity(TOGETHER);
    loop {
        jobs.clear();
        if queue.blocking_recv_many(&mut jobs, TOGETHER) == 0 {
            return;
        }
        if let Err(error) = commit(&mut store, &mut jobs, catalogue, duplicates) {
            tracing::debug!(folder = %store.folder().display(), %error, "the checkpoint does not accept further records");
            // sled's clean-up may wait for a full disk forever.
            std::mem::forget(store);
            refuse_the_rest(queue, &error);
            return;
        }
    }
}

/// Writes and flushes the queued jobs, then sends their results.
fn commit(
    store: &mut impl Store,
    jobs: &mut Vec<Job>,
    catalogue: &Mutex<Catalogue>,
    duplicates: &AtomicU64,
) -> Result<(), CheckpointError> {
    let mut batch = Batch { first: lock(catalogue).index.next(), ..Batch::default() };
    let mut pending = PendingIndex { catalogue, added: SettledIndex::default(), order: Vec::new() };
    let mut verdicts = Vec::with_capacity(jobs.len());
    let mut dropped = 0;
    for job in jobs.iter() {
        let mut recorded = Ok(Vec::with_capacity(job.records.len()));
        for record in &job.records {
            let unit = UnitKey::of(&record.unit);
            let settlement = Settlement::of(&record.outcome);
            let verdict = pending.classify(&unit, record.attempt, settlement);
            if verdict == Recorded::Duplicate {
                dropped += 1;
            } else {
                match encode(store.folder(), record) {
                    Ok(value) => {
                        batch.records.push(value);
                        pack(&mut batch.entries, &unit, record.attempt, settlement);
                        pending.add(unit, record.attempt, settlement);
                    }
                    Err(error) => {
                        recorded = Err(error);
                        break;
                    }
                }
            }
            if let Ok(recorded) = &mut recorded {
                recorded.push(verdict);
            }
        }
        verdicts.push(recorded);
    }
    if dropped > 0 {
        batch.duplicates = Some(duplicates.load(Ordering::Relaxed) + dropped);
    }
    let locations = match store.write(batch) {
        Ok(locations) => locations,
        Err(error) => {
            for job in jobs.drain(..) {
                // The caller may have stopped waiting.
                let _ = job.answer.send(Err(error.clone()));
            }
            return Err(error);
        }
    };
    duplicates.fetch_add(dropped, Ordering::Relaxed);
    pending.settle(locations);
    for (job, verdict) in jobs.drain(..).zip(verdicts) {
        let _ = job.answer.send(verdict);
    }
    Ok(())
}

/// The index as it will be once the batch is flushed. It becomes visible to others only then.
struct PendingIndex<'a> {
    catalogue: &'a Mutex<Catalogue>,
    added: SettledIndex,
    order: Vec<(UnitKey, u32, Option<Settlement>)>,
}

impl PendingIndex<'_> {
    fn classify(&self, unit: &UnitKey, attempt: u32, settlement: Option<Settlement>) -> Recorded {
        match self.added.classify(unit, attempt, settlement.is_none()) {
            Recorded::Duplicate => Recorded::Duplicate,
            _ => lock(self.catalogue).index.classify(unit, attempt, settlement.is_none()),
        }
    }

    fn add(&mut self, unit: UnitKey, attempt: u32, settlement: Option<Settlement>) {
        self.added.take(unit, attempt, settlement);
        self.order.push((unit, attempt, settlement));
    }

    fn settle(self, locations: Vec<Location>) {
        let mut catalogue = lock(self.catalogue);
        for (unit, attempt, settlement) in self.order {
            catalogue.index.take(unit, attempt, settlement);
        }
        catalogue.records.extend(locations);
    }
}

/// Sends the error to all further jobs until the checkpoint is closed.
fn refuse_the_rest(mut queue: mpsc::Receiver<Job>, error: &CheckpointError) {
    while let Some(job) = queue.blocking_recv() {
        let _ = job.answer.send(Err(error.clone()));
    }
}
