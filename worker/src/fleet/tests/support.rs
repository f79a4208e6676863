//! Scripted models, runs and queues for tests of a worker.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use lumos_models::ModelRegistry;
use lumos_models::{EngineSettings, ModelsSettings};
use lumos_queue::nats::NatsError;
use lumos_queue::{Lease, LeaseControl, MemoryQueue, Queue, QueueError};
use lumos_tasks::fleet::{PROTOCOL, RunNotice, RunState, ShardId, SharedInputs, WorkMessage};
use lumos_tasks::{
    Assignment, Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, ItemId,
    ModelIdentity, Role, RunToken, Setup, Task, WorkUnit,
};

use crate::fleet::source::{ShardQueue, ShardSource, SharedStore};

pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Writes a script that answers the questions `0..count`, padded to about `bytes`. Returns the model's name.
pub(crate) fn script(folder: &Path, name: &str, count: usize, bytes: usize) -> String {
    let path = folder.join(format!("{name}.jsonl"));
    let mut file = std::fs::File::create(&path).unwrap();
    for number in 0..count {
        let padding = "x".repeat(bytes / count.max(1));
        let case = serde_json::json!({
            "id": format!("{name}{number}{padding}"), "benchmark": "gsm8k", "formulation": "cot", "item": {},
            "script": { "answer": [format!("Answer is {number}.")] },
            "prompts": { "answer": [format!("<|user|>\n{}\n<|assistant|>\n", question(number))] },
            "expected": { "pred": "5" },
        });
        writeln!(file, "{case}").unwrap();
    }
    format!("script:{}", path.display())
}

pub(crate) fn question(number: usize) -> String {
    format!("What is {number}?")
}

pub(crate) fn models() -> Arc<ModelRegistry> {
    Arc::new(ModelRegistry::new(EngineSettings::default()))
}

pub(crate) fn slow_models(latency: Duration) -> Arc<ModelRegistry> {
    Arc::new(ModelRegistry::new(ModelsSettings {
        script_latency: Some(latency),
        ..ModelsSettings::default()
    }))
}

pub(crate) fn identity(name: &str) -> ModelIdentity {
    models().identify(name, Role::Answerer, Formulation::Cot).unwrap().identity
}

pub(crate) fn configuration(model: ModelIdentity) -> Arc<Configuration> {
    Arc::new(Configuration {
        benchmark: "gsm8k".to_owned(),
        formulation: Formulation::Cot,
        behaviour: Behaviour::Paper,
        max_rounds: 8,
        models: BTreeMap::from([(Role::Answerer, model)]),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b""),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    })
}

pub(crate) fn unit(configuration: &Arc<Configuration>, number: usize) -> WorkUnit {
    let question = question(number);
    let item = ItemId { content: ContentHash::of_bytes(question.as_bytes()), occurrence: 0 };
    WorkUnit::new(item, Task::Maths { question }, Setup::None, Arc::clone(configuration))
}

pub(crate) fn assignment(configuration: &Arc<Configuration>, number: usize) -> Assignment {
    Assignment { unit: unit(configuration, number), attempt: 1, run: None }
}

/// A run as its coordinator publishes it.
pub(crate) struct Run {
    pub(crate) notice: RunNotice,
    pub(crate) shared: Vec<u8>,
    pub(crate) configurations: Vec<Arc<Configuration>>,
}

impl Run {
    pub(crate) fn new(name: &str, configurations: Vec<Arc<Configuration>>) -> Self {
        Self::with_priority(name, configurations, 5)
    }

