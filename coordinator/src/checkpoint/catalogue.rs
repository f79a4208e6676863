//! In-memory catalogue of a journal: the location of every item, record and note.
//!
//! [`Loaded`] is the result of reading a journal, with the entries that are damaged; [`Catalogue`] is the
//! part that readers and the writer use. It needs about sixty bytes per unit, sixteen of them for the
//! location of its record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lumos_tasks::{ContentHash, ItemId};

use super::error::CheckpointError;
use super::frame::Kind;
use super::index::{ENTRY, SettledIndex};
use super::journal::{Entry, JournalFile, Location, Scanned};

/// Bytes of an item key after the benchmark name: a zero byte, position, content hash, occurrence.
const ITEM_KEY: usize = 1 + 8 + ID;

/// Length of an item's identity in bytes: content hash, occurrence.
pub(super) const ID: usize = 32 + 4;

/// Encodes an identity. Returns `None` if its hash is invalid.
pub(super) fn encode_id(id: &ItemId) -> Option<[u8; ID]> {
    let mut bytes = [0; ID];
    hex::decode_to_slice(id.content.as_str(), &mut bytes[..32]).ok()?;
    bytes[32..].copy_from_slice(&id.occurrence.to_be_bytes());
    Some(bytes)
}

/// Decodes the [`ID`] bytes of an identity.
pub(super) fn decode_id(bytes: &[u8]) -> ItemId {
    let content = ContentHash::from_hex(hex::encode(&bytes[..32]));
    let occurrence = bytes[32..].first_chunk().copied().map_or(0, u32::from_be_bytes);
    ItemId { content, occurrence }
}

/// Returns the journal key of an item.
pub(super) fn item_key(benchmark: &str, index: u64, id: &ItemId) -> Option<Vec<u8>> {
    let id = encode_id(id)?;
    let mut key = Vec::with_capacity(benchmark.len() + ITEM_KEY);
    key.extend_from_slice(benchmark.as_bytes());
    key.push(0);
    key.extend_from_slice(&index.to_be_bytes());
    key.extend_from_slice(&id);
    Some(key)
}

/// Parses the benchmark and the position from an item key.
pub(super) fn parse_item_key(key: &[u8]) -> Option<(&str, u64)> {
    let (benchmark, rest) = key.split_at_checked(key.len().checked_sub(ITEM_KEY)?)?;
    let index = rest.get(1..9)?.first_chunk().copied().map(u64::from_be_bytes)?;
    Some((std::str::from_utf8(benchmark).ok()?, index))
}

/// Returns the journal key of a record: its number and its index entry.
pub(super) fn record_key(number: u32, entry: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + ENTRY);
    key.extend_from_slice(&number.to_be_bytes());
    key.extend_from_slice(entry);
    key
}

/// Parses the number and the index entry from a record key.
pub(super) fn parse_record_key(key: &[u8]) -> Option<(u32, &[u8; ENTRY])> {
    let (number, entry) = key.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*number), entry.try_into().ok()?))
}

/// Locations of the items of one benchmark, by position.
pub(super) type Places = Arc<Vec<(u64, Location)>>;

/// Contents of a journal and their locations.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    pub(super) index: SettledIndex,
    /// Indexed by record number.
    pub(super) records: Vec<Location>,
    pub(super) items: BTreeMap<String, Places>,
    pub(super) notes: BTreeMap<Vec<u8>, Location>,
}

/// Locks a shared catalogue.
pub(super) fn lock(catalogue: &Mutex<Catalogue>) -> MutexGuard<'_, Catalogue> {
    catalogue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A catalogue read from a journal, and the entries that could not be added to it.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) catalogue: Catalogue,
    pub(super) scanned: Scanned,
    /// Keys of entries whose values are damaged.
    pub(super) damaged: Vec<(Kind, Vec<u8>)>,
    /// Records that follow a gap in the numbering, by number.
    pub(super) behind: BTreeMap<u32, (Location, [u8; ENTRY])>,
}

impl Loaded {
    /// Scans a journal and builds its catalogue.
    pub(super) fn read(file: &JournalFile) -> Result<Self, CheckpointError> {
        let mut loaded = Self::default();
        let mut items: BTreeMap<String, Vec<(u64, Location)>> = BTreeMap::new();
        let mut strange = 0;
        let scanned = file.scan(|entry| {
            if loaded.take(&entry, &mut items).is_none() {
                strange += 1;
            }
        })?;
        loaded.scanned = Scanned { damaged_entries: scanned.damaged_entries + strange, ..scanned };
        loaded.catalogue.items = items
            .into_iter()
            .map(|(benchmark, mut places)| {
                if !places.is_sorted_by(|left, right| left.0 < right.0) {
                    // The latest entry for a position wins.
                    places.reverse();
                    places.sort_by_key(|(index, _)| *index);
                    places.dedup_by_key(|(index, _)| *index);
                }
                (benchmark, Arc::new(places))
            })
            .collect();
        Ok(loaded)
    }

