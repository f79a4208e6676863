//! The shards of all runs as one queue of assignments: pulled in the policy's order, with models switched when the
//! policy decides so and the shard has work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lumos_models::{LoadModelError, ModelRegistry};
use lumos_queue::{Lease, Queue, QueueError};
use lumos_tasks::fleet::{ShardId, WorkMessage};
use lumos_tasks::{Assignment, ModelIdentity};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::catalogue::{Catalogue, Unpacking};
use super::eligibility::{Eligibility, Needs, ShardModel, ShardVerdict};
use super::lease_table::LeaseTable;
use super::policy::{self, Decision, Holding, ModelKey, Moment, PullHistory, Shard, Switch};
use super::source::{ShardQueue, ShardSource};
use super::worker::WorkerSettings;

/// Time limit of a claim from one shard before all shards are pulled again.
const WAIT: Duration = Duration::from_secs(1);
/// Delay before the next decision if no shard has its models loaded.
const IDLE: Duration = Duration::from_millis(250);
/// How long a decision for a single shard is reused, unless the catalogue or a verdict changes.
const STEADY: Duration = Duration::from_millis(250);
/// How long units of an unknown run are held before they are returned to the queue.
const UNKNOWN: Duration = Duration::from_secs(5);
/// Redelivery delay of units that this worker cannot execute now, so that other workers take them. As long as the
/// longest delay before the shared inputs of a run are fetched again.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(15);
/// Memory in bytes without a limit: more than any models need.
const UNLIMITED: u64 = 1 << 60;

/// The result of a claim from one shard.
type Claimed = Result<Vec<Lease<WorkMessage>>, QueueError>;

/// The shards of all runs, as one queue to claim from. Only one claim may run at a time.
pub(crate) struct Shards {
    settings: WorkerSettings,
    source: Arc<dyn ShardSource>,
    catalogue: Arc<Catalogue>,
    eligibility: Arc<Eligibility>,
    models: Arc<ModelRegistry>,
    held: Arc<LeaseTable>,
    started: Instant,
    closed: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    history: BTreeMap<ShardId, PullHistory>,
    open: BTreeMap<ShardId, Arc<dyn ShardQueue>>,
    last_switch: Option<Moment>,
    /// Deleted shards that were not recreated yet.
    gone: BTreeSet<ShardId>,
    /// The loaded group.
    group: Option<Group>,
    /// The last decision, if there was only one shard to pull from.
    steady: Option<RecentDecision>,
}

/// A decision that is reused for a short time.
struct RecentDecision {
    view: Arc<View>,
    until: Instant,
    catalogued: watch::Receiver<u64>,
    verified: watch::Receiver<u64>,
}

impl RecentDecision {
    fn holds(&self) -> bool {
        let changed = |changes: &watch::Receiver<u64>| changes.has_changed().unwrap_or(true);
        Instant::now() < self.until && !changed(&self.catalogued) && !changed(&self.verified)
    }
}

/// Models of a shard that share the whole memory.
struct Group {
    key: ModelKey,
    /// Those of its models that take memory.
    models: Vec<ModelIdentity>,
}

/// The current decision, and the needs of the servable shards.
struct View {
    decision: Decision,
    needs: BTreeMap<ShardId, Arc<Needs>>,
}

impl View {
    /// Whether there is only one shard to choose from.
    fn is_alone(&self) -> bool {
        self.decision.ask.len() == 1 && self.needs.len() == 1
    }
}

impl Shards {
    /// Creates the queue. No shard is open yet.
    pub(crate) fn new(
        settings: WorkerSettings,
        source: Arc<dyn ShardSource>,
        catalogue: Arc<Catalogue>,
        eligibility: Arc<Eligibility>,
        models: Arc<ModelRegistry>,
        held: Arc<LeaseTable>,
    ) -> Self {
        Self {
            settings,
            source,
            catalogue,
            eligibility,
            models,
            held,
            started: Instant::now(),
            closed: CancellationToken::new(),
            state: Mutex::default(),
        }
    }

