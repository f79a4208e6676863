//! Which units are settled, in memory; and the keys of records, from which it is loaded.

use std::collections::HashMap;

use lumos_tasks::UnitId;

use super::record::Recorded;

/// Where a unit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitStatus {
    /// Nothing is recorded.
    Outstanding,
    /// Only faults are recorded.
    Faulted {
        /// How many attempts have faulted.
        attempts: u32,
        /// The latest of them.
        last: u32,
    },
    /// It has its outcome.
    Settled,
}

/// A unit's hash as bytes, or the hash of its text where it is none.
pub(super) fn unit_bytes(unit: &UnitId) -> [u8; 32] {
    let mut bytes = [0; 32];
    if hex::decode_to_slice(unit.as_str(), &mut bytes).is_err() {
        bytes = <sha2::Sha256 as sha2::Digest>::digest(unit.as_str().as_bytes()).into();
    }
    bytes
}

/// Length of a record's key: unit, attempt, kind.
const KEY: usize = 32 + 4 + 1;
const FAULT: u8 = 0;
const SETTLING: u8 = 1;

/// The key of a record. A fault and an outcome of one attempt (a lease that was given up, and its worker's late
/// answer) have keys of their own, so that neither overwrites the other.
pub(super) fn record_key(unit: &UnitId, attempt: u32, fault: bool) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..32].copy_from_slice(&unit_bytes(unit));
    key[32..36].copy_from_slice(&attempt.to_be_bytes());
    key[36] = if fault { FAULT } else { SETTLING };
    key
}

/// Whether a key is that of the outcome that settled its unit.
pub(super) fn is_settling(key: &[u8]) -> bool {
    key.get(36) == Some(&SETTLING)
}

#[derive(Debug, Clone, Default)]
struct Entry {
    settled: bool,
    faults: Vec<u32>,
}

/// Which units are settled, and which attempts have faulted.
#[derive(Debug, Clone, Default)]
pub struct SettledIndex {
    units: HashMap<[u8; 32], Entry>,
    settled: u64,
}

impl SettledIndex {
    /// What would become of a record.
    pub fn classify(&self, unit: &UnitId, attempt: u32, fault: bool) -> Recorded {
        match self.units.get(&unit_bytes(unit)) {
            Some(entry) if entry.settled => Recorded::Duplicate,
            Some(entry) if fault && entry.faults.contains(&attempt) => Recorded::Duplicate,
            _ if fault => Recorded::FaultKept,
            _ => Recorded::First,
        }
    }

    /// Takes a record in and says what became of it.
    pub fn take(&mut self, unit: &UnitId, attempt: u32, fault: bool) -> Recorded {
        let recorded = self.classify(unit, attempt, fault);
        if recorded != Recorded::Duplicate {
            self.insert(unit_bytes(unit), attempt, fault);
        }
        recorded
    }

    /// Takes a key of the database in; `None` if it is no record's.
    pub(super) fn load(&mut self, key: &[u8]) -> Option<()> {
        let unit: [u8; 32] = key.get(..32)?.try_into().ok()?;
        let attempt = u32::from_be_bytes(key.get(32..36)?.try_into().ok()?);
        let kind = *key.get(36)?;
        if key.len() != KEY || kind > SETTLING {
            return None;
        }
        self.insert(unit, attempt, kind == FAULT);
        Some(())
    }

    fn insert(&mut self, unit: [u8; 32], attempt: u32, fault: bool) {
        let entry = self.units.entry(unit).or_default();
        if fault {
            entry.faults.push(attempt);
        } else if !entry.settled {
            entry.settled = true;
            self.settled += 1;
        }
    }

    /// Where a unit stands.
    pub fn status(&self, unit: &UnitId) -> UnitStatus {
        match self.units.get(&unit_bytes(unit)) {
            None => UnitStatus::Outstanding,
            Some(entry) if entry.settled => UnitStatus::Settled,
            Some(entry) => UnitStatus::Faulted {
                attempts: u32::try_from(entry.faults.len()).unwrap_or(u32::MAX),
                last: entry.faults.iter().copied().max().unwrap_or(0),
            },
        }
    }

    /// How many units are settled.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// How many units have faulted and are not settled.
    pub fn faulted(&self) -> u64 {
        self.units.len() as u64 - self.settled
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lumos_tasks::ContentHash;
    use proptest::prelude::*;

    use super::*;

    /// The rule, as plainly as it can be said.
    #[derive(Default)]
    struct Model {
        settled: BTreeSet<u8>,
        faults: BTreeSet<(u8, u32)>,
    }

    impl Model {
        fn take(&mut self, unit: u8, attempt: u32, fault: bool) -> Recorded {
            if self.settled.contains(&unit) {
                Recorded::Duplicate
            } else if !fault {
                self.settled.insert(unit);
                Recorded::First
            } else if self.faults.insert((unit, attempt)) {
                Recorded::FaultKept
            } else {
                Recorded::Duplicate
            }
        }
    }

    fn unit(number: u8) -> UnitId {
        UnitId::new(ContentHash::of_bytes(&[number]))
    }

    proptest! {
        #[test]
        fn the_index_settles_as_the_model_does(
            records in proptest::collection::vec((0u8..5, 1u32..4, any::<bool>()), 0..60)
        ) {
            let (mut index, mut model) = (SettledIndex::default(), Model::default());
            let mut written = BTreeSet::new();
            for (number, attempt, fault) in records {
                let id = unit(number);
                let recorded = index.take(&id, attempt, fault);
                prop_assert_eq!(recorded, model.take(number, attempt, fault));
                if recorded != Recorded::Duplicate {
                    // Append-only: no key is written twice.
                    prop_assert!(written.insert(record_key(&id, attempt, fault)));
                }
            }
            let mut loaded = SettledIndex::default();
            for key in &written {
                loaded.load(key).unwrap();
            }
            for number in 0..5 {
                prop_assert_eq!(index.status(&unit(number)), loaded.status(&unit(number)));
                let settled = model.settled.contains(&number);
                prop_assert_eq!(index.status(&unit(number)) == UnitStatus::Settled, settled);
            }
            prop_assert_eq!(loaded.settled(), model.settled.len() as u64);
            prop_assert_eq!(loaded.faulted(), index.faulted());
        }
    }

    #[test]
    fn strange_keys_are_no_records() {
        let mut index = SettledIndex::default();
        assert!(index.load(b"short").is_none());
        assert!(index.load(&[9; 37]).is_none());
        assert!(index.load(&[0; 38]).is_none());
        assert!(index.load(&[0; 37]).is_some());
    }
}