    /// Adds the entries that were committed since the catalogue was read. Returns the new position, or `None` if the
    /// journal cannot be continued and has to be read again.
    pub(super) fn extend(
        catalogue: &mut Catalogue,
        file: &JournalFile,
        from: Scanned,
    ) -> Result<Option<Scanned>, CheckpointError> {
        if file.is_replaced(from.end)? {
            return Ok(None);
        }
        // A header that is being written is read with the next call.
        let Some(head) = file.head()? else { return Ok(Some(from)) };
        if head.bytes <= from.end {
            return Ok(Some(from));
        }
        let mut items: BTreeMap<String, Vec<(u64, Location)>> = BTreeMap::new();
        let mut loaded = Self { catalogue: std::mem::take(catalogue), ..Self::default() };
        let mut strange = 0;
        // Damage that was found on opening is known.
        let from = Scanned { head: Some(head), damaged_entries: 0, damaged_bytes: 0, ..from };
        let scanned = file.scan_to(head.bytes, from, |entry| {
            strange += u64::from(loaded.take(&entry, &mut items).is_none());
        });
        for (benchmark, places) in items {
            loaded.catalogue.add_items(&benchmark, places);
        }
        *catalogue = std::mem::take(&mut loaded.catalogue);
        loaded.scanned = scanned?;
        let continues = strange == 0 && loaded.is_intact() && loaded.scanned.end == head.bytes;
        Ok(continues.then_some(loaded.scanned))
    }

    /// Whether the journal is undamaged.
    pub(super) fn is_intact(&self) -> bool {
        self.scanned.is_intact() && self.damaged.is_empty() && self.behind.is_empty()
    }

    fn take(&mut self, entry: &Entry<'_>, items: &mut BTreeMap<String, Vec<(u64, Location)>>) -> Option<()> {
        let Entry { kind, key, location, intact } = *entry;
        if !intact {
            self.damaged.push((kind, key.to_vec()));
            return Some(());
        }
        match kind {
            Kind::Item => {
                let (benchmark, index) = parse_item_key(key)?;
                match items.get_mut(benchmark) {
                    Some(places) => places.push((index, location)),
                    None => {
                        items.insert(benchmark.to_owned(), vec![(index, location)]);
                    }
                }
            }
            Kind::Record => {
                let (number, index_entry) = parse_record_key(key)?;
                if number == self.catalogue.index.next() {
                    self.catalogue.index.load(number, index_entry)?;
                    self.catalogue.records.push(location);
                } else {
                    self.behind.insert(number, (location, *index_entry));
                }
            }
            Kind::Note => {
                self.catalogue.notes.insert(key.to_vec(), location);
            }
        }
        Some(())
    }
}

impl Catalogue {
    /// Adds the locations of stored items of a benchmark.
    pub(super) fn add_items(&mut self, benchmark: &str, mut added: Vec<(u64, Location)>) {
        let places = self.items.entry(benchmark.to_owned()).or_default();
        let places = Arc::make_mut(places);
        added.reverse();
        added.append(places);
        added.sort_by_key(|(index, _)| *index);
        added.dedup_by_key(|(index, _)| *index);
        *places = added;
    }

    /// Returns the location of an item.
    pub(super) fn item(&self, benchmark: &str, index: u64) -> Option<Location> {
        let places = self.items.get(benchmark)?;
        let at = places.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        Some(places[at].1)
    }

    /// Number of items of all benchmarks.
    pub(super) fn item_count(&self) -> u64 {
        self.items.values().map(|places| places.len() as u64).sum()
    }
}

/// Iterates over the identities of a benchmark's items. They are part of the keys, which are read in large
/// blocks.
pub(super) struct Identities {
    file: JournalFile,
    places: Places,
    next: usize,
    start: u64,
    bytes: Vec<u8>,
}

/// Bytes read at a time.
const TOGETHER: u64 = 1 << 16;

impl Identities {
    pub(super) fn new(file: JournalFile, places: Places) -> Self {
        Self { file, places, next: 0, start: 0, bytes: Vec::new() }
    }

    fn read(&mut self, location: Location) -> Result<ItemId, CheckpointError> {
        let at = location.offset - ID as u64;
        if at < self.start || at + ID as u64 > self.start + self.bytes.len() as u64 {
            let left = self.file.length()?.saturating_sub(at).min(TOGETHER);
            self.bytes = self.file.bytes_at(at, usize::try_from(left).unwrap_or(usize::MAX).max(ID))?;
            self.start = at;
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        Ok(decode_id(&self.bytes[from..from + ID]))
    }
}

impl Iterator for Identities {
    type Item = Result<(u64, ItemId), CheckpointError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (index, location) = *self.places.get(self.next)?;
        self.next += 1;
        Some(self.read(location).map(|id| (index, id)))
    }
}
