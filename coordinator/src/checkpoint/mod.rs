//! The truth about a run: every selected item and every recorded outcome, twice.
//!
//! ```text
//! checkpoint/journal   appended to, every entry numbered and with a checksum; everything is read from it
//!            db, …     sled's files: the same again
//!            lock      held by the process that writes
//!            damaged-N files that were found damaged, kept
//! ```
//!
//! # What is promised
//! [`Checkpoint::record`] resolves only after the record was written to both copies and flushed; whoever acknowledges
//! work afterwards never acknowledges what a killed process would lose. Both are handed to the operating system's
//! files: kill -9 at any time loses no flushed record; a power cut may lose the last ones, whose units are then
//! outstanding and run again.
//!
//! # Damage
//! Every entry of the journal has a checksum and a number, and its header says how many are committed, so whatever is
//! missing or changed in either copy is noticed when the checkpoint is opened, and restored from the other copy. What
//! neither has is counted and named ([`Recovery`]). Nothing damaged is deleted.
//!
//! # Readers
//! [`CheckpointReader`] reads the journal, also that of a run in progress, and writes nothing.
//!
//! # One writer
//! One thread owns the writing of records. It takes what has gathered since its last flush, settles it against the
//! index, writes it as one batch to both copies and flushes once: under load many records share a flush, alone a
//! record waits for its own.
//!
//! # Settling
//! A unit is settled by its first recorded outcome that is no fault. Whatever comes later is a duplicate:
//! counted and dropped. Faults of an unsettled unit are kept, one for each attempt.
//!
//! # Full disk
//! The batch that no longer fits is refused with [`CheckpointError::Full`], and so is everything after it:
//! nothing of it was acknowledged. sled may then hang when it is dropped, so that the process never exits by
//! itself: call [`Checkpoint::abandon`], which leaks the database, and exit. Once there is space again the
//! folder opens with every flushed record.

mod catalogue;
mod codec;
mod database;
mod error;
mod frame;
mod identities;
mod index;
mod journal;
mod layout;
mod lock;
mod reader;
mod record;
mod recover;
mod recovery;
mod store;
mod writer;

use std::borrow::Borrow;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lumos_benchmarks::Scoring;
use lumos_tasks::Item;
use serde::{Deserialize, Serialize};

use crate::atomic_file::create_private_folder;
use crate::computing::{Computing, WorkerComputing};
use crate::identity::RunIdentity;

#[doc(hidden)]
pub use codec::fuzz_records;
pub use error::CheckpointError;
#[doc(hidden)]
pub use frame::fuzz_checksums;
#[cfg(test)]
pub(crate) use index::SettledIndex;
pub use index::{Settlement, UnitStatus};
pub use reader::CheckpointReader;
pub use record::{Record, Recorded};
pub use recovery::{Lost, Named, Recovery, Restored};

use codec::encode;
use database::Database;
use frame::Kind;
use identities::Identities;
use journal::Journal;
use lock::FolderLock;
use store::{BothCopies, Store};
use writer::Writer;

const PLAN_KEY: &str = "plan";
const DUPLICATES_KEY: &str = "duplicates";
const SECONDS_KEY: &str = "seconds";
const COMPUTING_KEY: &str = "computing";
/// What keys of workers begin with.
const WORKERS_KEY: &str = "worker ";

/// The mark of a finished plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanMark {
    /// The run planned.
    pub identity: RunIdentity,
    /// How many items are stored, all benchmarks together.
    pub items: u64,
    /// The scorings that reports show; empty where an earlier version planned the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scoring: Vec<Scoring>,
}

/// A run's checkpoint, open to be written by this process alone. It is read as [`CheckpointReader`] says.
#[derive(Debug)]
pub struct Checkpoint {
    reader: CheckpointReader,
    database: Database,
    journal: Arc<Mutex<Journal>>,
    writer: Writer,
    /// Let go last.
    _lock: FolderLock,
}

impl Deref for Checkpoint {
    type Target = CheckpointReader;

    fn deref(&self) -> &CheckpointReader {
        &self.reader
    }
}

/// Whether there is anything of a checkpoint in a folder.
fn is_there(folder: &Path) -> bool {
    // sled makes `conf` first.
    [journal::FILE_NAME, "conf", "db"].iter().any(|name| folder.join(name).is_file())
}

impl Checkpoint {
    /// Opens the checkpoint in a folder, or creates it. What is damaged is restored, as far as one of
    /// its copies has it, and said in warnings and in [`CheckpointReader::recovery`].
    ///
    /// # Errors
    /// If another process writes it, it cannot be read, or it was written by another version.
    pub fn create(folder: &Path) -> Result<Self, CheckpointError> {
        Self::with_store(folder, |store| store)
    }

