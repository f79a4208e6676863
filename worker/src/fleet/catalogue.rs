//! The active runs: watched in their bucket, with the inputs that their units share fetched once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use lumos_queue::nats::{Change, NatsError};
use lumos_tasks::fleet::{
    MessageError, NEWEST, PROTOCOL, RunNotice, RunState, ShardId, SharedInputs, UnitMessage, WorkMessage,
};
use lumos_tasks::{Assignment, Configuration, ContentHash, RunToken};
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::source::SharedStore;
use crate::drive::EpisodeLimits;
use crate::serve::{RunTerms, Runs};

/// Delay before a failed fetch is retried.
const RETRY: Duration = Duration::from_secs(2);

/// A run's configurations by identity, each with the `needs` part of its shard.
type Configurations = BTreeMap<ContentHash, (Arc<Configuration>, RunToken)>;

/// A shard of an active run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownShard {
    /// Its id.
    pub(crate) id: ShardId,
    /// The configurations of its units, over all runs.
    pub(crate) configurations: Vec<Arc<Configuration>>,
}

/// Why a work message was not unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unpacking {
    /// Its run, or the shared inputs of its run, are not known yet.
    Unknown,
    /// Its run accepts no more results.
    Over,
    /// It is queued in the wrong shard.
    Misplaced,
    /// It is invalid.
    Bad(MessageError),
}

/// The known runs.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<RunToken, Run>,
    shared: HashMap<ContentHash, Arc<Configurations>>,
    /// Shared inputs that were fetched and cannot be decoded.
    unreadable: BTreeSet<ContentHash>,
    /// Shards of the active runs, recomputed after every change.
    shards: Arc<Vec<KnownShard>>,
    /// Warnings that were already logged.
    said: BTreeSet<String>,
}

#[derive(Debug)]
struct Run {
    notice: RunNotice,
    cancelled: CancellationToken,
}

/// The part of a notice that is decoded before its protocol is known.
#[derive(Deserialize)]
struct Heading {
    protocol: u32,
    #[serde(default)]
    name: Option<String>,
}

