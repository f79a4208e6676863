//! A run of a million items: time to find the outstanding units, and memory.
//!
//! Prints one measurement of a large run instead of using a benchmark harness. A separate process creates the
//! folder once, and each figure comes from a new process. `LUMOS_MILLION=50000` reduces the size.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use jiff::Timestamp;
use lumos_coordinator::dispatch::{DispatchConfig, dispatch};
use lumos_coordinator::manifest::{Manifest, ManifestParts, PlannedData};
use lumos_coordinator::spec::{ModelSet, RunSpec};
use lumos_coordinator::{Checkpoint, Event, Record};
use lumos_queue::{MemoryQueue, Queue};
use lumos_tasks::{
    Assignment, Behaviour, Configuration, ContentHash, Ending, Finish, Finished, Formulation,
    GenerationSettings, Item, ItemId, ModelIdentity, Outcome, Role, Setup, Step, Target, Task, Telemetry,
    WorkUnit,
};
use tokio_util::sync::CancellationToken;

/// Task of this process.
const PART: &str = "LUMOS_MILLION_PART";
const FOLDER: &str = "LUMOS_MILLION_FOLDER";

fn count() -> u64 {
    std::env::var("LUMOS_MILLION").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000)
}

/// Returns a value of `/proc/self/status` in mebibytes.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found =
        status.lines().find_map(|text| text.strip_prefix(line)?.split_whitespace().next()?.parse().ok());
    found.unwrap_or(0u64) / 1024
}

/// Processor time so far in seconds, which is more reliable than elapsed time on a shared machine.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace().collect::<Vec<_>>());
    let ticks = |at: usize| fields.as_ref()?.get(at)?.parse::<f64>().ok();
    ticks(11).zip(ticks(12)).map_or(0.0, |(user, system)| (user + system) / 100.0)
}

/// Creates a text that does not compress well.
fn text(number: u64, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    let mut word = number;
    while text.len() < bytes {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(
            ["apples ", "has ", "more than ", "the ", "train ", "costs "][(word >> 60) as usize % 6],
        );
        text.push_str(&format!("{} ", word >> 44));
    }
    text
}

fn item(index: u64) -> Item {
    let question = text(index, 600);
    let record = serde_json::json!({"question": question, "answer": index.to_string()});
    Item {
        id: ItemId { content: ContentHash::of_json(&record), occurrence: 0 },
        index,
        name: None,
        group: None,
        task: Task::Maths { question },
        setup: Setup::None,
        target: Target::Number { answer: index.to_string() },
        record,
    }
}

/// Creates an outcome of about two kilobytes.
fn outcome(number: u64) -> Outcome {
    let step = Step::Generate {
        turn: 1,
        role: Role::Answerer,
        prompt: text(number, 1700),
        reply: "Subgoal 1: a reply".to_owned(),
        finish: Finish::Stop,
        prompt_tokens: Some(400),
        completion_tokens: Some(12),
    };
    Outcome { ending: Ending::Answered, evidence: None, steps: vec![step] }
}

fn manifest(items: &[Item]) -> Manifest {
    let model =
        ModelIdentity { name: "none".to_owned(), content: ContentHash::of_bytes(b"none"), dtype: None };
    let configuration = Configuration {
        benchmark: "gsm8k".to_owned(),
        formulation: Formulation::Direct,
        behaviour: Behaviour::Paper,
        max_rounds: 1,
        models: BTreeMap::from([(Role::Answerer, model)]),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b"prompts"),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    };
    let spec = RunSpec {
        tasks: Some(vec!["gsm8k".to_owned()]),
        formulation: Some(vec![Formulation::Direct]),
        models: Some(vec![ModelSet { model: Some("none".to_owned()), ..ModelSet::default() }]),
        ..RunSpec::default()
    };
    Manifest::new(ManifestParts {
        spec: spec.resolve().expect("invalid specification"),
        configurations: vec![configuration.into()],
        models: Vec::new(),
        data: vec![PlannedData {
            benchmark: "gsm8k",
            source: "synthetic".to_owned(),
            sha256: ContentHash::of_bytes(b"data"),
            records: items.len() as u64,
            invalid: 0,
            items: &items.iter().map(|item| (item.index, item.id.clone())).collect::<Vec<_>>(),
        }],
        git_revision: None,
        created: Timestamp::UNIX_EPOCH,
    })
}

/// Stores the items only; everything is outstanding.
fn plan(folder: &Path) {
    // The manifest has the same size for any number of items, so it is created from a few and the number is
    // changed.
    let mut manifest = manifest(&(0..10).map(item).collect::<Vec<_>>());
    for planned in &mut manifest.configurations {
        planned.planned = count();
    }
    manifest.open_or_create(folder).expect("failed to write the manifest");
    let checkpoint = Checkpoint::create(&folder.join("checkpoint")).expect("failed to create the checkpoint");
    let began = Instant::now();
    checkpoint.store_items("gsm8k", (0..count()).map(item)).expect("failed to store the items");
    println!(
        "store items: {:.1} s ({:.1} s of processor time), peak {} MiB",
        began.elapsed().as_secs_f64(),
        processor(),
        memory("VmHWM:")
    );
    checkpoint.close().expect("failed to close the checkpoint");
}

