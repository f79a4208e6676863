//! Collects usage figures of the workers' engines from their notices. Telemetry only; nothing else depends on
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use lumos_tasks::fleet::{ClaimNotice, HeldLease, PROTOCOL, WorkerNotice};
use lumos_tasks::{EngineUse, ModelIdentity, RunToken, ServerUse};

use super::Around;
use crate::checkpoint::Checkpoint;
use crate::computing::WorkerComputing;
use crate::manifest::Manifest;

/// Interval at which changes are checked.
const CHECK: Duration = Duration::from_secs(5);
/// Minimum time between two writes of a worker's figures, which are appended to the journal. The last ones are
/// written when the session ends.
const STORE_EVERY: Duration = Duration::from_secs(60);
/// How long to wait for the workers' final notices after a run. Longer than the usual interval between
/// notices.
const LAST_WORD: Duration = Duration::from_secs(3);
/// Interval at which their arrival is checked.
const LOOK: Duration = Duration::from_millis(25);

/// Maximum number of tracked workers, of engines per worker, and of bytes per text in a notice, because any
/// client with write access can write any number of notices.
const MOST_WORKERS: usize = 20_000;
const MOST_ENGINES: usize = 64;
const LONGEST_TEXT: usize = 256;
/// Maximum total size of the kept figures in bytes.
const MOST_BYTES: usize = 16 << 20;
/// Number of bytes after which a session writes figures only at its end, so that they cannot fill the disk.
const MOST_WRITTEN: usize = 64 << 20;

/// The workers that had units of a run, and the usage of their engines since their first unit.
#[derive(Debug)]
pub(super) struct Engines {
    run: RunToken,
    /// The run's models that engines compute.
    models: Vec<ModelIdentity>,
    /// Names of the run's models on servers.
    remote: Vec<String>,
    workers: BTreeMap<(String, i64), EngineStats>,
    /// Size of `workers` in bytes.
    bytes: usize,
    /// Whether figures were ignored because of [`MOST_BYTES`].
    is_full: bool,
    /// Number of bytes that this session has written.
    written: usize,
}

/// Usage of one worker.
#[derive(Debug, Clone)]
struct EngineStats {
    computing: WorkerComputing,
    /// Whether it had a unit of the run at any time.
    took_part: bool,
    /// Whether it has changes to store.
    changed: bool,
    /// When this session stored it.
    stored: Option<Instant>,
    /// Size in bytes.
    bytes: usize,
}

impl EngineStats {
    fn new(computing: WorkerComputing, took_part: bool) -> Self {
        let bytes = bytes_of(&computing);
        Self { computing, took_part, changed: false, stored: None, bytes }
    }
}

/// Returns the size of a worker's figures in bytes.
fn bytes_of(computing: &WorkerComputing) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let engines = computing.engines.iter().chain(&computing.before).map(|engine| {
        size_of::<EngineUse>()
            + engine.model.len()
            + text(&engine.dtype)
            + engine.device.len()
            + text(&engine.weights)
    });
    let servers = computing.servers.iter().chain(&computing.servers_before);
    let servers = servers.map(|server| size_of::<ServerUse>() + server.server.len());
    let names = 2 * computing.worker.len() + computing.host.len();
    size_of::<EngineStats>() + names + engines.sum::<usize>() + servers.sum::<usize>()
}

impl Engines {
    /// Creates the collection and continues with the stored figures of earlier sessions.
    pub(super) fn of(manifest: &Manifest, run: RunToken, stored: Vec<WorkerComputing>) -> Self {
        let models = manifest.configurations.iter().flat_map(|one| one.configuration.models.values());
        // Only models of engines have a data type.
        let (models, others): (Vec<_>, Vec<_>) = models.cloned().partition(|model| model.dtype.is_some());
        let remote = others.into_iter().map(|model| model.name).filter(|name| name.contains("://")).collect();
        let known = |computing: WorkerComputing| (computing.key(), EngineStats::new(computing, true));
        let workers: BTreeMap<_, _> = stored.into_iter().map(known).collect();
        let bytes = workers.values().map(|one| one.bytes).sum();
        Self { run, models, remote, workers, bytes, is_full: false, written: 0 }
    }

