//! Models that share one memory and are loaded in turn, each as its own backend. [`super::phases`] decides; this module
//! makes requests wait, and loads and unloads models.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lumos_tasks::{Completion, Request};
use tokio::sync::oneshot;

use super::phases::{Decision, Phases, Ticket};
use super::{ModelBackend, ModelError};

/// Turns of a model that are let in while another is waited for: far more than episodes wait.
const LONGEST_PHASE: usize = 4096;

/// What names a model of a gate.
pub(super) trait Key: Ord + Clone + Send + Sync + 'static {}

impl<K: Ord + Clone + Send + Sync + 'static> Key for K {}

/// How one of the models is loaded.
#[async_trait]
pub(super) trait Load: Send + Sync {
    /// Loads it. What goes wrong is said in words.
    async fn load(&self) -> Result<Arc<dyn ModelBackend>, String>;
}

/// What swapping cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Swapping {
    /// Models loaded, each time counted.
    pub loads: u64,
    /// Time spent unloading and loading.
    pub time: Duration,
}

impl std::ops::AddAssign for Swapping {
    fn add_assign(&mut self, other: Self) {
        self.loads += other.loads;
        self.time += other.time;
    }
}

/// The models of one memory.
pub(super) struct Gate<K: Key> {
    state: Mutex<State<K>>,
}

struct State<K: Key> {
    phases: Phases<K>,
    loaders: BTreeMap<K, Arc<dyn Load>>,
    waiting: HashMap<Ticket, oneshot::Sender<Result<Turn<K>, ModelError>>>,
    resident: Option<Arc<dyn ModelBackend>>,
    swapping: Swapping,
    /// When a turn was last let in or ended, or a model came.
    went_on: tokio::time::Instant,
}

/// A turn that runs: the resident model stays until it is dropped.
struct Turn<K: Key> {
    /// Taken out before the gate is told, which may then unload the model.
    backend: Option<Arc<dyn ModelBackend>>,
    gate: Arc<Gate<K>>,
}

/// A turn that waits, until it is let in or given up.
struct Queued<K: Key> {
    ticket: Ticket,
    gate: Arc<Gate<K>>,
}

impl<K: Key> Gate<K> {
    /// Nothing is loaded.
    pub(super) fn new() -> Arc<Self> {
        Self::with_longest(LONGEST_PHASE)
    }

