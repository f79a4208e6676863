//! The active runs: watched in their bucket, with the inputs that their units share fetched once. Of runs that ended,
//! only the state is kept. Any client with write access can write notices, so the same limits apply to the bucket's
//! content at the start and to its changes.
//!
//! - `follow` records the changes of the bucket, and fetches shared inputs.
//! - `runs` decodes notices, and keeps the runs within limits.
//! - `shared` decodes shared inputs, and keeps them within a limit.
//! - [`Catalogue`] combines them: it lists the shards of the active runs, and converts messages to assignments.

mod follow;
mod runs;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lumos_queue::nats::NatsError;
use lumos_tasks::fleet::{MessageError, RunState, ShardId, WorkMessage};
use lumos_tasks::{Assignment, Configuration, ContentHash, RunToken};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::runs::KnownRuns;
use self::shared::FetchedInputs;
use super::notice_limits::cut;
use crate::drive::EpisodeLimits;
use crate::serve::{RunTerms, Runs};

/// Maximum number of different warnings about notices.
const MOST_WARNINGS: usize = 1024;
/// Maximum length of such a warning in bytes: it quotes the notice.
const LONGEST_WARNING: usize = 1024;

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
    runs: KnownRuns,
    shared: FetchedInputs,
    /// Shards of the active runs, recomputed after every change.
    shards: Arc<Vec<KnownShard>>,
    /// Warnings that were already logged.
    said: BTreeSet<String>,
}

impl Catalogue {
    /// Records a run's notice, or its deletion.
    pub(crate) fn update(&self, key: &str, value: Option<&[u8]>) {
        let mut state = self.lock();
        let noted = match value {
            Some(value) => runs::read(key, value).and_then(|notice| state.runs.note(notice, value.len())),
            None => {
                if let Ok(run) = key.parse() {
                    state.runs.forget(&run);
                }
                Ok(())
            }
        };
        if let Err(message) = noted {
            state.warn_once(&message);
        }
        state.clean_up();
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the shared inputs that are needed and were not fetched yet, or fit now.
    pub(crate) fn wanted(&self) -> BTreeSet<ContentHash> {
        let state = self.lock();
        let needed = state.runs.active().map(|notice| &notice.shared);
        needed.filter(|hash| !state.shared.is_settled(hash)).cloned().collect()
    }

    /// Records fetched shared inputs, or the error of fetching them.
    pub(crate) fn supply(&self, hash: &ContentHash, fetched: Result<Vec<u8>, NatsError>) {
        let mut state = self.lock();
        if let Err(message) = state.shared.record(hash, fetched) {
            state.warn_once(&message);
            return;
        }
        state.clean_up();
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the number of active runs.
    pub(crate) fn active(&self) -> usize {
        self.lock().runs.active().len()
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
                let over = state.runs.state_of(&message.run).is_some();
                return Err(if over { Unpacking::Over } else { Unpacking::Unknown });
            };
            Arc::clone(state.shared.get(&run.notice.shared).ok_or(Unpacking::Unknown)?)
        };
        let identity = &message.work.configuration;
        let found = configurations.get(&shard.needs).and_then(|of_shard| of_shard.get(identity));
        if found.is_none() && configurations.values().any(|of_other| of_other.contains_key(identity)) {
            return Err(Unpacking::Misplaced);
        }
        message.clone().unpack(|_| found.cloned()).map_err(Unpacking::Bad)
    }

    /// Returns the state of a run, or `None` if the run is unknown.
    pub(crate) fn state_of(&self, run: &RunToken) -> Option<RunState> {
        self.lock().runs.state_of(run)
    }

    /// Returns a counter that is incremented with every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
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
    /// Removes shared inputs that no active run needs, and recomputes the shards.
    fn clean_up(&mut self) {
        let needed: BTreeSet<&ContentHash> = self.runs.active().map(|notice| &notice.shared).collect();
        self.shared.retain(&needed);
        self.shards = Arc::new(self.list());
    }

    fn list(&self) -> Vec<KnownShard> {
        let mut ids: BTreeSet<&ShardId> = BTreeSet::new();
        // Any number of runs and priorities may name the same configurations, which are added once.
        let mut added: BTreeSet<(&RunToken, &ContentHash)> = BTreeSet::new();
        let mut by_needs: BTreeMap<&RunToken, BTreeMap<&ContentHash, &Arc<Configuration>>> = BTreeMap::new();
        for notice in self.runs.active() {
            let Some(shared) = self.shared.get(&notice.shared) else { continue };
            for id in &notice.shards {
                let Some(configurations) = shared.get(&id.needs) else { continue };
                ids.insert(id);
                if added.insert((&id.needs, &notice.shared)) {
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

    fn warn_once(&mut self, message: &str) {
        let message = cut(message, LONGEST_WARNING);
        if self.said.len() < MOST_WARNINGS && self.said.insert(message.clone()) {
            tracing::warn!("{message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use lumos_tasks::fleet::{NEWEST, PROTOCOL, RunNotice};

    use super::*;

    pub(super) fn token(number: usize) -> RunToken {
        RunToken::of(&ContentHash::of_bytes(number.to_string().as_bytes()))
    }

    pub(super) fn notice(number: usize, state: RunState) -> RunNotice {
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
