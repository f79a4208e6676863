//! Tests of the checkpoint's guarantees.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use lumos_tasks::{ContentHash, Ending, Fault, FaultKind, Outcome, Telemetry, UnitId};

use super::database::open_sled;
use super::journal::Location;
use super::store::Batch;
use super::*;
use crate::samples::{configuration, item};

pub(super) fn unit(number: u64) -> UnitId {
    UnitId::new(ContentHash::of_json(&number))
}

pub(super) fn record(number: u64, attempt: u32, fault: bool) -> Record {
    let ending = if fault {
        Ending::Faulted(Fault { kind: FaultKind::Worker, message: "the worker was lost".to_owned() })
    } else {
        Ending::Answered
    };
    Record {
        unit: unit(number),
        configuration: 0,
        item: number,
        attempt,
        outcome: Outcome { ending, evidence: None, steps: Vec::new() },
        telemetry: Telemetry { attempt, ..Telemetry::default() },
    }
}

pub(super) fn identity() -> RunIdentity {
    RunIdentity::of([(&configuration(0), None)], [])
}

#[tokio::test]
async fn what_was_recorded_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    assert!(matches!(Checkpoint::open(&path), Err(CheckpointError::Missing { .. })));
    let checkpoint = Checkpoint::create(&path).unwrap();
    let items: Vec<Item> = (0..300).map(item).collect();
    assert_eq!(checkpoint.plan(), Ok(None));
    assert_eq!(checkpoint.store_items("gsm8k", items.iter().rev()), Ok(300));
    assert_eq!(checkpoint.store_items("gsm", &items[..2]), Ok(2));
    let mark = PlanMark { identity: identity(), items: 302, scoring: vec![Scoring::Paper] };
    checkpoint.plan_complete(&mark).unwrap();
    assert_eq!(checkpoint.record(record(0, 1, true)).await, Ok(Recorded::FaultKept));
    assert_eq!(checkpoint.record(record(0, 1, true)).await, Ok(Recorded::Duplicate));
    assert_eq!(checkpoint.record(record(0, 2, true)).await, Ok(Recorded::FaultKept));
    assert_eq!(checkpoint.status(&unit(0)), UnitStatus::Faulted { attempts: 2, last: 2 });
    assert_eq!(checkpoint.record(record(0, 2, false)).await, Ok(Recorded::First));
    assert_eq!(checkpoint.record(record(0, 3, false)).await, Ok(Recorded::Duplicate));
    assert_eq!(checkpoint.record(record(1, 1, false)).await, Ok(Recorded::First));
    checkpoint.close().unwrap();

    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.plan(), Ok(Some(mark)));
    let read: Vec<Item> = checkpoint.items("gsm8k").collect::<Result<_, _>>().unwrap();
    assert_eq!(read, items);
    assert_eq!(checkpoint.items("gsm").count(), 2);
    let ids: Vec<_> = checkpoint.item_ids("gsm8k").collect::<Result<_, _>>().unwrap();
    assert_eq!(ids, items.iter().map(|item| (item.index, item.id.clone())).collect::<Vec<_>>());
    assert_eq!(checkpoint.item("gsm8k", 7).unwrap(), Some(item(7)));
    assert_eq!((checkpoint.settled(), checkpoint.duplicates()), (2, 2));
    assert_eq!(checkpoint.status(&unit(0)), UnitStatus::Settled(Settlement::Answered));
    assert_eq!(checkpoint.status(&unit(9)), UnitStatus::Outstanding);
    assert_eq!(checkpoint.record(record(1, 2, false)).await, Ok(Recorded::Duplicate));
    let kept = checkpoint.records_of(&unit(0)).unwrap();
    assert_eq!(kept, [record(0, 1, true), record(0, 2, true), record(0, 2, false)]);
    assert_eq!(checkpoint.records().count(), 4);
    checkpoint.close().unwrap();
}