    /// Claims until there is at least one assignment.
    async fn claim_some(&self, max: usize) -> Vec<Lease<Assignment>> {
        let mut catalogued = self.catalogue.changes();
        let mut verified = self.eligibility.changes();
        loop {
            catalogued.mark_unchanged();
            verified.mark_unchanged();
            let view = match self.steady() {
                Some(view) => view,
                None => {
                    let view = Arc::new(self.view().await);
                    let (catalogued, verified) = (catalogued.clone(), verified.clone());
                    let until = Instant::now() + STEADY;
                    let steady = RecentDecision { view: Arc::clone(&view), until, catalogued, verified };
                    self.state().steady = view.is_alone().then_some(steady);
                    view
                }
            };
            if !view.is_alone() {
                for shard in &view.decision.ask {
                    let leases = self.ask(&view, shard, max).await;
                    if !leases.is_empty() {
                        return leases;
                    }
                }
                // Decides again with the results of these pulls.
                let view = self.view().await;
                if let Some(switch) = &view.decision.switch {
                    let leases = self.switch(&view, switch).await;
                    if !leases.is_empty() {
                        return leases;
                    }
                    // The shard had no work, or its model failed to load; try another one.
                    continue;
                }
            }
            let shard = view.decision.ask.first();
            let waiting = async {
                match shard {
                    Some(shard) => self.wait(shard, max).await,
                    None => {
                        tokio::time::sleep(IDLE).await;
                        None
                    }
                }
            };
            let claimed = tokio::select! {
                claimed = waiting => claimed,
                _ = catalogued.changed() => None,
                _ = verified.changed() => None,
            };
            // After the selection: a change would drop the leases of units that wait for their run.
            if let (Some(shard), Some(claimed)) = (shard, claimed) {
                let failed = claimed.is_err();
                let leases = self.take(&view, shard, claimed).await;
                if !leases.is_empty() {
                    return leases;
                }
                if failed {
                    tokio::time::sleep(WAIT).await;
                }
            }
        }
    }

    /// Returns the last decision, if it is still valid.
    fn steady(&self) -> Option<Arc<View>> {
        let state = self.state();
        state.steady.as_ref().filter(|steady| steady.holds()).map(|steady| Arc::clone(&steady.view))
    }

    /// Claims the messages of a shard that are available now.
    async fn ask(&self, view: &View, shard: &ShardId, max: usize) -> Vec<Lease<Assignment>> {
        let claimed = match self.queue(shard).await {
            Some(queue) => queue.try_claim(max).await,
            None => Ok(Vec::new()),
        };
        self.take(view, shard, claimed).await
    }

    /// Waits for messages of a shard. Returns `None` if the shard does not exist. Dropping it loses no messages.
    async fn wait(&self, shard: &ShardId, max: usize) -> Option<Claimed> {
        let Some(queue) = self.queue(shard).await else {
            tokio::time::sleep(WAIT).await;
            return None;
        };
        Some(timeout(WAIT, queue.claim(max)).await.unwrap_or_else(|_| Ok(Vec::new())))
    }

    /// Records the result of a pull, and unpacks its messages.
    async fn take(&self, view: &View, shard: &ShardId, claimed: Claimed) -> Vec<Lease<Assignment>> {
        let claimed = claimed.unwrap_or_else(|error| {
            tracing::debug!(%shard, %error, "failed to pull from a shard");
            let mut state = self.state();
            if !matches!(error, QueueError::Unreachable(_)) {
                // The shard may have been recreated, so it is opened again.
                state.open.remove(shard);
            }
            if matches!(error, QueueError::Gone(_)) && state.gone.insert(shard.clone()) {
                tracing::warn!("{error}; waiting for the coordinator of the run to create it again");
            }
            Vec::new()
        });
        let now = self.started.elapsed();
        if claimed.is_empty() {
            self.state().history.entry(shard.clone()).or_default().was_dry(now);
            return Vec::new();
        }
        {
            let mut state = self.state();
            state.history.entry(shard.clone()).or_default().gave_work(now);
            state.gone.remove(shard);
        }
        let keys = view.needs.get(shard).map(|needs| Arc::clone(&needs.keys)).unwrap_or_default();
        let mut leases = Vec::new();
        let patience = Instant::now() + UNKNOWN;
        for lease in claimed {
            leases.extend(self.unpack(shard, lease, &keys, patience).await);
        }
        leases
    }

    /// Converts a message to an assignment. If that fails, returns or terminates the message and returns
    /// `None`.
    async fn unpack(
        &self,
        shard: &ShardId,
        lease: Lease<WorkMessage>,
        keys: &Arc<BTreeSet<ModelKey>>,
        patience: Instant,
    ) -> Option<Lease<Assignment>> {
        let why = match self.unpacked(shard, &lease, patience).await {
            Ok(assignment) => return Some(self.held.hold(lease, assignment, Arc::clone(keys))),
            Err(Unpacking::Unknown) => {
                tracing::warn!(run = %lease.body().run, "leaving a unit of an unknown run to other workers");
                self.leave(lease).await;
                return None;
            }
            // The coordinator removes the other messages. When the run is resumed, it publishes those it
            // still needs.
            Err(Unpacking::Over) => "the run has ended".to_owned(),
            Err(Unpacking::Misplaced) => "it is queued in the wrong shard".to_owned(),
            Err(Unpacking::Bad(error)) => error.to_string(),
        };
        tracing::warn!(unit = lease.id(), run = %lease.body().run, "discarding a unit: {why}");
        if let Err(error) = lease.terminate().await {
            tracing::debug!(%error, "failed to discard a unit");
        }
        None
    }

