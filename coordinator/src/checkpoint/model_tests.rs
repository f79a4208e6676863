//! Compares the checkpoint with a store in memory that follows the documented contract of [`RunStore`], over random
//! sequences of records, restarts and kills.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use lumos_tasks::{Item, ItemId, Outcome, UnitId};
use proptest::prelude::*;

use super::run_store::ItemIds;
use super::tests::{record, unit};
use super::*;
use crate::samples::item;
use crate::unit_key::UnitKey;

/// The contract of [`RunStore`], in memory and as plainly as possible.
#[derive(Debug, Default)]
struct MemoryStore {
    items: BTreeMap<(String, u64), Item>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    settled: BTreeMap<UnitKey, Settlement>,
    /// Faulted attempts of units, also of units that were settled later.
    faulted: BTreeMap<UnitKey, BTreeSet<u32>>,
    /// Records that are not duplicates, in order.
    kept: Vec<Record>,
    duplicates: u64,
    seconds: Option<f64>,
}

impl State {
    fn record(&mut self, record: Record) -> Recorded {
        let unit = UnitKey::of(&record.unit);
        let recorded = match Settlement::of(&record.outcome) {
            _ if self.settled.contains_key(&unit) => Recorded::Duplicate,
            Some(settlement) => {
                self.settled.insert(unit, settlement);
                Recorded::First
            }
            None if self.faulted.entry(unit).or_default().insert(record.attempt) => Recorded::FaultKept,
            None => Recorded::Duplicate,
        };
        match recorded {
            Recorded::Duplicate => self.duplicates += 1,
            _ => self.kept.push(record),
        }
        recorded
    }
}

impl MemoryStore {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl RunStore for MemoryStore {
    fn folder(&self) -> &Path {
        Path::new("memory")
    }

    fn item_ids<'a>(&'a self, benchmark: &str) -> ItemIds<'a> {
        let benchmark = benchmark.to_owned();
        let items = self.items.iter().filter(move |((name, _), _)| *name == benchmark);
        Box::new(items.map(|((_, index), item)| Ok((*index, item.id.clone()))))
    }

    fn item(&self, benchmark: &str, index: u64) -> Result<Option<Item>, CheckpointError> {
        Ok(self.items.get(&(benchmark.to_owned(), index)).cloned())
    }

    fn unit_status(&self, unit: &UnitKey) -> UnitStatus {
        let state = self.state();
        match (state.settled.get(unit), state.faulted.get(unit)) {
            (Some(settlement), _) => UnitStatus::Settled(*settlement),
            (None, None) => UnitStatus::Outstanding,
            (None, Some(attempts)) => UnitStatus::Faulted {
                attempts: u32::try_from(attempts.len()).unwrap(),
                last: attempts.last().copied().unwrap(),
            },
        }
    }

    fn has(&self, unit: &UnitKey, attempt: u32) -> bool {
        let state = self.state();
        state.settled.contains_key(unit)
            || state.faulted.get(unit).is_some_and(|attempts| attempts.contains(&attempt))
    }

    fn outcome(&self, unit: &UnitId) -> Result<Option<Outcome>, CheckpointError> {
        let state = self.state();
        let settling = state.kept.iter().find(|record| record.unit == *unit && !record.outcome.is_fault());
        Ok(settling.map(|record| record.outcome.clone()))
    }

    fn settled(&self) -> u64 {
        self.state().settled.len() as u64
    }

    async fn record_all(&self, records: Vec<Record>) -> Result<Vec<Recorded>, CheckpointError> {
        let mut state = self.state();
        Ok(records.into_iter().map(|record| state.record(record)).collect())
    }

    fn seconds(&self) -> Result<Option<f64>, CheckpointError> {
        Ok(self.state().seconds)
    }

    fn note_seconds(&self, seconds: f64) -> Result<(), CheckpointError> {
        self.state().seconds = Some(seconds);
        Ok(())
    }
}

const UNITS: u64 = 5;
const ATTEMPTS: u32 = 3;

#[derive(Debug, Clone)]
enum Step {
    /// Units, attempts, and whether they faulted.
    Record(Vec<(u64, u32, bool)>),
    Seconds(f64),
    /// Closes the store and opens it again.
    Restart,
    /// Opens a copy of the files as they are while the store is open, as after a kill.
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = (0..UNITS, 1..=ATTEMPTS, any::<bool>());
    prop_oneof![
        8 => prop::collection::vec(outcome, 1..6).prop_map(Step::Record),
        2 => (0_u32..1000).prop_map(|seconds| Step::Seconds(f64::from(seconds))),
        1 => Just(Step::Restart),
        1 => Just(Step::Kill),
    ]
}