    /// Opens a checkpoint that is there.
    ///
    /// # Errors
    /// If there is none, and as [`Checkpoint::create`].
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
        let recover::Opened { database, mut journal, catalogue, recovery } = recover::open(folder)?;
        journal.mirror_in(lock.file()?)?;
        recovery.log(folder);
        let reader = CheckpointReader::new(folder, journal.file().clone(), catalogue, recovery, false)?;
        let journal = Arc::new(Mutex::new(journal));
        let store = wrap(BothCopies {
            folder: folder.to_owned(),
            database: database.clone(),
            journal: Arc::clone(&journal),
        });
        let writer = Writer::start(store, Arc::clone(&reader.catalogue), Arc::clone(&reader.duplicates))
            .map_err(|error| CheckpointError::of_io(folder, &error))?;
        Ok(Self { reader, database, journal, writer, _lock: lock })
    }

    /// Stores the selected items of a benchmark, all of them at once. Storing them again changes nothing, so that
    /// planning that was interrupted can start over. Blocks; belongs before the run, on no thread of the runtime.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn store_items<I>(&self, benchmark: &str, items: I) -> Result<u64, CheckpointError>
    where
        I: IntoIterator,
        I::Item: Borrow<Item>,
    {
        const TOGETHER: usize = 1000;
        // Items with pages have megabytes each.
        const BYTES_TOGETHER: usize = 16 << 20;
        let failed = |error| CheckpointError::of_sled(self.folder(), &error);
        let mut journal = self.journal();
        let mut stored = 0;
        let mut batch = sled::Batch::default();
        let (mut waiting, mut places) = (0, Vec::new());
        let mut identities = Identities::default();
        for item in items {
            let item = item.borrow();
            let value = encode(item).map_err(|error| error.at(self.folder()))?;
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
        self.database.database.flush().map_err(failed)?;
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
        CheckpointError::Corrupt {
            folder: self.folder().to_owned(),
            detail: format!(
                "invalid name of item {}: expected a hash, found `{}`",
                item.index, item.id.content
            ),
        }
    }

    /// Marks the plan as complete: every item is stored, and on the disk.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn plan_complete(&self, mark: &PlanMark) -> Result<(), CheckpointError> {
        self.store_note(PLAN_KEY, mark)?;
        self.journal().sync()
    }

    /// Records an outcome. Resolves after it was flushed, or found to be a duplicate of one that was.
    ///
    /// # Errors
    /// If it could not be written: nothing is promised of it then.
    pub async fn record(&self, record: Record) -> Result<Recorded, CheckpointError> {
        let recorded = self.writer.record(vec![record]).await?;
        recorded.first().copied().ok_or(CheckpointError::Ended)
    }

    /// Records outcomes that came together; they share a flush. What became of each, in order.
    ///
    /// # Errors
    /// If they could not be written: nothing is promised of any of them then.
    pub async fn record_all(&self, records: Vec<Record>) -> Result<Vec<Recorded>, CheckpointError> {
        self.writer.record(records).await
    }

    /// Notes what [`CheckpointReader::seconds`] says from now on. It is flushed with the next record, or when the checkpoint
    /// is closed.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn note_seconds(&self, seconds: f64) -> Result<(), CheckpointError> {
        self.write_note(&mut self.journal(), SECONDS_KEY, &seconds)
    }

    /// Notes that a session begins. Blocks; belongs before its dispatch.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn session_begins(&self, computing: &Computing) -> Result<(), CheckpointError> {
        let mut all = self.computing()?;
        computing.begin(&mut all);
        self.store_note(COMPUTING_KEY, &all)
    }

    /// Notes what a session that began came to. Blocks; belongs after its dispatch.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn session_ends(&self, computing: &Computing) -> Result<(), CheckpointError> {
        let mut all = self.computing()?;
        computing.end(&mut all);
        self.store_note(COMPUTING_KEY, &all)
    }

    /// Notes what workers' engines did, in place of what was noted of the same workers before. It is flushed with the
    /// next record, or when the checkpoint is closed.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn note_workers(&self, workers: &[WorkerComputing]) -> Result<(), CheckpointError> {
        for one in workers {
            let (worker, started_ms) = one.key();
            self.write_note(&mut self.journal(), &format!("{WORKERS_KEY}{worker} {started_ms}"), one)?;
        }
        Ok(())
    }

    /// Writes a note to both copies and flushes.
    fn store_note(&self, key: &str, value: &impl Serialize) -> Result<(), CheckpointError> {
        let mut journal = self.journal();
        self.write_note(&mut journal, key, value)?;
        self.database.database.flush().map_err(|error| CheckpointError::of_sled(self.folder(), &error))?;
        journal.commit()
    }

    fn write_note(
        &self,
        journal: &mut Journal,
        key: &str,
        value: &impl Serialize,
    ) -> Result<(), CheckpointError> {
        let value = encode(value).map_err(|error| error.at(self.folder()))?;
        let location = journal.push(Kind::Note, key.as_bytes(), &value)?;
        journal.write()?;
        self.lock().notes.insert(key.as_bytes().to_vec(), location);
        let inserted = self.database.meta.insert(key, value);
        inserted.map_err(|error| CheckpointError::of_sled(self.folder(), &error))?;
        Ok(())
    }

    /// Held while both copies are written, so that the journal's header never speaks of half of it.
    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the writer and closes both copies; afterwards another process can open them. Blocks for a moment, and so
    /// does opening: a checkpoint in use is waited for half a second.
    ///
    /// # Errors
    /// If the last flush fails; records that were promised are safe nevertheless.
    pub fn close(self) -> Result<(), CheckpointError> {
        let Self { reader, database, journal, writer, _lock } = self;
        writer.stop();
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        database.database.flush().map_err(|error| CheckpointError::of_sled(reader.folder(), &error))?;
        journal.commit()?;
        journal.sync()?;
        // Whoever waits for the lock finds the database closed.
        drop(database);
        drop(_lock);
        Ok(())
    }

    /// Leaks the database, so that a process whose disk is full can exit. The folder stays locked until it has.
    pub fn abandon(self) {
        let Self { database, writer, _lock, .. } = self;
        // As long as one handle lives sled's own clean-up, which may wait for the disk for ever, does not run.
        database.abandon();
        std::mem::forget(_lock);
        writer.leave();
    }
}

/// Replaces the identities of a benchmark's items.
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

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;
