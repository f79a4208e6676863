//! The truth about a run: every selected item and every recorded outcome, in one sled database.
//!
//! # What is promised
//! [`Checkpoint::record`] resolves only after the record was written and flushed; whoever acknowledges work
//! afterwards never acknowledges what a killed process would lose. sled's `flush` hands the data to the
//! operating system's files: kill -9 at any time loses no flushed record; a power cut may lose the last ones,
//! whose units are then outstanding and run again.
//!
//! # One writer
//! One thread owns all writing. It takes what has gathered since its last flush, settles it against the index,
//! writes it as one batch and flushes once: under load many records share a flush, alone a record waits for
//! its own.
//!
//! # Settling
//! A unit is settled by its first recorded outcome that is no fault. Whatever comes later is a duplicate:
//! counted and dropped. Faults of an unsettled unit are kept, one for each attempt.
//!
//! # Beside items and records
//! Records are numbered as they come. Compact copies let a run of a million items be taken up in seconds: the
//! identities of the items, and for each batch of records their units, attempts and endings. The latter are written
//! in one transaction with the records.
//!
//! # Full disk
//! The batch that no longer fits is refused with [`CheckpointError::Full`], and so is everything after it:
//! nothing of it was acknowledged. sled may then hang when it is dropped, so that the process never exits by
//! itself: call [`Checkpoint::abandon`], which leaks the database, and exit. Once there is space again the
//! folder opens with every flushed record.

mod codec;
mod error;
mod identities;
mod index;
mod layout;
mod record;
mod store;
mod writer;

use std::borrow::Borrow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lumos_tasks::{Item, ItemId, UnitId};
use serde::{Deserialize, Serialize};

use crate::computing::{Computing, WorkerComputing};
use crate::identity::RunIdentity;

pub use error::CheckpointError;
pub use index::{Settlement, UnitStatus};
pub use record::{Record, Recorded};

use codec::{decode, encode};
use identities::Identities;
pub(crate) use index::SettledIndex;
use store::{SledStore, Store};
use writer::Writer;

use crate::unit_key::UnitKey;

/// How long a locked database is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

const PLAN_KEY: &str = "plan";
const DUPLICATES_KEY: &str = "duplicates";
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
}

/// A run's database.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    database: sled::Db,
    items: sled::Tree,
    identities: sled::Tree,
    records: sled::Tree,
    meta: sled::Tree,
    index: Arc<Mutex<SettledIndex>>,
    duplicates: Arc<AtomicU64>,
    writer: Writer,
}

impl Checkpoint {
    /// Opens the database in a folder, making it where there is none.
    ///
    /// # Errors
    /// If another process holds it, it cannot be read, or it was written by another version.
    pub fn create(folder: &Path) -> Result<Self, CheckpointError> {
        Self::with_store(folder, |store| store)
    }