/// What both stores must agree on: settled units, status of each unit, recorded attempts, items.
type View = (u64, Vec<UnitStatus>, Vec<bool>, Vec<(u64, ItemId)>);

fn view(store: &dyn RunStore) -> View {
    let units: Vec<UnitKey> = (0..UNITS).map(|number| UnitKey::of(&unit(number))).collect();
    let has = units.iter().flat_map(|unit| (1..=ATTEMPTS).map(move |attempt| (unit, attempt)));
    (
        store.settled(),
        units.iter().map(|unit| store.unit_status(unit)).collect(),
        has.map(|(unit, attempt)| store.has(unit, attempt)).collect(),
        store.item_ids("gsm8k").collect::<Result<_, _>>().unwrap(),
    )
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copied(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_checkpoint_follows_the_contract(steps in prop::collection::vec(step(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = |number: u32| folder.path().join(number.to_string());
        let mut number = 0;
        let mut checkpoint = Checkpoint::create(&path(number)).unwrap();
        // Another process that follows the checkpoint.
        let mut reader: Option<CheckpointReader> = None;
        let mut model = MemoryStore::default();
        let items: Vec<Item> = (0..3).map(item).collect();
        checkpoint.store_items("gsm8k", &items).unwrap();
        model.items = items.into_iter().map(|item| (("gsm8k".to_owned(), item.index), item)).collect();
        for step in steps {
            match step {
                Step::Record(outcomes) => {
                    let records = || outcomes.iter().map(|&(unit, attempt, fault)| record(unit, attempt, fault)).collect();
                    let real = runtime.block_on(checkpoint.record_all(records()));
                    prop_assert_eq!(real, runtime.block_on(model.record_all(records())));
                }
                Step::Seconds(seconds) => {
                    checkpoint.note_seconds(seconds).unwrap();
                    model.note_seconds(seconds).unwrap();
                }
                Step::Restart => {
                    checkpoint.close().unwrap();
                    checkpoint = Checkpoint::open(&path(number)).unwrap();
                }
                Step::Kill => {
                    number += 1;
                    copied(checkpoint.folder(), &path(number));
                    checkpoint.close().unwrap();
                    checkpoint = Checkpoint::open(&path(number)).unwrap();
                    // It is another folder.
                    reader = None;
                    // Notes are flushed with the next record, so a kill may lose the latest ones.
                    let seconds = RunStore::seconds(&checkpoint).unwrap();
                    model.state().seconds = seconds;
                    // So are counts of duplicates.
                    model.state().duplicates = checkpoint.duplicates();
                }
            }
            prop_assert_eq!(view(&checkpoint), view(&model));
            prop_assert_eq!(RunStore::seconds(&checkpoint), model.seconds());
            prop_assert_eq!(checkpoint.duplicates(), model.state().duplicates);
            let kept: Vec<Record> = checkpoint.records().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(&kept, &model.state().kept);
            let continues = match &reader {
                Some(reader) => reader.refresh().unwrap().is_some(),
                None => false,
            };
            if !continues {
                reader = Some(CheckpointReader::open(checkpoint.folder()).unwrap());
            }
            let reader = reader.as_ref().unwrap();
            let followed: Vec<Record> = reader.records().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(&followed, &kept, "a reader that refreshes has the records of one that is opened");
            prop_assert_eq!(reader.settled(), checkpoint.settled());
            prop_assert_eq!(reader.item_ids("gsm8k").count(), 3);
        }
        let units: Vec<UnitId> = (0..UNITS).map(unit).collect();
        for unit in &units {
            let mut kept: Vec<Record> =
                model.state().kept.iter().filter(|record| record.unit == *unit).cloned().collect();
            kept.sort_by_key(|record| (Settlement::of(&record.outcome).is_some(), record.attempt));
            prop_assert_eq!(checkpoint.records_of(unit).unwrap(), kept);
            prop_assert_eq!(checkpoint.outcome(unit).unwrap(), model.outcome(unit).unwrap());
        }
        checkpoint.close().unwrap();
    }
}
