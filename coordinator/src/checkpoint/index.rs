//! In-memory index of settled units and recorded faults.
//!
//! [`SettledIndex`] implements the settling rule: the first outcome that is not a fault settles a unit, and
//! later ones are duplicates. It is loaded from the packed entries that are stored with the records, without
//! reading the records.

use lumos_tasks::{Ending, Outcome};

use super::Recorded;
use crate::unit_key::{UnitKey, UnitTable};

/// Status of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitStatus {
    /// Nothing is recorded.
    Outstanding,
    /// Only faults are recorded.
    Faulted {
        /// Number of faulted attempts.
        attempts: u32,
        /// The latest faulted attempt.
        last: u32,
    },
    /// The unit has an outcome.
    Settled(Settlement),
}

/// How a settled unit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// With a prediction.
    Answered,
    /// Without a prediction, caused by the agent.
    GaveUp,
}

impl Settlement {
    /// Returns the settlement for an outcome, or `None` for a fault.
    pub(crate) fn of(outcome: &Outcome) -> Option<Self> {
        match outcome.ending {
            Ending::Answered => Some(Self::Answered),
            Ending::GaveUp(_) => Some(Self::GaveUp),
            Ending::Faulted(_) => None,
        }
    }
}

/// Length of an entry in bytes: unit, attempt, kind.
pub(super) const ENTRY: usize = 32 + 4 + 1;
const FAULT: u8 = 0;
const ANSWERED: u8 = 1;
const GAVE_UP: u8 = 2;

/// Appends the index entry of a record to a batch.
pub(super) fn pack(entries: &mut Vec<u8>, unit: &UnitKey, attempt: u32, settlement: Option<Settlement>) {
    entries.extend_from_slice(unit.bytes());
    entries.extend_from_slice(&attempt.to_be_bytes());
    entries.push(match settlement {
        None => FAULT,
        Some(Settlement::Answered) => ANSWERED,
        Some(Settlement::GaveUp) => GAVE_UP,
    });
}

fn unpack(entry: &[u8; ENTRY]) -> Option<(UnitKey, u32, Option<Settlement>)> {
    let unit: [u8; 32] = entry[..32].try_into().ok()?;
    let attempt = u32::from_be_bytes(entry[32..36].try_into().ok()?);
    let settlement = match entry[36] {
        FAULT => None,
        ANSWERED => Some(Settlement::Answered),
        GAVE_UP => Some(Settlement::GaveUp),
        _ => return None,
    };
    Some((unit.into(), attempt, settlement))
}

/// A settled unit: how it ended, and the number of the record that settled it.
#[derive(Debug, Clone, Copy)]
struct Settled {
    settlement: Settlement,
    number: u32,
}

/// Settled units, faulted attempts and their record numbers. About forty bytes per unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettledIndex {
    settled: UnitTable<Settled>,
    /// Attempts and record numbers.
    faults: UnitTable<Vec<(u32, u32)>>,
    /// The number of the next record.
    next: u32,
}

impl SettledIndex {
    /// Returns what recording this attempt would do, without changing the index.
    pub(crate) fn classify(&self, unit: &UnitKey, attempt: u32, fault: bool) -> Recorded {
        if self.settled.contains_key(unit) {
            return Recorded::Duplicate;
        }
        match self.faults.get(unit) {
            _ if !fault => Recorded::First,
            Some(faults) if faults.iter().any(|(known, _)| *known == attempt) => Recorded::Duplicate,
            _ => Recorded::FaultKept,
        }
    }

    /// Adds a record and returns the result. A record that is not a duplicate gets the next number.
    pub(crate) fn take(&mut self, unit: UnitKey, attempt: u32, settlement: Option<Settlement>) -> Recorded {
        let recorded = self.classify(&unit, attempt, settlement.is_none());
        if recorded != Recorded::Duplicate {
            self.insert(unit, attempt, settlement);
        }
        recorded
    }

    /// Loads the entries of a batch whose first record has number `first`. Returns `None` if they are
    /// malformed.
    pub(super) fn load(&mut self, first: u32, entries: &[u8]) -> Option<()> {
        let (entries, rest) = entries.as_chunks::<ENTRY>();
        if !rest.is_empty() || first != self.next {
            return None;
        }
        for entry in entries {
            let (unit, attempt, settlement) = unpack(entry)?;
            self.insert(unit, attempt, settlement);
        }
        Some(())
    }

    /// Whether the record with this number is the one that the entry describes.
    pub(super) fn holds(&self, number: u32, entry: &[u8; ENTRY]) -> bool {
        let Some((unit, attempt, settlement)) = unpack(entry) else { return false };
        match settlement {
            Some(settlement) => self
                .settled
                .get(&unit)
                .is_some_and(|known| known.settlement == settlement && known.number == number),
            None => self.faults.get(&unit).is_some_and(|faults| faults.contains(&(attempt, number))),
        }
    }

