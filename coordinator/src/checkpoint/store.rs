//! Where the writer's batches go: sled, or something that fails on purpose in tests.

use std::path::{Path, PathBuf};

use sled::Transactional;
use sled::transaction::TransactionError;

use super::DUPLICATES_KEY;
use super::codec::encode;
use super::error::CheckpointError;
use super::index::{Settlement, index_value, record_key};
use crate::unit_key::UnitKey;

/// A record on its way to the disk.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) unit: UnitKey,
    pub(super) attempt: u32,
    pub(super) settlement: Option<Settlement>,
    pub(super) value: Vec<u8>,
}

/// A batch of the writer.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// New records.
    pub(super) records: Vec<Packed>,
    /// The new count of duplicates, where it has changed.
    pub(super) duplicates: Option<u64>,
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
            let (mut records, mut index) = (sled::Batch::default(), sled::Batch::default());
            for Packed { unit, attempt, settlement, value } in batch.records {
                let key = record_key(&unit, attempt, settlement);
                index.insert(&key[..], index_value(settlement));
                records.insert(&key[..], value);
            }
            // One log entry for both: after a crash the index has exactly the records that are there.
            (&self.records, &self.index)
                .transaction(|(into_records, into_index)| {
                    into_records.apply_batch(&records)?;
                    into_index.apply_batch(&index)?;
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