    fn with_longest(longest: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                phases: Phases::new(longest),
                loaders: BTreeMap::new(),
                waiting: HashMap::new(),
                resident: None,
                swapping: Swapping::default(),
                went_on: tokio::time::Instant::now(),
            }),
        })
    }

    /// The backend of one of the models. Nothing is loaded yet.
    pub(super) fn backend(self: &Arc<Self>, model: K, loader: Arc<dyn Load>) -> Phased<K> {
        self.lock().loaders.entry(model.clone()).or_insert(loader);
        Phased { gate: Arc::clone(self), model }
    }

    /// What swapping cost so far.
    pub(super) fn swapping(&self) -> Swapping {
        self.lock().swapping
    }

    /// When something last went on here.
    pub(super) fn went_on(&self) -> tokio::time::Instant {
        self.lock().went_on
    }

    /// The model that is loaded.
    pub(super) fn resident(&self) -> Option<K> {
        self.lock().phases.resident().cloned()
    }

    /// Unloads what is resident, unless turns run on it.
    pub(super) async fn unload(&self) {
        let backend = {
            let mut state = self.lock();
            if state.phases.clear() { state.resident.take() } else { None }
        };
        give_back(backend).await;
    }

    /// Waits for the model's phase.
    async fn turn(self: &Arc<Self>, model: K) -> Result<Turn<K>, ModelError> {
        let (sender, receiver) = oneshot::channel();
        let ticket = {
            let mut state = self.lock();
            let ticket = state.phases.ask(model);
            state.waiting.insert(ticket, sender);
            ticket
        };
        let _queued = Queued { ticket, gate: Arc::clone(self) };
        self.settle();
        receiver.await.unwrap_or_else(|_| {
            Err(ModelError::Failed("the request was dropped while it waited for the model".to_owned()))
        })
    }

    /// Does what is to be done now.
    fn settle(self: &Arc<Self>) {
        let mut admitted = Vec::new();
        let swap = {
            let mut state = self.lock();
            loop {
                match state.phases.decide() {
                    Decision::Hold => break None,
                    Decision::Admit(tickets) => {
                        state.went_on = tokio::time::Instant::now();
                        for ticket in tickets {
                            let backend = state.resident.clone();
                            let turn = Turn { backend, gate: Arc::clone(self) };
                            admitted.push((state.waiting.remove(&ticket), turn));
                        }
                    }
                    Decision::Swap { load, .. } => {
                        break Some((state.resident.take(), state.loaders.get(&load).cloned()));
                    }
                }
            }
        };
        // The lock is free: a turn that nobody waits for any more ends here.
        for (sender, turn) in admitted {
            if let Some(sender) = sender {
                let _ = sender.send(Ok(turn));
            }
        }
        if let Some((unload, loader)) = swap
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // On its own: whoever asked may be dropped while it loads.
            runtime.spawn(Arc::clone(self).swap(unload, loader));
        }
    }

    async fn swap(self: Arc<Self>, unload: Option<Arc<dyn ModelBackend>>, loader: Option<Arc<dyn Load>>) {
        let began = Instant::now();
        give_back(unload).await;
        let loaded = match loader {
            Some(loader) => loader.load().await,
            None => Err("no loader is registered for the model".to_owned()),
        };
        let mut refused = Vec::new();
        {
            let mut state = self.lock();
            state.went_on = tokio::time::Instant::now();
            state.swapping += Swapping { loads: 1, time: began.elapsed() };
            match loaded {
                Ok(backend) => {
                    state.resident = Some(backend);
                    state.phases.loaded();
                }
                Err(message) => {
                    for ticket in state.phases.failed() {
                        refused.extend(state.waiting.remove(&ticket).map(|sender| (sender, message.clone())));
                    }
                }
            }
        }
        for (sender, message) in refused {
            let _ = sender.send(Err(ModelError::Failed(message)));
        }
        self.settle();
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the last handle of a model off the runtime's threads: its own thread is waited for.
async fn give_back(backend: Option<Arc<dyn ModelBackend>>) {
    if let Some(backend) = backend
        && tokio::task::spawn_blocking(move || drop(backend)).await.is_err()
    {
        tracing::error!("failed to unload a model");
    }
}

impl<K: Key> Drop for Turn<K> {
    fn drop(&mut self) {
        self.backend = None;
        {
            let mut state = self.gate.lock();
            state.phases.ended();
            state.went_on = tokio::time::Instant::now();
        }
        self.gate.settle();
    }
}

impl<K: Key> Drop for Queued<K> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.phases.withdraw(self.ticket);
        // Its turn, if it has one, ends when the lock is free.
        let waiting = state.waiting.remove(&self.ticket);
        drop(state);
        drop(waiting);
    }
}

/// One of the models of a gate.
pub(super) struct Phased<K: Key> {
    gate: Arc<Gate<K>>,
    model: K,
}

impl<K: Key> Phased<K> {
    /// Loads the model, if another one or none is resident, so that what is wrong with it is known.
    pub(super) async fn check(&self) -> Result<(), ModelError> {
        self.gate.turn(self.model.clone()).await.map(drop)
    }
}

#[async_trait]
impl<K: Key> ModelBackend for Phased<K> {
    async fn complete(&self, request: Request) -> Result<Completion, ModelError> {
        let turn = self.gate.turn(self.model.clone()).await?;
        match &turn.backend {
            Some(backend) => backend.complete(request).await,
            None => Err(ModelError::Failed("the model was unloaded".to_owned())),
        }
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