impl Catalogue {
    /// Records a run's notice, or its deletion.
    pub(crate) fn update(&self, key: &str, value: Option<&[u8]>) {
        let mut state = self.lock();
        match value.map(|value| read(key, value)) {
            None => {
                if let Some(run) = key.parse().ok().and_then(|token: RunToken| state.runs.remove(&token)) {
                    run.cancelled.cancel();
                }
            }
            Some(Ok(notice)) => state.note(notice),
            Some(Err(message)) => state.say_once(&message),
        }
        state.clean_up();
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the shared inputs that are needed and were not fetched yet.
    pub(crate) fn wanted(&self) -> BTreeSet<ContentHash> {
        let state = self.lock();
        let needed = state.runs.values().filter(|run| run.is_active()).map(|run| &run.notice.shared);
        needed
            .filter(|hash| !state.shared.contains_key(hash) && !state.unreadable.contains(hash))
            .cloned()
            .collect()
    }

    /// Records fetched shared inputs, or the error of fetching them.
    pub(crate) fn supply(&self, hash: &ContentHash, bytes: Result<Vec<u8>, NatsError>) {
        let mut state = self.lock();
        let read = bytes.map(|bytes| serde_json::from_slice::<SharedInputs>(&bytes));
        match read {
            Ok(Ok(inputs)) => {
                let with_shards = inputs.by_identity().into_iter().map(|(identity, configuration)| {
                    let needs = ShardId::of(&configuration, 0).needs;
                    (identity, (configuration, needs))
                });
                state.shared.insert(hash.clone(), Arc::new(with_shards.collect()));
                state.clean_up();
            }
            // The bytes match the hash, so fetching them again cannot help.
            Ok(Err(error)) => {
                state.unreadable.insert(hash.clone());
                let hash = hash.short();
                state.say_once(&format!("failed to decode the configurations of a run ({hash}): {error}"));
                return;
            }
            // Missing inputs may be stored again, and inputs corrupted in transit may be intact the next
            // time.
            Err(error) => {
                let hash = hash.short();
                state.say_once(&format!("failed to fetch the configurations of a run ({hash}): {error}"));
                return;
            }
        }
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the number of active runs.
    pub(crate) fn active(&self) -> usize {
        self.lock().runs.values().filter(|run| run.is_active()).count()
    }

    /// Returns the shards of all active runs whose configurations are known.
    pub(crate) fn shards(&self) -> Arc<Vec<KnownShard>> {
        Arc::clone(&self.lock().shards)
    }

    /// Converts a work message of a shard to an assignment.
    ///
    /// # Errors
    /// See [`Unpacking`].
    pub(crate) fn unpack(&self, shard: &ShardId, message: &WorkMessage) -> Result<Assignment, Unpacking> {
        let configurations = {
            let state = self.lock();
            let run = state.runs.get(&message.run).ok_or(Unpacking::Unknown)?;
            if !run.is_active() {
                return Err(Unpacking::Over);
            }
            state.shared.get(&run.notice.shared).cloned().ok_or(Unpacking::Unknown)?
        };
        let UnitMessage::Episode { configuration, .. } = &message.work;
        if configurations.get(configuration).is_some_and(|(_, needs)| *needs != shard.needs) {
            return Err(Unpacking::Misplaced);
        }
        message
            .clone()
            .unpack(|identity| configurations.get(identity).map(|(one, _)| Arc::clone(one)))
            .map_err(Unpacking::Bad)
    }

    /// Returns the state of a run, or `None` if the run is unknown.
    pub(crate) fn state_of(&self, run: &RunToken) -> Option<RunState> {
        self.lock().runs.get(run).map(|run| run.notice.state)
    }

    /// Returns a counter that is incremented with every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Follows a bucket of notices until `stop` is cancelled.
    pub(crate) async fn follow(
        self: Arc<Self>,
        changes: impl Stream<Item = Change> + Send,
        store: Arc<dyn SharedStore>,
        stop: CancellationToken,
    ) {
        let mut changes = pin!(changes.fuse());
        let serving = async {
            loop {
                for hash in self.wanted() {
                    let bytes = store.get(&hash).await;
                    self.supply(&hash, bytes);
                }
                let wanting = !self.wanted().is_empty();
                tokio::select! {
                    change = changes.next() => match change {
                        Some(change) => self.update(&change.key, change.value.as_deref()),
                        None if wanting => tokio::time::sleep(RETRY).await,
                        None => break,
                    },
                    () = tokio::time::sleep(RETRY), if wanting => {}
                }
            }
        };
        stop.run_until_cancelled(serving).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runs for Catalogue {
    fn terms(&self, run: Option<&RunToken>) -> RunTerms {
        let state = self.lock();
        let Some(run) = run.and_then(|run| state.runs.get(run)) else {
            // Its notice was deleted after the unit was claimed.
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            return RunTerms { limits: EpisodeLimits::default(), cancelled };
        };
        let time = run.notice.time_limit.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        RunTerms { limits: EpisodeLimits { time }, cancelled: run.cancelled.clone() }
    }
}

impl Run {
    fn is_active(&self) -> bool {
        self.notice.state == RunState::Active
    }
}

impl State {
    fn note(&mut self, notice: RunNotice) {
        let active = notice.state == RunState::Active;
        match self.runs.get_mut(&notice.run) {
            Some(run) => {
                if !active {
                    run.cancelled.cancel();
                } else if !run.is_active() {
                    // The run was resumed: the earlier cancellation must not affect its new units.
                    run.cancelled = CancellationToken::new();
                }
                run.notice = notice;
            }
            None => {
                let cancelled = CancellationToken::new();
                if active {
                    tracing::info!(run = notice.name, token = %notice.run, "found an active run");
                } else {
                    cancelled.cancel();
                }
                self.runs.insert(notice.run.clone(), Run { notice, cancelled });
            }
        }
    }

    /// Removes shared inputs that no active run needs, and recomputes the shards.
    fn clean_up(&mut self) {
        let needed: BTreeSet<&ContentHash> =
            self.runs.values().filter(|run| run.is_active()).map(|run| &run.notice.shared).collect();
        self.shared.retain(|hash, _| needed.contains(hash));
        self.unreadable.retain(|hash| needed.contains(hash));
        self.shards = Arc::new(self.list());
    }

    fn list(&self) -> Vec<KnownShard> {
        let mut shards: BTreeMap<ShardId, Vec<Arc<Configuration>>> = BTreeMap::new();
        for run in self.runs.values().filter(|run| run.is_active()) {
            let Some(configurations) = self.shared.get(&run.notice.shared) else { continue };
            for id in &run.notice.shards {
                let of_shard = configurations.values().filter(|(_, needs)| *needs == id.needs);
                shards.entry(id.clone()).or_default().extend(of_shard.map(|(one, _)| Arc::clone(one)));
            }
        }
        let known = shards.into_iter().filter(|(_, configurations)| !configurations.is_empty());
        known.map(|(id, configurations)| KnownShard { id, configurations }).collect()
    }

    fn say_once(&mut self, message: &str) {
        // Bounded, so that a bucket with many invalid notices cannot exhaust the memory.
        if self.said.len() < 1024 && self.said.insert(message.to_owned()) {
            tracing::warn!("{message}");
        }
    }
}

/// Decodes a notice, after checking its protocol.
fn read(key: &str, value: &[u8]) -> Result<RunNotice, String> {
    let heading: Heading =
        serde_json::from_slice(value).map_err(|error| format!("invalid notice of run `{key}`: {error}"))?;
    if !(PROTOCOL..=NEWEST).contains(&heading.protocol) {
        let name = heading.name.unwrap_or_else(|| key.to_owned());
        return Err(format!(
            "ignoring run `{name}`: it uses protocol {}, this worker uses {PROTOCOL} to {NEWEST}; hint: start a worker \
             of the version that planned the run",
            heading.protocol
        ));
    }
    let notice: RunNotice =
        serde_json::from_slice(value).map_err(|error| format!("invalid notice of run `{key}`: {error}"))?;
    if notice.run.as_str() != key {
        return Err(format!("invalid notice of run `{key}`: it names run `{}`", notice.run));
    }
    Ok(notice)
}
