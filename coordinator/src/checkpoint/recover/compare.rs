//! Compares the journal and the database entry by entry, by keys and checksums. Changes nothing.

use std::collections::BTreeSet;

use super::Both;
use crate::checkpoint::database::{Database, is_own_key};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::index::ENTRY;
use crate::checkpoint::{item_key, parse_item_key, store};

/// Differences between the copies.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Why the database cannot be read, if it cannot.
    pub(super) unreadable: Option<String>,
    /// Committed items that are missing or different in the database, by their keys.
    pub(super) items: Vec<(String, u64)>,
    /// Committed records that are missing or different in the database.
    pub(super) records: Vec<u32>,
    /// Items and records that differ and were never acknowledged.
    pub(super) late_items: Vec<(String, u64)>,
    pub(super) late_records: Vec<u32>,
    /// Notes that are missing or different in the database.
    pub(super) notes: Vec<Vec<u8>>,
    /// Entries that only the database has.
    pub(super) more_items: u64,
    pub(super) more_records: u64,
    pub(super) more_notes: u64,
    /// Whether the database's index does not match its records.
    pub(super) index: bool,
}

impl Compared {
    /// Whether committed data is missing from the database.
    pub(super) fn database_is_damaged(&self) -> bool {
        !self.items.is_empty() || !self.records.is_empty() || self.index || self.unreadable.is_some()
    }

    pub(super) fn journal_lacks(&self) -> bool {
        self.more_items + self.more_records + self.more_notes > 0
    }
}

impl Both<'_> {
    /// Returns the comparison for a database that cannot be read: everything is missing from it.
    pub(super) fn all_but(&self, cause: String) -> Compared {
        let catalogue = &self.loaded.catalogue;
        let items = catalogue
            .items
            .iter()
            .flat_map(|(benchmark, places)| places.iter().map(move |(index, _)| (benchmark.clone(), *index)));
        let records = u32::try_from(catalogue.records.len()).unwrap_or(u32::MAX);
        let (items, records) = (items.collect(), (0..records).collect());
        Compared { unreadable: Some(cause), items, records, ..Compared::default() }
    }

    /// Compares all entries of both copies by keys and checksums.
    pub(super) fn compare(&self, database: &Database) -> Result<Compared, CheckpointError> {
        let failed = |error| CheckpointError::of_sled(self.folder, &error);
        let catalogue = &self.loaded.catalogue;
        let committed_to = self.loaded.scanned.head.map_or(0, |head| head.bytes);
        let mut compared = Compared::default();
        let (mut found, mut wrong) = (0, BTreeSet::new());
        for entry in &database.items {
            let (key, value) = entry.map_err(failed)?;
            let Some((benchmark, index)) = parse_item_key(&key) else { continue };
            match catalogue.item(benchmark, index) {
                Some(location) if location.matches(&value) => found += 1,
                Some(_) => {
                    wrong.insert((benchmark.to_owned(), index));
                }
                None => compared.more_items += 1,
            }
        }
        if found < catalogue.item_count() {
            for (benchmark, places) in &catalogue.items {
                for (index, location) in places.iter() {
                    let name = (benchmark.clone(), *index);
                    let key = item_key(benchmark, *index);
                    if wrong.contains(&name) || !database.items.contains_key(key).map_err(failed)? {
                        let late = location.offset >= committed_to;
                        if late { &mut compared.late_items } else { &mut compared.items }.push(name);
                    }
                }
            }
        }
        let mut next = 0;
        let records = u32::try_from(catalogue.records.len()).unwrap_or(u32::MAX);
        let lacks = |number: u32, compared: &mut Compared| {
            let late = catalogue.records.get(number as usize).is_some_and(|one| one.offset >= committed_to);
            if late { &mut compared.late_records } else { &mut compared.records }.push(number);
        };
        for entry in &database.records {
            let (key, value) = entry.map_err(failed)?;
            let Some(number) = key.as_ref().try_into().ok().map(u32::from_be_bytes) else { continue };
            if number >= records {
                compared.more_records += 1;
                continue;
            }
            (next..number).for_each(|missing| lacks(missing, &mut compared));
            next = number + 1;
            if !catalogue.records[number as usize].matches(&value) {
                lacks(number, &mut compared);
            }
        }
        (next..records).for_each(|missing| lacks(missing, &mut compared));
        let mut counted = 0;
        for entry in &database.index {
            let (key, value) = entry.map_err(failed)?;
            let (entries, rest) = value.as_chunks::<ENTRY>();
            compared.index |= key.as_ref() != store::record_key(counted) || !rest.is_empty();
            for entry in entries {
                compared.index |= counted < records && !catalogue.index.holds(counted, entry);
                counted += 1;
            }
        }
        // A record and its index entry are written together.
        let late = compared.late_records.len() as u64;
        let expected = u64::from(records) - late + compared.more_records;
        compared.index |= compared.records.is_empty() && u64::from(counted) != expected;
        for (key, location) in &catalogue.notes {
            let kept = database.meta.get(key).map_err(failed)?;
            if !kept.is_some_and(|value| location.matches(&value)) {
                compared.notes.push(key.clone());
            }
        }
        for entry in &database.meta {
            let (key, _) = entry.map_err(failed)?;
            compared.more_notes += u64::from(!is_own_key(&key) && !catalogue.notes.contains_key(&*key));
        }
        Ok(compared)
    }
}
