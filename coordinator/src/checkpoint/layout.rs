//! Layout version of the database, and migration from the first layout.
//!
//! The journal has a version of its own in its header (`frame`).

use lumos_tasks::Item;

use super::codec::decode;
use super::database::{Database, Identities};
use super::error::CheckpointError;
use super::index::{Settlement, pack};
use super::store::record_key;
use super::{Record, parse_item_key, store_identities};
use crate::unit_key::UnitKey;

/// Layout version. The first layout stored records by unit, without item identities and without an index of
/// records.
pub(super) const SCHEMA: u32 = 2;
const FIRST: u32 = 1;

pub(super) const SCHEMA_KEY: &str = "schema";
/// Present in the database of a checkpoint that has a journal.
pub(super) const JOURNAL_KEY: &str = "journal";

/// Whether a key of the `meta` tree is the database's own, which the journal does not have.
pub(super) fn is_own_key(key: &[u8]) -> bool {
    [SCHEMA_KEY, JOURNAL_KEY].iter().any(|own| own.as_bytes() == key)
}

/// Tree with the records of the first layout.
const FIRST_RECORDS: &str = "records";
/// Number of entries written together.
const TOGETHER: u32 = 1000;

impl Database {
    /// Marks a new database with the layout version and migrates the first layout. Fails for any other layout.
    pub(super) fn bring_up(&self) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(&self.folder, &error);
        match self.meta.get(SCHEMA_KEY).map_err(failed)? {
            None => {}
            Some(found) if found.as_ref() == SCHEMA.to_be_bytes() => return Ok(()),
            Some(found) if found.as_ref() == FIRST.to_be_bytes() => {
                tracing::info!(folder = %self.folder.display(), "converting the checkpoint to the current layout");
                self.number_records()?;
                self.identify_items()?;
                self.flush()?;
                // Write the mark last, so that an interrupted migration starts again.
                self.mark()?;
                self.database.drop_tree(FIRST_RECORDS).map_err(failed)?;
                return Ok(());
            }
            Some(found) => {
                return Err(CheckpointError::Schema {
                    folder: self.folder.clone(),
                    found: hex::encode(found),
                    known: SCHEMA,
                });
            }
        }
        self.mark()
    }

    fn mark(&self) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(&self.folder, &error);
        self.meta.insert(SCHEMA_KEY, &SCHEMA.to_be_bytes()).map_err(failed)?;
        self.flush()
    }

    fn number_records(&self) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(&self.folder, &error);
        self.records.clear().map_err(failed)?;
        self.index.clear().map_err(failed)?;
        let first_records = self.database.open_tree(FIRST_RECORDS).map_err(failed)?;
        let (mut first, mut batch, mut entries) = (0, sled::Batch::default(), Vec::new());
        // The first layout orders the faults of a unit before the outcome that settled it.
        for (number, entry) in (0u32..).zip(first_records.iter()) {
            let (_, value) = entry.map_err(failed)?;
            let record: Record = decode(&self.folder, &value)?;
            let unit = UnitKey::of(&record.unit);
            pack(&mut entries, &unit, record.attempt, Settlement::of(&record.outcome));
            batch.insert(&record_key(number), value);
            if number % TOGETHER == TOGETHER - 1 {
                self.records.apply_batch(std::mem::take(&mut batch)).map_err(failed)?;
                self.index.insert(record_key(first), std::mem::take(&mut entries)).map_err(failed)?;
                first = number + 1;
            }
        }
        self.records.apply_batch(batch).map_err(failed)?;
        if !entries.is_empty() {
            self.index.insert(record_key(first), entries).map_err(failed)?;
        }
        Ok(())
    }

    fn identify_items(&self) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(&self.folder, &error);
        let corrupt = |detail: String| CheckpointError::corrupt(&self.folder, detail);
        let mut at_hand: Option<(String, Identities)> = None;
        for entry in &self.items {
            let (key, value) = entry.map_err(failed)?;
            let (benchmark, _) = parse_item_key(&key)
                .ok_or_else(|| corrupt(format!("invalid item key {}", hex::encode(&key))))?;
            let item: Item = decode(&self.folder, &value)?;
            let same = at_hand.as_ref().is_some_and(|(current, _)| current == benchmark);
            if !same
                && let Some((done, identities)) =
                    at_hand.replace((benchmark.to_owned(), Identities::default()))
            {
                store_identities(&self.identities, &done, identities).map_err(failed)?;
            }
            if let Some((_, identities)) = &mut at_hand {
                identities
                    .add(item.index, &item.id)
                    .ok_or_else(|| corrupt(format!("item {} is not named by a hash", item.index)))?;
            }
        }
        match at_hand {
            Some((done, identities)) => store_identities(&self.identities, &done, identities).map_err(failed),
            None => Ok(()),
        }
    }
}
