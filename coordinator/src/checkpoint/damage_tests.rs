//! Damaged checkpoints are either restored completely or reported with exact numbers.
//!
//! `LUMOS_DAMAGED=200` runs 200 rounds instead of 24, and `LUMOS_TEST_SEED` sets the first seed. A failure
//! prints the seed of its round and keeps the folder. `LUMOS_DAMAGED=1` with that seed repeats the round
//! alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::tests::{identity, record, unit};
use super::*;
use crate::samples::item;

const ITEMS: u64 = 40;
/// Number of units with an outcome; every seventh also has a fault.
const SETTLED: u64 = 112;

/// Creates a record with text that does not compress well, so that the files have a realistic size.
fn large(number: u64, attempt: u32, fault: bool) -> Record {
    let mut record = record(number, attempt, fault);
    let words: Vec<String> = (0..40)
        .map(|word| format!("{:x}", (number * 131 + word + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
        .collect();
    record.telemetry.worker = words.join(" ");
    record
}

fn items() -> Vec<Item> {
    (0..ITEMS).map(item).collect()
}

/// Creates a complete checkpoint and returns its records, in order.
async fn fill(folder: &Path) -> Vec<Record> {
    let checkpoint = Checkpoint::create(folder).unwrap();
    assert_eq!(checkpoint.store_items("svamp", items()), Ok(ITEMS));
    checkpoint
        .plan_complete(&PlanMark { identity: identity(), items: ITEMS, scoring: vec![Scoring::Paper] })
        .unwrap();
    let mut records = Vec::new();
    for number in 0..SETTLED {
        if number.is_multiple_of(7) {
            records.push(large(number, 1, true));
        }
        records.push(large(number, 2, false));
    }
    for together in records.chunks(9) {
        checkpoint.record_all(together.to_vec()).await.unwrap();
    }
    checkpoint.close().unwrap();
    records
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Lists the files of a checkpoint that are not empty.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && fs::metadata(path).unwrap().len() > 0)
        .collect();
    found.sort();
    found
}

/// Returns every file with its content, to verify that reading changes nothing.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files(folder).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

struct Seeded(TestRng);

impl Seeded {
    fn new(seed: u64) -> Self {
        let mut bytes = [7; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % bound.max(1) as u64).unwrap()
    }
}

/// Damages a file: flips bits, truncates it, zeroes a part of it, or deletes it. Returns a description.
fn damage(file: &Path, how: &mut Seeded) -> String {
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    let mut bytes = fs::read(file).unwrap();
    match how.below(4) {
        0 => {
            let flips = 1 + how.below(3);
            for _ in 0..flips {
                let bit = how.below(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            fs::write(file, bytes).unwrap();
            format!("{flips} bits of {name} flipped")
        }
        1 => {
            let length = how.below(bytes.len());
            bytes.truncate(length);
            fs::write(file, bytes).unwrap();
            format!("{name} cut off at {length}")
        }
        2 => {
            let from = how.below(bytes.len());
            let to = bytes.len().min(from + 1 + how.below(8192));
            bytes[from..to].fill(0);
            fs::write(file, bytes).unwrap();
            format!("{name} zeroed from {from} to {to}")
        }
        _ => {
            fs::remove_file(file).unwrap();
            format!("{name} deleted")
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Checks that every record found is correct and every missing one is reported.
fn check(reader: &CheckpointReader, records: &[Record], what: &str) {
    let found: Vec<Record> = reader.records().collect::<Result<_, _>>().unwrap();
    let lost = &reader.recovery.lost;
    let kept: Vec<&Record> = records.iter().filter(|record| found.contains(record)).collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), kept, "{what}: nothing else, in the same order");
    assert_eq!(lost.outcomes, (records.len() - found.len()) as u64, "{what}: {:?}", reader.recovery);
    let stored: Vec<Item> = reader.items("svamp").collect::<Result<_, _>>().unwrap();
    assert_eq!(lost.items, ITEMS - stored.len() as u64, "{what}: {:?}", reader.recovery);
    assert!(stored.iter().all(|one| *one == item(one.index)), "{what}");
    let named: usize = lost.named.items.values().map(Vec::len).sum();
    assert!(named as u64 <= lost.items, "{what}");
    let settled: BTreeSet<_> =
        found.iter().filter(|one| !one.outcome.is_fault()).map(|one| one.unit.clone()).collect();
    assert_eq!(reader.settled(), settled.len() as u64, "{what}");
    for number in 0..SETTLED {
        let expected = settled.contains(&unit(number));
        let status = reader.status(&unit(number));
        assert_eq!(matches!(status, UnitStatus::Settled(_)), expected, "{what}");
    }
    assert_eq!(reader.plan().unwrap().is_some(), lost.items == 0 && lost.notes == 0, "{what}");
}

#[tokio::test]
async fn damaged_checkpoints_are_recovered_or_reported_exactly() {
    let first = lumos_capabilities::seed(1);
    let rounds = number("LUMOS_DAMAGED", 24);
    let mut folder = tempfile::tempdir().unwrap();
    // sled's files differ between runs, so a failure keeps them.
    folder.disable_cleanup(true);
    let whole = folder.path().join("whole");
    let records = fill(&whole).await;
    let (mut recovered, mut reported, mut untouched) = (0, 0, 0);
    for seed in first..first + rounds {
        let mut how = Seeded::new(seed);
        let damaged = folder.path().join(format!("run-{seed}")).join("checkpoint");
        copy(&whole, &damaged);
        let files = files(&damaged);
        let mut done = Vec::new();
        // Every third round damages both copies.
        let first = how.below(files.len());
        done.push(damage(&files[first], &mut how));
        if seed.is_multiple_of(3) {
            let journal = files.iter().position(|file| file.ends_with("journal")).unwrap();
            let second = if first == journal { how.below(files.len()) } else { journal };
            if second != first {
                done.push(damage(&files[second], &mut how));
            }
        }
        let what = format!("{}, seed {seed}: {}", folder.path().display(), done.join(", "));
        let before = content(&damaged);

        // A reader returns the same as a repair, and changes nothing.
        let seen = CheckpointReader::open(&damaged);
        assert_eq!(content(&damaged), before, "{what}: a reader wrote");
        match seen {
            Ok(reader) => check(&reader, &records, &what),
            Err(CheckpointError::Corrupt { .. }) => assert!(done.len() > 1, "{what}: one copy is whole"),
            Err(error) => panic!("{what}: {error}"),
        }

        let checkpoint = match Checkpoint::open(&damaged) {
            Ok(checkpoint) => checkpoint,
            Err(CheckpointError::Corrupt { detail, .. }) if done.len() > 1 => {
                reported += 1;
                println!("{what}: {detail}");
                continue;
            }
            Err(error) => panic!("{what}: {error}"),
        };
        check(&checkpoint, &records, &what);
        let recovery = checkpoint.recovery.clone();
        assert!(done.len() > 1 || !recovery.has_lost(), "{what}: one copy is whole: {recovery:?}");
        match (recovery.is_empty(), recovery.has_lost()) {
            (true, _) => untouched += 1,
            (false, true) => reported += 1,
            (false, false) => recovered += 1,
        }
        for line in recovery.lines(&damaged) {
            println!("{what}: {line}");
        }
        if let Some(kept) = &recovery.kept {
            assert!(fs::read_dir(kept).unwrap().count() > 0, "{what}");
        }
        // After the repair, new records are accepted and reading them back succeeds.
        for record in &records {
            checkpoint.record(record.clone()).await.unwrap();
        }
        assert_eq!(checkpoint.store_items("svamp", items()), Ok(ITEMS));
        checkpoint.close().unwrap();
        // Damage that sled has not read yet may appear when its log is read the next time. Nothing is lost.
        for again in 2..4 {
            let checkpoint = Checkpoint::open(&damaged).unwrap();
            let recovery = &checkpoint.recovery;
            assert!(!recovery.has_lost() && (again == 2 || recovery.is_empty()), "{what}: {recovery:?}");
            assert_eq!(checkpoint.settled(), SETTLED, "{what}");
            assert_eq!(checkpoint.items("svamp").count() as u64, ITEMS, "{what}");
            checkpoint.close().unwrap();
        }
    }
    folder.disable_cleanup(false);
    println!(
        "{rounds} damaged checkpoints: {recovered} recovered, {reported} reported with numbers, {untouched} not affected"
    );
    assert_eq!(recovered + reported + untouched, rounds);
}

#[tokio::test]
async fn an_unfinished_snapshot_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let records = fill(&path).await;
    let unfinished = path.join("snap.FFFFFFFFFFFFFFF0.generating");
    fs::write(&unfinished, b"").unwrap();
    // A reader ignores it and does not delete it.
    check(&CheckpointReader::open(&path).unwrap(), &records, "read");
    assert!(unfinished.exists());
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert!(checkpoint.recovery.is_empty(), "{:?}", checkpoint.recovery);
    check(&checkpoint, &records, "opened");
    assert!(!unfinished.exists());
    checkpoint.close().unwrap();
}

/// Damages the records 5 and 6 in both copies.
fn lose_two(path: &Path) {
    let journal = path.join("journal");
    let location = {
        let checkpoint = Checkpoint::open(path).unwrap();
        let location = checkpoint.lock().records[5];
        // The database silently loses the same two records.
        for number in [5, 6] {
            checkpoint.database.records.remove(store::record_key(number)).unwrap();
        }
        checkpoint.close().unwrap();
        location
    };
    let next = u64::from(location.length) + frame::PREFIX as u64 + 4 + index::ENTRY as u64;
    let mut bytes = fs::read(&journal).unwrap();
    for at in [location.offset + 3, location.offset + next + 3] {
        bytes[usize::try_from(at).unwrap()] ^= 0x40;
    }
    fs::write(&journal, bytes).unwrap();
}

#[tokio::test]
async fn lost_outcomes_are_reported_once_and_before_the_repair() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    fill(&path).await;
    lose_two(&path);
    let journal = path.join("journal");
    let damaged = fs::read(&journal).unwrap();
    let reported = std::cell::RefCell::new(Vec::new());
    let opened = recover::open(&path, &|recovery| {
        assert!(fs::read(&journal).unwrap() == damaged, "the next start finds the same damage");
        reported.borrow_mut().push(recovery.lost.outcomes);
    });
    drop(opened.unwrap());
    assert_eq!(reported.take(), [2]);
    let opened = recover::open(&path, &|recovery| panic!("{recovery:?}")).unwrap();
    assert!(!opened.recovery.has_lost(), "{:?}", opened.recovery);
}

#[tokio::test]
async fn outcomes_that_both_copies_lost_are_counted_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let records = fill(&path).await;
    lose_two(&path);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let lost = checkpoint.recovery.lost.clone();
    assert_eq!((lost.items, lost.outcomes, lost.notes), (0, 2, 0), "{:?}", checkpoint.recovery);
    let expected: BTreeSet<String> =
        records[5..7].iter().map(|record| record.unit.as_str()[..12].to_owned()).collect();
    assert_eq!(lost.named.units.into_iter().collect::<BTreeSet<_>>(), expected);
    let lines = checkpoint.recovery.lines(&path);
    assert!(
        lines.iter().any(|line| line.contains("2 outcomes") && line.contains("lumos resume")),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| !line.contains("delete")), "{lines:?}");
    check(&checkpoint, &records, "two lost");
    checkpoint.close().unwrap();
}

/// Numbers that no run reaches must be reported without long run times and overflows.
#[tokio::test]
async fn invented_numbers_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let records = fill(&path).await;
    let file = path.join("journal");
    let mut bytes = fs::read(&file).unwrap();
    for sequence in [u64::MAX, u64::MAX - 1, 1 << 40] {
        frame::push(&mut bytes, frame::Kind::Record, sequence, b"key", b"value").unwrap();
    }
    let reported = 4_000_000_000;
    let head = frame::Head { entries: u64::MAX, bytes: u64::MAX, records: reported, items: ITEMS, notes: 1 };
    bytes[..frame::HEADER as usize].copy_from_slice(&head.encode());
    fs::write(&file, &bytes).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.records().collect::<Result<Vec<_>, _>>().unwrap(), records);
    let lost = &checkpoint.recovery.lost;
    assert_eq!((lost.items, lost.outcomes), (0, u64::from(reported) - records.len() as u64));
    checkpoint.close().unwrap();

    // The key of this record claims that four billion records precede it.
    let mut bytes = fs::read(&file).unwrap();
    let sequence = journal::JournalFile::open(&path).unwrap().unwrap().scan(|_| {}).unwrap().next;
    let key = catalogue::record_key(u32::MAX, &[1; index::ENTRY]);
    frame::push(&mut bytes, frame::Kind::Record, sequence, &key, b"value").unwrap();
    fs::write(&file, &bytes).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.records().collect::<Result<Vec<_>, _>>().unwrap(), records);
    checkpoint.close().unwrap();
}

