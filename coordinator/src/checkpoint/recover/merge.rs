//! Writes a new journal from everything that either copy still has, and counts what neither has.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lumos_tasks::{Item, WorkUnit};

use super::{Both, guarded};
use crate::checkpoint::catalogue::{
    Catalogue, Identities, item_key as journal_item_key, parse_item_key as parse_journal_item_key,
    parse_record_key, record_key,
};
use crate::checkpoint::codec::decode;
use crate::checkpoint::database::{Database, is_own_key, unpack_identities};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::frame::{Head, Kind};
use crate::checkpoint::index::{ENTRY, Settlement, pack};
use crate::checkpoint::journal::{Journal, Location, new_path};
use crate::checkpoint::lock::FolderLock;
use crate::checkpoint::recovery::Entries;
use crate::checkpoint::{BYTES_TOGETHER, PLAN_KEY, PlanMark, Record, item_key, parse_item_key, store};
use crate::manifest::Manifest;
use crate::unit_key::UnitKey;

/// A journal that is being written from both copies.
pub(super) struct Merging<'a> {
    both: &'a Both<'a>,
    /// The committed state, as far as it is known.
    expected: Head,
    pub(super) journal: Journal,
    pub(super) catalogue: Catalogue,
    pub(super) restored: Entries,
    pub(super) lost: Entries,
}

impl<'a> Merging<'a> {
    pub(super) fn new(both: &'a Both<'a>) -> Result<Self, CheckpointError> {
        Ok(Self {
            both,
            expected: both.loaded.scanned.head.or_else(|| FolderLock::head(both.folder)).unwrap_or_default(),
            journal: Journal::create(&new_path(both.folder))?,
            catalogue: Catalogue::default(),
            restored: Entries::default(),
            lost: Entries::default(),
        })
    }

    pub(super) fn merge(&mut self) -> Result<(), CheckpointError> {
        self.items()?;
        self.records()?;
        let unnamed = self.expected.items.saturating_sub(self.catalogue.item_count() + self.lost.items);
        self.lost.items += unnamed;
        self.notes()?;
        let notes = u64::from(self.expected.notes);
        let unnamed = notes.saturating_sub(self.catalogue.notes.len() as u64 + self.lost.notes);
        self.lost.notes += unnamed;
        self.journal.set_items(self.catalogue.item_count());
        self.journal.write()?;
        self.journal.commit()
    }

    fn push(&mut self, kind: Kind, key: &[u8], value: &[u8]) -> Result<Location, CheckpointError> {
        if self.journal.waiting() > BYTES_TOGETHER {
            self.journal.write()?;
        }
        self.journal.push(kind, key, value)
    }

    /// Returns the database's value for a key, if it can be read.
    fn read_database(&self, tree: fn(&Database) -> &sled::Tree, key: &[u8]) -> Option<Vec<u8>> {
        let database = self.both.database.as_ref().ok()?;
        guarded(|| tree(database).get(key)).ok()?.ok()?.map(|value| value.to_vec())
    }

    /// Returns the keys of the database's entries, as far as they can be read.
    fn keys(&self, tree: fn(&Database) -> &sled::Tree) -> Vec<sled::IVec> {
        let Ok(database) = &self.both.database else { return Vec::new() };
        let mut keys = Vec::new();
        // Keep the keys that were read before a panic.
        let _ = guarded(|| keys.extend(tree(database).iter().keys().map_while(Result::ok)));
        keys
    }

