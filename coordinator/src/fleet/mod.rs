//! Runs whose workers are on other machines, connected by a NATS server.
//!
//! The checkpoint is authoritative. Messages on the server may be lost, duplicated or delayed: published
//! units that are neither queued, held nor among the results are published again, and further outcomes are
//! counted and dropped. One coordinator owns a run at a time. It may be killed at any moment and restarted on
//! any host with the same run folder.
//!
//! [`run_fleet`] runs a session of [`crate::dispatch`] together with these tasks: `ownership` renews the
//! claim on the run, `reconcile` finds lost units, `watch_workers` detects lost workers, `restore` recreates
//! deleted server data, `drain` stops the run, and `announce` publishes its notice and its status.

mod announce;
mod cancel;
mod claim;
mod drain;
mod engines;
mod error;
mod ownership;
mod reconcile;
mod rejected;
mod restore;
mod retrying_client;
mod shards;
mod stall;
#[cfg(test)]
mod tests;
mod token;
mod watch_workers;
mod worker_registry;

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lumos_queue::nats::Server;
use lumos_tasks::fleet::{ResultBatch, RunState};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::checkpoint::Checkpoint;
use crate::dispatch::{
    Command, ControlChannel, DispatchConfig, DispatchError, EventSink, RunGauges, RunStats, Session,
    SessionName, Summary, conduct,
};
use crate::events::Event;
use crate::manifest::Manifest;

pub use {
    cancel::{Cancellation, cancel},
    error::CoordinatorError,
    token::run_token,
};

pub(crate) use claim::host;

use announce::Announced;
use engines::Engines;
use ownership::Ownership;
use restore::Restorer;
use retrying_client::RetryingClient;
use shards::Shards;
use worker_registry::WorkerRegistry;

/// Settings for a coordinator of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorSettings {
    /// Priority of the shards, from 0 (first) to 9 (last).
    pub priority: u8,
    /// Interval at which the owner's claim is renewed.
    pub claim_every: Duration,
    /// Age of a worker's last notice at which the worker is considered lost.
    pub worker_lost_after: Duration,
    /// Interval of reconciliation, which finds lost units.
    pub reconcile_every: Duration,
    /// Time without results after which an additional reconciliation runs.
    pub quiet: Duration,
    /// Interval at which the status is written.
    pub status_every: Duration,
    /// Time limit for a session that is asked to stop. Most of it is given to workers to finish the units
    /// that they hold.
    pub drain_grace: Duration,
    /// Time without workers before a warning.
    pub lonely_after: Duration,
    /// Interval at which data deleted from the server is detected and recreated.
    pub restore_every: Duration,
    /// Time without progress before a warning that states the cause; zero disables the warning.
    pub stall_warning: Duration,
    /// The server's address, for hints.
    pub address: String,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        Self {
            priority: 5,
            claim_every: Duration::from_secs(3),
            worker_lost_after: Duration::from_secs(6),
            reconcile_every: Duration::from_secs(30),
            quiet: Duration::from_secs(10),
            status_every: Duration::from_secs(1),
            drain_grace: Duration::from_secs(20),
            lonely_after: Duration::from_secs(5),
            restore_every: Duration::from_secs(1),
            stall_warning: Duration::from_secs(60),
            address: "nats://HOST:4222".to_owned(),
        }
    }
}

/// A run and the server that connects its workers.
pub struct Fleet<'a> {
    /// The run.
    pub manifest: &'a Manifest,
    /// The run's checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// The server.
    pub server: &'a Server,
    /// Settings of the session.
    pub terms: DispatchConfig,
    /// Settings of the fleet.
    pub settings: CoordinatorSettings,
    /// Receives the run's events.
    pub events: &'a mpsc::Sender<Event>,
    /// Cancelled to stop the session.
    pub drain: &'a CancellationToken,
}

/// State shared by the tasks of a session.
#[derive(Clone)]
struct Around {
    server: Server,
    name: SessionName,
    run: lumos_tasks::RunToken,
    settings: Arc<CoordinatorSettings>,
    sink: EventSink,
    gauges: Arc<RunGauges>,
    registry: Arc<Mutex<WorkerRegistry>>,
    engines: Arc<Mutex<Engines>>,
    commands: mpsc::Sender<Command>,
    /// Cancelled to stop the session.
    drain: CancellationToken,
    /// Cancelled when the session has ended.
    over: CancellationToken,
}

