//! Cost of the second copy: records per second with and without it, measured alternately.
//!
//! `cargo test --release -p lumos-coordinator --lib cost_of_the_second_copy -- --ignored --nocapture`. The
//! measurement has no limit that could fail, because machines differ.

use std::time::Instant;

use lumos_tasks::{Finish, Role, Step};
use sled::Transactional;

use super::journal::Location;
use super::store::{Batch, record_key};
use super::tests::record;
use super::*;

/// Writes to the database only, as in versions without a journal.
struct DatabaseOnly(BothCopies);

impl Store for DatabaseOnly {
    fn folder(&self) -> &Path {
        self.0.folder()
    }

    fn write(&mut self, batch: Batch) -> Result<Vec<Location>, CheckpointError> {
        let failed = |error| CheckpointError::of_sled(self.0.folder(), &error);
        let database = &self.0.database;
        let mut records = sled::Batch::default();
        let count = batch.records.len();
        for (number, value) in (batch.first..).zip(batch.records) {
            records.insert(&record_key(number), value);
        }
        let (first, entries) = (record_key(batch.first), batch.entries);
        let written = (&database.records, &database.index).transaction(|(into_records, into_index)| {
            into_records.apply_batch(&records)?;
            into_index.insert(&first, entries.as_slice())?;
            Ok::<_, sled::transaction::ConflictableTransactionError<()>>(())
        });
        written.expect("the transaction does not abort");
        database.database.flush().map_err(failed)?;
        Ok(vec![Location { offset: 0, length: 0, checksum: 0 }; count])
    }
}

/// Creates a record of about two kilobytes of varying words.
fn large(number: u64) -> Record {
    let mut prompt = String::new();
    let mut word = number;
    while prompt.len() < 1700 {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        prompt.push_str(["apples ", "has ", "more ", "the ", "train ", "costs "][(word >> 60) as usize % 6]);
        prompt.push_str(&format!("{} ", word >> 44));
    }
    let mut record = record(number, 1, false);
    record.outcome.steps = vec![Step::Generate {
        turn: 1,
        role: Role::Planner,
        prompt,
        reply: "Subgoal 1: a reply".to_owned(),
        finish: Finish::Stop,
        prompt_tokens: Some(400),
        completion_tokens: Some(12),
    }];
    record
}

/// Processor time of this process in seconds.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Records `records`, `together` at a time. Returns records per second, and processor time per record in µs.
async fn measure(both: bool, records: &[Record], together: usize) -> (f64, f64) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = if both {
        Checkpoint::create(folder.path()).unwrap()
    } else {
        Checkpoint::with_store(folder.path(), DatabaseOnly).unwrap()
    };
    let (began, spent) = (Instant::now(), processor());
    for chunk in records.chunks(together) {
        checkpoint.record_all(chunk.to_vec()).await.unwrap();
    }
    let (seconds, spent) = (began.elapsed().as_secs_f64(), processor() - spent);
    checkpoint.close().unwrap();
    (records.len() as f64 / seconds, 1e6 * spent / records.len() as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::test]
#[ignore = "a measurement"]
async fn cost_of_the_second_copy() {
    let all: Vec<Record> = (0..20_000).map(large).collect();
    for (together, records) in [(1, &all[..1500]), (16, &all[..8000]), (256, &all[..])] {
        let (mut one, mut two) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for round in 0..9 {
            // The order alternates between rounds.
            for both in [round % 2 == 0, round % 2 == 1] {
                let (rate, spent) = measure(both, records, together).await;
                let side = if both { &mut two } else { &mut one };
                side.0.push(rate);
                side.1.push(spent);
            }
        }
        let ratios = one.0.iter().zip(&two.0).map(|(one, two)| two / one).collect();
        println!(
            "{together} together: {:.0} records/s without, {:.0} with the journal (median of the ratios {:.3}); \
             processor {:.1} and {:.1} µs each",
            median(one.0),
            median(two.0),
            median(ratios),
            median(one.1),
            median(two.1)
        );
    }
}
