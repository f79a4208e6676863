//! Collects usage figures of the workers' engines from their notices. Telemetry only; nothing else depends on
//! it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use lumos_tasks::fleet::{ClaimNotice, HeldLease, PROTOCOL, WorkerNotice};
use lumos_tasks::{EngineUse, ModelIdentity, RunToken, ServerUse};

use super::Around;
use crate::checkpoint::Checkpoint;
use crate::computing::WorkerComputing;
use crate::manifest::Manifest;

/// Interval at which changes are stored.
const STORE: Duration = Duration::from_secs(5);
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

/// The workers that had units of a run, and the usage of their engines since their first unit.
#[derive(Debug)]
pub(super) struct Engines {
    run: RunToken,
    /// The run's models that engines compute.
    models: Vec<ModelIdentity>,
    /// Names of the run's models on servers.
    remote: Vec<String>,
    workers: BTreeMap<(String, i64), EngineStats>,
}

/// Usage of one worker.
#[derive(Debug)]
struct EngineStats {
    computing: WorkerComputing,
    /// Whether it had a unit of the run at any time.
    took_part: bool,
    /// Whether it has changes to store.
    changed: bool,
}

impl Engines {
    /// Creates the collection and continues with the stored figures of earlier sessions.
    pub(super) fn of(manifest: &Manifest, run: RunToken, stored: Vec<WorkerComputing>) -> Self {
        let models = manifest.configurations.iter().flat_map(|one| one.configuration.models.values());
        // Only models of engines have a data type.
        let (models, others): (Vec<_>, Vec<_>) = models.cloned().partition(|model| model.dtype.is_some());
        let remote = others.into_iter().map(|model| model.name).filter(|name| name.contains("://")).collect();
        let known = |computing: WorkerComputing| {
            (computing.key(), EngineStats { computing, took_part: true, changed: false })
        };
        Self { run, models, remote, workers: stored.into_iter().map(known).collect() }
    }

    /// Whether any model of the run is computed by an engine or on a server.
    fn any(&self) -> bool {
        !self.models.is_empty() || !self.remote.is_empty()
    }

    /// Adds a notice.
    pub(super) fn receive(&mut self, notice: &WorkerNotice) {
        if !self.any() || notice.protocol != PROTOCOL {
            return;
        }
        let computes = |engine: &&EngineUse| self.models.iter().any(|model| engine.computes(model));
        let is_short = |engine: &&EngineUse| {
            engine.device.len() + engine.weights.as_ref().map_or(0, String::len) <= LONGEST_TEXT
        };
        let engines = notice.engines.iter().filter(computes).filter(is_short).take(MOST_ENGINES);
        let engines: Vec<EngineUse> = engines.cloned().collect();
        let is_named = |server: &&ServerUse| {
            server.server.len() <= LONGEST_TEXT
                && self.remote.iter().any(|name| name.contains(&server.server))
        };
        let servers: Vec<ServerUse> =
            notice.servers.iter().filter(is_named).take(MOST_ENGINES).cloned().collect();
        let key = (notice.name.clone(), notice.started_ms);
        let is_new = !self.workers.contains_key(&key);
        if notice.host.len() > LONGEST_TEXT || (is_new && self.workers.len() >= MOST_WORKERS) {
            return;
        }
        let followed = self.workers.entry(key).or_insert_with(|| EngineStats {
            computing: WorkerComputing {
                worker: notice.name.clone(),
                host: notice.host.clone(),
                started_ms: notice.started_ms,
                ..WorkerComputing::default()
            },
            took_part: false,
            changed: false,
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

    /// Returns the changed figures of workers that took part, for storing.
    fn take_changed(&mut self) -> Vec<WorkerComputing> {
        let changed = self.workers.values_mut().filter(|one| one.took_part && one.changed);
        changed
            .map(|one| {
                one.changed = false;
                one.computing.clone()
            })
            .collect()
    }
}

fn holds(held: &[HeldLease], run: &RunToken) -> bool {
    held.iter().any(|lease| lease.run == *run)
}

/// Stores changes periodically.
pub(super) async fn storing(around: &Around, checkpoint: &Checkpoint) -> Infallible {
    loop {
        tokio::time::sleep(STORE).await;
        store(around, checkpoint);
    }
}

/// Stores changes. An error does not fail the run.
pub(super) fn store(around: &Around, checkpoint: &Checkpoint) {
    let changed = around.engines().take_changed();
    if !changed.is_empty()
        && let Err(error) = checkpoint.note_workers(&changed)
    {
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

    fn loads(computing: &WorkerComputing) -> Vec<u64> {
        computing.spent().engines.iter().map(|engine| engine.loads).collect()
    }

    #[test]
    fn a_worker_counts_from_its_first_unit_and_only_the_runs_models() {
        let mut engines = engines(Vec::new());
        engines.receive(&told(1, 7, vec![lease(&run(b"another"))]));
        engines.receive(&told(1, 8, Vec::new()));
        assert!(engines.take_changed().is_empty(), "it had no unit yet");
        let claims = ClaimNotice { protocol: PROTOCOL, held: vec![lease(&run(b"run"))], written_ms: 1 };
        engines.receive_claims("nobody", &claims);
        engines.receive_claims("a", &claims);
        engines.receive(&told(1, 10, Vec::new()));
        let changed = engines.take_changed();
        assert_eq!((changed.len(), loads(&changed[0])), (1, vec![2]));
        engines.receive(&told(1, 10, Vec::new()));
        assert!(engines.take_changed().is_empty(), "nothing new");
        // Known only from its lease, and restarted under the same name.
        engines.receive(&told(2, 1, vec![lease(&run(b"run"))]));
        let again = engines.take_changed();
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
        let long = EngineUse { device: "d".repeat(LONGEST_TEXT + 1), ..many.engines[0].clone() };
        many.engines = [vec![long; 1000], vec![many.engines[0].clone(); 1000]].concat();
        engines.receive(&many);
        let followed = &engines.workers[&("a".to_owned(), 0)];
        assert_eq!(followed.computing.engines.len(), MOST_ENGINES);
        assert!(followed.computing.engines.iter().all(|engine| engine.device == "cuda:0"));
    }

    #[test]
    fn another_session_goes_on_where_the_one_before_was_killed() {
        let mut first = engines(Vec::new());
        first.receive(&told(1, 4, Vec::new()));
        first.receive(&told(1, 6, vec![lease(&run(b"run"))]));
        let stored = first.take_changed();
        let mut second = engines(stored);
        second.receive(&told(1, 9, Vec::new()));
        assert_eq!(loads(&second.take_changed()[0]), [5]);
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
