//! Checkpoint of a run: every selected item and every recorded outcome, stored twice.
//!
//! ```text
//! checkpoint/journal   append-only file of numbered entries with checksums; all reads use it
//!            db, …     sled's files: a second copy of the same data
//!            lock      locked by the process that writes
//!            damaged-N files that were found damaged and are kept
//! ```
//!
//! # Durability
//! [`Checkpoint::record_all`] resolves only after the record was written to both copies and flushed, so a message
//! that is acknowledged afterwards is never lost when the process is killed. Both copies are flushed to the
//! operating system: `kill -9` at any time loses no flushed record; a power failure may lose the last
//! records, whose units are then outstanding and run again.
//!
//! # Damage
//! Every entry of the journal has a checksum and a number, and the header states how many entries are
//! committed. Data that is missing or changed in either copy is therefore detected when the checkpoint is
//! opened, and restored from the other copy. Data that is missing from both copies is counted and listed
//! ([`Recovery`](recovery::Recovery)). Damaged files are kept.
//!
//! # Readers
//! [`CheckpointReader`] reads the journal, including that of a run in progress, and writes nothing. It holds the lock only
//! while it reads a damaged checkpoint, so that readers do not keep a writer waiting.
//!
//! # One writer
//! One thread writes all records. It takes the records that arrived since the last flush, checks them against
//! the index, writes them as one batch to both copies and flushes once. Under load many records share a
//! flush; a single record is flushed at once.
//!
//! # Settling
//! The first recorded outcome that is not a fault settles a unit. Later outcomes are duplicates: they are
//! counted and dropped. Faults of an unsettled unit are kept, one per attempt.
//!
//! # Full disk
//! A batch that does not fit on the disk fails with [`CheckpointError::Full`], and so do all later ones; none
//! of them was acknowledged. sled may then hang when it is dropped, which keeps the process from exiting:
//! call [`Checkpoint::abandon`], which leaks the database, and exit. Once there is free space, the folder
//! opens with every flushed record.

mod catalogue;
mod codec;
mod database;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod journal;
mod lock;
mod reader;
mod recover;
mod recovery;
mod run_store;
mod store;
mod writer;

use std::borrow::Borrow;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use lumos_benchmarks::Scoring;
use lumos_tasks::{Item, Outcome, Telemetry, UnitId};
use serde::{Deserialize, Serialize};

use crate::atomic_file::create_private_folder;
use crate::computing::{Computing, WorkerComputing};
use crate::identity::RunIdentity;

#[cfg(test)]
pub(crate) use index::SettledIndex;
pub(crate) use index::{Settlement, UnitStatus};
pub(crate) use run_store::{ItemIds, RunStore};

pub use {error::CheckpointError, reader::CheckpointReader, recovery::Damage};

use codec::encode;
use database::{Database, Identities};
use frame::Kind;
use journal::Journal;
use lock::FolderLock;
use store::{BothCopies, Store};
use writer::Writer;

const PLAN_KEY: &str = "plan";
const DUPLICATES_KEY: &str = "duplicates";
const SECONDS_KEY: &str = "seconds";
const COMPUTING_KEY: &str = "computing";
const QUEUE_KEY: &str = "queue";
/// Prefix of the note keys of workers.
const WORKERS_KEY: &str = "worker ";

/// Maximum number of entries written to the database at a time.
const TOGETHER: usize = 1000;
/// Maximum number of bytes written at a time: items that contain web pages have megabytes each.
const BYTES_TOGETHER: usize = 16 << 20;

/// Marks a plan as complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanMark {
    /// Identity of the planned run.
    pub identity: RunIdentity,
    /// Number of stored items of all benchmarks.
    pub items: u64,
    /// Scorings shown in reports; empty if an earlier version planned the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scoring: Vec<Scoring>,
}