    /// Leaves a unit that was not executed to other workers. With its last permitted delivery it is removed instead,
    /// because the next one would be recorded as a fault. The coordinator publishes it again, which resets the count of
    /// deliveries.
    async fn leave<T: Send>(&self, lease: Lease<T>) {
        if lease.deliveries() < self.settings.max_deliveries {
            lease.release_after(LEFT_TO_OTHERS);
        } else if let Err(error) = lease.terminate().await {
            tracing::debug!(%error, "failed to remove a unit that was not executed");
        }
    }

    /// Converts a message to an assignment. Waits until `until` for a run that is not known yet.
    async fn unpacked(
        &self,
        shard: &ShardId,
        lease: &Lease<WorkMessage>,
        until: Instant,
    ) -> Result<Assignment, Unpacking> {
        let mut changes = self.catalogue.changes();
        let known = async {
            loop {
                changes.mark_unchanged();
                match self.catalogue.unpack(shard, lease.body()) {
                    Err(Unpacking::Unknown) => {}
                    known => return known,
                }
                if changes.changed().await.is_err() {
                    return Err(Unpacking::Unknown);
                }
            }
        };
        timeout_at(until, known).await.unwrap_or(Err(Unpacking::Unknown))
    }

    /// Switches models for a shard, if it has work. One of its units is claimed first, so that no models are
    /// loaded for an empty shard.
    async fn switch(&self, view: &View, switch: &Switch) -> Vec<Lease<Assignment>> {
        let leases = self.ask(view, &switch.to, 1).await;
        let Some(needs) = view.needs.get(&switch.to).filter(|_| !leases.is_empty()) else {
            return Vec::new();
        };
        let extend_every = leases.first().and_then(Lease::duration).unwrap_or(Duration::MAX) / 3;
        let mut loading = std::pin::pin!(self.load(needs, switch));
        let loaded = loop {
            tokio::select! {
                loaded = &mut loading => break loaded,
                () = tokio::time::sleep(extend_every) => {
                    for lease in &leases {
                        if let Err(error) = lease.extend().await {
                            tracing::debug!(%error, "failed to extend a lease");
                        }
                    }
                }
            }
        };
        self.state().last_switch = Some(self.started.elapsed());
        match loaded {
            Ok(()) => leases,
            Err(error) => {
                self.eligibility.refuse(&switch.to.needs, &error);
                for lease in leases {
                    self.leave(lease).await;
                }
                Vec::new()
            }
        }
    }

    async fn load(&self, needs: &Needs, switch: &Switch) -> Result<(), LoadModelError> {
        let group = self.state().group.take_if(|group| switch.unload.contains(&group.key));
        for identity in group.iter().flat_map(|group| &group.models) {
            tracing::info!(model = identity.name, "unloading");
            self.models.unload(identity).await;
        }
        for loaded in self.models.list().await {
            if switch.unload.contains(&ModelKey::from(&loaded.identity)) {
                tracing::info!(model = loaded.identity.name, "unloading");
                self.models.unload(&loaded.identity).await;
            }
        }
        if let Some(key) = needs.group.as_ref().filter(|key| switch.load.contains(key)) {
            let in_memory = needs.models.iter().filter(|model| model.bytes > 0);
            let models: Vec<ModelIdentity> = in_memory.map(|model| model.identity.clone()).collect();
            let loaded = self.load_group(needs).await;
            if loaded.is_ok() {
                self.state().group = Some(Group { key: key.clone(), models });
            } else {
                // Otherwise those that were loaded would keep the memory of other groups.
                for identity in &models {
                    self.models.unload(identity).await;
                }
            }
            return loaded;
        }
        for model in &needs.models {
            if switch.load.contains(&ModelKey::from(&model.identity)) {
                tracing::info!(model = model.identity.name, bytes = model.bytes, "loading");
                self.models.check(&model.identity, model.role, &model.configuration).await?;
            }
        }
        Ok(())
    }

