//! Writes the content of the journal to the database.

use crate::checkpoint::catalogue::{self, Catalogue, Places};
use crate::checkpoint::database::{Database, Identities};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::index::ENTRY;
use crate::checkpoint::journal::JournalFile;
use crate::checkpoint::{BYTES_TOGETHER, TOGETHER, item_key, store, store_identities};

/// Fills an empty database from the journal.
pub(super) fn fill(
    database: &Database,
    file: &JournalFile,
    catalogue: &Catalogue,
) -> Result<(), CheckpointError> {
    let failed = |error| CheckpointError::of_sled(&database.folder, &error);
    for (benchmark, places) in &catalogue.items {
        let (mut batch, mut bytes) = (sled::Batch::default(), 0);
        for (number, (index, location)) in places.iter().enumerate() {
            let value = file.read(*location)?;
            bytes += value.len();
            batch.insert(item_key(benchmark, *index), value);
            if number % TOGETHER == TOGETHER - 1 || bytes >= BYTES_TOGETHER {
                database.items.apply_batch(std::mem::take(&mut batch)).map_err(failed)?;
                bytes = 0;
            }
        }
        database.items.apply_batch(batch).map_err(failed)?;
        write_identities(database, file, benchmark, places)?;
    }
    let records = u32::try_from(catalogue.records.len()).unwrap_or(u32::MAX);
    write_records(database, file, catalogue, 0..records)?;
    for (key, location) in &catalogue.notes {
        database.meta.insert(key.as_slice(), file.read(*location)?).map_err(failed)?;
    }
    database.flush()
}

pub(super) fn write_identities(
    database: &Database,
    file: &JournalFile,
    benchmark: &str,
    places: &Places,
) -> Result<(), CheckpointError> {
    let mut identities = Identities::default();
    for entry in catalogue::Identities::new(file.clone(), places.clone()) {
        let (index, id) = entry?;
        // Cannot fail: the hash was decoded from 32 bytes.
        let _ = identities.add(index, &id);
    }
    store_identities(&database.identities, benchmark, identities)
        .map_err(|error| CheckpointError::of_sled(&database.folder, &error))
}

/// Writes records and their index entries.
pub(super) fn write_records(
    database: &Database,
    file: &JournalFile,
    catalogue: &Catalogue,
    numbers: std::ops::Range<u32>,
) -> Result<(), CheckpointError> {
    let failed = |error| CheckpointError::of_sled(&database.folder, &error);
    let mut start = numbers.start;
    while start < numbers.end {
        let end = numbers.end.min(start + TOGETHER as u32);
        let (mut batch, mut entries) = (sled::Batch::default(), Vec::new());
        for number in start..end {
            let Some(location) = catalogue.records.get(number as usize) else { continue };
            let bytes = file.bytes_at(location.offset - ENTRY as u64, ENTRY)?;
            entries.extend_from_slice(&bytes);
            batch.insert(&store::record_key(number), file.read(*location)?);
        }
        database.records.apply_batch(batch).map_err(failed)?;
        database.index.insert(store::record_key(start), entries).map_err(failed)?;
        start = end;
    }
    Ok(())
}