/// One attempt at a unit and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The unit.
    pub unit: UnitId,
    /// Position of its configuration in the manifest.
    pub configuration: u32,
    /// Position of the item in its data set.
    pub item: u64,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The outcome of the attempt.
    pub outcome: Outcome,
    /// Data that depends on the schedule and the machine.
    pub telemetry: Telemetry,
}

/// Result of recording an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// The record settled its unit.
    First,
    /// A fault, kept under its attempt; the unit is still unsettled.
    FaultKept,
    /// Dropped: the unit was already settled, or this attempt's fault was already recorded.
    Duplicate,
}

/// The checkpoint of a run, opened for writing by this process only. Read it through [`CheckpointReader`].
///
/// ```
/// use lumos_coordinator::{Checkpoint, CheckpointReader, Record, Recorded};
/// use lumos_tasks::{ContentHash, Ending, Outcome, Telemetry, UnitId};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let checkpoint = Checkpoint::create(folder.path())?;
/// let record = Record {
///     unit: UnitId::new(ContentHash::of_bytes(b"unit")),
///     configuration: 0,
///     item: 7,
///     attempt: 1,
///     outcome: Outcome { ending: Ending::Answered, evidence: None, steps: Vec::new() },
///     telemetry: Telemetry::default(),
/// };
/// let recorded = checkpoint.record_all(vec![record.clone(), record]).await?;
/// assert_eq!(recorded, [Recorded::First, Recorded::Duplicate]);
/// checkpoint.close()?;
/// assert_eq!(CheckpointReader::open(folder.path())?.settled(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    reader: CheckpointReader,
    database: Database,
    journal: Arc<Mutex<Journal>>,
    writer: Writer,
    /// Dropped last.
    _lock: FolderLock,
}

impl Deref for Checkpoint {
    type Target = CheckpointReader;

    fn deref(&self) -> &CheckpointReader {
        &self.reader
    }
}

/// Whether a folder contains any part of a checkpoint.
fn is_there(folder: &Path) -> bool {
    // `conf` is the first file that sled creates.
    [journal::FILE_NAME, "conf", "db"].iter().any(|name| folder.join(name).is_file())
}

impl Checkpoint {
    /// Opens or creates the checkpoint in a folder. Restores damaged data from the other copy where possible,
    /// and reports it as warnings and in [`CheckpointReader::damage`].
    ///
    /// # Errors
    /// If another process is writing the checkpoint, it cannot be read, or another version wrote it.
    pub fn create(folder: &Path) -> Result<Self, CheckpointError> {
        Self::with_store(folder, |store| store)
    }

