//! A run whose workers are on other machines, over a NATS server.
//!
//! The truth is the checkpoint. What is on the server may be lost, come twice or come late: published units that are
//! nowhere are published again, and second outcomes are counted and dropped. One coordinator owns a run at a time;
//! it may die at any moment and be started again, here or elsewhere, with the same run folder.

mod announce;
mod cancel;
mod claim;
mod crew;
mod drain;
mod engines;
mod error;
mod lanes;
mod ownership;
mod reconcile;
mod rejected;
mod restore;
mod stall;
mod status;
mod steadfast;
#[cfg(test)]
mod tests;
mod token;
mod watch_workers;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lumos_queue::nats::Server;
use lumos_tasks::fleet::{ResultBatch, RunState};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::Checkpoint;
use crate::dispatch::{Command, DispatchError, Gauge, Link, Session, Sheet, Summary, Terms, Voice, conduct};
use crate::events::Event;
use crate::manifest::Manifest;

pub use cancel::{Cancellation, cancel};
pub use error::FleetError;
pub use token::{parse_message, run_token};

use announce::Announced;
use crew::Crew;
use engines::Engines;
use lanes::Lanes;
use ownership::Ownership;
use restore::Restorer;
use steadfast::Steadfast;

/// How a coordinator looks after its fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetSettings {
    /// The lanes' priority: 0 goes first, 9 last.
    pub priority: u8,
    /// How often the owner's claim is written anew.
    pub claim_every: Duration,
    /// The age from which a worker's notice means that the worker is gone.
    pub worker_lost_after: Duration,
    /// How often it is looked for units that are nowhere.
    pub reconcile_every: Duration,
    /// How long no result may come before that is looked for out of turn.
    pub quiet: Duration,
    /// How often the status is written.
    pub status_every: Duration,
    /// Within which time a session ends that is asked to: workers get most of it to end what they hold.
    pub drain_grace: Duration,
    /// How long there may be no worker before that is said.
    pub lonely_after: Duration,
    /// How often it is looked whether something was deleted from the server.
    pub restore_every: Duration,
    /// How long there may be no progress before it is said what is waited for; never if zero.
    pub stall_warning: Duration,
    /// The server's address, for hints.
    pub address: String,
}

impl Default for FleetSettings {
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

/// A run and the server its workers are reached by.
pub struct Fleet<'a> {
    /// The run.
    pub manifest: &'a Manifest,
    /// Its record.
    pub checkpoint: &'a Checkpoint,
    /// The server.
    pub server: &'a Server,
    /// What the session goes by.
    pub terms: Terms,
    /// How the fleet is looked after.
    pub settings: FleetSettings,
    /// Where to say what happens.
    pub events: &'a mpsc::Sender<Event>,
    /// Cancelled when the session is to stop.
    pub drain: &'a CancellationToken,
}

/// What the tasks around a session share.
#[derive(Clone)]
struct Around {
    server: Server,
    manifest_name: String,
    started_ms: i64,
    run: lumos_tasks::RunToken,
    settings: Arc<FleetSettings>,
    voice: Voice,
    gauge: Arc<Gauge>,
    crew: Arc<Mutex<Crew>>,
    engines: Arc<Mutex<Engines>>,
    commands: mpsc::Sender<Command>,
    /// Cancelled when the session is to stop.
    drain: CancellationToken,
    /// Cancelled when the session is over.
    over: CancellationToken,
}

