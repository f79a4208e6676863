//! Where the writer's batches go: sled, or something that fails on purpose in tests.

use std::path::{Path, PathBuf};

use super::codec::encode;
use super::error::CheckpointError;
use super::{CheckpointError as Error, DUPLICATES_KEY};

/// A batch of the writer.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Keys and values of new records.
    pub(super) records: Vec<(Vec<u8>, Vec<u8>)>,
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
    folder: PathBuf,
    database: sled::Db,
    records: sled::Tree,
    meta: sled::Tree,
}

impl SledStore {
    pub(super) fn new(folder: &Path, database: sled::Db, records: sled::Tree, meta: sled::Tree) -> Self {
        Self { folder: folder.to_owned(), database, records, meta }
    }
}

impl Store for SledStore {
    fn folder(&self) -> &Path {
        &self.folder
    }

    fn write(&mut self, batch: Batch) -> Result<(), Error> {
        let failed = |error| Error::of_sled(&self.folder, &error);
        let mut records = sled::Batch::default();
        for (key, value) in batch.records {
            records.insert(key, value);
        }
        self.records.apply_batch(records).map_err(failed)?;
        if let Some(duplicates) = batch.duplicates {
            let value = encode(&duplicates).map_err(|error| error.at(&self.folder))?;
            self.meta.insert(DUPLICATES_KEY, value).map_err(failed)?;
        }
        self.database.flush().map_err(failed)?;
        Ok(())
    }
}
