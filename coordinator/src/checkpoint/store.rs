//! Where the writer's batches go: sled, or something that fails on purpose in tests.

use std::path::{Path, PathBuf};

use sled::Transactional;
use sled::transaction::TransactionError;

use super::DUPLICATES_KEY;
use super::codec::encode;
use super::error::CheckpointError;

/// A batch of the writer.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The number of the first record.
    pub(super) first: u32,
    /// New records, numbered from there on.
    pub(super) records: Vec<Vec<u8>>,
    /// What the index keeps of them.
    pub(super) entries: Vec<u8>,
    /// The new count of duplicates, where it has changed.
    pub(super) duplicates: Option<u64>,
}

/// The key of a record. Records are kept in the order they came in: sled is fast where keys only grow.
pub(super) fn record_key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Takes batches; a batch that was taken survives the process.
pub(super) trait Store: Send + 'static {
    /// The folder, for messages.
    fn folder(&self) -> &Path;

    /// Writes a batch and flushes.
    fn write(&mut self, batch: Batch) -> Result<(), CheckpointError>;
}

/// sled's trees.
#[derive(Debug)]
pub(super) struct SledStore {
    pub(super) folder: PathBuf,
    pub(super) database: sled::Db,
    pub(super) records: sled::Tree,
    pub(super) index: sled::Tree,
    pub(super) meta: sled::Tree,
}

impl Store for SledStore {
    fn folder(&self) -> &Path {
        &self.folder
    }

    fn write(&mut self, batch: Batch) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(&self.folder, &error);
        if !batch.records.is_empty() {
            let mut records = sled::Batch::default();
            for (number, value) in (batch.first..).zip(batch.records) {
                records.insert(&record_key(number), value);
            }
            let (first, entries) = (record_key(batch.first), batch.entries);
            // One log entry for both: after a crash the index has exactly the records that are there.
            (&self.records, &self.index)
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
        if let Some(duplicates) = batch.duplicates {
            let value = encode(&duplicates).map_err(|error| error.at(&self.folder))?;
            self.meta.insert(DUPLICATES_KEY, value).map_err(failed)?;
        }
        self.database.flush().map_err(failed)?;
        Ok(())
    }
}