    fn items(&mut self) -> Result<(), CheckpointError> {
        let loaded = &self.both.loaded;
        let mut known: BTreeSet<(String, u64)> = BTreeSet::new();
        for (benchmark, places) in &loaded.catalogue.items {
            known.extend(places.iter().map(|(index, _)| (benchmark.clone(), *index)));
        }
        let keys = self.keys(|database| &database.items);
        known.extend(
            keys.iter().filter_map(|key| {
                parse_item_key(key).map(|(benchmark, index)| (benchmark.to_owned(), index))
            }),
        );
        for (kind, key) in &loaded.damaged {
            if let (Kind::Item, Some((benchmark, index))) = (kind, parse_journal_item_key(key)) {
                known.insert((benchmark.to_owned(), index));
            }
        }
        if let Ok(database) = &self.both.database {
            let _ = guarded(|| {
                for (key, value) in database.identities.iter().map_while(Result::ok) {
                    let Some((benchmark, _)) = parse_item_key(&key) else { continue };
                    for (index, _) in unpack_identities(&value).unwrap_or_default() {
                        known.insert((benchmark.to_owned(), index));
                    }
                }
            });
        }
        let mut places: BTreeMap<String, Vec<(u64, Location)>> = BTreeMap::new();
        for (benchmark, index) in known {
            let kept = loaded.catalogue.item(&benchmark, index).and_then(|at| self.both.file.read(at).ok());
            let of_journal = kept.is_some();
            let value =
                kept.or_else(|| self.read_database(|database| &database.items, &item_key(&benchmark, index)));
            let read = value
                .and_then(|value| decode::<Item>(self.both.folder, &value).ok().map(|item| (value, item)));
            let key = read.as_ref().and_then(|(_, item)| journal_item_key(&benchmark, index, &item.id));
            let (Some((value, _)), Some(key)) = (read, key) else {
                self.lost.items += 1;
                self.lost.named.items.entry(benchmark).or_default().push(index);
                continue;
            };
            if !of_journal {
                self.restored.items += 1;
                self.restored.named.items.entry(benchmark.clone()).or_default().push(index);
            }
            let location = self.push(Kind::Item, &key, &value)?;
            places.entry(benchmark).or_default().push((index, location));
        }
        for (benchmark, places) in places {
            self.catalogue.add_items(&benchmark, places);
        }
        Ok(())
    }

    fn records(&mut self) -> Result<(), CheckpointError> {
        let loaded = &self.both.loaded;
        let index = self.database_index();
        let keys = self.keys(|database| &database.records);
        let mut damaged: HashMap<u32, [u8; ENTRY]> = HashMap::new();
        for (kind, key) in &loaded.damaged {
            if let (Kind::Record, Some((number, entry))) = (kind, parse_record_key(key)) {
                damaged.insert(number, *entry);
            }
        }
        let mut numbers: Vec<u32> = (0..).take(loaded.catalogue.records.len()).collect();
        numbers.extend(loaded.behind.keys().chain(index.keys()));
        numbers.extend(keys.iter().filter_map(|key| key.as_ref().try_into().ok().map(u32::from_be_bytes)));
        let end = numbers.iter().max().map_or(0, |last| u64::from(*last) + 1);
        let end = end.max(self.expected.records.into());
        numbers.extend(damaged.keys().filter(|number| u64::from(**number) < end));
        numbers.sort_unstable();
        numbers.dedup();
        // No copy has the remaining records. They are counted, not listed, because a damaged header or key
        // may state any number.
        self.lost.outcomes += end - numbers.len() as u64;
        let mut lost = Vec::new();
        for number in numbers {
            let location = loaded.catalogue.records.get(number as usize).copied();
            let location = location.or_else(|| loaded.behind.get(&number).map(|(location, _)| *location));
            let kept = location.and_then(|location| self.both.file.read(location).ok());
            let of_journal = kept.is_some();
            let key = store::record_key(number);
            let value = kept.or_else(|| self.read_database(|database| &database.records, &key));
            let read = value.and_then(|value| {
                decode::<Record>(self.both.folder, &value).ok().map(|record| (value, record))
            });
            let Some((value, record)) = read else {
                self.lost.outcomes += 1;
                lost.extend(damaged.get(&number).or_else(|| index.get(&number)).copied());
                continue;
            };
            if !of_journal {
                self.restored.outcomes += 1;
                self.restored.named.outcomes.entry(record.configuration).or_default().push(record.item);
            }
            let mut entry = Vec::with_capacity(ENTRY);
            let settlement = Settlement::of(&record.outcome);
            pack(&mut entry, &UnitKey::of(&record.unit), record.attempt, settlement);
            let number = self.catalogue.index.next();
            let location = self.push(Kind::Record, &record_key(number, &entry), &value)?;
            // Cannot fail: the entry was packed by this process.
            let _ = self.catalogue.index.load(number, &entry);
            self.catalogue.records.push(location);
        }
        self.name_lost(&lost);
        Ok(())
    }

