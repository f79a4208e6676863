//! The active runs: watched in their bucket, with the inputs that their units share fetched once. Of runs that ended,
//! only the state is kept. Any client with write access can write notices, so the same limits apply to the bucket's
//! content at the start and to its changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use lumos_queue::nats::{Change, KeyValue, NatsError};
use lumos_tasks::fleet::{
    MessageError, NEWEST, PROTOCOL, RunNotice, RunState, ShardId, SharedInputs, UnitMessage, WorkMessage,
};
use lumos_tasks::{Assignment, Configuration, ContentHash, RunToken};
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::notice_limits::cut;
use super::source::SharedStore;
use crate::drive::EpisodeLimits;
use crate::serve::{RunTerms, Runs};

/// Delay before a failed fetch is retried.
const RETRY: Duration = Duration::from_secs(2);
/// Maximum number of active runs, and of ended runs whose state is kept.
const MOST_RUNS: usize = KeyValue::MOST_ENTRIES;
/// Maximum total size of the notices of active runs in bytes.
const MOST_BYTES: usize = KeyValue::MOST_BYTES;
/// Maximum number of different warnings about notices.
const MOST_WARNINGS: usize = 1024;
/// Maximum length of such a warning in bytes: it quotes the notice.
const LONGEST_WARNING: usize = 1024;

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
    /// The active runs.
    runs: BTreeMap<RunToken, Run>,
    /// Total size of their notices in bytes.
    bytes: usize,
    ended: EndedRuns,
    shared: HashMap<ContentHash, Arc<Configurations>>,
    /// Shared inputs that were fetched and cannot be decoded.
    unreadable: BTreeSet<ContentHash>,
    /// Shards of the active runs, recomputed after every change.
    shards: Arc<Vec<KnownShard>>,
    /// Warnings that were already logged.
    said: BTreeSet<String>,
}

/// An active run.
#[derive(Debug)]
struct Run {
    notice: RunNotice,
    /// Size of the notice in bytes.
    bytes: usize,
    cancelled: CancellationToken,
}

/// The latest [`MOST_RUNS`] runs that ended. Their units are discarded, and so are their results in the spool folder;
/// those of unknown runs are kept.
#[derive(Debug, Default)]
struct EndedRuns {
    /// The state of each run, with its number in `order`.
    states: BTreeMap<RunToken, (RunState, u64)>,
    /// The same runs in the order of their notices.
    order: BTreeMap<u64, RunToken>,
    last: u64,
}

impl EndedRuns {
    fn get(&self, run: &RunToken) -> Option<RunState> {
        self.states.get(run).map(|(state, _)| *state)
    }

    fn insert(&mut self, run: RunToken, state: RunState) {
        self.remove(&run);
        self.last += 1;
        self.order.insert(self.last, run.clone());
        self.states.insert(run, (state, self.last));
        if self.states.len() > MOST_RUNS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.states.remove(&oldest);
        }
    }

    fn remove(&mut self, run: &RunToken) {
        if let Some((_, number)) = self.states.remove(run) {
            self.order.remove(&number);
        }
    }
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
        match value.map(|value| (read(key, value), value.len())) {
            None => {
                if let Ok(run) = key.parse() {
                    state.end(&run);
                    state.ended.remove(&run);
                }
            }
            Some((Ok(notice), bytes)) => state.note(notice, bytes),
            Some((Err(message), _)) => state.say_once(&message),
        }
        state.clean_up();
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the shared inputs that are needed and were not fetched yet.
    pub(crate) fn wanted(&self) -> BTreeSet<ContentHash> {
        let state = self.lock();
        let needed = state.runs.values().map(|run| &run.notice.shared);
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
        self.lock().runs.len()
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
            let Some(run) = state.runs.get(&message.run) else {
                let over = state.ended.get(&message.run).is_some();
                return Err(if over { Unpacking::Over } else { Unpacking::Unknown });
            };
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
        let state = self.lock();
        if state.runs.contains_key(run) { Some(RunState::Active) } else { state.ended.get(run) }
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
            // It ended, or its notice was deleted, after the unit was claimed.
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            return RunTerms { limits: EpisodeLimits::default(), cancelled };
        };
        let time = run.notice.time_limit.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        RunTerms { limits: EpisodeLimits { time }, cancelled: run.cancelled.clone() }
    }
}

impl State {
    /// Records a notice of `bytes` bytes. An active run that exceeds the limits is ignored, so that its units are
    /// returned to the queue; a known one keeps its previous notice.
    fn note(&mut self, notice: RunNotice, bytes: usize) {
        if notice.state != RunState::Active {
            self.end(&notice.run);
            self.ended.insert(notice.run, notice.state);
            return;
        }
        self.ended.remove(&notice.run);
        let known = self.runs.get(&notice.run).map(|run| run.bytes);
        let others = self.bytes - known.unwrap_or(0);
        if others + bytes > MOST_BYTES || (known.is_none() && self.runs.len() >= MOST_RUNS) {
            self.say_once(&format!(
                "ignoring the notice of run `{}`: the active runs exceed {MOST_RUNS} runs or {} MiB of \
                 notices; hint: end runs with `lumos cancel`, then restart this worker",
                notice.run,
                MOST_BYTES >> 20
            ));
            return;
        }
        self.bytes = others + bytes;
        match self.runs.get_mut(&notice.run) {
            Some(run) => (run.notice, run.bytes) = (notice, bytes),
            None => {
                tracing::info!(run = notice.name, token = %notice.run, "found an active run");
                // A new one if the run was resumed: the earlier cancellation must not affect its new units.
                let cancelled = CancellationToken::new();
                self.runs.insert(notice.run.clone(), Run { notice, bytes, cancelled });
            }
        }
    }