    /// Opens an existing checkpoint.
    ///
    /// # Errors
    /// If there is no checkpoint, and as for [`Checkpoint::create`].
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        if !is_there(folder) {
            return Err(CheckpointError::Missing { folder: folder.to_owned() });
        }
        Self::create(folder)
    }

    fn with_store<S: Store>(
        folder: &Path,
        wrap: impl FnOnce(BothCopies) -> S,
    ) -> Result<Self, CheckpointError> {
        create_private_folder(folder).map_err(|error| CheckpointError::of_io(folder, &error))?;
        let lock = FolderLock::acquire(folder)?;
        let recover::Opened { database, mut journal, catalogue, recovery } =
            recover::open(folder, &|recovery| recovery.log_lost(folder))?;
        journal.mirror_in(lock.file()?)?;
        recovery.log(folder);
        let reader = CheckpointReader::new(folder, journal.file().clone(), catalogue, recovery, false)?;
        let journal = Arc::new(Mutex::new(journal));
        let store = wrap(BothCopies { database: database.clone(), journal: Arc::clone(&journal) });
        let writer = Writer::start(store, Arc::clone(&reader.catalogue), Arc::clone(&reader.duplicates))
            .map_err(|error| CheckpointError::of_io(folder, &error))?;
        Ok(Self { reader, database, journal, writer, _lock: lock })
    }

    /// Stores all selected items of a benchmark. Storing them again has no effect, so that interrupted
    /// planning can start again. Returns the number of stored items. Blocks: call it before the run, not on a
    /// thread of the async runtime.
    ///
    /// # Errors
    /// If the items cannot be written.
    pub fn store_items<I>(&self, benchmark: &str, items: I) -> Result<u64, CheckpointError>
    where
        I: IntoIterator,
        I::Item: Borrow<Item>,
    {
        let failed = |error| CheckpointError::of_sled(self.folder(), &error);
        let mut journal = self.journal();
        let mut stored = 0;
        let mut batch = sled::Batch::default();
        let (mut waiting, mut places) = (0, Vec::new());
        let mut identities = Identities::default();
        for item in items {
            let item = item.borrow();
            let value = encode(self.folder(), item)?;
            let key = catalogue::item_key(benchmark, item.index, &item.id);
            let key = key.ok_or_else(|| self.strange_item(item))?;
            identities.add(item.index, &item.id).ok_or_else(|| self.strange_item(item))?;
            stored += 1;
            let known = self.lock().item(benchmark, item.index);
            if known.is_some_and(|known| known.matches(&value)) {
                continue;
            }
            places.push((item.index, journal.push(Kind::Item, &key, &value)?));
            batch.insert(item_key(benchmark, item.index), value);
            waiting += 1;
            if waiting == TOGETHER || journal.waiting() >= BYTES_TOGETHER {
                journal.write()?;
                self.database.items.apply_batch(std::mem::take(&mut batch)).map_err(failed)?;
                waiting = 0;
            }
        }
        journal.write()?;
        self.database.items.apply_batch(batch).map_err(failed)?;
        store_identities(&self.database.identities, benchmark, identities).map_err(failed)?;
        self.database.flush()?;
        let items = {
            let mut catalogue = self.lock();
            catalogue.add_items(benchmark, places);
            catalogue.item_count()
        };
        journal.set_items(items);
        journal.commit()?;
        Ok(stored)
    }

    fn strange_item(&self, item: &Item) -> CheckpointError {
        let (index, name) = (item.index, &item.id.content);
        let detail = format!("invalid name of item {index}: expected a hash, found `{name}`");
        CheckpointError::corrupt(self.folder(), detail)
    }

    /// Marks the plan as complete, after every item was stored, and syncs the journal to disk.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn plan_complete(&self, mark: &PlanMark) -> Result<(), CheckpointError> {
        self.store_note(PLAN_KEY, mark)?;
        self.journal().sync()
    }

    /// Records outcomes that arrived together. Returns the result of each, in order, after all of them were
    /// flushed or found to duplicate a flushed record.
    ///
    /// # Errors
    /// If they could not be written. Any of them may or may not be stored then.
    pub async fn record_all(&self, records: Vec<Record>) -> Result<Vec<Recorded>, CheckpointError> {
        self.writer.record(records).await
    }

    /// Records the start of a session. Blocks: call it before the dispatch.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn session_begins(&self, computing: &Computing) -> Result<(), CheckpointError> {
        let mut all = self.computing()?;
        computing.begin(&mut all);
        self.store_note(COMPUTING_KEY, &all)
    }

    /// Records the figures of a session that ends. Blocks: call it after the dispatch.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn session_ends(&self, computing: &Computing) -> Result<(), CheckpointError> {
        let mut all = self.computing()?;
        computing.end(&mut all);
        self.store_note(COMPUTING_KEY, &all)
    }

    /// Records the address of the queue whose workers execute a session, without credentials, or `None` for a session in
    /// this process. Blocks: call it before the dispatch.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_queue(&self, address: Option<&str>) -> Result<(), CheckpointError> {
        if self.queue()?.as_deref() == address {
            return Ok(());
        }
        self.store_note(QUEUE_KEY, &address)
    }

    /// Stores usage figures of workers' engines and replaces earlier figures of the same workers. Flushed
    /// with the next record, or when the checkpoint is closed. While records are being written, waits for them if `waits`
    /// is set; otherwise stores nothing and does not call `changed`.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn note_workers(
        &self,
        changed: impl FnOnce() -> Vec<WorkerComputing>,
        waits: bool,
    ) -> Result<(), CheckpointError> {
        let mut journal = match self.journal.try_lock() {
            Ok(journal) => journal,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) if waits => self.journal(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        for one in changed() {
            let (worker, started_ms) = one.key();
            self.write_note(&mut journal, &format!("{WORKERS_KEY}{worker} {started_ms}"), &one)?;
        }
        Ok(())
    }

    /// Writes a note to both copies and flushes it.
    fn store_note(&self, key: &str, value: &impl Serialize) -> Result<(), CheckpointError> {
        let mut journal = self.journal();
        self.write_note(&mut journal, key, value)?;
        self.database.flush()?;
        journal.commit()
    }

    fn write_note(
        &self,
        journal: &mut Journal,
        key: &str,
        value: &impl Serialize,
    ) -> Result<(), CheckpointError> {
        let value = encode(self.folder(), value)?;
        let location = journal.push(Kind::Note, key.as_bytes(), &value)?;
        journal.write()?;
        self.lock().notes.insert(key.as_bytes().to_vec(), location);
        let inserted = self.database.meta.insert(key, value);
        inserted.map_err(|error| CheckpointError::of_sled(self.folder(), &error))?;
        Ok(())
    }

    /// Hold the guard while writing both copies, so that the journal's header never covers only one of them.
    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the writer and closes both copies, after which another process can open them. Blocks briefly.
    /// Opening waits half a second for a checkpoint that is in use.
    ///
    /// # Errors
    /// If the last flush fails. Records that [`Checkpoint::record_all`] has confirmed are safe even then.
    pub fn close(self) -> Result<(), CheckpointError> {
        let Self { database, journal, writer, _lock, .. } = self;
        writer.stop();
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        let flushed = database.flush().and_then(|()| journal.commit()).and_then(|()| journal.sync());
        // Drop the database before the lock: a process that waits for the lock must find the database closed.
        // sled may wait forever for a disk that failed.
        if flushed.is_ok() {
            drop(database);
        } else {
            database.abandon();
        }
        drop(_lock);
        flushed
    }

    /// Leaks the database, so that a process can exit when its disk is full. The folder stays locked until
    /// the process exits.
    pub fn abandon(self) {
        let Self { database, writer, _lock, .. } = self;
        // While one handle lives, sled's clean-up, which may wait for the disk forever, does not run.
        database.abandon();
        std::mem::forget(_lock);
        writer.leave();
    }
}

