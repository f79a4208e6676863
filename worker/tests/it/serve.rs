//! The worker's loop with recorded replies: results are published before units are acknowledged, faults are
//! distinguished from the agent's errors, and draining completes the units in progress.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lumos_models::ModelRegistry;
use lumos_models::{EngineSettings, hash_file};
use lumos_queue::{MemoryQueue, Queue};
use lumos_tasks::{
    Assignment, Behaviour, Configuration, ContentHash, Ending, FaultKind, Finished, Formulation,
    GenerationSettings, ItemId, ModelIdentity, Role, Setup, Task, WorkUnit,
};
use lumos_tools::ToolSets;
use lumos_worker::{Backends, EpisodeLimits, LeaseTerms, RunTerms, Worker};
use tokio_util::sync::CancellationToken;

const PROMPT: &str = "<|user|>\nWhat is 2 and 3?\n<|assistant|>\n";

fn script(folder: &Path) -> String {
    let path = folder.join("cases.jsonl");
    let case = serde_json::json!({
        "id": "one", "benchmark": "gsm8k", "formulation": "cot", "item": {},
        "script": { "answer": ["Answer is 5."] }, "prompts": { "answer": [PROMPT] },
        "expected": { "pred": "5" },
    });
    writeln!(std::fs::File::create(&path).unwrap(), "{case}").unwrap();
    format!("script:{}", path.display())
}

fn unit(model: &str, question: &str) -> WorkUnit {
    let path = model.trim_start_matches("script:");
    let identity = ModelIdentity {
        name: model.to_owned(),
        content: hash_file(Path::new(path)).unwrap_or(ContentHash::of_bytes(b"")),
        dtype: None,
    };
    let configuration = Configuration {
        benchmark: "gsm8k".to_owned(),
        formulation: Formulation::Cot,
        behaviour: Behaviour::Paper,
        max_rounds: 8,
        models: BTreeMap::from([(Role::Answerer, identity)]),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b""),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    };
    let item = ItemId { content: ContentHash::of_bytes(question.as_bytes()), occurrence: 0 };
    WorkUnit::new(item, Task::Maths { question: question.to_owned() }, Setup::None, Arc::new(configuration))
}

fn worker() -> Arc<Worker> {
    Arc::new(Worker {
        name: "test".to_owned(),
        concurrency: 4,
        models: Arc::new(ModelRegistry::new(EngineSettings::default())),
        tools: Arc::new(ToolSets::default()),
        runs: Arc::new(RunTerms {
            limits: EpisodeLimits { time: Some(Duration::from_secs(600)) },
            ..RunTerms::default()
        }),
        terms: LeaseTerms::default(),
    })
}

async fn serve(units: Vec<WorkUnit>) -> BTreeMap<String, Finished> {
    let (work, results) = (MemoryQueue::bounded(64), MemoryQueue::bounded(64));
    for unit in units {
        let assignment = Assignment { unit, attempt: 1, run: None };
        work.publish(&assignment.message_id(), assignment).await.unwrap();
    }
    work.close();
    worker()
        .serve(Arc::new(work.clone()), Arc::new(results.clone()), CancellationToken::new())
        .await
        .unwrap();
    assert_eq!((work.waiting(), work.leased()), (0, 0), "all work is acknowledged");
    let leases = results.claim(64).await.unwrap();
    leases.iter().map(|lease| (lease.body().unit.to_string(), lease.body().clone())).collect()
}

#[tokio::test]
async fn answers_and_faults_come_back_apart() {
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path());
    let answered = unit(&script, "What is 2 and 3?");
    let unscripted = unit(&script, "What is 2 and 4?");
    let missing = unit("script:/nowhere/cases.jsonl", "What is 2 and 3?");
    let finished = serve(vec![answered.clone(), unscripted.clone(), missing.clone()]).await;

    let answer = &finished[answered.id.as_str()];
    assert_eq!(answer.outcome.ending, Ending::Answered);
    assert_eq!((answer.telemetry.attempt, answer.telemetry.worker.as_str()), (1, "test"));
    for unit in [unscripted, missing] {
        match &finished[unit.id.as_str()].outcome.ending {
            Ending::Faulted(fault) => assert_eq!(fault.kind, FaultKind::Model, "{fault}"),
            other => panic!("expected a fault, found {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_drained_worker_ends_without_claiming_more() {
    let (work, results) = (MemoryQueue::<Assignment>::bounded(4), MemoryQueue::bounded(4));
    let drain = CancellationToken::new();
    let serving = tokio::spawn(worker().serve(Arc::new(work.clone()), Arc::new(results), drain.clone()));
    tokio::time::sleep(Duration::from_millis(20)).await;
    drain.cancel();
    tokio::time::timeout(Duration::from_secs(300), serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn the_same_weights_are_loaded_once() {
    let models = ModelRegistry::new(EngineSettings::default());
    let mut configuration = Configuration::clone(&unit("script:none", "q").configuration);
    for formulation in [Formulation::Iterative, Formulation::OneTime] {
        configuration.formulation = formulation;
        configuration.models = [Role::Planner, Role::Grounder]
            .map(|role| (role, models.identify("builtin:tiny", role, formulation).unwrap().identity))
            .into();
        Backends::of(&models, &ToolSets::default(), &configuration).await.unwrap();
        Backends::of(&models, &ToolSets::default(), &configuration).await.unwrap();
    }
    assert_eq!(models.list().await.len(), 2, "one planner and one grounder for both formulations");
}