    /// Removes an active run and cancels its episodes.
    fn end(&mut self, run: &RunToken) {
        if let Some(run) = self.runs.remove(run) {
            self.bytes -= run.bytes;
            run.cancelled.cancel();
        }
    }

    /// Removes shared inputs that no active run needs, and recomputes the shards.
    fn clean_up(&mut self) {
        let needed: BTreeSet<&ContentHash> = self.runs.values().map(|run| &run.notice.shared).collect();
        self.shared.retain(|hash, _| needed.contains(hash));
        self.unreadable.retain(|hash| needed.contains(hash));
        self.shards = Arc::new(self.list());
    }

    fn list(&self) -> Vec<KnownShard> {
        let mut shards: BTreeMap<ShardId, Vec<Arc<Configuration>>> = BTreeMap::new();
        for run in self.runs.values() {
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
        let message = cut(message, LONGEST_WARNING);
        if self.said.len() < MOST_WARNINGS && self.said.insert(message.clone()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> RunToken {
        RunToken::of(&ContentHash::of_bytes(number.to_string().as_bytes()))
    }

    fn notice(number: usize, state: RunState) -> RunNotice {
        RunNotice {
            protocol: PROTOCOL,
            run: token(number),
            name: number.to_string(),
            state,
            shared: ContentHash::of_bytes(b"shared"),
            shards: Vec::new(),
            time_limit: None,
            written_ms: 0,
        }
    }

    #[test]
    fn active_runs_are_bounded_and_ended_ones_make_room() {
        let mut state = State::default();
        for number in 0..MOST_RUNS + 10 {
            state.note(notice(number, RunState::Active), 1);
        }
        assert_eq!((state.runs.len(), state.bytes, state.said.len()), (MOST_RUNS, MOST_RUNS, 10));
        assert!(!state.runs.contains_key(&token(MOST_RUNS)));
        let cancelled = state.runs[&token(0)].cancelled.clone();
        state.note(notice(0, RunState::Ended), 1);
        assert!(cancelled.is_cancelled());
        state.note(notice(MOST_RUNS, RunState::Active), 1);
        assert_eq!((state.runs.len(), state.bytes), (MOST_RUNS, MOST_RUNS));
        assert_eq!(state.ended.get(&token(0)), Some(RunState::Ended));
    }

    #[test]
    fn bytes_of_notices_are_bounded_and_a_known_run_keeps_its_notice() {
        let mut state = State::default();
        for number in 0..200 {
            state.note(notice(number, RunState::Active), 1 << 20);
        }
        assert_eq!((state.runs.len(), state.bytes), (64, MOST_BYTES));
        state.note(RunNotice { written_ms: 7, ..notice(0, RunState::Active) }, 2 << 20);
        assert_eq!((state.runs[&token(0)].notice.written_ms, state.bytes), (0, MOST_BYTES));
        state.note(RunNotice { written_ms: 8, ..notice(0, RunState::Active) }, 1 << 10);
        assert_eq!(state.runs[&token(0)].notice.written_ms, 8);
        for number in 0..200 {
            state.end(&token(number));
        }
        assert_eq!((state.runs.len(), state.bytes), (0, 0));
    }

    #[test]
    fn the_latest_ended_runs_are_remembered() {
        let mut state = State::default();
        for number in 0..MOST_RUNS + 10 {
            state.note(notice(number, RunState::Ended), 1 << 20);
            // Written again, and resumed for a while: counted once.
            state.note(notice(3, RunState::Active), 1);
            state.note(notice(3, RunState::Cancelled), 1);
        }
        let ended = &state.ended;
        assert_eq!((ended.states.len(), ended.order.len(), state.bytes), (MOST_RUNS, MOST_RUNS, 0));
        assert_eq!(ended.get(&token(0)), None);
        assert_eq!(ended.get(&token(3)), Some(RunState::Cancelled));
        assert_eq!(ended.get(&token(MOST_RUNS + 9)), Some(RunState::Ended));
    }

    #[test]
    fn warnings_about_notices_are_short() {
        let catalogue = Catalogue::default();
        let name = "n".repeat(1 << 20);
        for number in 0..10 {
            let value = format!("{{\"protocol\":{},\"name\":\"{number}{name}\"}}", NEWEST + 1);
            catalogue.update(token(number).as_str(), Some(value.as_bytes()));
        }
        let state = catalogue.lock();
        assert_eq!(state.said.iter().map(String::len).collect::<Vec<_>>(), [LONGEST_WARNING; 10]);
    }
}