    /// Whether any model of the run is computed by an engine or on a server.
    fn any(&self) -> bool {
        !self.models.is_empty() || !self.remote.is_empty()
    }

    /// Adds a notice.
    pub(super) fn receive(&mut self, notice: &WorkerNotice) {
        let is_short_name = notice.name.len().max(notice.host.len()) <= LONGEST_TEXT;
        if !self.any() || notice.protocol != PROTOCOL || !is_short_name {
            return;
        }
        let computes = |engine: &&EngineUse| self.models.iter().any(|model| engine.computes(model));
        let is_short = |engine: &&EngineUse| {
            engine.device.len() + engine.weights.as_ref().map_or(0, String::len) <= LONGEST_TEXT
        };
        let mut seen = BTreeSet::new();
        let engines = notice.engines.iter().filter(computes).filter(is_short);
        let engines = engines.filter(|one| seen.insert((&one.model, &one.dtype, &one.device)));
        let engines: Vec<EngineUse> = engines.take(MOST_ENGINES).cloned().collect();
        let is_used = |server: &&ServerUse| {
            server.server.len() <= LONGEST_TEXT
                && self.remote.iter().any(|name| name.contains(&server.server))
        };
        let mut seen = BTreeSet::new();
        let servers = notice.servers.iter().filter(is_used).filter(|one| seen.insert(&one.server));
        let servers: Vec<ServerUse> = servers.take(MOST_ENGINES).cloned().collect();
        let key = (notice.name.clone(), notice.started_ms);
        let known = self.workers.get(&key);
        if known.is_none() && self.workers.len() >= MOST_WORKERS {
            return;
        }
        let known_bytes = known.map_or(0, |one| one.bytes);
        let mut followed = known.cloned().unwrap_or_else(|| {
            let computing = WorkerComputing {
                worker: notice.name.clone(),
                host: notice.host.clone(),
                started_ms: notice.started_ms,
                ..WorkerComputing::default()
            };
            EngineStats::new(computing, false)
        });
        followed.took_part |= holds(&notice.held, &self.run);
        let computing = &mut followed.computing;
        if !followed.took_part {
            // Usage from before its first unit of this run belongs to other runs.
            computing.before.clone_from(&engines);
            computing.servers_before.clone_from(&servers);
        }
        if (&computing.engines, &computing.servers, computing.concurrency)
            != (&engines, &servers, notice.holdings.concurrency)
        {
            computing.engines = engines;
            computing.servers = servers;
            computing.concurrency = notice.holdings.concurrency;
            followed.changed = true;
        }
        followed.bytes = bytes_of(&followed.computing);
        let bytes = self.bytes - known_bytes + followed.bytes;
        if bytes <= MOST_BYTES {
            self.bytes = bytes;
            self.workers.insert(key, followed);
        } else if !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(
                "the engine statistics of workers exceed {} MiB; further ones are not recorded, and results are \
                 not affected",
                MOST_BYTES >> 20
            );
        }
    }

    /// Adds claims that a worker has just reported.
    pub(super) fn receive_claims(&mut self, worker: &str, claims: &ClaimNotice) {
        if !self.any() || claims.protocol != PROTOCOL || !holds(&claims.held, &self.run) {
            return;
        }
        let of_name = (worker.to_owned(), i64::MIN)..=(worker.to_owned(), i64::MAX);
        if let Some((_, followed)) = self.workers.range_mut(of_name).next_back() {
            followed.took_part = true;
        }
    }

    /// Returns the changed figures of workers that took part and were not stored within `interval`, for storing.
    fn take_changed(&mut self, now: Instant, interval: Duration) -> Vec<WorkerComputing> {
        let is_due = |stored: Instant| now.saturating_duration_since(stored) >= interval;
        let mut changed = Vec::new();
        for one in self.workers.values_mut() {
            if one.took_part && one.changed && one.stored.is_none_or(is_due) {
                (one.changed, one.stored) = (false, Some(now));
                self.written += one.bytes;
                changed.push(one.computing.clone());
            }
        }
        changed
    }
}

fn holds(held: &[HeldLease], run: &RunToken) -> bool {
    held.iter().any(|lease| lease.run == *run)
}

