//! The active runs: watched in their bucket, with the inputs that their units share fetched once. Of runs that ended,
//! only the state is kept. Any client with write access can write notices, so the same limits apply to the bucket's
//! content at the start and to its changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, OptionFuture};
use futures::{Stream, StreamExt};
use lumos_queue::nats::{Change, KeyValue, NatsError};
use lumos_tasks::fleet::{
    MessageError, NEWEST, PROTOCOL, RunNotice, RunState, ShardId, SharedInputs, UnitMessage, WorkMessage,
};
use lumos_tasks::{Assignment, Configuration, ContentHash, RunToken};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::notice_limits::cut;
use super::source::SharedStore;
use crate::drive::EpisodeLimits;
use crate::serve::{RunTerms, Runs};

/// Delay before a failed fetch is retried. It doubles with every further failure of the same inputs.
const RETRY: Duration = Duration::from_secs(2);
/// Maximum delay before a failed fetch is retried.
const LONGEST_RETRY: Duration = Duration::from_secs(15);
/// Maximum number of active runs, and of ended runs whose state is kept.
const MOST_RUNS: usize = KeyValue::MOST_ENTRIES;
/// Maximum total size of the notices of active runs in bytes.
const MOST_BYTES: usize = KeyValue::MOST_BYTES;
/// Maximum number of shards of an active run.
const MOST_SHARDS: usize = 20_000;
/// Maximum total size of the shared inputs of active runs in bytes as JSON.
const SHARED_BYTES: usize = 256 << 20;
/// Maximum number of different warnings about notices.
const MOST_WARNINGS: usize = 1024;
/// Maximum length of such a warning in bytes: it quotes the notice.
const LONGEST_WARNING: usize = 1024;

/// The configurations of a run by the `needs` part of their shard, then by identity.
type Configurations = BTreeMap<RunToken, BTreeMap<ContentHash, Arc<Configuration>>>;

/// A pending fetch of shared inputs.
type Fetch<'a> = OptionFuture<BoxFuture<'a, (ContentHash, Result<Vec<u8>, NatsError>)>>;

/// A shard of an active run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownShard {
    /// Its id.
    pub(crate) id: ShardId,
    /// The configurations with its needs, over all runs. Shards that differ only in priority share them.
    pub(crate) configurations: Arc<Vec<Arc<Configuration>>>,
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
    shared: HashMap<ContentHash, Shared>,
    /// Shared inputs that were fetched and cannot be decoded.
    unreadable: BTreeSet<ContentHash>,
    /// Shared inputs that were fetched and do not fit into [`SHARED_BYTES`], with their sizes in bytes.
    too_large: BTreeMap<ContentHash, usize>,
    /// Shards of the active runs, recomputed after every change.
    shards: Arc<Vec<KnownShard>>,
    /// Warnings that were already logged.
    said: BTreeSet<String>,
}

/// Decoded shared inputs.
#[derive(Debug)]
struct Shared {
    configurations: Arc<Configurations>,
    /// Their size in bytes as JSON.
    bytes: usize,
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

    /// Returns the shared inputs that are needed and were not fetched yet, or fit now.
    pub(crate) fn wanted(&self) -> BTreeSet<ContentHash> {
        let state = self.lock();
        let needed = state.runs.values().map(|run| &run.notice.shared);
        needed
            .filter(|hash| {
                !state.shared.contains_key(hash)
                    && !state.unreadable.contains(hash)
                    && !state.too_large.contains_key(hash)
            })
            .cloned()
            .collect()
    }

