//! The main loop of a worker: registers, follows runs and serves units until it is stopped. Also what the runs of a
//! queue may use on a worker.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lumos_http::AccessPolicy;
use lumos_models::ModelRegistry;
use lumos_models::hub::HubSettings;
use lumos_queue::Queue;
use lumos_queue::nats::{KeyValue, NatsError, Server};
use lumos_tasks::fleet::{Holdings, PROTOCOL, WorkerNotice};
use lumos_tasks::{Reminder, Swap, Throughput};
use lumos_tools::{ToolSets, WikiSettings};
use thiserror::Error;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::background::BackgroundTasks;
use super::catalogue::Catalogue;
use super::eligibility::Eligibility;
use super::lease_table::LeaseTable;
use super::policy::PolicySettings;
use super::presence::Presence;
use super::shards::Shards;
use super::spool::Spool;
use crate::activity::Activity;
use crate::serve::{LeaseTerms, ServeError, Worker};
use crate::stall::{Wait, remind};

/// Delay before a failed operation is retried.
const RETRY: Duration = Duration::from_secs(2);
/// Time limit for sending results of earlier workers before serving starts.
const LEFTOVERS: Duration = Duration::from_secs(10);
/// Default data folder, if `LUMOS_DATA` is not set.
const DATA: &str = "data";

/// Settings of a worker of a fleet.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Its unique name: 1 to 200 letters, digits, `-` and `_`. See [`worker_name`].
    pub name: String,
    /// Compute device: `cpu`, `cuda:0`.
    pub device: String,
    /// Episodes executed concurrently.
    pub concurrency: usize,
    /// Memory limit for models in bytes; `None` for no limit. Counts weights in their dtype, and keys and values of one
    /// sequence of full length.
    pub memory: Option<u64>,
    /// Whether models that do not fit together are swapped.
    pub swap: Swap,
    /// When models are switched.
    pub policy: PolicySettings,
    /// How long an episode may go without a reply.
    pub stall: Duration,
    /// Maximum number of deliveries of a unit. Beyond it, the unit is not executed.
    pub max_deliveries: u32,
    /// How long a draining worker waits for episodes in progress.
    pub grace: Duration,
    /// Interval of its notices.
    pub heartbeat: Duration,
    /// Folder for results that cannot be sent; `None` keeps them in memory only. Workers may share it.
    pub spool: Option<PathBuf>,
    /// Time without work after which the worker ends.
    pub idle_exit: Option<Duration>,
    /// Time without progress after which a warning names the cause; zero disables it.
    pub stall_warning: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            name: worker_name(),
            device: "cpu".to_owned(),
            concurrency: 8,
            memory: None,
            swap: Swap::Auto,
            policy: PolicySettings::default(),
            stall: Duration::from_secs(15 * 60),
            max_deliveries: 5,
            grace: Duration::from_secs(25),
            heartbeat: Duration::from_secs(2),
            spool: None,
            idle_exit: None,
            stall_warning: Duration::from_secs(60),
        }
    }
}

/// Summary of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetSummary {
    /// The worker.
    pub name: String,
    /// Units whose results the server has stored.
    pub finished: u64,
    /// Whether it ended because it was idle.
    pub idle: bool,
}

/// Errors that end a worker.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// A permanent error of the server.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// The name cannot be used on a server.
    #[error("invalid worker name `{0}`: expected 1 to 200 letters, digits, `-` and `_`")]
    Name(String),
    /// Serving failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A background task that the worker needs panicked. Unfinished units are returned to the queue.
    #[error("the task `{task}` of this worker panicked: {message}")]
    Panicked {
        /// The name of the task.
        task: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// The spool folder cannot be used.
    #[error("failed to open the spool folder {}: {source}", path.display())]
    Spool {
        /// The folder.
        path: PathBuf,
        /// The underlying I/O error.
        source: std::io::Error,
    },
}

/// Returns a unique name for this process: host, process id and a random part.
pub fn worker_name() -> String {
    let host: String =
        host().chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).take(40).collect();
    format!("{host}-{}-{:06x}", std::process::id(), rand::random::<u32>() >> 8)
}

fn host() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