    pub(crate) fn with_priority(name: &str, configurations: Vec<Arc<Configuration>>, priority: u8) -> Self {
        let inputs = SharedInputs { configurations: configurations.clone() };
        let shared = serde_json::to_vec(&inputs).unwrap();
        let shards: std::collections::BTreeSet<ShardId> =
            configurations.iter().map(|one| ShardId::of(one, priority)).collect();
        let notice = RunNotice {
            protocol: PROTOCOL,
            run: RunToken::of(&ContentHash::of_bytes(name.as_bytes())),
            name: name.to_owned(),
            state: RunState::Active,
            shared: ContentHash::of_bytes(&shared),
            shards: shards.into_iter().collect(),
            time_limit: None,
            written_ms: 0,
        };
        Self { notice, shared, configurations }
    }

    pub(crate) fn token(&self) -> &RunToken {
        &self.notice.run
    }

    pub(crate) fn written(&self) -> Vec<u8> {
        serde_json::to_vec(&self.notice).unwrap()
    }

    pub(crate) fn message(&self, configuration: usize, number: usize) -> WorkMessage {
        let configuration = &self.configurations[configuration];
        let assignment = assignment(configuration, number);
        WorkMessage::pack(self.notice.run.clone(), assignment, configuration.identity())
    }
}

/// Shards in memory.
#[derive(Default, Clone)]
pub(crate) struct MemoryShards {
    shards: Arc<Mutex<BTreeMap<ShardId, MemoryQueue<WorkMessage>>>>,
}

impl MemoryShards {
    pub(crate) fn shard(&self, id: &ShardId) -> MemoryQueue<WorkMessage> {
        let mut shards = self.shards.lock().unwrap();
        shards.entry(id.clone()).or_insert_with(|| MemoryQueue::bounded(256)).clone()
    }

    pub(crate) async fn publish(&self, shard: &ShardId, message: WorkMessage) {
        self.shard(shard).publish(&message.message_id(), message).await.unwrap();
    }
}

struct MemoryShard(MemoryQueue<WorkMessage>);

#[async_trait]
impl ShardQueue for MemoryShard {
    async fn try_claim(&self, max: usize) -> Result<Vec<Lease<WorkMessage>>, QueueError> {
        self.0.claim(max).now_or_never().unwrap_or(Ok(Vec::new()))
    }
}

#[async_trait]
impl Queue<WorkMessage> for MemoryShard {
    async fn publish(&self, id: &str, body: WorkMessage) -> Result<(), QueueError> {
        self.0.publish(id, body).await
    }

    async fn claim(&self, max: usize) -> Result<Vec<Lease<WorkMessage>>, QueueError> {
        self.0.claim(max).await
    }

    fn close(&self) {}
}

#[async_trait]
impl ShardSource for MemoryShards {
    async fn open(&self, shard: &ShardId) -> Result<Option<Arc<dyn ShardQueue>>, QueueError> {
        Ok(self.shards.lock().unwrap().get(shard).map(|queue| Arc::new(MemoryShard(queue.clone())) as _))
    }
}

/// Shared inputs in memory.
#[derive(Default)]
pub(crate) struct MemoryShared(pub(crate) Mutex<BTreeMap<String, Vec<u8>>>);

#[async_trait]
impl SharedStore for MemoryShared {
    async fn get(&self, hash: &ContentHash) -> Result<Vec<u8>, NatsError> {
        let found = self.0.lock().unwrap().get(hash.as_str()).cloned();
        found.ok_or_else(|| NatsError::Missing("not found".to_owned()))
    }
}

/// A queue that hands out leases with given delivery counts, once, and counts how they end.
#[derive(Default)]
pub(crate) struct Handed {
    waiting: Mutex<VecDeque<(Assignment, u32)>>,
    pub(crate) counts: Arc<Counts>,
    duration: Option<Duration>,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) acknowledged: AtomicUsize,
    pub(crate) extended: AtomicUsize,
    pub(crate) released: AtomicUsize,
    pub(crate) buried: AtomicUsize,
    pub(crate) lost: AtomicBool,
    /// The delays of the leases that were released with one.
    pub(crate) delays: Mutex<Vec<Duration>>,
}

