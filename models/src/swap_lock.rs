//! Models that share one memory and are loaded one at a time, each with its own backend. [`super::swap_scheduler`]
//! makes the decisions; this module makes requests wait, and loads and unloads models.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lumos_tasks::{Completion, Request};
use tokio::sync::{Notify, oneshot};

use super::swap_scheduler::{Decision, SwapScheduler, SwapTicket};
use super::{ModelBackend, ModelError};

/// Maximum requests for the loaded model that are admitted while requests for another model wait. Far more
/// than the number of concurrent episodes.
const LONGEST_PHASE: usize = 4096;

/// Key of a model of a gate.
pub(super) trait Key: Ord + Clone + Send + Sync + 'static {}

impl<K: Ord + Clone + Send + Sync + 'static> Key for K {}

/// Loader of a model.
#[async_trait]
pub(super) trait Load: Send + Sync {
    /// Loads the model. The error is a message.
    async fn load(&self) -> Result<Arc<dyn ModelBackend>, String>;
}

/// Cost of swapping models so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Swapping {
    /// Number of loads.
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

/// The models that share one memory.
pub(super) struct ModelSwapLock<K: Key> {
    state: Mutex<State<K>>,
    /// Notified when a load has ended.
    load_ended: Notify,
}

struct State<K: Key> {
    phases: SwapScheduler<K>,
    loaders: BTreeMap<K, Arc<dyn Load>>,
    waiting: HashMap<SwapTicket, oneshot::Sender<Result<SwapGuard<K>, ModelError>>>,
    resident: Option<Arc<dyn ModelBackend>>,
    swapping: Swapping,
    /// Time of the latest progress: a request was admitted or ended, or a load ended.
    went_on: tokio::time::Instant,
}

/// A running request. The resident model is not unloaded before it is dropped.
struct SwapGuard<K: Key> {
    /// Dropped before the gate is notified, which may then unload the model.
    backend: Option<Arc<dyn ModelBackend>>,
    gate: Arc<ModelSwapLock<K>>,
}

/// A waiting request. Dropping it withdraws the request.
struct Queued<K: Key> {
    ticket: SwapTicket,
    gate: Arc<ModelSwapLock<K>>,
}

impl<K: Key> ModelSwapLock<K> {
    /// Creates a gate without a loaded model.
    pub(super) fn new() -> Arc<Self> {
        Self::with_longest(LONGEST_PHASE)
    }

    fn with_longest(longest: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                phases: SwapScheduler::new(longest),
                loaders: BTreeMap::new(),
                waiting: HashMap::new(),
                resident: None,
                swapping: Swapping::default(),
                went_on: tokio::time::Instant::now(),
            }),
            load_ended: Notify::new(),
        })
    }

    /// Creates the backend of a model, which replaces the loader of an earlier one. Nothing is loaded yet.
    pub(super) fn backend(self: &Arc<Self>, model: K, loader: Arc<dyn Load>) -> SwappedModel<K> {
        self.lock().loaders.insert(model.clone(), loader);
        SwappedModel { gate: Arc::clone(self), model }
    }

    /// Cost of swapping so far.
    pub(super) fn swapping(&self) -> Swapping {
        self.lock().swapping
    }

    /// Time of the latest progress.
    pub(super) fn went_on(&self) -> tokio::time::Instant {
        self.lock().went_on
    }

    /// The loaded model.
    pub(super) fn resident(&self) -> Option<K> {
        self.lock().phases.resident().cloned()
    }

    /// The model that is loaded or being loaded.
    pub(super) fn present(&self) -> Option<K> {
        let state = self.lock();
        state.phases.resident().or_else(|| state.phases.loading()).cloned()
    }

    /// Unloads the resident model, unless requests are running on it. If a model is being loaded, waits for that and
    /// unloads it, unless requests wait for it.
    pub(super) async fn unload(&self) {
        // Created before the state is read, so that the end of the load is not missed.
        let load_ended = self.load_ended.notified();
        let (backend, is_loading) = {
            let mut state = self.lock();
            let backend = if state.phases.clear() { state.resident.take() } else { None };
            (backend, state.phases.loading().is_some())
        };
        give_back(backend).await;
        if is_loading {
            load_ended.await;
        }
    }

    /// Waits until the model is loaded and the request is admitted.
    async fn turn(self: &Arc<Self>, model: K) -> Result<SwapGuard<K>, ModelError> {
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

    /// Executes the decisions that are possible now.
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
                            let turn = SwapGuard { backend, gate: Arc::clone(self) };
                            admitted.push((state.waiting.remove(&ticket), turn));
                        }
                    }
                    Decision::Swap { load, .. } => {
                        break Some((state.resident.take(), state.loaders.get(&load).cloned()));
                    }
                }
            }
        };
        // The lock is released: a request whose receiver was dropped ends here, which takes the lock again.
        for (sender, turn) in admitted {
            if let Some(sender) = sender {
                let _ = sender.send(Ok(turn));
            }
        }
        if let Some((unload, loader)) = swap
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // Runs in its own task, because the request that triggered the load may be dropped while it
            // loads.
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
        let mut discarded = None;
        {
            let mut state = self.lock();
            state.went_on = tokio::time::Instant::now();
            state.swapping += Swapping { loads: 1, time: began.elapsed() };
            match loaded {
                Ok(backend) if state.phases.loaded() => state.resident = Some(backend),
                Ok(backend) => discarded = Some(backend),
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
        if discarded.is_some() {
            give_back(discarded).await;
            self.lock().phases.freed();
        }
        self.load_ended.notify_waiters();
        self.settle();
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the last handle of a model outside the runtime's threads, because dropping it joins the model's own
/// thread.
async fn give_back(backend: Option<Arc<dyn ModelBackend>>) {
    if let Some(backend) = backend
        && tokio::task::spawn_blocking(move || drop(backend)).await.is_err()
    {
        tracing::error!("failed to unload a model");
    }
}

impl<K: Key> Drop for SwapGuard<K> {
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
        // Dropped after the lock is released, because dropping an admitted request takes the lock.
        let waiting = state.waiting.remove(&self.ticket);
        drop(state);
        drop(waiting);
    }
}

/// Backend of one of the models of a gate.
pub(super) struct SwappedModel<K: Key> {
    gate: Arc<ModelSwapLock<K>>,
    model: K,
}

impl<K: Key> SwappedModel<K> {
    /// Loads the model if it is not resident, so that errors are reported early.
    pub(super) async fn check(&self) -> Result<(), ModelError> {
        self.gate.turn(self.model.clone()).await.map(drop)
    }
}

#[async_trait]
impl<K: Key> ModelBackend for SwappedModel<K> {
    async fn complete(&self, request: Request) -> Result<Completion, ModelError> {
        let turn = self.gate.turn(self.model.clone()).await?;
        match &turn.backend {
            Some(backend) => backend.complete(request).await,
            None => Err(ModelError::Failed("the model was unloaded".to_owned())),
        }
    }
}

#[cfg(test)]
#[path = "swap_lock_tests.rs"]
mod tests;
