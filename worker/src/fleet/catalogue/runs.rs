//! The known runs: decodes their notices, and keeps the active runs and the states of the latest runs that ended,
//! within limits.

use std::collections::BTreeMap;

use lumos_queue::nats::KeyValue;
use lumos_tasks::RunToken;
use lumos_tasks::fleet::{NEWEST, PROTOCOL, RunNotice, RunState};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

/// Maximum number of active runs, and of ended runs whose state is kept.
const MOST_RUNS: usize = KeyValue::MOST_ENTRIES;
/// Maximum total size of the notices of active runs in bytes.
const MOST_BYTES: usize = KeyValue::MOST_BYTES;
/// Maximum number of shards of an active run.
const MOST_SHARDS: usize = 20_000;

/// The active runs, and the states of those that ended.
#[derive(Debug, Default)]
pub(super) struct KnownRuns {
    active: BTreeMap<RunToken, ActiveRun>,
    /// Total size of the notices of the active runs in bytes.
    bytes: usize,
    ended: EndedRuns,
}

/// An active run.
#[derive(Debug)]
pub(super) struct ActiveRun {
    pub(super) notice: RunNotice,
    /// Size of the notice in bytes.
    bytes: usize,
    pub(super) cancelled: CancellationToken,
}

impl KnownRuns {
    /// Records a notice of `bytes` bytes. An active run that exceeds the limits is ignored, so that its units are
    /// returned to the queue; a known one keeps its previous notice.
    ///
    /// # Errors
    /// A warning if the run is ignored.
    pub(super) fn note(&mut self, notice: RunNotice, bytes: usize) -> Result<(), String> {
        if notice.state != RunState::Active {
            self.end(&notice.run);
            self.ended.insert(notice.run, notice.state);
            return Ok(());
        }
        self.ended.remove(&notice.run);
        let known = self.active.get(&notice.run).map(|run| run.bytes);
        let others = self.bytes - known.unwrap_or(0);
        if others + bytes > MOST_BYTES || (known.is_none() && self.active.len() >= MOST_RUNS) {
            return Err(format!(
                "ignoring the notice of run `{}`: the active runs exceed {MOST_RUNS} runs or {} MiB of \
                 notices; hint: end runs with `lumos cancel`, then restart this worker",
                notice.run,
                MOST_BYTES >> 20
            ));
        }
        self.bytes = others + bytes;
        match self.active.get_mut(&notice.run) {
            Some(run) => (run.notice, run.bytes) = (notice, bytes),
            None => {
                tracing::info!(run = notice.name, token = %notice.run, "found an active run");
                // A new one if the run was resumed: the earlier cancellation must not affect its new units.
                let cancelled = CancellationToken::new();
                self.active.insert(notice.run.clone(), ActiveRun { notice, bytes, cancelled });
            }
        }
        Ok(())
    }

    /// Removes a run whose notice was deleted.
    pub(super) fn forget(&mut self, run: &RunToken) {
        self.end(run);
        self.ended.remove(run);
    }

    /// Returns an active run.
    pub(super) fn get(&self, run: &RunToken) -> Option<&ActiveRun> {
        self.active.get(run)
    }

    /// Returns the notices of the active runs.
    pub(super) fn active(&self) -> impl ExactSizeIterator<Item = &RunNotice> {
        self.active.values().map(|run| &run.notice)
    }

    /// Returns the state of a run, or `None` if the run is unknown.
    pub(super) fn state_of(&self, run: &RunToken) -> Option<RunState> {
        if self.active.contains_key(run) { Some(RunState::Active) } else { self.ended.get(run) }
    }

    /// Removes an active run and cancels its episodes.
    fn end(&mut self, run: &RunToken) {
        if let Some(run) = self.active.remove(run) {
            self.bytes -= run.bytes;
            run.cancelled.cancel();
        }
    }
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

/// Decodes a notice, after checking its protocol. Each of its shards is named once.
pub(super) fn read(key: &str, value: &[u8]) -> Result<RunNotice, String> {
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
    use lumos_tasks::fleet::ShardId;

    use super::super::tests::{notice, token};
    use super::*;

    #[test]
    fn active_runs_are_bounded_and_ended_ones_make_room() {
        let mut runs = KnownRuns::default();
        let is_ignored = |number: &usize| runs.note(notice(*number, RunState::Active), 1).is_err();
        assert_eq!((0..MOST_RUNS + 10).filter(is_ignored).count(), 10);
        assert_eq!((runs.active.len(), runs.bytes), (MOST_RUNS, MOST_RUNS));
        assert!(!runs.active.contains_key(&token(MOST_RUNS)));
        let cancelled = runs.active[&token(0)].cancelled.clone();
        runs.note(notice(0, RunState::Ended), 1).unwrap();
        assert!(cancelled.is_cancelled());
        runs.note(notice(MOST_RUNS, RunState::Active), 1).unwrap();
        assert_eq!((runs.active.len(), runs.bytes), (MOST_RUNS, MOST_RUNS));
        assert_eq!(runs.ended.get(&token(0)), Some(RunState::Ended));
    }

    #[test]
    fn bytes_of_notices_are_bounded_and_a_known_run_keeps_its_notice() {
        let mut runs = KnownRuns::default();
        for number in 0..200 {
            assert_eq!(runs.note(notice(number, RunState::Active), 1 << 20).is_ok(), number < 64);
        }
        assert_eq!((runs.active.len(), runs.bytes), (64, MOST_BYTES));
        let larger = RunNotice { written_ms: 7, ..notice(0, RunState::Active) };
        assert!(runs.note(larger, 2 << 20).is_err());
        assert_eq!((runs.active[&token(0)].notice.written_ms, runs.bytes), (0, MOST_BYTES));
        let smaller = RunNotice { written_ms: 8, ..notice(0, RunState::Active) };
        runs.note(smaller, 1 << 10).unwrap();
        assert_eq!(runs.active[&token(0)].notice.written_ms, 8);
        for number in 0..200 {
            runs.end(&token(number));
        }
        assert_eq!((runs.active.len(), runs.bytes), (0, 0));
    }

    #[test]
    fn the_latest_ended_runs_are_remembered() {
        let mut runs = KnownRuns::default();
        for number in 0..MOST_RUNS + 10 {
            runs.note(notice(number, RunState::Ended), 1 << 20).unwrap();
            // Written again, and resumed for a while: counted once.
            runs.note(notice(3, RunState::Active), 1).unwrap();
            runs.note(notice(3, RunState::Cancelled), 1).unwrap();
        }
        let ended = &runs.ended;
        assert_eq!((ended.states.len(), ended.order.len(), runs.bytes), (MOST_RUNS, MOST_RUNS, 0));
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
}
