//! Which units are settled, in memory; and the keys of records, from which it is loaded.

use lumos_tasks::{Ending, Outcome};

use super::record::Recorded;
use crate::unit_key::{UnitKey, UnitTable};

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
    Settled(Settlement),
}

/// How a settled unit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// With a prediction.
    Answered,
    /// Without one, by the agent's own doing.
    GaveUp,
}

impl Settlement {
    /// The settlement an outcome amounts to; `None` for a fault.
    pub fn of(outcome: &Outcome) -> Option<Self> {
        match outcome.ending {
            Ending::Answered => Some(Self::Answered),
            Ending::GaveUp(_) => Some(Self::GaveUp),
            Ending::Faulted(_) => None,
        }
    }

    /// The word in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::GaveUp => "gave_up",
        }
    }
}

/// Length of a record's key: unit, attempt, kind.
const KEY: usize = 32 + 4 + 1;
const FAULT: u8 = 0;
const SETTLING: u8 = 1;
/// What the index keeps beside the key of a settling record.
const ANSWERED: u8 = 0;
const GAVE_UP: u8 = 1;

/// The key of a record. A fault and an outcome of one attempt (a lease that was given up, and its worker's late
/// answer) have keys of their own, so that neither overwrites the other.
pub(super) fn record_key(unit: &UnitKey, attempt: u32, settlement: Option<Settlement>) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..32].copy_from_slice(unit.bytes());
    key[32..36].copy_from_slice(&attempt.to_be_bytes());
    key[36] = if settlement.is_some() { SETTLING } else { FAULT };
    key
}

/// What the index keeps under a record's key.
pub(super) fn index_value(settlement: Option<Settlement>) -> &'static [u8] {
    match settlement {
        None => &[],
        Some(Settlement::Answered) => &[ANSWERED],
        Some(Settlement::GaveUp) => &[GAVE_UP],
    }
}

/// Whether a key is that of the outcome that settled its unit.
pub(super) fn is_settling(key: &[u8]) -> bool {
    key.get(36) == Some(&SETTLING)
}

/// Which units are settled, and which attempts of the others have faulted. 34 bytes a unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettledIndex {
    settled: UnitTable<Settlement>,
    faults: UnitTable<Vec<u32>>,
}

impl SettledIndex {
    /// What would become of a record.
    pub(crate) fn classify(&self, unit: &UnitKey, attempt: u32, fault: bool) -> Recorded {
        if self.settled.contains_key(unit) {
            return Recorded::Duplicate;
        }
        match self.faults.get(unit) {
            _ if !fault => Recorded::First,
            Some(faults) if faults.contains(&attempt) => Recorded::Duplicate,
            _ => Recorded::FaultKept,
        }
    }

    /// Takes a record in and says what became of it.
    pub(crate) fn take(&mut self, unit: UnitKey, attempt: u32, settlement: Option<Settlement>) -> Recorded {
        let recorded = self.classify(&unit, attempt, settlement.is_none());
        if recorded != Recorded::Duplicate {
            self.insert(unit, attempt, settlement);
        }
        recorded
    }

    /// Takes an entry of the database in; `None` if it is none.
    pub(super) fn load(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let unit: [u8; 32] = key.get(..32)?.try_into().ok()?;
        let attempt = u32::from_be_bytes(key.get(32..36)?.try_into().ok()?);
        let settlement = match (key.get(36)?, value) {
            (&FAULT, []) => None,
            (&SETTLING, [ANSWERED]) => Some(Settlement::Answered),
            (&SETTLING, [GAVE_UP]) => Some(Settlement::GaveUp),
            _ => return None,
        };
        if key.len() != KEY {
            return None;
        }
        self.insert(unit.into(), attempt, settlement);
        Some(())
    }

    fn insert(&mut self, unit: UnitKey, attempt: u32, settlement: Option<Settlement>) {
        match settlement {
            Some(settlement) => {
                self.settled.entry(unit).or_insert(settlement);
                // Nothing asks for the faults of a settled unit; the records have them.
                self.faults.remove(&unit);
            }
            None if self.settled.contains_key(&unit) => {}
            None => self.faults.entry(unit).or_default().push(attempt),
        }
    }

    /// Where a unit stands.
    pub(crate) fn status(&self, unit: &UnitKey) -> UnitStatus {
        if let Some(settlement) = self.settled.get(unit) {
            return UnitStatus::Settled(*settlement);
        }
        match self.faults.get(unit) {
            None => UnitStatus::Outstanding,
            Some(faults) => UnitStatus::Faulted {
                attempts: u32::try_from(faults.len()).unwrap_or(u32::MAX),
                last: faults.iter().copied().max().unwrap_or(0),
            },
        }
    }

    /// Whether an attempt's fault, or the unit's outcome, is recorded.
    pub(crate) fn has(&self, unit: &UnitKey, attempt: u32) -> bool {
        self.classify(unit, attempt, true) == Recorded::Duplicate
    }

    /// How many units are settled.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.len() as u64
    }

    /// How many units have faulted and are not settled.
    #[cfg(test)]
    pub(crate) fn faulted(&self) -> u64 {
        self.faults.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use lumos_tasks::{ContentHash, UnitId};
    use proptest::prelude::*;

    use super::*;

    /// The rule, as plainly as it can be said.
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
            let mut written = BTreeMap::new();
            for (number, attempt, settlement) in records {
                let key = unit(number);
                let recorded = index.take(key, attempt, settlement);
                prop_assert_eq!(recorded, model.take(number, attempt, settlement));
                prop_assert!(index.has(&key, attempt));
                if recorded != Recorded::Duplicate {
                    // Append-only: no key is written twice.
                    let before = written.insert(record_key(&key, attempt, settlement), index_value(settlement));
                    prop_assert!(before.is_none());
                }
            }
            let mut loaded = SettledIndex::default();
            for (key, value) in &written {
                loaded.load(key, value).unwrap();
            }
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
            prop_assert_eq!(loaded.faulted(), index.faulted());
        }
    }

    #[test]
    fn strange_keys_are_no_records() {
        let mut index = SettledIndex::default();
        assert!(index.load(b"short", &[]).is_none());
        assert!(index.load(&[9; 37], &[]).is_none());
        assert!(index.load(&[0; 38], &[]).is_none());
        assert!(index.load(&[0; 37], &[1]).is_none());
        assert!(index.load(&[0; 37], &[]).is_some());
    }
}
