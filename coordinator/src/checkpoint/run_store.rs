//! The recovery contract: what the dispatch loop relies on, whatever stores the run.

use std::fmt;
use std::path::Path;

use async_trait::async_trait;
use lumos_tasks::{Item, ItemId, Outcome, UnitId};

use super::error::CheckpointError;
use super::index::UnitStatus;
use super::{Checkpoint, Record, Recorded, SECONDS_KEY};
use crate::unit_key::UnitKey;

/// Positions and identities of items, in order.
pub(crate) type ItemIds<'a> = Box<dyn Iterator<Item = Result<(u64, ItemId), CheckpointError>> + Send + 'a>;

/// A store of a run's items and records.
///
/// [`Checkpoint`] implements it with a journal and sled. `coordinator/src/checkpoint/model_tests.rs` compares it with
/// an implementation in memory over random sequences of records, restarts and kills.
///
/// # What is promised
///
/// 1. **Recorded means flushed.** When [`record_all`](RunStore::record_all) resolves, every record of the call that is
///    not a duplicate was written to both copies and flushed to the operating system. Its message may be acknowledged
///    then, and not before.
/// 2. **The first outcome that is not a fault settles a unit.** Later records of the unit are [`Recorded::Duplicate`]:
///    they are counted and dropped, whatever they contain. Records that arrive concurrently are ordered, so that
///    exactly one of them is [`Recorded::First`].
/// 3. **Faults of an unsettled unit are kept**, one per attempt ([`Recorded::FaultKept`]). A fault of the same attempt
///    is a duplicate.
/// 4. **Reads see what was recorded.** [`unit_status`](RunStore::unit_status), [`has`](RunStore::has) and
///    [`settled`](RunStore::settled) include a record once its call has resolved, in this process and in each process
///    that opens the store later.
/// 5. **An error leaves it open** whether the records of that call are stored. Recording them again is safe, because of
///    2 and 3.
///
/// # What survives
///
/// | failure | kept | repeated |
/// |---|---|---|
/// | the process is killed at any time | every record of 1 | units whose call had not resolved |
/// | power failure | all but the last records | units of lost records |
/// | full disk | every record of 1; later calls fail with [`CheckpointError::Full`] | units whose call failed |
/// | one copy is damaged or deleted | everything, restored from the other copy | nothing |
/// | both copies are damaged at the same record | everything else; the lost units are listed | the lost units |
///
/// `docs/durability.md` has the measurements.
#[async_trait]
pub(crate) trait RunStore: fmt::Debug + Send + Sync {
    /// Path for messages, usually the checkpoint's folder.
    fn folder(&self) -> &Path;

    /// Positions and identities of a benchmark's items, in order. Does not read the items.
    fn item_ids<'a>(&'a self, benchmark: &str) -> ItemIds<'a>;

    /// Returns one item, or `None` if it is not stored.
    ///
    /// # Errors
    /// If it cannot be read.
    fn item(&self, benchmark: &str, index: u64) -> Result<Option<Item>, CheckpointError>;

    /// Returns the status of a unit, from memory.
    fn unit_status(&self, unit: &UnitKey) -> UnitStatus;

    /// Whether this attempt's fault or the unit's outcome is recorded.
    fn has(&self, unit: &UnitKey, attempt: u32) -> bool;

    /// Returns the outcome that settled a unit; `None` if it is not settled.
    ///
    /// # Errors
    /// If it cannot be read.
    fn outcome(&self, unit: &UnitId) -> Result<Option<Outcome>, CheckpointError>;

    /// Number of settled units.
    fn settled(&self) -> u64;

    /// Records outcomes that arrived together. Returns the result of each, in order.
    ///
    /// # Errors
    /// If they could not be written. Any of them may or may not be stored then.
    async fn record_all(&self, records: Vec<Record>) -> Result<Vec<Recorded>, CheckpointError>;

    /// Total seconds of all sessions so far, each up to its latest record; `None` before the first record.
    ///
    /// # Errors
    /// If it cannot be read.
    fn seconds(&self) -> Result<Option<f64>, CheckpointError>;

    /// Sets the value that [`seconds`](RunStore::seconds) returns. Flushed with the next record or on closing.
    ///
    /// # Errors
    /// If it cannot be written.
    fn note_seconds(&self, seconds: f64) -> Result<(), CheckpointError>;
}

#[async_trait]
impl RunStore for Checkpoint {
    fn folder(&self) -> &Path {
        self.reader.folder()
    }

    fn item_ids<'a>(&'a self, benchmark: &str) -> ItemIds<'a> {
        Box::new(self.reader.item_ids(benchmark))
    }

    fn item(&self, benchmark: &str, index: u64) -> Result<Option<Item>, CheckpointError> {
        self.reader.item(benchmark, index)
    }

    fn unit_status(&self, unit: &UnitKey) -> UnitStatus {
        self.lock().index.status(unit)
    }

    fn has(&self, unit: &UnitKey, attempt: u32) -> bool {
        self.lock().index.has(unit, attempt)
    }

    fn outcome(&self, unit: &UnitId) -> Result<Option<Outcome>, CheckpointError> {
        let last = self.reader.records_of(unit)?.pop();
        Ok(last.map(|record| record.outcome).filter(|outcome| !outcome.is_fault()))
    }

    fn settled(&self) -> u64 {
        self.reader.settled()
    }

    async fn record_all(&self, records: Vec<Record>) -> Result<Vec<Recorded>, CheckpointError> {
        Self::record_all(self, records).await
    }

    fn seconds(&self) -> Result<Option<f64>, CheckpointError> {
        self.reader.seconds()
    }

    fn note_seconds(&self, seconds: f64) -> Result<(), CheckpointError> {
        self.write_note(&mut self.journal(), SECONDS_KEY, &seconds)
    }
}