    /// Records fetched shared inputs, or the error of fetching them.
    pub(crate) fn supply(&self, hash: &ContentHash, bytes: Result<Vec<u8>, NatsError>) {
        let mut state = self.lock();
        let bytes = match bytes {
            Ok(bytes) if state.shared_bytes() + bytes.len() > SHARED_BYTES => {
                state.too_large.insert(hash.clone(), bytes.len());
                let hash = hash.short();
                state.say_once(&format!(
                    "ignoring the configurations of a run ({hash}): those of the active runs exceed {} MiB; hint: end \
                     other runs with `lumos cancel`",
                    SHARED_BYTES >> 20
                ));
                return;
            }
            bytes => bytes,
        };
        let size = bytes.as_ref().map_or(0, Vec::len);
        let read = bytes.map(|bytes| serde_json::from_slice::<SharedInputs>(&bytes));
        match read {
            Ok(Ok(inputs)) => {
                let mut configurations = Configurations::new();
                for (identity, configuration) in inputs.by_identity() {
                    let needs = ShardId::of(&configuration, 0).needs;
                    configurations.entry(needs).or_default().insert(identity, configuration);
                }
                let shared = Shared { configurations: Arc::new(configurations), bytes: size };
                state.shared.insert(hash.clone(), shared);
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
            let shared = state.shared.get(&run.notice.shared).ok_or(Unpacking::Unknown)?;
            Arc::clone(&shared.configurations)
        };
        let UnitMessage::Episode { configuration: identity, .. } = &message.work;
        let found = configurations.get(&shard.needs).and_then(|of_shard| of_shard.get(identity));
        if found.is_none() && configurations.values().any(|of_other| of_other.contains_key(identity)) {
            return Err(Unpacking::Misplaced);
        }
        message.clone().unpack(|_| found.cloned()).map_err(Unpacking::Bad)
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

    /// Follows a bucket of notices until `stop` is cancelled. Shared inputs are fetched one at a time, while changes are
    /// recorded.
    pub(crate) async fn follow(
        self: Arc<Self>,
        changes: impl Stream<Item = Change> + Send,
        store: Arc<dyn SharedStore>,
        stop: CancellationToken,
    ) {
        let mut changes = pin!(changes);
        let store = &store;
        let serving = async {
            // When inputs that could not be fetched are fetched again, and the delay before that.
            let mut failed: BTreeMap<ContentHash, (Instant, Duration)> = BTreeMap::new();
            let mut fetch: Fetch<'_> = None.into();
            let mut fetching: Option<ContentHash> = None;
            let mut open = true;
            loop {
                let wanted = self.wanted();
                if !open && wanted.is_empty() {
                    break;
                }
                failed.retain(|hash, _| wanted.contains(hash));
                if fetching.take_if(|hash| !wanted.contains(hash)).is_some() {
                    fetch = None.into();
                }
                // Inputs that did not fail come first.
                let next = wanted.iter().map(|hash| (failed.get(hash).map(|(at, _)| *at), hash)).min();
                let now = Instant::now();
                let at = next.and_then(|(at, _)| at).unwrap_or(now);
                if let Some((_, hash)) = next
                    && fetching.is_none()
                    && at <= now
                {
                    let hash = hash.clone();
                    fetching = Some(hash.clone());
                    let fetched = async move {
                        let bytes = store.get(&hash).await;
                        (hash, bytes)
                    };
                    fetch = Some(fetched.boxed()).into();
                }
                tokio::select! {
                    change = changes.next(), if open => match change {
                        Some(change) => self.update(&change.key, change.value.as_deref()),
                        None => open = false,
                    },
                    Some((hash, bytes)) = &mut fetch, if fetching.is_some() => {
                        fetching = None;
                        if bytes.is_err() {
                            let before = failed.get(&hash).map(|(_, delay)| *delay);
                            let delay = before.map_or(RETRY, |before| (before * 2).min(LONGEST_RETRY));
                            failed.insert(hash.clone(), (Instant::now() + delay, delay));
                        }
                        self.supply(&hash, bytes);
                    }
                    () = sleep_until(at), if fetching.is_none() && next.is_some() => {}
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

    fn has_ended(&self, run: &RunToken) -> bool {
        matches!(self.state_of(run), Some(RunState::Ended | RunState::Cancelled))
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
        let bytes = self.shared_bytes();
        self.too_large.retain(|hash, more| needed.contains(hash) && bytes + *more > SHARED_BYTES);
        self.shards = Arc::new(self.list());
    }

    fn shared_bytes(&self) -> usize {
        self.shared.values().map(|shared| shared.bytes).sum()
    }

    fn list(&self) -> Vec<KnownShard> {
        let mut ids: BTreeSet<&ShardId> = BTreeSet::new();
        // Any number of runs and priorities may name the same configurations, which are added once.
        let mut added: BTreeSet<(&RunToken, &ContentHash)> = BTreeSet::new();
        let mut by_needs: BTreeMap<&RunToken, BTreeMap<&ContentHash, &Arc<Configuration>>> = BTreeMap::new();
        for run in self.runs.values() {
            let Some(shared) = self.shared.get(&run.notice.shared) else { continue };
            for id in &run.notice.shards {
                let Some(configurations) = shared.configurations.get(&id.needs) else { continue };
                ids.insert(id);
                if added.insert((&id.needs, &run.notice.shared)) {
                    by_needs.entry(&id.needs).or_default().extend(configurations);
                }
            }
        }
        let by_needs: BTreeMap<&RunToken, Arc<Vec<Arc<Configuration>>>> = by_needs
            .into_iter()
            .map(|(needs, by_identity)| (needs, Arc::new(by_identity.into_values().cloned().collect())))
            .collect();
        let known = |id: &ShardId| {
            let configurations = Arc::clone(by_needs.get(&id.needs)?);
            Some(KnownShard { id: id.clone(), configurations })
        };
        ids.into_iter().filter_map(known).collect()
    }

    fn say_once(&mut self, message: &str) {
        let message = cut(message, LONGEST_WARNING);
        if self.said.len() < MOST_WARNINGS && self.said.insert(message.clone()) {
            tracing::warn!("{message}");
        }
    }
}

/// Decodes a notice, after checking its protocol. Each of its shards is named once.
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
    let mut notice: RunNotice =
        serde_json::from_slice(value).map_err(|error| format!("invalid notice of run `{key}`: {error}"))?;
    if notice.run.as_str() != key {
        return Err(format!("invalid notice of run `{key}`: it names run `{}`", notice.run));
    }
    notice.shards.sort_unstable();
    notice.shards.dedup();
    notice.shards.shrink_to_fit();
    // The notice of a run that ended is always read, so that its units are discarded.
    if notice.state == RunState::Active && notice.shards.len() > MOST_SHARDS {
        return Err(format!(
            "ignoring run `{key}`: it has {} shards, more than the limit of {MOST_SHARDS}; hint: run fewer \
             combinations of models and tools at a time",
            notice.shards.len()
        ));
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
    fn shards_of_a_notice_are_bounded_and_named_once() {
        let of = |shards: Vec<ShardId>, state| {
            let written = RunNotice { shards, ..notice(0, state) };
            read(token(0).as_str(), &serde_json::to_vec(&written).unwrap())
        };
        let shard = |number: usize| ShardId { needs: token(number), priority: 5 };
        assert_eq!(of(vec![shard(1); 24_000], RunState::Active).unwrap().shards, [shard(1)]);
        let many: Vec<_> = (0..=MOST_SHARDS).map(shard).collect();
        let error = of(many.clone(), RunState::Active).unwrap_err();
        assert!(error.contains(token(0).as_str()) && error.contains("20001 shards"), "{error}");
        assert!(of(many, RunState::Ended).is_ok());
    }

    #[test]
    fn shared_inputs_are_bounded_and_kept_once_they_fit() {
        let catalogue = Catalogue::default();
        let shared = |number: usize| ContentHash::of_bytes(&number.to_le_bytes());
        let note = |number: usize, state| {
            let notice = RunNotice { shared: shared(number), ..notice(number, state) };
            let value = serde_json::to_vec(&notice).unwrap();
            catalogue.update(token(number).as_str(), Some(&value));
        };
        for number in 0..3 {
            note(number, RunState::Active);
        }
        let inputs = serde_json::to_vec(&SharedInputs::default()).unwrap();
        catalogue.supply(&shared(0), Ok(inputs.clone()));
        if let Some(shared) = catalogue.lock().shared.get_mut(&shared(0)) {
            shared.bytes = SHARED_BYTES - inputs.len();
        }
        catalogue.supply(&shared(1), Ok(inputs.clone()));
        catalogue.supply(&shared(2), Ok(inputs.clone()));
        assert!(catalogue.wanted().is_empty(), "not fetched again");
        {
            let state = catalogue.lock();
            assert_eq!((state.shared.len(), state.shared_bytes()), (2, SHARED_BYTES));
            assert_eq!((state.too_large.len(), state.said.len()), (1, 1));
        }
        note(0, RunState::Ended);
        assert_eq!(catalogue.wanted(), BTreeSet::from([shared(2)]), "it fits now");
        catalogue.supply(&shared(2), Ok(inputs));
        assert_eq!(catalogue.lock().shared.len(), 2);
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