/// Creates the policy of a worker from the hosts, paths and tools that its operator allows, plus the defaults:
/// loopback hosts; `api.openai.com` if an API key for it is set; the host of `OPENAI_BASE_URL`; the data
/// folder (`LUMOS_DATA`, or `data`); the cache of the Hugging Face hub; and the cache of tools.
///
/// A host is `HOST`, `HOST:PORT` or `*`. A tool that starts a program or sends calls to a server is `NAME=BACKEND`, as
/// runs name it; none is allowed by default.
///
/// # Errors
/// If a host is invalid or a path is empty.
pub fn worker_access(hosts: &[String], paths: &[PathBuf], tools: &[String]) -> Result<AccessPolicy, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (mut hosts, mut paths) = (hosts.to_vec(), paths.to_vec());
    if ["OPENAI_API_KEY", "OPENAI_API_KEY_API_OPENAI_COM"].iter().any(|name| variable(name).is_some()) {
        hosts.push("api.openai.com:443".to_owned());
    }
    let base = variable("OPENAI_BASE_URL").and_then(|base| Url::parse(&base).ok());
    if let Some((host, port)) = base.as_ref().and_then(|url| url.host().zip(url.port_or_known_default())) {
        hosts.push(format!("{host}:{port}"));
    }
    let data = variable("LUMOS_DATA").unwrap_or_else(|| DATA.to_owned());
    let hub = HubSettings::from_environment().ok().map(|hub| hub.cache);
    let pages = WikiSettings::from_environment().ok().and_then(|wiki| wiki.cache);
    let folders = [Some(PathBuf::from(data)), hub, pages].into_iter().flatten();
    paths.extend(folders.filter_map(|folder| std::path::absolute(folder).ok()));
    Ok(AccessPolicy::only(&hosts, &paths)?.with_tools(tools))
}

/// Serves all runs on a server until `drain` is cancelled and the episodes in progress have ended or the grace period
/// is over, or until `stop` is cancelled, which returns unfinished units to the queue. While the server cannot be
/// reached, the worker waits.
///
/// # Errors
/// On a permanent error of the server, if the spool folder cannot be used, or if a background task that the worker needs
/// panics.
pub async fn serve_fleet(
    server: Server,
    settings: WorkerSettings,
    models: Arc<ModelRegistry>,
    tools: Arc<ToolSets>,
    drain: CancellationToken,
    stop: CancellationToken,
) -> Result<FleetSummary, WorkerError> {
    let name = settings.name.clone();
    if !WorkerNotice::is_valid_name(&name) {
        return Err(WorkerError::Name(name));
    }
    let nothing_done = FleetSummary { name: name.clone(), finished: 0, idle: false };
    let (runs, notices) = tokio::select! {
        prepared = prepare(&server, settings.stall_warning) => prepared?,
        () = drain.cancelled() => return Ok(nothing_done),
        () = stop.cancelled() => return Ok(nothing_done),
    };
    // Shards are closed before leases are returned; otherwise this worker would claim the messages again.
    let (draining, stopping, ended) =
        (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());

    let source = Arc::new(server.clone());
    let memory = settings.memory.map(|memory| (memory, settings.swap));
    let meter = Arc::new(Throughput::since(Instant::now()));
    let catalogue: Arc<Catalogue> = Arc::default();
    let terms = Arc::clone(&catalogue);
    let spool = Spool::new(Arc::clone(&source) as _, settings.spool.clone(), Arc::clone(&meter), terms)
        .map_err(|source| WorkerError::Spool { path: settings.spool.clone().unwrap_or_default(), source })?;
    let parts = Arc::new(WorkerParts {
        server,
        catalogue,
        eligibility: Arc::new(Eligibility::new(Arc::clone(&models), Arc::clone(&tools), memory)),
        models: Arc::clone(&models),
        held: Arc::default(),
        meter,
        spool: Arc::new(spool),
        activity: Activity::default(),
    });
    let WorkerParts { catalogue, eligibility, held, spool, .. } = &*parts;
    for (key, value) in runs.entries().await.unwrap_or_default() {
        catalogue.update(&key, Some(&value));
    }
    let shards = Arc::new(Shards::new(
        settings.clone(),
        Arc::clone(&source) as _,
        Arc::clone(catalogue),
        Arc::clone(eligibility),
        Arc::clone(&models),
        Arc::clone(held),
    ));

    let mut background = BackgroundTasks::default();
    let following = Arc::clone(catalogue).follow(runs.watch(), source, ended.clone());
    background.spawn_essential("run notices", following);
    let verifying = Arc::clone(eligibility).follow(Arc::clone(catalogue), ended.clone());
    background.spawn_essential("shard verification", verifying);
    let presence = Presence {
        parts: Arc::clone(&parts),
        notices,
        notice: first_notice(&settings),
        every: settings.heartbeat,
        draining: draining.clone(),
    };
    let mut telling = BackgroundTasks::default();
    let told = CancellationToken::new();
    telling.spawn_essential("heartbeats", presence.tell(told.clone()));
    background.spawn("stall warnings", Arc::clone(&parts).watch(settings.stall_warning, ended.clone()));

    // Results of earlier workers are sent first, so that their units are not executed again.
    let left = spool.leftovers().await;
    if !left.is_empty() {
        tracing::info!(results = left.len(), "found results left by earlier workers");
        let (sender, sent) = tokio::sync::oneshot::channel();
        let sending = send_leftovers(Arc::clone(&parts), left, sender, ended.clone());
        background.spawn("results of earlier workers", sending);
        let _ = timeout(LEFTOVERS, sent).await;
    }

    let idle = CancellationToken::new();
    background.spawn_essential("shutdown", {
        let (shards, idle, draining, stopping) =
            (Arc::clone(&shards), idle.clone(), draining.clone(), stopping.clone());
        let closing = async move {
            tokio::select! {
                () = drain.cancelled() => {}
                () = idle.cancelled() => {}
                () = stop.cancelled() => {}
            }
            shards.close();
            draining.cancel();
            stop.cancelled().await;
            stopping.cancel();
        };
        let ended = ended.clone();
        async move {
            ended.run_until_cancelled(closing).await;
        }
    });
    if let Some(limit) = settings.idle_exit {
        let watching = watch_idleness(Arc::clone(&parts), limit, idle.clone(), ended.clone());
        background.spawn("idle limit", watching);
    }

    let worker = Arc::new(Worker {
        name: name.clone(),
        concurrency: settings.concurrency,
        models,
        tools,
        runs: Arc::clone(catalogue) as _,
        terms: LeaseTerms {
            stall: Some(settings.stall),
            max_deliveries: Some(settings.max_deliveries),
            grace: Some(settings.grace),
            stop: stopping.clone(),
            activity: parts.activity.clone(),
        },
    });
    let mut serving = pin!(worker.serve(Arc::clone(&shards) as _, Arc::clone(spool) as _, draining));
    let failed = async {
        tokio::select! {
            error = background.failed() => error,
            error = telling.failed() => error,
        }
    };
    let served = tokio::select! {
        served = &mut serving => served.map_err(WorkerError::from),
        error = failed => {
            // The task that does this otherwise may be the one that panicked.
            shards.close();
            stopping.cancel();
            serving.await.map_err(WorkerError::from).and(Err(error))
        }
    };
    shards.close();
    ended.cancel();
    let served = served.and(background.join().await);
    // Last, because a removed notice means that the worker holds no leases.
    told.cancel();
    served.and(telling.join().await)?;
    Ok(FleetSummary { name, finished: parts.meter.units(), idle: idle.is_cancelled() })
}