/// Records an outcome for every item.
async fn fill(folder: &Path) {
    let manifest = Manifest::read(folder).expect("failed to read the manifest");
    let identity = manifest.configurations[0].identity.clone();
    let checkpoint = Checkpoint::open(&folder.join("checkpoint")).expect("failed to open the checkpoint");
    let began = Instant::now();
    let mut batch = Vec::new();
    for item in checkpoint.item_ids("gsm8k") {
        let (index, id) = item.expect("failed to read an item identity");
        batch.push(Record {
            unit: WorkUnit::identity_of(&id, &identity),
            configuration: 0,
            item: index,
            attempt: 1,
            outcome: outcome(index),
            telemetry: Telemetry::default(),
        });
        if batch.len() == 512 {
            checkpoint.record_all(std::mem::take(&mut batch)).await.expect("failed to record");
        }
    }
    checkpoint.record_all(batch).await.expect("failed to record");
    println!(
        "record all: {:.1} s ({:.1} s of processor time), peak {} MiB",
        began.elapsed().as_secs_f64(),
        processor(),
        memory("VmHWM:")
    );
    checkpoint.close().expect("failed to close the checkpoint");
}

/// Measures the first steps of `resume`, then runs `units` units with workers that return at once.
async fn resume(folder: &Path, units: usize) {
    let began = Instant::now();
    let manifest = Manifest::read(folder).expect("failed to read the manifest");
    let checkpoint = Checkpoint::open(&folder.join("checkpoint")).expect("failed to open the checkpoint");
    let opened = began.elapsed();
    let (events, mut received) = tokio::sync::mpsc::channel(1024);
    let work: MemoryQueue<Assignment> = MemoryQueue::bounded(1024);
    let results: MemoryQueue<Finished> = MemoryQueue::bounded(1024);
    let drain = CancellationToken::new();
    let workers = {
        let (work, results, drain) = (work.clone(), results.clone(), drain.clone());
        tokio::spawn(async move {
            let mut done = 0;
            loop {
                let leases = work.claim(32).await.expect("failed to claim");
                if leases.is_empty() || done >= units {
                    break;
                }
                for lease in leases {
                    let finished = Finished {
                        unit: lease.body().unit.id.clone(),
                        attempt: lease.body().attempt,
                        outcome: outcome(done as u64),
                        telemetry: Telemetry::default(),
                        run: None,
                    };
                    results.publish(&finished.message_id(), finished).await.expect("failed to publish");
                    lease.acknowledge().await.expect("failed to acknowledge");
                    done += 1;
                }
            }
            drain.cancel();
            results.close();
        })
    };
    let terms = DispatchConfig::of(&manifest);
    let dispatching = dispatch(&manifest, &terms, &checkpoint, &work, &results, &events, &drain);
    let watching = async {
        let first = received.recv().await;
        let decided = began.elapsed();
        println!(
            "resume: opened in {:.2} s, planned in {:.2} s ({:.2} s of processor time), {} MiB ({first:?})",
            opened.as_secs_f64(),
            decided.as_secs_f64(),
            processor(),
            memory("VmRSS:")
        );
        while let Some(event) = received.recv().await {
            if matches!(event, Event::Finished { .. }) {
                break;
            }
        }
        decided
    };
    let before = checkpoint.settled();
    let before_work = processor();
    let (summary, decided) = tokio::join!(dispatching, watching);
    let summary = summary.expect("the session failed");
    let seconds = began.elapsed().saturating_sub(decided).as_secs_f64();
    workers.await.expect("the workers panicked");
    let settled = summary.settled - before;
    println!(
        "then {settled} null items in {seconds:.2} s ({:.0} items/s, {:.1} s of processor time), peak {} MiB",
        settled as f64 / seconds,
        processor() - before_work,
        memory("VmHWM:")
    );
    checkpoint.close().expect("failed to close the checkpoint");
}

fn main() {
    if let (Ok(part), Ok(folder)) = (std::env::var(PART), std::env::var(FOLDER)) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("failed to start the runtime");
        let folder = Path::new(&folder);
        match part.as_str() {
            "plan" => plan(folder),
            "fill" => runtime.block_on(fill(folder)),
            _ => runtime.block_on(resume(folder, 50_000)),
        }
        return;
    }
    let folder = tempfile::tempdir().expect("failed to create a folder");
    for (part, what) in [
        ("plan", "planning"),
        ("resume", "resuming a run with all units outstanding"),
        ("fill", "recording all units"),
        ("resume", "resuming a run with all units recorded"),
    ] {
        println!("-- {what}, {} items", count());
        let program = std::env::current_exe().expect("failed to get the path of this program");
        let status = Command::new(program).env(PART, part).env(FOLDER, folder.path()).status();
        assert!(status.expect("failed to run").success(), "{what} failed");
    }
}