/// Replaces the stored identities of a benchmark's items.
fn store_identities(tree: &sled::Tree, benchmark: &str, identities: Identities) -> sled::Result<()> {
    let mut batch = sled::Batch::default();
    for key in tree.scan_prefix(item_prefix(benchmark)).keys() {
        batch.remove(key?);
    }
    for (number, value) in (0..).zip(identities.packed()) {
        batch.insert(item_key(benchmark, number), value);
    }
    tree.apply_batch(batch)
}

fn item_prefix(benchmark: &str) -> Vec<u8> {
    let mut prefix = benchmark.as_bytes().to_vec();
    prefix.push(0);
    prefix
}

fn item_key(benchmark: &str, index: u64) -> Vec<u8> {
    let mut key = item_prefix(benchmark);
    key.extend_from_slice(&index.to_be_bytes());
    key
}

/// Parses the benchmark and the position from a database key of an item or of a list of identities.
fn parse_item_key(key: &[u8]) -> Option<(&str, u64)> {
    let (prefix, index) = key.split_last_chunk::<8>()?;
    let benchmark = std::str::from_utf8(prefix.strip_suffix(&[0])?).ok()?;
    debug_assert_eq!(item_prefix(benchmark), prefix);
    Some((benchmark, u64::from_be_bytes(*index)))
}

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