    fn insert(&mut self, unit: UnitKey, attempt: u32, settlement: Option<Settlement>) {
        let number = self.next;
        self.next += 1;
        match settlement {
            Some(settlement) => {
                self.settled.entry(unit).or_insert(Settled { settlement, number });
            }
            None => self.faults.entry(unit).or_default().push((attempt, number)),
        }
    }

    /// The number of the next record.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Numbers of a unit's records: faults by attempt, then the outcome that settled it.
    pub(super) fn numbers(&self, unit: &UnitKey) -> Vec<u32> {
        let mut faults = self.faults.get(unit).cloned().unwrap_or_default();
        faults.sort_unstable();
        let settled = self.settled.get(unit).map(|settled| settled.number);
        faults.into_iter().map(|(_, number)| number).chain(settled).collect()
    }

    /// Returns the status of a unit.
    pub(crate) fn status(&self, unit: &UnitKey) -> UnitStatus {
        if let Some(settled) = self.settled.get(unit) {
            return UnitStatus::Settled(settled.settlement);
        }
        match self.faults.get(unit) {
            None => UnitStatus::Outstanding,
            Some(faults) => UnitStatus::Faulted {
                attempts: u32::try_from(faults.len()).unwrap_or(u32::MAX),
                last: faults.iter().map(|(attempt, _)| *attempt).max().unwrap_or(0),
            },
        }
    }

    /// Whether this attempt's fault or the unit's outcome is recorded.
    pub(crate) fn has(&self, unit: &UnitKey, attempt: u32) -> bool {
        self.classify(unit, attempt, true) == Recorded::Duplicate
    }

    /// Number of settled units.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use lumos_tasks::{ContentHash, UnitId};
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation of the settling rule.
    #[derive(Default)]
    struct Model {
        settled: BTreeMap<u8, Settlement>,
        faults: BTreeSet<(u8, u32)>,
    }

    impl Model {
        fn take(&mut self, unit: u8, attempt: u32, settlement: Option<Settlement>) -> Recorded {
            match settlement {
                _ if self.settled.contains_key(&unit) => Recorded::Duplicate,
                Some(settlement) => {
                    self.settled.insert(unit, settlement);
                    Recorded::First
                }
                None if self.faults.insert((unit, attempt)) => Recorded::FaultKept,
                None => Recorded::Duplicate,
            }
        }
    }

    fn unit(number: u8) -> UnitKey {
        UnitKey::of(&UnitId::new(ContentHash::of_bytes(&[number])))
    }

    fn settlements() -> impl Strategy<Value = Option<Settlement>> {
        prop_oneof![Just(None), Just(Some(Settlement::Answered)), Just(Some(Settlement::GaveUp))]
    }

    proptest! {
        #[test]
        fn the_index_settles_as_the_model_does(
            records in proptest::collection::vec((0u8..5, 1u32..4, settlements()), 0..60)
        ) {
            let (mut index, mut model) = (SettledIndex::default(), Model::default());
            let mut written = Vec::new();
            for (number, attempt, settlement) in records {
                let key = unit(number);
                let recorded = index.take(key, attempt, settlement);
                prop_assert_eq!(recorded, model.take(number, attempt, settlement));
                prop_assert!(index.has(&key, attempt));
                if recorded != Recorded::Duplicate {
                    pack(&mut written, &key, attempt, settlement);
                }
            }
            let mut loaded = SettledIndex::default();
            let (first, rest) = written.split_at(written.len() / ENTRY / 2 * ENTRY);
            loaded.load(0, first).unwrap();
            loaded.load(loaded.next(), rest).unwrap();
            for number in 0..5 {
                prop_assert_eq!(index.status(&unit(number)), loaded.status(&unit(number)));
                match model.settled.get(&number) {
                    Some(settlement) => {
                        prop_assert_eq!(index.status(&unit(number)), UnitStatus::Settled(*settlement));
                    }
                    None => prop_assert!(!matches!(index.status(&unit(number)), UnitStatus::Settled(_))),
                }
            }
            prop_assert_eq!(loaded.settled(), model.settled.len() as u64);
            prop_assert_eq!(loaded.next() as usize, written.len() / ENTRY);
            let mut numbers: Vec<u32> = (0..5).flat_map(|number| index.numbers(&unit(number))).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..index.next()).collect::<Vec<_>>(), "every record is found by its unit");
        }
    }

    #[test]
    fn strange_entries_are_no_index() {
        let load = |first, entries: &[u8]| SettledIndex::default().load(first, entries);
        assert!(load(0, b"short").is_none());
        assert!(load(0, &[9; ENTRY]).is_none());
        assert!(load(1, &[0; ENTRY]).is_none());
        assert!(load(0, &[0; 2 * ENTRY]).is_some());
    }
}