    /// Loads the models of a group, each with its share of the whole memory, or arranges them to be swapped within it.
    async fn load_group(&self, needs: &Needs) -> Result<(), LoadModelError> {
        let configurations: Vec<_> = needs.models.iter().map(ShardModel::alone).collect();
        let models = Arc::clone(&self.models);
        let (memory, swap) = (self.settings.memory, self.settings.swap);
        let arranging = tokio::task::spawn_blocking(move || models.arrange(&configurations, memory, swap));
        let name = needs.models.first().map(|model| model.identity.name.as_str()).unwrap_or_default();
        let failed = |message: String| LoadModelError::new(name, message);
        let arranged = arranging.await.map_err(|error| failed(error.to_string()))?;
        for device in arranged.map_err(|error| failed(error.to_string()))?.in_phases {
            tracing::info!("models are loaded in turns on {device}");
        }
        // In reverse order, so that the first one stays loaded if they are swapped.
        for model in needs.models.iter().rev() {
            tracing::info!(model = model.identity.name, bytes = model.bytes, "loading");
            self.models.check(&model.identity, model.role, &model.configuration).await?;
        }
        Ok(())
    }

    async fn view(&self) -> View {
        let mut loaded: BTreeMap<ModelKey, u64> = self
            .models
            .list()
            .await
            .iter()
            .map(|model| (ModelKey::from(&model.identity), model.bytes))
            .collect();
        let known = self.catalogue.shards();
        let memory = self.settings.memory.unwrap_or(UNLIMITED);
        let mut needs = BTreeMap::new();
        let mut shards = Vec::with_capacity(known.len());
        let mut state = self.state();
        let ids: BTreeSet<&ShardId> = known.iter().map(|shard| &shard.id).collect();
        state.history.retain(|id, _| ids.contains(id));
        state.gone.retain(|id| ids.contains(id));
        state.open.retain(|id, queue| {
            let kept = ids.contains(id);
            if !kept {
                queue.close();
            }
            kept
        });
        for shard in known.iter() {
            let mut models: BTreeMap<ModelKey, u64> = BTreeMap::new();
            let refused = match self.eligibility.of(&shard.id.needs) {
                Some(ShardVerdict::Fits(fits)) => {
                    let sizes =
                        fits.models.iter().map(|model| (ModelKey::from(&model.identity), model.bytes));
                    models = match &fits.group {
                        Some(group) => {
                            let bytes: u64 = sizes.map(|(_, bytes)| bytes).sum();
                            BTreeMap::from([(group.clone(), bytes.min(memory))])
                        }
                        None => sizes.collect(),
                    };
                    needs.insert(shard.id.clone(), fits);
                    false
                }
                // A shard that was not verified yet is not served yet.
                Some(ShardVerdict::Refused(_)) | None => true,
            };
            shards.push(Shard {
                id: shard.id.clone(),
                models,
                refused,
                history: state.history.get(&shard.id).copied().unwrap_or_default(),
            });
        }
        // Loaded models use the sizes that were found during verification.
        for (key, bytes) in shards.iter().flat_map(|shard| &shard.models) {
            loaded.entry(key.clone()).and_modify(|known| *known = *bytes);
        }
        if let Some(group) = &state.group {
            for model in &group.models {
                loaded.remove(&ModelKey::from(model));
            }
            // Another group is loaded only after this one was unloaded.
            loaded.insert(group.key.clone(), memory);
        }
        let holding = Holding {
            memory: Some(memory),
            loaded,
            in_use: self.held.models(),
            last_switch: state.last_switch,
        };
        drop(state);
        let decision = policy::decide(&shards, &holding, self.started.elapsed(), &self.settings.policy);
        View { decision, needs }
    }

    async fn queue(&self, shard: &ShardId) -> Option<Arc<dyn ShardQueue>> {
        let open = self.state().open.get(shard).cloned();
        if open.is_some() {
            return open;
        }
        match self.source.open(shard).await {
            Ok(Some(queue)) => {
                self.state().open.insert(shard.clone(), Arc::clone(&queue));
                Some(queue)
            }
            // The coordinator creates the shard with its first unit.
            Ok(None) => None,
            Err(error) => {
                tracing::debug!(%shard, %error, "failed to open a shard");
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Queue<Assignment> for Shards {
    async fn publish(&self, _id: &str, _body: Assignment) -> Result<(), QueueError> {
        Err(QueueError::Refused("cannot publish: this end of the shards only claims units".to_owned()))
    }

    async fn claim(&self, max: usize) -> Result<Vec<Lease<Assignment>>, QueueError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        Ok(self.closed.run_until_cancelled(self.claim_some(max)).await.unwrap_or_default())
    }

    fn close(&self) {
        self.closed.cancel();
        for (_, queue) in std::mem::take(&mut self.state().open) {
            queue.close();
        }
    }
}
