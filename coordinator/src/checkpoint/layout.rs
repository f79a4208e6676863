//! The database's layout, and how an older one is brought up to it.

use std::path::Path;

use lumos_tasks::Item;

use super::codec::decode;
use super::error::CheckpointError;
use super::identities::Identities;
use super::index::{Settlement, index_value};
use super::{Record, store_identities};

/// Raised when the layout of the database changes. The first one had neither identities of items nor an index of
/// records.
const SCHEMA: u32 = 2;
const FIRST: u32 = 1;

const SCHEMA_KEY: &str = "schema";
/// Entries that are written together.
const TOGETHER: usize = 1000;

/// The trees of a database that is being opened.
pub(super) struct Trees<'a> {
    pub(super) folder: &'a Path,
    pub(super) database: &'a sled::Db,
    pub(super) items: &'a sled::Tree,
    pub(super) identities: &'a sled::Tree,
    pub(super) records: &'a sled::Tree,
    pub(super) index: &'a sled::Tree,
    pub(super) meta: &'a sled::Tree,
}

impl Trees<'_> {
    /// Marks a new database, brings one of the first layout up to this one, and refuses any other.
    pub(super) fn bring_up(&self) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(self.folder, &error);
        match self.meta.get(SCHEMA_KEY).map_err(failed)? {
            None => {}
            Some(found) if found.as_ref() == SCHEMA.to_be_bytes() => return Ok(()),
            Some(found) if found.as_ref() == FIRST.to_be_bytes() => {
                tracing::info!(folder = %self.folder.display(), "the checkpoint gets the present layout");
                self.index_records()?;
                self.identify_items()?;
                self.database.flush().map_err(failed)?;
            }
            Some(found) => {
                return Err(CheckpointError::Schema {
                    folder: self.folder.to_owned(),
                    found: hex::encode(found),
                    known: SCHEMA,
                });
            }
        }
        // Last: what was interrupted before starts over.
        self.meta.insert(SCHEMA_KEY, &SCHEMA.to_be_bytes()).map_err(failed)?;
        self.database.flush().map_err(failed)?;
        Ok(())
    }

    fn index_records(&self) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(self.folder, &error);
        let mut batch = sled::Batch::default();
        for (number, entry) in self.records.iter().enumerate() {
            let (key, value) = entry.map_err(failed)?;
            let record: Record = decode(&value).map_err(|error| error.at(self.folder))?;
            batch.insert(key, index_value(Settlement::of(&record.outcome)));
            if number % TOGETHER == TOGETHER - 1 {
                self.index.apply_batch(std::mem::take(&mut batch)).map_err(failed)?;
            }
        }
        self.index.apply_batch(batch).map_err(failed)
    }

    fn identify_items(&self) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::of_sled(self.folder, &error);
        let corrupt =
            |detail: String| CheckpointError::Corrupt { folder: self.folder.to_owned(), detail };
        let mut at_hand: Option<(String, Identities)> = None;
        for entry in self.items {
            let (key, value) = entry.map_err(failed)?;
            let benchmark = key
                .split_last_chunk::<8>()
                .and_then(|(prefix, _)| prefix.strip_suffix(&[0]))
                .and_then(|name| std::str::from_utf8(name).ok())
                .ok_or_else(|| corrupt(format!("the item key {} is none", hex::encode(&key))))?;
            let item: Item = decode(&value).map_err(|error| error.at(self.folder))?;
            let same = at_hand.as_ref().is_some_and(|(current, _)| current == benchmark);
            if !same && let Some((done, identities)) = at_hand.replace((benchmark.to_owned(), Identities::default()))
            {
                store_identities(self.identities, &done, identities).map_err(failed)?;
            }
            if let Some((_, identities)) = &mut at_hand {
                identities
                    .add(&item)
                    .ok_or_else(|| corrupt(format!("item {} has no hash for a name", item.index)))?;
            }
        }
        match at_hand {
            Some((done, identities)) => store_identities(self.identities, &done, identities).map_err(failed),
            None => Ok(()),
        }
    }
}