/// Stores changes periodically.
pub(super) async fn storing(around: &Around, checkpoint: &Checkpoint) -> Infallible {
    loop {
        tokio::time::sleep(CHECK).await;
        if around.engines().written < MOST_WRITTEN {
            store(around, checkpoint, STORE_EVERY, false);
        }
    }
}

/// Stores changes of workers that were not stored within `interval`. While outcomes are being written, waits for the disk
/// if `waits` is set, which blocks the session, and otherwise leaves the changes to the next call. An error does not fail
/// the run.
pub(super) fn store(around: &Around, checkpoint: &Checkpoint, interval: Duration, waits: bool) {
    let changed = || around.engines().take_changed(Instant::now(), interval);
    if let Err(error) = checkpoint.note_workers(changed, waits) {
        tracing::warn!("failed to store the engine statistics of workers: {error}");
    }
}

/// Waits, for a limited time and only if engines computed the run, until every worker has sent a notice since
/// the end of the run.
pub(super) async fn last_word(around: &Around) {
    if !around.engines().any() || !around.server.is_connected() {
        return;
    }
    let ended = Instant::now();
    while ended.elapsed() < LAST_WORD {
        if around.registry().is_idle(&around.run, ended) {
            tracing::debug!(waited = ?ended.elapsed(), "received the engine statistics of every worker");
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    tracing::debug!("engine statistics of some workers may be incomplete");
}

#[cfg(test)]
mod tests {
    use lumos_tasks::ContentHash;

    use super::super::worker_registry::tests::notice;
    use super::*;
    use crate::samples::{configuration, item, manifest_of};

    fn run(name: &[u8]) -> RunToken {
        RunToken::of(&ContentHash::of_bytes(name))
    }

    fn lease(run: &RunToken) -> HeldLease {
        HeldLease { run: run.clone(), message: "m".to_owned(), token: "t".to_owned() }
    }

    fn engines(stored: Vec<WorkerComputing>) -> Engines {
        Engines::of(&manifest_of(&[configuration(0)], &[item(0)]), run(b"run"), stored)
    }

    /// A notice of a worker whose engine for the run's planner was loaded `loads` times.
    fn told(started_ms: i64, loads: u64, held: Vec<HeldLease>) -> WorkerNotice {
        let [model] = ["planner"].map(|name| ModelIdentity {
            name: name.to_owned(),
            content: ContentHash::of_bytes(name.as_bytes()),
            dtype: Some("f32".to_owned()),
        });
        let planner = EngineUse {
            loads,
            load_seconds: loads as f64,
            in_turns: true,
            ..EngineUse::new(&model, "cuda:0".to_owned())
        };
        let other = ModelIdentity { content: ContentHash::of_bytes(b"other"), ..model };
        let engines = vec![planner, EngineUse::new(&other, "cpu".to_owned())];
        WorkerNotice { engines, started_ms, ..notice("a", held) }
    }

    /// The changed figures, as at the end of a session.
    fn changed(engines: &mut Engines) -> Vec<WorkerComputing> {
        engines.take_changed(Instant::now(), Duration::ZERO)
    }

    fn loads(computing: &WorkerComputing) -> Vec<u64> {
        computing.spent().engines.iter().map(|engine| engine.loads).collect()
    }

    #[test]
    fn a_worker_counts_from_its_first_unit_and_only_the_runs_models() {
        let mut engines = engines(Vec::new());
        engines.receive(&told(1, 7, vec![lease(&run(b"another"))]));
        engines.receive(&told(1, 8, Vec::new()));
        assert!(changed(&mut engines).is_empty(), "it had no unit yet");
        let claims = ClaimNotice { protocol: PROTOCOL, held: vec![lease(&run(b"run"))], written_ms: 1 };
        engines.receive_claims("nobody", &claims);
        engines.receive_claims("a", &claims);
        engines.receive(&told(1, 10, Vec::new()));
        let first = changed(&mut engines);
        assert_eq!((first.len(), loads(&first[0])), (1, vec![2]));
        engines.receive(&told(1, 10, Vec::new()));
        assert!(changed(&mut engines).is_empty(), "nothing new");
        // Known only from its lease, and restarted under the same name.
        engines.receive(&told(2, 1, vec![lease(&run(b"run"))]));
        let again = changed(&mut engines);
        assert_eq!((again.len(), loads(&again[0])), (1, vec![1]));
    }

    #[test]
    fn a_flood_of_notices_is_bounded() {
        let mut engines = engines(Vec::new());
        for started_ms in 0..MOST_WORKERS as i64 + 10 {
            engines.receive(&told(started_ms, 1, Vec::new()));
        }
        assert_eq!(engines.workers.len(), MOST_WORKERS);
        let mut many = told(0, 1, Vec::new());
        let of_device = |device: String| EngineUse { device, ..many.engines[0].clone() };
        let long = vec![of_device("d".repeat(LONGEST_TEXT + 1)); 1000];
        let others = (0..1000).map(|device| of_device(format!("cuda:{device}")));
        many.engines = long.into_iter().chain(others.flat_map(|one| [one.clone(), one])).collect();
        engines.receive(&many);
        let kept = &engines.workers[&("a".to_owned(), 0)].computing.engines;
        let devices: BTreeSet<&str> = kept.iter().map(|engine| engine.device.as_str()).collect();
        assert_eq!((kept.len(), devices.len()), (MOST_ENGINES, MOST_ENGINES), "each device once");
        assert!(!devices.iter().any(|device| device.starts_with('d')));
    }

    #[test]
    fn bytes_of_figures_are_bounded() {
        let mut engines = engines(Vec::new());
        let lease = lease(&run(b"run"));
        let fat = |started_ms, loads| {
            let mut fat = told(started_ms, loads, vec![lease.clone()]);
            let of_device =
                |number: usize| EngineUse { device: format!("{number:0256}"), ..fat.engines[0].clone() };
            fat.engines = (0..MOST_ENGINES).map(of_device).collect();
            fat
        };
        for started_ms in 0..1000 {
            engines.receive(&fat(started_ms, 1));
        }
        let kept = engines.workers.len();
        assert!((100..1000).contains(&kept) && engines.bytes <= MOST_BYTES && engines.is_full, "{kept}");
        assert_eq!(
            engines.bytes,
            engines.workers.values().map(|one| bytes_of(&one.computing)).sum::<usize>()
        );
        // Known workers are still updated.
        engines.receive(&fat(0, 2));
        assert_eq!(engines.workers[&("a".to_owned(), 0)].computing.engines[0].loads, 2);
        assert_eq!(changed(&mut engines).len(), kept);
        assert_eq!(engines.written, engines.bytes);
    }

    #[test]
    fn figures_that_change_are_stored_once_a_minute_and_at_the_end() {
        let mut engines = engines(Vec::new());
        let began = Instant::now();
        let mut stored = |loads, seconds, interval| {
            engines.receive(&told(1, loads, vec![lease(&run(b"run"))]));
            engines.take_changed(began + Duration::from_secs(seconds), interval).len()
        };
        let at = [0, 5, 59, 60, 65];
        assert_eq!((1..).zip(at).map(|(loads, at)| stored(loads, at, STORE_EVERY)).sum::<usize>(), 2);
        assert_eq!(stored(6, 66, Duration::ZERO), 1);
    }

    #[test]
    fn another_session_goes_on_where_the_one_before_was_killed() {
        let mut first = engines(Vec::new());
        first.receive(&told(1, 4, Vec::new()));
        first.receive(&told(1, 6, vec![lease(&run(b"run"))]));
        let stored = changed(&mut first);
        let mut second = engines(stored);
        second.receive(&told(1, 9, Vec::new()));
        assert_eq!(loads(&changed(&mut second)[0]), [5]);
    }

    #[test]
    fn where_no_engine_computes_nothing_is_followed() {
        let mut configuration = configuration(0);
        configuration.models.values_mut().for_each(|model| model.dtype = None);
        let manifest = manifest_of(&[configuration], &[item(0)]);
        let mut engines = Engines::of(&manifest, run(b"run"), Vec::new());
        engines.receive(&told(1, 4, vec![lease(&run(b"run"))]));
        assert!(engines.workers.is_empty());
    }
}