/// Runs every planned unit that is not settled on the workers of a server. Ends when all are settled or faulted for
/// good; after `drain` was cancelled or too many units faulted, when the workers have ended what they hold; and at
/// once when the run is cancelled. While the server is away it waits, for as long as it takes.
///
/// # Errors
/// If another coordinator has the run or takes it over, if the server refuses, or if the checkpoint fails. What was
/// recorded is safe, and what is on the server stays there for the next session.
pub async fn run_fleet(fleet: Fleet<'_>) -> Result<Summary, FleetError> {
    let Fleet { manifest, checkpoint, server, terms, settings, events, drain } = fleet;
    let run = run_token(manifest);
    let engines = Engines::of(manifest, run.clone(), checkpoint.workers()?);
    let steadfast = Steadfast {
        voice: Voice::new(events.clone()),
        drain: drain.clone(),
        server: server.clone(),
        stall_warning: settings.stall_warning,
        address: settings.address.clone(),
    };
    steadfast.call(|| server.ensure()).await?;
    let owners = steadfast.call(|| server.owners()).await?;
    let ownership = Ownership::acquire(owners, &run, &steadfast, server.layout().owners_max_age).await?;

    let mut tasks = JoinSet::new();
    let over = CancellationToken::new();
    let (commands, received) = mpsc::channel(16);
    let gauge = Arc::new(Gauge::new());
    let claiming = ownership.keep(settings.claim_every, Arc::clone(&gauge), commands.clone(), over.clone());
    tasks.spawn(claiming);
    let around = Around {
        server: server.clone(),
        manifest_name: manifest.spec.name.clone(),
        started_ms: jiff::Timestamp::now().as_millisecond(),
        run: run.clone(),
        settings: Arc::new(settings),
        voice: Voice::new(events.clone()),
        gauge,
        crew: Arc::new(Mutex::new(Crew::default())),
        engines: Arc::new(Mutex::new(engines)),
        commands,
        drain: drain.clone(),
        over: over.clone(),
    };
    let ended = attend(manifest, checkpoint, terms, &steadfast, around, received, &mut tasks).await;
    over.cancel();
    // Tasks end by themselves when the session is over; the owner's claim is given back by then.
    while let Some(joined) = tasks.join_next().await {
        if let Err(error) = joined
            && error.is_panic()
        {
            tracing::error!(%error, "a task around the session panicked");
        }
    }
    ended
}

/// The session itself, once the run is owned.
async fn attend(
    manifest: &Manifest,
    checkpoint: &Checkpoint,
    terms: Terms,
    steadfast: &Steadfast,
    mut around: Around,
    commands: mpsc::Receiver<Command>,
    tasks: &mut JoinSet<()>,
) -> Result<Summary, FleetError> {
    let (server, run, drain) = (around.server.clone(), around.run.clone(), around.drain.clone());
    let announced = Arc::new(Announced::announce(manifest, &around, steadfast).await?);
    let suspects = Arc::new(watch_workers::Suspects::default());
    let link = Link {
        run: run.clone(),
        commands,
        gauge: Arc::clone(&around.gauge),
        annotate: suspects.annotate(),
        patience: drain::patience(around.settings.drain_grace),
    };
    let mut session = Session::open(manifest, terms, checkpoint, around.voice.clone(), Some(link))
        .map_err(DispatchError::from)?;
    let sheet = Sheet::new(session.labels(), session.board().tallies());
    around.voice = around.voice.with_sheet(Arc::new(Mutex::new(sheet)));
    session.set_voice(around.voice.clone());
    // What an earlier session gave out and is still there need not be given out again.
    session.adopt(&reconcile::present(&server, &run, steadfast).await?);
    let results = steadfast.call(|| server.results_consumer::<ResultBatch>(run.as_str())).await?;
    let (outlet, rejected) = mpsc::channel(rejected::WAITING);
    results.reject_to(outlet).map_err(DispatchError::from)?;
    let lanes = Lanes::open(manifest, &around, steadfast).await?;
    let restorer = Restorer::new(Arc::clone(&announced), lanes.names().to_vec());
    // The run's folder holds the checkpoint's.
    let folder = checkpoint.folder().parent().unwrap_or(checkpoint.folder()).to_owned();

    tasks.spawn(watch_workers::watch_workers(around.clone(), suspects));
    tasks.spawn(reconcile::reconcile(around.clone(), restorer));
    tasks.spawn(rejected::keep(around.clone(), folder, rejected));
    tasks.spawn(cancel::watch_notice(around.clone(), Arc::clone(&announced)));
    tasks.spawn(drain::drain(around.clone(), drain.clone()));

    let ended = tokio::select! {
        biased;
        ended = conduct(&mut session, &lanes, &results, &drain) => ended,
        never = engines::storing(&around, checkpoint) => match never {},
        never = status::writing(&around) => match never {},
    };
    if let Ok(summary) = &ended {
        let state = if summary.cancelled { RunState::Cancelled } else { RunState::Ended };
        let began = Instant::now();
        let farewell = drain::farewell(drain.is_cancelled());
        let written = tokio::time::timeout(farewell, status::write(&around, state)).await;
        if written.is_err() {
            tracing::debug!("timed out writing the last status");
        }
        announced.end(&around, state, farewell.saturating_sub(began.elapsed())).await;
        // A session that drained has waited for it already.
        if !drain.is_cancelled() {
            engines::last_word(&around).await;
        }
    }
    engines::store(&around, checkpoint);
    let summary = ended?;
    Ok(summary)
}