    /// Returns the database's index entries, as far as they can be read.
    fn database_index(&self) -> BTreeMap<u32, [u8; ENTRY]> {
        let mut found = BTreeMap::new();
        let Ok(database) = &self.both.database else { return found };
        let _ = guarded(|| {
            for (key, value) in database.index.iter().map_while(Result::ok) {
                let Some(first) = key.as_ref().try_into().ok().map(u32::from_be_bytes) else { continue };
                found.extend((first..).zip(value.as_chunks::<ENTRY>().0.iter().copied()));
            }
        });
        found
    }

    /// Finds the items of units whose outcomes are lost.
    fn name_lost(&mut self, entries: &[[u8; ENTRY]]) {
        let mut units: BTreeSet<UnitKey> =
            entries.iter().filter_map(|entry| Some(UnitKey::from(*entry.first_chunk::<32>()?))).collect();
        if units.is_empty() {
            return;
        }
        let named = &mut self.lost.named;
        let run = self.both.folder.parent();
        if let Some(Ok(manifest)) = run.map(Manifest::read) {
            for (position, planned) in (0..).zip(&manifest.configurations) {
                let Some(places) = self.catalogue.items.get(&planned.configuration.benchmark) else {
                    continue;
                };
                let ids = Identities::new(self.journal.file().clone(), places.clone());
                for (index, id) in ids.map_while(Result::ok) {
                    let unit = UnitKey::of(&WorkUnit::identity_of(&id, &planned.identity));
                    if units.remove(&unit) {
                        named.outcomes.entry(position).or_default().push(index);
                    }
                }
            }
        }
        named.units = units.iter().map(|unit| hex::encode(&unit.bytes()[..6])).collect();
    }

    fn notes(&mut self) -> Result<(), CheckpointError> {
        let loaded = &self.both.loaded;
        let mut keys: BTreeSet<Vec<u8>> = loaded.catalogue.notes.keys().cloned().collect();
        let of_database = self.keys(|database| &database.meta);
        keys.extend(of_database.iter().filter(|key| !is_own_key(key)).map(|key| key.to_vec()));
        let damaged = loaded.damaged.iter().filter(|(kind, _)| *kind == Kind::Note);
        keys.extend(damaged.map(|(_, key)| key.clone()));
        for key in keys {
            let kept = loaded.catalogue.notes.get(&key).and_then(|at| self.both.file.read(*at).ok());
            let of_journal = kept.is_some();
            let Some(value) = kept.or_else(|| self.read_database(|database| &database.meta, &key)) else {
                self.lost.notes += 1;
                continue;
            };
            if key == PLAN_KEY.as_bytes() && !self.plan_holds(&value) {
                self.expected.notes = self.expected.notes.saturating_sub(1);
                continue;
            }
            self.restored.notes += u64::from(!of_journal);
            let location = self.push(Kind::Note, &key, &value)?;
            self.catalogue.notes.insert(key, location);
        }
        Ok(())
    }

    /// Whether all items that the plan mark counts are present. Without the mark, the items are planned
    /// again.
    fn plan_holds(&mut self, value: &[u8]) -> bool {
        let Ok(mark) = decode::<PlanMark>(self.both.folder, value) else { return false };
        let unnamed = mark.items.saturating_sub(self.catalogue.item_count() + self.lost.items);
        self.lost.items += unnamed;
        self.lost.items == 0
    }
}