/// What the tasks of a worker share.
pub(super) struct WorkerParts {
    pub(super) server: Server,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) eligibility: Arc<Eligibility>,
    pub(super) models: Arc<ModelRegistry>,
    pub(super) held: Arc<LeaseTable>,
    pub(super) meter: Arc<Throughput>,
    pub(super) spool: Arc<Spool>,
    pub(super) activity: Activity,
}

/// Waits until a coordinator has set the server up. Returns the buckets of runs and of workers' notices.
async fn prepare(server: &Server, stall_warning: Duration) -> Result<(KeyValue, KeyValue), NatsError> {
    let mut said = false;
    let began = tokio::time::Instant::now();
    let mut reminder = Reminder::new(stall_warning);
    loop {
        let prepared = async {
            server.check().await?;
            Ok((server.runs().await?, server.workers().await?))
        };
        match prepared.await {
            Ok(prepared) => return Ok(prepared),
            Err(error @ (NatsError::Missing(_) | NatsError::Unreachable(_))) => {
                if !said {
                    tracing::warn!("{error}; retrying");
                    said = true;
                } else {
                    remind(&mut reminder, began.elapsed(), || Wait::SetUp(error.to_string()));
                }
                sleep(RETRY).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn first_notice(settings: &WorkerSettings) -> WorkerNotice {
    let now = jiff::Timestamp::now().as_millisecond();
    WorkerNotice {
        protocol: PROTOCOL,
        name: settings.name.clone(),
        host: host(),
        process: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        holdings: Holdings {
            device: settings.device.clone(),
            memory: settings.memory,
            tools: Vec::new(),
            models: Vec::new(),
            concurrency: u32::try_from(settings.concurrency).unwrap_or(u32::MAX),
        },
        started_ms: now,
        written_ms: now,
        ..WorkerNotice::default()
    }
}

/// Sends results that earlier workers left, retrying until all are sent. Signals `tried` after the first
/// attempt to send all of them.
async fn send_leftovers(
    parts: Arc<WorkerParts>,
    mut left: Vec<PathBuf>,
    tried: tokio::sync::oneshot::Sender<()>,
    ended: CancellationToken,
) {
    let mut tried = Some(tried);
    let sending = async {
        while !left.is_empty() {
            left = parts.spool.send_leftovers(left, |run| parts.catalogue.state_of(run)).await;
            if let Some(tried) = tried.take() {
                let _ = tried.send(());
            }
            sleep(RETRY).await;
        }
    };
    ended.run_until_cancelled(sending).await;
}

/// Cancels `idle` once the worker has held no lease for `limit` and no shard is being verified.
async fn watch_idleness(
    parts: Arc<WorkerParts>,
    limit: Duration,
    idle: CancellationToken,
    ended: CancellationToken,
) {
    let mut changes = parts.held.changes();
    let watching = async {
        loop {
            changes.mark_unchanged();
            if parts.held.count() > 0 {
                let _ = changes.changed().await;
            } else if timeout(limit, changes.changed()).await.is_err()
                && parts.eligibility.looking_for().is_none()
            {
                tracing::info!("idle for {} s; stopping", limit.as_secs());
                idle.cancel();
                return;
            }
        }
    };
    ended.run_until_cancelled(watching).await;
}