#[tokio::test]
async fn a_second_opener_is_told_that_it_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let first = Checkpoint::create(folder.path()).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(matches!(error, CheckpointError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("--name"), "{error}");
    first.close().unwrap();
    Checkpoint::open(folder.path()).unwrap().close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_made_together_settle_each_unit_once() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Arc::new(Checkpoint::create(folder.path()).unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..200 {
        for attempt in 1..=3 {
            let checkpoint = Arc::clone(&checkpoint);
            tasks.spawn(async move { checkpoint.record(record(number, attempt, false)).await.unwrap() });
        }
    }
    let recorded = tasks.join_all().await;
    assert_eq!(recorded.iter().filter(|one| **one == Recorded::First).count(), 200);
    assert_eq!((checkpoint.settled(), checkpoint.duplicates()), (200, 400));
    assert_eq!(checkpoint.records().count(), 200);
}

#[test]
fn other_layouts_are_refused_and_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    Checkpoint::create(folder.path()).unwrap().close().unwrap();
    for layout in [1u32, 9] {
        let database = open_sled(folder.path()).unwrap();
        database.open_tree("meta").unwrap().insert("schema", &layout.to_be_bytes()).unwrap();
        database.flush().unwrap();
        drop(database);
        let error = Checkpoint::open(folder.path()).unwrap_err();
        assert!(matches!(error, CheckpointError::Schema { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.starts_with(&format!("unsupported layout {layout} of checkpoint `")), "{message}");
        assert!(message.contains("\nhint: "), "{message}");
        let database = open_sled(folder.path()).unwrap();
        let kept = database.open_tree("meta").unwrap().get("schema").unwrap();
        assert_eq!(kept.as_deref(), Some(&layout.to_be_bytes()[..]));
    }
}

#[tokio::test]
async fn records_that_come_together_are_settled_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::create(folder.path()).unwrap();
    let together = vec![
        record(0, 1, true),
        record(0, 1, true),
        record(0, 2, false),
        record(0, 2, true),
        record(0, 3, false),
        record(1, 1, false),
    ];
    use Recorded::{Duplicate, FaultKept, First};
    let recorded = checkpoint.record_all(together).await.unwrap();
    assert_eq!(recorded, [FaultKept, Duplicate, First, Duplicate, Duplicate, First]);
    assert_eq!((checkpoint.settled(), checkpoint.duplicates()), (2, 3));
    assert_eq!(checkpoint.record_all(Vec::new()).await, Ok(Vec::new()));
}

/// A store whose disk is full after a number of batches.
struct FullDisk {
    store: BothCopies,
    batches: u32,
}

impl Store for FullDisk {
    fn folder(&self) -> &Path {
        self.store.folder()
    }

    fn write(&mut self, batch: Batch) -> Result<Vec<Location>, CheckpointError> {
        if self.batches == 0 {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(CheckpointError::of_sled(self.folder(), &sled::Error::Io(full)));
        }
        self.batches -= 1;
        self.store.write(batch)
    }
}

/// The part of the full-disk test in a separate process, which must exit without being killed.
#[tokio::test]
#[ignore = "run by a_full_disk_loses_nothing_that_was_acknowledged"]
async fn child_on_a_full_disk() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let wrap = |store| FullDisk { store, batches: 5 };
    let checkpoint = Checkpoint::with_store(Path::new(&folder), wrap).unwrap();
    for number in 0..5 {
        assert_eq!(checkpoint.record(record(number, 1, false)).await, Ok(Recorded::First));
    }
    for number in 5..8 {
        let error = checkpoint.record(record(number, 1, false)).await.unwrap_err();
        assert!(matches!(error, CheckpointError::Full { .. }), "{error:?}");
        assert!(error.to_string().contains("free disk space"), "{error}");
        assert_eq!(checkpoint.status(&unit(number)), UnitStatus::Outstanding);
    }
    assert_eq!(checkpoint.settled(), 5);
    checkpoint.abandon();
}

const CHILD: &str = "LUMOS_CHECKPOINT_TEST_FOLDER";

/// Creates a command that runs one test of this program in a separate process.
fn child(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--ignored", "--nocapture", &format!("checkpoint::tests::{test}")])
        .env(CHILD, folder);
    command
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let output = child("child_on_a_full_disk", folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.settled(), 5);
    assert_eq!(checkpoint.records().count(), 5);
    checkpoint.close().unwrap();
}

/// Records continuously from many tasks, and prints every acknowledged record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by a_killed_process_loses_nothing_that_was_acknowledged"]
async fn child_that_records() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let checkpoint = Arc::new(Checkpoint::create(Path::new(&folder)).unwrap());
    let first = checkpoint.settled() * 10;
    let mut tasks = tokio::task::JoinSet::new();
    for shard in 0..8 {
        let checkpoint = Arc::clone(&checkpoint);
        tasks.spawn(async move {
            for number in (first + shard..).step_by(8) {
                if checkpoint.record(record(number, 1, false)).await == Ok(Recorded::First) {
                    println!("acknowledged {number}");
                }
            }
        });
    }
    tasks.join_all().await;
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..5u64 {
        let mut child = child("child_that_records", folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut child = Some(child);
        let before = acknowledged.len();
        let mut killer = None;
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("acknowledged ") {
                acknowledged.push(number.parse::<u64>().unwrap());
            }
            // Kill it at a varying time after it has started recording.
            if killer.is_none() && acknowledged.len() > before + 20 {
                let mut child = child.take().unwrap();
                killer = Some(std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(100 + round * 90));
                    child.kill().unwrap();
                    child.wait().unwrap();
                }));
            }
        }
        killer.expect("the child records until it is killed").join().unwrap();
    }
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|&&number| checkpoint.status(&unit(number)) == UnitStatus::Outstanding)
        .collect();
    assert!(acknowledged.len() > 100, "only {} records were acknowledged", acknowledged.len());
    assert!(lost.is_empty(), "{} of {} lost: {lost:?}", lost.len(), acknowledged.len());
    // The index must match the records, no matter when the process was killed.
    let settled = checkpoint.records().map(Result::unwrap).filter(|record| !record.outcome.is_fault());
    assert_eq!(settled.count() as u64, checkpoint.settled());
    checkpoint.close().unwrap();
}