#[tokio::test]
async fn a_folder_without_a_journal_gets_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let records = fill(&path).await;
    {
        let database = database::open_sled(&path).unwrap();
        database.open_tree("meta").unwrap().remove("journal").unwrap();
        database.flush().unwrap();
    }
    for name in ["journal", "lock"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    let before = content(&path);
    check(&CheckpointReader::open(&path).unwrap(), &records, "read");
    assert_eq!(content(&path), before);
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert!(checkpoint.recovery.is_empty(), "{:?}", checkpoint.recovery);
    check(&checkpoint, &records, "opened");
    checkpoint.close().unwrap();
    assert!(path.join("journal").is_file());
    check(&CheckpointReader::open(&path).unwrap(), &records, "read again");
}

#[tokio::test]
async fn settled_units_are_counted_by_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let count = || CheckpointReader::count_settled(&path).map(|(settled, _)| settled);
    assert!(matches!(count(), Err(CheckpointError::Missing { .. })));
    fill(&path).await;
    assert_eq!(count(), Ok(SETTLED));
    let checkpoint = Checkpoint::open(&path).unwrap();
    checkpoint.record(large(SETTLED, 1, false)).await.unwrap();
    assert_eq!(CheckpointReader::count_settled(&path), Ok((SETTLED + 1, true)));
    let location = checkpoint.lock().records[5];
    checkpoint.close().unwrap();
    // A key is damaged: the other copy is read too.
    let journal = path.join("journal");
    let mut bytes = fs::read(&journal).unwrap();
    bytes[usize::try_from(location.offset).unwrap() - 3] ^= 0x40;
    fs::write(&journal, bytes).unwrap();
    assert_eq!(count(), Ok(SETTLED + 1));
}

#[tokio::test]
async fn a_reader_reads_while_a_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let checkpoint = Checkpoint::create(&path).unwrap();
    checkpoint.store_items("svamp", items()).unwrap();
    for number in 0..20 {
        checkpoint.record(large(number, 1, false)).await.unwrap();
        let reader = CheckpointReader::open(&path).unwrap();
        assert!(reader.is_in_use());
        assert_eq!(reader.settled(), number + 1);
        assert_eq!(reader.records().last().unwrap().unwrap(), large(number, 1, false));
        assert_eq!(reader.items("svamp").count() as u64, ITEMS);
    }
    // The start of an entry, as a reader sees it during a write.
    let journal = path.join("journal");
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, [&bytes[..], &bytes[64..120]].concat()).unwrap();
    let reader = CheckpointReader::open(&path).unwrap();
    assert_eq!(reader.settled(), 20);
    checkpoint.close().unwrap();
    assert!(!CheckpointReader::open(&path).unwrap().is_in_use());
    let again = Checkpoint::open(&path).unwrap();
    assert!(again.recovery.is_empty(), "{:?}", again.recovery);
    assert_eq!(again.settled(), 20);
}
