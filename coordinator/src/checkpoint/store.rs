//! Storage behind the writer.
//!
//! [`BothCopies`] writes a [`Batch`] to the journal and the database. Tests implement [`Store`] to inject
//! failures.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sled::Transactional;
use sled::transaction::TransactionError;

use super::DUPLICATES_KEY;
use super::catalogue;
use super::codec::encode;
use super::database::Database;
use super::error::CheckpointError;
use super::frame::Kind;
use super::index::ENTRY;
use super::journal::{Journal, Location};

/// A batch of records to write.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Number of the first record.
    pub(super) first: u32,
    /// Encoded new records, numbered consecutively from `first`.
    pub(super) records: Vec<Vec<u8>>,
    /// Index entries of the records.
    pub(super) entries: Vec<u8>,
    /// New number of duplicates, if it has changed.
    pub(super) duplicates: Option<u64>,
}

/// Returns the key of a record. Records are stored in the order of recording, because sled is fast for
/// ascending keys.
pub(super) fn record_key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Stores batches. A stored batch survives a kill of the process.
pub(super) trait Store: Send + 'static {
    /// The folder, for messages.
    fn folder(&self) -> &Path;

    /// Writes and flushes a batch. Returns the locations of its records in the journal.
    fn write(&mut self, batch: Batch) -> Result<Vec<Location>, CheckpointError>;
}

/// The journal and sled's trees.
#[derive(Debug)]
pub(super) struct BothCopies {
    pub(super) database: Database,
    pub(super) journal: Arc<Mutex<Journal>>,
}

impl Store for BothCopies {
    fn folder(&self) -> &Path {
        &self.database.folder
    }

    fn write(&mut self, batch: Batch) -> Result<Vec<Location>, CheckpointError> {
        let failed = |error| CheckpointError::of_sled(self.folder(), &error);
        let duplicates = batch.duplicates.map(|count| encode(self.folder(), &count)).transpose()?;
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let mut locations = Vec::with_capacity(batch.records.len());
        let entries = batch.entries.as_chunks::<ENTRY>().0;
        for ((number, value), entry) in (batch.first..).zip(&batch.records).zip(entries) {
            let key = catalogue::record_key(number, entry);
            locations.push(journal.push(Kind::Record, &key, value)?);
        }
        if let Some(value) = &duplicates {
            journal.push(Kind::Note, DUPLICATES_KEY.as_bytes(), value)?;
        }
        journal.write()?;
        if !batch.records.is_empty() {
            let mut records = sled::Batch::default();
            for (number, value) in (batch.first..).zip(batch.records) {
                records.insert(&record_key(number), value);
            }
            let (first, entries) = (record_key(batch.first), batch.entries);
            // One transaction for both, so that after a crash the index matches the records exactly.
            (&self.database.records, &self.database.index)
                .transaction(|(into_records, into_index)| {
                    into_records.apply_batch(&records)?;
                    into_index.insert(&first, entries.as_slice())?;
                    Ok(())
                })
                .map_err(|error| match error {
                    TransactionError::Storage(error) => failed(error),
                    TransactionError::Abort(()) => CheckpointError::Ended,
                })?;
        }
        if let Some(value) = duplicates {
            self.database.meta.insert(DUPLICATES_KEY, value).map_err(failed)?;
        }
        self.database.flush()?;
        journal.commit()?;
        Ok(locations)
    }
}