#[test]
fn figures_of_workers_are_stored_later_while_records_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::create(folder.path()).unwrap();
    let figures = || vec![WorkerComputing { worker: "gpu-1".to_owned(), ..WorkerComputing::default() }];
    // As the writer does until its batch is flushed.
    let writing = checkpoint.journal();
    checkpoint.note_workers(|| panic!("the figures stay with the caller"), false).unwrap();
    drop(writing);
    assert!(checkpoint.workers().unwrap().is_empty());
    for waits in [false, true] {
        checkpoint.note_workers(figures, waits).unwrap();
        assert_eq!(checkpoint.workers().unwrap(), figures());
    }
    checkpoint.close().unwrap();
}

#[test]
fn the_queue_of_the_latest_session_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let length = || std::fs::metadata(folder.path().join(journal::FILE_NAME)).unwrap().len();
    let checkpoint = Checkpoint::create(folder.path()).unwrap();
    let empty = length();
    checkpoint.set_queue(None).unwrap();
    assert_eq!((checkpoint.queue(), length()), (Ok(None), empty), "runs without a queue have no note");
    for address in [Some("nats://head:4222"), None, Some("nats://one:4222,tls://two")] {
        checkpoint.set_queue(address).unwrap();
        let reader = CheckpointReader::open(folder.path()).unwrap();
        assert_eq!(reader.queue(), Ok(address.map(str::to_owned)));
    }
    let written = length();
    checkpoint.set_queue(Some("nats://one:4222,tls://two")).unwrap();
    assert_eq!(length(), written);
    checkpoint.close().unwrap();
}

#[tokio::test]
async fn a_reader_is_refreshed_up_to_what_is_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let checkpoint = Checkpoint::create(path).unwrap();
    let items: Vec<Item> = (0..3).map(item).collect();
    checkpoint.store_items("gsm8k", &items[..1]).unwrap();
    let reader = CheckpointReader::open(path).unwrap();
    assert_eq!((reader.refresh(), reader.is_in_use()), (Ok(Some(0)), true));
    checkpoint.store_items("gsm8k", &items).unwrap();
    for number in 0..3 {
        checkpoint.record(record(number, 1, number == 1)).await.unwrap();
    }
    assert_eq!(reader.refresh(), Ok(Some(3)));
    assert_eq!((reader.settled(), reader.item_count()), (2, 3));
    assert_eq!(reader.item("gsm8k", 2).unwrap(), Some(item(2)));
    assert_eq!(reader.records_from(2).collect::<Result<Vec<_>, _>>().unwrap(), [record(2, 1, false)]);
    // The process that writes refreshes its own catalogue.
    assert_eq!(checkpoint.refresh(), Ok(Some(0)));
    checkpoint.close().unwrap();
    assert_eq!((reader.refresh(), reader.is_in_use()), (Ok(Some(0)), false));

    // An entry that is being written lies after the committed end and is not read.
    let journal = path.join(journal::FILE_NAME);
    let mut bytes = std::fs::read(&journal).unwrap();
    let intact = bytes.len();
    bytes.extend_from_within(intact - 40..);
    std::fs::write(&journal, &bytes).unwrap();
    assert_eq!(reader.refresh(), Ok(Some(0)));
    // A shorter journal and another one in its place are read again.
    std::fs::write(&journal, &bytes[..intact - 10]).unwrap();
    assert_eq!(reader.refresh(), Ok(None));
    std::fs::write(&journal, &bytes[..intact]).unwrap();
    assert_eq!(reader.refresh(), Ok(Some(0)));
    std::fs::write(journal::new_path(path), &bytes[..intact]).unwrap();
    std::fs::rename(journal::new_path(path), &journal).unwrap();
    assert_eq!(reader.refresh(), Ok(None));
    assert_eq!(CheckpointReader::open(path).unwrap().settled(), 2);
}
