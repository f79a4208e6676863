//! Records per second, each flushed before it is acknowledged, by the number recorded together.
//!
//! Single records are limited by the disk's flush; records that are recorded together share one flush.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lumos_coordinator::{Checkpoint, Record};
use lumos_tasks::{ContentHash, Ending, Finish, Outcome, Role, Step, Telemetry, UnitId};

/// Creates a record of about two kilobytes.
fn record(number: u64) -> Record {
    let step = Step::Generate {
        turn: 1,
        role: Role::Planner,
        prompt: format!("{number} {}", "words of a prompt that is long ".repeat(60)),
        reply: "Subgoal 1: a reply".to_owned(),
        finish: Finish::Stop,
        prompt_tokens: Some(400),
        completion_tokens: Some(12),
    };
    Record {
        unit: UnitId::new(ContentHash::of_json(&number)),
        configuration: 0,
        item: number,
        attempt: 1,
        outcome: Outcome { ending: Ending::Answered, evidence: None, steps: vec![step] },
        telemetry: Telemetry::default(),
    }
}

fn recording(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let mut group = criterion.benchmark_group("record_and_flush");
    group.sample_size(20);
    for together in [1u64, 16, 256] {
        let folder = tempfile::tempdir().expect("failed to create a folder");
        let checkpoint = Checkpoint::create(folder.path()).expect("failed to create the checkpoint");
        let mut next = 0;
        group.throughput(Throughput::Elements(together));
        group.bench_function(BenchmarkId::from_parameter(together), |bencher| {
            bencher.iter(|| {
                let records =
                    (next..next + together).map(|number| checkpoint.record_all(vec![record(number)]));
                next += together;
                for recorded in runtime.block_on(futures::future::join_all(records)) {
                    recorded.expect("failed to record");
                }
            });
        });
        checkpoint.close().expect("failed to close the checkpoint");
    }
    group.finish();
}

criterion_group!(benches, recording);
criterion_main!(benches);
