//! The active runs: watched in their bucket, with the inputs that their units share fetched once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use lumos_queue::nats::{Change, NatsError};
use lumos_tasks::fleet::{
    LaneId, MessageError, PROTOCOL, RunNotice, RunState, SharedInputs, UnitMessage, WorkMessage,
};
use lumos_tasks::{Assignment, Configuration, ContentHash, RunToken};
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::source::SharedStore;
use crate::drive::Limits;
use crate::terms::{RunTerms, Runs};

/// How long to wait before what could not be fetched is asked for again.
const RETRY: Duration = Duration::from_secs(2);

/// A run's configurations by identity, each with what its lane is called.
type Configurations = BTreeMap<ContentHash, (Arc<Configuration>, RunToken)>;

/// A lane of a run that is to be served.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownLane {
    /// Which it is.
    pub id: LaneId,
    /// The configurations of its units, over all runs.
    pub configurations: Vec<Arc<Configuration>>,
}

/// Why a work message was not unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unpacking {
    /// Nothing is known of its run yet, or not what its units share.
    Unknown,
    /// Its run takes no more results.
    Over,
    /// It is queued in a lane that is not its own.
    Misplaced,
    /// It is not what it says it is.
    Bad(MessageError),
}

/// The runs there are.
#[derive(Debug)]
pub struct Catalogue {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<RunToken, Run>,
    shared: HashMap<ContentHash, Arc<Configurations>>,
    /// Shared inputs that are there and cannot be read.
    unreadable: BTreeSet<ContentHash>,
    /// The lanes of all of this, made anew when it changes.
    lanes: Arc<Vec<KnownLane>>,
    /// What was said already.
    said: BTreeSet<String>,
}

#[derive(Debug)]
struct Run {
    notice: RunNotice,
    cancelled: CancellationToken,
}

/// What is read of a notice before its protocol is known.
#[derive(Deserialize)]
struct Heading {
    protocol: u32,
    #[serde(default)]
    name: Option<String>,
}

impl Default for Catalogue {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Catalogue {
    /// Takes note of a run's notice, or of its being gone.
    pub fn see(&self, key: &str, value: Option<&[u8]>) {
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
        state.tidy();
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Shared inputs that are needed and not here.
    pub fn wanted(&self) -> BTreeSet<ContentHash> {
        let state = self.lock();
        let needed = state.runs.values().filter(|run| run.is_active()).map(|run| &run.notice.shared);
        needed
            .filter(|hash| !state.shared.contains_key(hash) && !state.unreadable.contains(hash))
            .cloned()
            .collect()
    }

    /// Supplies shared inputs that were wanted.
    pub fn supply(&self, hash: &ContentHash, bytes: Result<Vec<u8>, NatsError>) {
        let mut state = self.lock();
        let read = bytes.map(|bytes| serde_json::from_slice::<SharedInputs>(&bytes));
        match read {
            Ok(Ok(inputs)) => {
                let with_lanes = inputs.by_identity().into_iter().map(|(identity, configuration)| {
                    let needs = LaneId::of(&configuration, 0).needs;
                    (identity, (configuration, needs))
                });
                state.shared.insert(hash.clone(), Arc::new(with_lanes.collect()));
                state.tidy();
            }
            // The bytes are those of the hash, so that asking again cannot help.
            Ok(Err(error)) => {
                state.unreadable.insert(hash.clone());
                let hash = hash.short();
                state.say_once(&format!("failed to decode the configurations of a run ({hash}): {error}"));
                return;
            }
            // What is missing may come back, and what was damaged on its way is whole the next time.
            Err(error) => {
                let hash = hash.short();
                state.say_once(&format!("failed to fetch the configurations of a run ({hash}): {error}"));
                return;
            }
        }
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// How many runs there are that are to be served.
    pub fn active(&self) -> usize {
        self.lock().runs.values().filter(|run| run.is_active()).count()
    }

    /// The lanes of all runs that are to be served and whose configurations are known.
    pub fn lanes(&self) -> Arc<Vec<KnownLane>> {
        Arc::clone(&self.lock().lanes)
    }

    /// What a work message in a lane asks for.
    ///
    /// # Errors
    /// See [`Unpacking`].
    pub fn unpack(&self, lane: &LaneId, message: &WorkMessage) -> Result<Assignment, Unpacking> {
        let configurations = {
            let state = self.lock();
            let run = state.runs.get(&message.run).ok_or(Unpacking::Unknown)?;
            if !run.is_active() {
                return Err(Unpacking::Over);
            }
            state.shared.get(&run.notice.shared).cloned().ok_or(Unpacking::Unknown)?
        };
        let UnitMessage::Episode { configuration, .. } = &message.work;
        if configurations.get(configuration).is_some_and(|(_, needs)| *needs != lane.needs) {
            return Err(Unpacking::Misplaced);
        }
        message
            .clone()
            .unpack(|identity| configurations.get(identity).map(|(one, _)| Arc::clone(one)))
            .map_err(Unpacking::Bad)
    }

    /// How a run stands; `None` if nothing is known of it.
    pub fn state_of(&self, run: &RunToken) -> Option<RunState> {
        self.lock().runs.get(run).map(|run| run.notice.state)
    }

    /// Counts changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Follows a bucket of notices until `stop`.
    pub async fn follow(
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
                        Some(change) => self.see(&change.key, change.value.as_deref()),
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
            // Its notice is gone since the unit was claimed.
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            return RunTerms { limits: Limits::default(), cancelled };
        };
        let time = run.notice.time_limit.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        RunTerms { limits: Limits { time }, cancelled: run.cancelled.clone() }
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
                    // Taken up again: its new units are not the old ones that were dropped.
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

    /// Forgets shared inputs that no run needs any more, and lists the lanes anew.
    fn tidy(&mut self) {
        let needed: BTreeSet<&ContentHash> =
            self.runs.values().filter(|run| run.is_active()).map(|run| &run.notice.shared).collect();
        self.shared.retain(|hash, _| needed.contains(hash));
        self.unreadable.retain(|hash| needed.contains(hash));
        self.lanes = Arc::new(self.list());
    }

    fn list(&self) -> Vec<KnownLane> {
        let mut lanes: BTreeMap<LaneId, Vec<Arc<Configuration>>> = BTreeMap::new();
        for run in self.runs.values().filter(|run| run.is_active()) {
            let Some(configurations) = self.shared.get(&run.notice.shared) else { continue };
            for id in &run.notice.lanes {
                let of_lane = configurations.values().filter(|(_, needs)| *needs == id.needs);
                lanes.entry(id.clone()).or_default().extend(of_lane.map(|(one, _)| Arc::clone(one)));
            }
        }
        let known = lanes.into_iter().filter(|(_, configurations)| !configurations.is_empty());
        known.map(|(id, configurations)| KnownLane { id, configurations }).collect()
    }

    fn say_once(&mut self, message: &str) {
        // Bounded: a bucket full of nonsense is not to fill the memory.
        if self.said.len() < 1024 && self.said.insert(message.to_owned()) {
            tracing::warn!("{message}");
        }
    }
}

/// Reads a notice, the protocol first.
fn read(key: &str, value: &[u8]) -> Result<RunNotice, String> {
    let heading: Heading =
        serde_json::from_slice(value).map_err(|error| format!("invalid notice of run `{key}`: {error}"))?;
    if heading.protocol != PROTOCOL {
        let name = heading.name.unwrap_or_else(|| key.to_owned());
        return Err(format!(
            "ignoring run `{name}`: it uses protocol {}, this worker uses {PROTOCOL}; hint: start a worker \
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
