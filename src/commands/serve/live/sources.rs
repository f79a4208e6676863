//! Where the state of runs comes from: their folders, and the queue on which their workers are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lumos_queue::nats::{NatsError, Server, ShardState};
use lumos_reports::live::{Heartbeats, LiveFolder, LiveRun, LiveWorker, QueueDepth};
use lumos_tasks::fleet::{RunState, RunStatus, RunToken, ShardId, WorkerNotice};
use tokio_util::sync::CancellationToken;

use crate::exit::Failure;
use crate::fleet::{look, shards};

use super::feeds::Feeds;

/// Interval between two states.
const EVERY: Duration = Duration::from_secs(1);
/// Interval between two requests for the depth of the queue.
const DEPTH_EVERY: Duration = Duration::from_secs(2);
/// Time limit for reading the queue.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of runs on a queue that are shown, the newest first, and of shards whose depth is requested.
const RUNS: usize = 200;
const SHARDS: usize = 64;

/// Folders of runs, and a queue.
pub(super) struct Sources {
    folders: Vec<LiveFolder>,
    queue: Option<QueueSource>,
}

/// The notices on a queue, and what was read last.
struct QueueSource {
    server: Server,
    runs: Vec<RunStatus>,
    workers: Vec<WorkerNotice>,
    depths: BTreeMap<RunToken, QueueDepth>,
    depths_read: Option<Instant>,
    heartbeats: Heartbeats,
    problem: Option<String>,
    /// Why the depths could not be read the last time.
    depth_problem: Option<String>,
}

impl Sources {
    pub(super) fn new(folders: Vec<LiveFolder>, server: Option<Server>) -> Self {
        let queue = server.map(|server| QueueSource {
            server,
            runs: Vec::new(),
            workers: Vec::new(),
            depths: BTreeMap::new(),
            depths_read: None,
            heartbeats: Heartbeats::default(),
            problem: None,
            depth_problem: None,
        });
        Self { folders, queue }
    }

    /// Publishes the state of the runs every second, until `drain` is cancelled.
    pub(super) async fn poll(mut self, feeds: Arc<Feeds>, drain: CancellationToken) {
        loop {
            let folders = std::mem::take(&mut self.folders);
            // Reading and scoring the records of a long run takes a while.
            let read = tokio::task::spawn_blocking(move || {
                let mut folders = folders;
                let runs: Vec<LiveRun> = folders.iter_mut().map(LiveFolder::refresh).collect();
                (folders, runs)
            });
            let Ok((folders, mut runs)) = read.await else {
                tracing::error!("failed to read the run folders; the page has stopped updating");
                return;
            };
            self.folders = folders;
            let mut workers = Vec::new();
            if let Some(queue) = &mut self.queue {
                queue.read().await;
                workers = queue.add_to(&mut runs, now_ms());
            }
            feeds.publish(&runs, &workers);
            tokio::select! {
                () = drain.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }
}

impl QueueSource {
    /// Reads the notices. After a failure the previous ones are kept.
    async fn read(&mut self) {
        let read = tokio::time::timeout(PATIENCE, look(&self.server, None)).await;
        self.problem = match read {
            Ok(Ok((runs, workers))) => {
                self.runs = runs.into_iter().rev().take(RUNS).collect();
                self.workers = workers;
                None
            }
            Ok(Err(failure)) => Some(format!("the queue cannot be read: {:#}", failure.error)),
            Err(_) => Some("the queue does not respond".to_owned()),
        };
        let due = self.depths_read.is_none_or(|read| read.elapsed() >= DEPTH_EVERY);
        if due && self.problem.is_none() {
            self.depths_read = Some(Instant::now());
            self.depth_problem = match tokio::time::timeout(PATIENCE, self.read_depths()).await {
                Ok(Ok(depths)) => {
                    self.depths = depths;
                    None
                }
                Ok(Err(failure)) => {
                    Some(format!("failed to read the depth of the queue: {:#}", failure.error))
                }
                Err(_) => Some(format!(
                    "no reply about the depth of the queue within {} s; the user of the queue may lack the \
                         permission to see the consumers of lumos-2-work (deploy/nats/accounts.conf)",
                    PATIENCE.as_secs()
                )),
            };
        }
    }

    async fn read_depths(&self) -> Result<BTreeMap<RunToken, QueueDepth>, Failure> {
        let active: BTreeSet<&RunToken> = self.active().map(|status| &status.run).collect();
        let mut states: BTreeMap<ShardId, QueueDepth> = BTreeMap::new();
        let mut depths: BTreeMap<RunToken, QueueDepth> = BTreeMap::new();
        for (run, shards) in shards(&self.server).await? {
            if !active.contains(&run) {
                continue;
            }
            depths.entry(run.clone()).or_default();
            for shard in shards {
                if !states.contains_key(&shard) && states.len() < SHARDS {
                    let state = match self.server.shard_standing(&shard.to_string()).await {
                        // Without a consumer, a shard has no messages.
                        Err(NatsError::Missing(_)) => ShardState::default(),
                        state => state?,
                    };
                    let depth = QueueDepth {
                        pending: state.pending as u64,
                        unacknowledged: state.unacknowledged as u64,
                    };
                    states.insert(shard.clone(), depth);
                }
                let depth = depths.entry(run.clone()).or_default();
                if let Some(state) = states.get(&shard) {
                    depth.pending = depth.pending.saturating_add(state.pending);
                    depth.unacknowledged = depth.unacknowledged.saturating_add(state.unacknowledged);
                }
            }
        }
        Ok(depths)
    }

    fn active(&self) -> impl Iterator<Item = &RunStatus> {
        self.runs.iter().filter(|status| status.state == RunState::Active)
    }

    /// Adds what the queue shows to the runs that have a folder here, and adds the other runs. Returns all workers.
    fn add_to(&mut self, runs: &mut Vec<LiveRun>, now_ms: i64) -> Vec<LiveWorker> {
        let Self { runs: statuses, workers: notices, depths, heartbeats, problem, depth_problem, .. } = self;
        let names: BTreeSet<&str> = statuses
            .iter()
            .map(|status| status.run.as_str())
            .chain(notices.iter().map(|notice| notice.name.as_str()))
            .collect();
        heartbeats.retain(|name| names.contains(name));
        for status in statuses.iter() {
            let known = runs.iter().position(|run| run.key == status.run.as_str());
            let run = match known {
                Some(position) => {
                    let run = &mut runs[position];
                    run.add_status(status, heartbeats, now_ms);
                    run
                }
                None => {
                    runs.push(LiveRun::of_status(status, heartbeats, now_ms));
                    let Some(run) = runs.last_mut() else { continue };
                    run
                }
            };
            if status.state == RunState::Active && !run.is_complete() {
                run.add_workers(notices, heartbeats, now_ms);
                run.queue = depths.get(&status.run).copied();
            }
            if let Some(problem) = problem.as_ref().or(depth_problem.as_ref()) {
                run.problem.get_or_insert_with(|| problem.clone());
            }
        }
        LiveWorker::of_notices(notices, heartbeats, now_ms)
    }
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