impl Around {
    fn registry(&self) -> MutexGuard<'_, WorkerRegistry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engines(&self) -> MutexGuard<'_, Engines> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs every planned unit that is not settled on the workers of a server.
///
/// Ends when every unit is settled or has no attempts left. After `drain` was cancelled or too many units
/// faulted, ends when the workers have finished the units that they hold; ends at once when the run is
/// cancelled. Waits without limit while the server is unavailable.
///
/// # Errors
/// If another coordinator owns the run or takes it over, the server refuses a request, the checkpoint fails, or
/// a task panics. Recorded outcomes are safe, and messages on the server stay there for the next session.
pub async fn run_fleet(fleet: Fleet<'_>) -> Result<Summary, CoordinatorError> {
    let Fleet { manifest, checkpoint, server, terms, settings, events, drain } = fleet;
    let (run, settings) = (run_token(manifest), Arc::new(settings));
    let engines = Engines::of(manifest, run.clone(), checkpoint.workers()?);
    let client = RetryingClient {
        sink: EventSink::from(events),
        drain: drain.clone(),
        server: server.clone(),
        settings: Arc::clone(&settings),
    };
    client.call(|| server.ensure()).await?;
    let owners = client.call(|| server.owners()).await?;
    let ownership = Ownership::acquire(owners, &run, &client, server.layout().owners_max_age).await?;

    let mut tasks = JoinSet::new();
    let over = CancellationToken::new();
    let (commands, received) = mpsc::channel(16);
    let gauges = Arc::new(RunGauges::new());
    let claiming = ownership.keep(settings.claim_every, Arc::clone(&gauges), commands.clone(), over.clone());
    tasks.spawn(claiming);
    let around = Around {
        server: server.clone(),
        name: SessionName::of(manifest),
        run: run.clone(),
        settings,
        sink: EventSink::from(events),
        gauges,
        registry: Arc::new(Mutex::new(WorkerRegistry::default())),
        engines: Arc::new(Mutex::new(engines)),
        commands,
        drain: drain.clone(),
        over: over.clone(),
    };
    let ended = attend(manifest, checkpoint, terms, &client, around, received, &mut tasks).await;
    over.cancel();
    // All tasks end when the session has ended; this also waits until the claim is released.
    while let Some(joined) = tasks.join_next().await {
        panic_of(joined);
    }
    ended
}

/// Returns the error of a task that panics. Waits without limit if none does.
async fn panicked(tasks: &mut JoinSet<()>) -> CoordinatorError {
    while let Some(joined) = tasks.join_next().await {
        if let Some(message) = panic_of(joined) {
            return CoordinatorError::Panicked(message);
        }
    }
    pending().await
}

/// Logs the panic of a task, if it ended with one, and returns its message.
fn panic_of(joined: Result<(), JoinError>) -> Option<String> {
    let panic = joined.err()?.try_into_panic().ok()?;
    let text = panic.downcast_ref::<&str>().copied();
    let message = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = message.unwrap_or("no panic message").to_owned();
    tracing::error!("a task of this coordinator panicked: {message}");
    Some(message)
}

/// The session, after the run was claimed.
async fn attend(
    manifest: &Manifest,
    checkpoint: &Checkpoint,
    terms: DispatchConfig,
    client: &RetryingClient,
    mut around: Around,
    commands: mpsc::Receiver<Command>,
    tasks: &mut JoinSet<()>,
) -> Result<Summary, CoordinatorError> {
    let (server, run, drain) = (around.server.clone(), around.run.clone(), around.drain.clone());
    let announced = Arc::new(Announced::announce(manifest, &around, client).await?);
    let unresponsive = Arc::new(watch_workers::UnresponsiveWorkers::default());
    let link = ControlChannel {
        run: run.clone(),
        commands,
        gauges: Arc::clone(&around.gauges),
        annotate: unresponsive.annotate(),
        patience: drain::patience(around.settings.drain_grace),
    };
    let mut session = Session::open(manifest, terms, checkpoint, around.sink.clone(), Some(link))
        .map_err(DispatchError::from)?;
    let mut stats = RunStats::default();
    stats.begin(&session.labels, session.tracker.tallies());
    around.sink = around.sink.with_stats(Arc::new(Mutex::new(stats)));
    session.sink = around.sink.clone();
    // Units that an earlier session published and that still exist need not be published again.
    session.tracker.adopt(&reconcile::present(&server, &run, client).await?);
    let results = client.call(|| server.results_consumer::<ResultBatch>(run.as_str())).await?;
    let (outlet, rejected) = mpsc::channel(rejected::WAITING);
    results.reject_to(outlet).map_err(DispatchError::from)?;
    let shards = Shards::open(manifest, &around, client).await?;
    let restorer = Restorer::new(Arc::clone(&announced));
    // The parent of the checkpoint's folder is the run's folder.
    let folder = checkpoint.folder().parent().unwrap_or(checkpoint.folder()).to_owned();

    tasks.spawn(watch_workers::watch_workers(around.clone(), unresponsive));
    let reconciling = around.over.child_token();
    tasks.spawn(reconcile::reconcile(Around { over: reconciling.clone(), ..around.clone() }, restorer));
    tasks.spawn(rejected::keep(around.clone(), folder, rejected));
    tasks.spawn(cancel::watch_notice(around.clone(), Arc::clone(&announced)));
    tasks.spawn(drain::drain(around.clone(), drain.clone()));

    let ended = tokio::select! {
        biased;
        ended = conduct(&mut session, &shards, &results, &drain) => ended.map_err(CoordinatorError::from),
        // The session would continue, for example, without looking for lost units, and might never end.
        error = panicked(tasks) => Err(error),
        never = engines::storing(&around, checkpoint) => match never {},
        never = announce::writing_status(&around) => match never {},
    };
    // Stop reconciling first: it would restore the consumers that are removed below.
    reconciling.cancel();
    if let Ok(summary) = &ended {
        let state = if summary.cancelled { RunState::Cancelled } else { RunState::Ended };
        let began = Instant::now();
        let farewell = drain::farewell(drain.is_cancelled());
        let written = tokio::time::timeout(farewell, announce::write_status(&around, state)).await;
        if let Err(error) = written.unwrap_or_else(|_| Err("timed out".to_owned())) {
            // Nothing replaces it until the run is started again.
            tracing::warn!(
                "failed to write the final status of the run: {error}; `lumos status` shows the previous one"
            );
        }
        announced.end(&around, state, farewell.saturating_sub(began.elapsed())).await;
        // A session that drained has already waited for it.
        if !drain.is_cancelled() {
            engines::last_word(&around).await;
        }
    }
    engines::store(&around, checkpoint, Duration::ZERO, true);
    ended
}