    /// Opens a database that is there.
    ///
    /// # Errors
    /// If there is none, and as [`Checkpoint::create`].
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        // sled makes this file first.
        if !folder.join("conf").is_file() {
            return Err(CheckpointError::Missing { folder: folder.to_owned() });
        }
        Self::create(folder)
    }

    fn with_store<S: Store>(
        folder: &Path,
        wrap: impl FnOnce(SledStore) -> S,
    ) -> Result<Self, CheckpointError> {
        let failed = |error| CheckpointError::of_sled(folder, &error);
        let database = open_database(folder)?;
        let tree = |name: &str| database.open_tree(name).map_err(failed);
        let (items, identities) = (tree("items")?, tree("identities")?);
        let (records, keys, meta) = (tree("log")?, tree("index")?, tree("meta")?);
        layout::Trees {
            folder,
            database: &database,
            items: &items,
            identities: &identities,
            records: &records,
            index: &keys,
            meta: &meta,
        }
        .bring_up()?;
        let duplicates = match meta.get(DUPLICATES_KEY).map_err(failed)? {
            Some(bytes) => decode::<u64>(&bytes).map_err(|error| error.at(folder))?,
            None => 0,
        };
        let mut index = SettledIndex::default();
        for entry in &keys {
            let (key, value) = entry.map_err(failed)?;
            let first = key.as_ref().try_into().map(u32::from_be_bytes).ok();
            first.and_then(|first| index.load(first, &value)).ok_or_else(|| CheckpointError::Corrupt {
                folder: folder.to_owned(),
                detail: format!("the index of records is broken at {}", hex::encode(&key)),
            })?;
        }
        let index = Arc::new(Mutex::new(index));
        let duplicates = Arc::new(AtomicU64::new(duplicates));
        let store = wrap(SledStore {
            folder: folder.to_owned(),
            database: database.clone(),
            records: records.clone(),
            index: keys,
            meta: meta.clone(),
        });
        let writer = Writer::start(store, Arc::clone(&index), Arc::clone(&duplicates))
            .map_err(|error| CheckpointError::Io { folder: folder.to_owned(), detail: error.to_string() })?;
        let folder = folder.to_owned();
        Ok(Self { folder, database, items, identities, records, meta, index, duplicates, writer })
    }

    /// The database's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
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
        let failed = |error| CheckpointError::of_sled(&self.folder, &error);
        let mut stored = 0;
        let mut batch = sled::Batch::default();
        let (mut waiting, mut bytes) = (0, 0);
        let mut identities = Identities::default();
        for item in items {
            let item = item.borrow();
            let value = encode(item).map_err(|error| error.at(&self.folder))?;
            bytes += value.len();
            batch.insert(item_key(benchmark, item.index), value);
            identities.add(item).ok_or_else(|| self.strange_item(item))?;
            stored += 1;
            waiting += 1;
            if waiting == TOGETHER || bytes >= BYTES_TOGETHER {
                self.items.apply_batch(std::mem::take(&mut batch)).map_err(failed)?;
                (waiting, bytes) = (0, 0);
            }
        }
        self.items.apply_batch(batch).map_err(failed)?;
        store_identities(&self.identities, benchmark, identities).map_err(failed)?;
        self.database.flush().map_err(failed)?;
        Ok(stored)
    }

    fn strange_item(&self, item: &Item) -> CheckpointError {
        CheckpointError::Corrupt {
            folder: self.folder.clone(),
            detail: format!("item {} is called `{}`, which is no hash", item.index, item.id.content),
        }
    }

    /// Marks the plan as complete: every item is stored.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn plan_complete(&self, mark: &PlanMark) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(&self.folder, &error);
        self.meta.insert(PLAN_KEY, encode(mark).map_err(|error| error.at(&self.folder))?).map_err(failed)?;
        self.database.flush().map_err(failed)?;
        Ok(())
    }

    /// The mark of the plan; `None` where planning was interrupted or has not happened.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn plan(&self) -> Result<Option<PlanMark>, CheckpointError> {
        self.read(&self.meta, PLAN_KEY.as_bytes())
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

    /// Positions and identities of a benchmark's items, in order, without reading the items.
    pub fn item_ids(
        &self,
        benchmark: &str,
    ) -> impl Iterator<Item = Result<(u64, ItemId), CheckpointError>> + Send + use<> {
        let folder = self.folder.clone();
        let chunks = self.identities.scan_prefix(item_prefix(benchmark)).values().map(move |value| {
            let value = value.map_err(|error| CheckpointError::of_sled(&folder, &error))?;
            identities::unpack(&value).ok_or_else(|| CheckpointError::Corrupt {
                folder: folder.clone(),
                detail: "a list of item identities is none".to_owned(),
            })
        });
        chunks.flat_map(|chunk| match chunk {
            Ok(ids) => ids.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        })
    }

    /// The items of a benchmark, in order.
    pub fn items(
        &self,
        benchmark: &str,
    ) -> impl Iterator<Item = Result<Item, CheckpointError>> + Send + use<> {
        let folder = self.folder.clone();
        self.items.scan_prefix(item_prefix(benchmark)).values().map(move |value| {
            let value = value.map_err(|error| CheckpointError::of_sled(&folder, &error))?;
            decode(&value).map_err(|error| error.at(&folder))
        })
    }

    /// One item.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn item(&self, benchmark: &str, index: u64) -> Result<Option<Item>, CheckpointError> {
        self.read(&self.items, &item_key(benchmark, index))
    }

    /// All records, in the order they were recorded.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, CheckpointError>> + Send + use<> {
        let folder = self.folder.clone();
        self.records.iter().values().map(move |value| {
            let value = value.map_err(|error| CheckpointError::of_sled(&folder, &error))?;
            decode(&value).map_err(|error| error.at(&folder))
        })
    }

    /// The records of a unit: faults by attempt, the outcome that settled it last.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn records_of(&self, unit: &UnitId) -> Result<Vec<Record>, CheckpointError> {
        let unit = UnitKey::of(unit);
        let numbers = self.with_index(|index| index.numbers(&unit));
        let missing = |number| CheckpointError::Corrupt {
            folder: self.folder.clone(),
            detail: format!("record {number} is not there"),
        };
        numbers
            .into_iter()
            .map(|number| {
                self.read(&self.records, &store::record_key(number))?.ok_or_else(|| missing(number))
            })
            .collect()
    }

    /// Where a unit stands, from memory.
    pub fn status(&self, unit: &UnitId) -> UnitStatus {
        let unit = UnitKey::of(unit);
        self.with_index(|index| index.status(&unit))
    }

    /// How many units are settled.
    pub fn settled(&self) -> u64 {
        self.with_index(SettledIndex::settled)
    }

    /// How many outcomes were dropped because their unit was settled already, over the run's whole life.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    /// How the sessions so far computed the run's models.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn computing(&self) -> Result<Vec<Computing>, CheckpointError> {
        Ok(self.read(&self.meta, COMPUTING_KEY.as_bytes())?.unwrap_or_default())
    }

    /// Notes that a session begins. Blocks; belongs before its dispatch.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn session_begins(&self, computing: &Computing) -> Result<(), CheckpointError> {
        let mut all = self.computing()?;
        computing.begin(&mut all);
        self.store_computing(&all)
    }

    /// Notes what a session that began came to. Blocks; belongs after its dispatch.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn session_ends(&self, computing: &Computing) -> Result<(), CheckpointError> {
        let mut all = self.computing()?;
        computing.end(&mut all);
        self.store_computing(&all)
    }

    fn store_computing(&self, all: &[Computing]) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(&self.folder, &error);
        let value = encode(&all).map_err(|error| error.at(&self.folder))?;
        self.meta.insert(COMPUTING_KEY, value).map_err(failed)?;
        self.database.flush().map_err(failed)?;
        Ok(())
    }

    /// What the engines of workers did for the run, by worker; of one that began anew under its name twice.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn workers(&self) -> Result<Vec<WorkerComputing>, CheckpointError> {
        let values = self.meta.scan_prefix(WORKERS_KEY.as_bytes()).values();
        let read = values.map(|value| {
            let value = value.map_err(|error| CheckpointError::of_sled(&self.folder, &error))?;
            decode(&value).map_err(|error| error.at(&self.folder))
        });
        read.collect()
    }

    /// Notes what workers' engines did, in place of what was noted of the same workers before. It is on disk with the next
    /// record, or when the database is closed.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn note_workers(&self, workers: &[WorkerComputing]) -> Result<(), CheckpointError> {
        for one in workers {
            let value = encode(one).map_err(|error| error.at(&self.folder))?;
            let (worker, started_ms) = one.key();
            let key = format!("{WORKERS_KEY}{worker} {started_ms}");
            self.meta.insert(key, value).map_err(|error| CheckpointError::of_sled(&self.folder, &error))?;
        }
        Ok(())
    }

    /// Looks at the index of settled units.
    pub(crate) fn with_index<T>(&self, look: impl FnOnce(&SettledIndex) -> T) -> T {
        look(&self.index.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the writer and closes the database; afterwards another process can open it. Blocks for a moment, and so does
    /// opening: a database in use is waited for half a second.
    ///
    /// # Errors
    /// If the last flush fails; records that were promised are safe nevertheless.
    pub fn close(self) -> Result<(), CheckpointError> {
        let Self { folder, database, items, identities, records, meta, writer, .. } = self;
        writer.stop();
        drop((items, identities, records, meta));
        database.flush().map_err(|error| CheckpointError::of_sled(&folder, &error))?;
        Ok(())
    }

    /// Leaks the database, so that a process whose disk is full can exit. The folder stays locked until it has.
    pub fn abandon(self) {
        // As long as one handle lives sled's own clean-up, which may wait for the disk for ever, does not run.
        std::mem::forget(self.database.clone());
        self.writer.leave();
    }

    fn read<T: serde::de::DeserializeOwned>(
        &self,
        tree: &sled::Tree,
        key: &[u8],
    ) -> Result<Option<T>, CheckpointError> {
        match tree.get(key).map_err(|error| CheckpointError::of_sled(&self.folder, &error))? {
            Some(bytes) => decode(&bytes).map(Some).map_err(|error| error.at(&self.folder)),
            None => Ok(None),
        }
    }
}

/// Opens sled's database, waiting a moment for a lock that is about to be let go: a process that was just started
/// holds its parent's files until its own program runs, and sled closes its files on threads of its own.
fn open_database(folder: &Path) -> Result<sled::Db, CheckpointError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let opened = sled::Config::new()
            .path(folder)
            .cache_capacity(64 * 1024 * 1024)
            .flush_every_ms(None)
            .open()
            .map_err(|error| CheckpointError::of_sled(folder, &error));
        match opened {
            Err(CheckpointError::InUse { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(25));
            }
            opened => return opened,
        }
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
mod tests;