impl Counts {
    /// Returns the numbers of acknowledged, released and terminated leases.
    pub(crate) fn ended(&self) -> (usize, usize, usize) {
        let read = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (read(&self.acknowledged), read(&self.released), read(&self.buried))
    }
}

impl Handed {
    pub(crate) fn new(assignments: Vec<(Assignment, u32)>) -> Arc<Self> {
        Self::lasting(assignments, None)
    }

    /// Its leases last this long.
    pub(crate) fn lasting(assignments: Vec<(Assignment, u32)>, duration: Option<Duration>) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::new(assignments.into()), counts: Arc::default(), duration })
    }
}

struct Counted(Arc<Counts>, Option<Duration>);

#[async_trait]
impl LeaseControl for Counted {
    async fn acknowledge(&self) -> Result<(), QueueError> {
        self.0.acknowledged.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn extend(&self) -> Result<(), QueueError> {
        self.0.extended.fetch_add(1, Ordering::SeqCst);
        if self.0.lost.load(Ordering::SeqCst) {
            return Err(QueueError::LeaseLost("the lease was lost".to_owned()));
        }
        Ok(())
    }

    fn release(&self) {
        self.0.released.fetch_add(1, Ordering::SeqCst);
    }

    fn release_after(&self, delay: Duration) {
        self.0.delays.lock().unwrap().push(delay);
        self.release();
    }

    async fn terminate(&self) -> Result<(), QueueError> {
        self.0.buried.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn duration(&self) -> Option<Duration> {
        self.1
    }
}

#[async_trait]
impl Queue<Assignment> for Handed {
    async fn publish(&self, _id: &str, _body: Assignment) -> Result<(), QueueError> {
        Err(QueueError::Closed)
    }

    async fn claim(&self, max: usize) -> Result<Vec<Lease<Assignment>>, QueueError> {
        let mut waiting = self.waiting.lock().unwrap();
        let count = max.min(waiting.len());
        let given = waiting.drain(..count).map(|(assignment, deliveries)| {
            let control = Box::new(Counted(Arc::clone(&self.counts), self.duration));
            Lease::new(assignment.message_id(), assignment, deliveries, control)
        });
        Ok(given.collect())
    }

    fn close(&self) {}
}

/// A shard, opened under any id, that hands out leases with given delivery counts, once, and counts how they end.
#[derive(Default, Clone)]
pub(crate) struct HandedShard {
    waiting: Arc<Mutex<VecDeque<(WorkMessage, u32)>>>,
    pub(crate) counts: Arc<Counts>,
}

impl HandedShard {
    pub(crate) fn hand(&self, message: WorkMessage, deliveries: u32) {
        self.waiting.lock().unwrap().push_back((message, deliveries));
    }
}

#[async_trait]
impl ShardSource for HandedShard {
    async fn open(&self, _shard: &ShardId) -> Result<Option<Arc<dyn ShardQueue>>, QueueError> {
        Ok(Some(Arc::new(self.clone())))
    }
}

#[async_trait]
impl ShardQueue for HandedShard {
    async fn try_claim(&self, max: usize) -> Result<Vec<Lease<WorkMessage>>, QueueError> {
        let mut waiting = self.waiting.lock().unwrap();
        let count = max.min(waiting.len());
        let given = waiting.drain(..count).map(|(message, deliveries)| {
            let control = Box::new(Counted(Arc::clone(&self.counts), None));
            Lease::new(message.message_id(), message, deliveries, control)
        });
        Ok(given.collect())
    }
}

#[async_trait]
impl Queue<WorkMessage> for HandedShard {
    async fn publish(&self, _id: &str, _body: WorkMessage) -> Result<(), QueueError> {
        Err(QueueError::Closed)
    }

    async fn claim(&self, max: usize) -> Result<Vec<Lease<WorkMessage>>, QueueError> {
        let leases = self.try_claim(max).await?;
        if leases.is_empty() { std::future::pending().await } else { Ok(leases) }
    }

    fn close(&self) {}
}
