//! Where the state of runs comes from: their folders, and the queue on which their workers are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use lumos_queue::nats::{NatsError, Server, ShardState};
use lumos_reports::live::{Heartbeats, LiveFolder, LiveRun, LiveWorker, QueueDepth};
use lumos_tasks::fleet::{RunState, RunStatus, RunToken, ShardId, WorkerNotice};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::exit::Failure;
use crate::fleet::{look, shards};

use super::feeds::Feeds;

/// Interval between two states, and between two reads of the notices.
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
    server: Option<Server>,
}

/// What was read from a queue last.
#[derive(Default)]
struct QueueNotices {
    runs: Vec<RunStatus>,
    workers: Vec<WorkerNotice>,
    depths: BTreeMap<RunToken, QueueDepth>,
    problem: Option<String>,
    /// Why the depths could not be read the last time.
    depth_problem: Option<String>,
}

impl Sources {
    pub(super) fn new(folders: Vec<LiveFolder>, server: Option<Server>) -> Self {
        Self { folders, server }
    }

    /// Publishes the state of the runs every second, until `drain` is cancelled.
    pub(super) async fn poll(self, feeds: Arc<Feeds>, drain: CancellationToken) {
        let (notices, latest) = watch::channel(QueueNotices::default());
        // Without a queue, this drops the sender.
        let reading = OptionFuture::from(self.server.map(|server| read_queue(server, notices)));
        tokio::select! {
            () = publish_states(self.folders, latest, &feeds) => {}
            Some(()) = reading => {}
            () = drain.cancelled() => {}
        }
    }
}

/// Publishes the state of the runs every second, with the latest notices of a queue.
async fn publish_states(
    mut folders: Vec<LiveFolder>,
    mut latest: watch::Receiver<QueueNotices>,
    feeds: &Feeds,
) {
    let mut heartbeats = Heartbeats::default();
    // The first state has the runs of a queue that responds.
    let _ = tokio::time::timeout(EVERY, latest.changed()).await;
    loop {
        // Reading and scoring the records of a long run takes a while.
        let read = tokio::task::spawn_blocking(move || {
            let runs: Vec<LiveRun> = folders.iter_mut().map(LiveFolder::refresh).collect();
            (folders, runs)
        });
        let Ok((read, mut runs)) = read.await else {
            tracing::error!("failed to read the run folders; the page has stopped updating");
            return;
        };
        folders = read;
        let workers = latest.borrow().add_to(&mut runs, &mut heartbeats, now_ms());
        feeds.publish(&runs, &workers);
        tokio::time::sleep(EVERY).await;
    }
}

/// Reads the notices and the depths of a queue. After a failure the previous ones are kept.
async fn read_queue(server: Server, latest: watch::Sender<QueueNotices>) {
    // A slow reply about the depths must not delay heartbeats.
    tokio::join!(read_notices(&server, &latest), read_depths(&server, &latest));
}

async fn read_notices(server: &Server, latest: &watch::Sender<QueueNotices>) {
    loop {
        let read = tokio::time::timeout(PATIENCE, look(server, None)).await;
        latest.send_modify(|notices| {
            notices.problem = match read {
                Ok(Ok((runs, workers))) => {
                    notices.runs = runs.into_iter().rev().take(RUNS).collect();
                    notices.workers = workers;
                    None
                }
                Ok(Err(failure)) => Some(format!("the queue cannot be read: {:#}", failure.error)),
                Err(_) => Some("the queue does not respond".to_owned()),
            };
        });
        tokio::time::sleep(EVERY).await;
    }
}

async fn read_depths(server: &Server, latest: &watch::Sender<QueueNotices>) {
    loop {
        tokio::time::sleep(DEPTH_EVERY).await;
        if latest.borrow().problem.is_some() {
            continue;
        }
        let active = latest.borrow().active();
        let read = tokio::time::timeout(PATIENCE, depths_of(server, &active)).await;
        latest.send_modify(|notices| {
            notices.depth_problem = match read {
                Ok(Ok(depths)) => {
                    notices.depths = depths;
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
        });
    }
}

async fn depths_of(
    server: &Server,
    active: &BTreeSet<RunToken>,
) -> Result<BTreeMap<RunToken, QueueDepth>, Failure> {
    let mut states: BTreeMap<ShardId, QueueDepth> = BTreeMap::new();
    let mut depths: BTreeMap<RunToken, QueueDepth> = BTreeMap::new();
    for (run, shards) in shards(server).await? {
        if !active.contains(&run) {
            continue;
        }
        depths.entry(run.clone()).or_default();
        for shard in shards {
            if !states.contains_key(&shard) && states.len() < SHARDS {
                let state = match server.shard_standing(&shard.to_string()).await {
                    // Without a consumer, a shard has no messages.
                    Err(NatsError::Missing(_)) => ShardState::default(),
                    state => state?,
                };
                let depth =
                    QueueDepth { pending: state.pending as u64, unacknowledged: state.unacknowledged as u64 };
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

impl QueueNotices {
    fn active(&self) -> BTreeSet<RunToken> {
        let active = self.runs.iter().filter(|status| status.state == RunState::Active);
        active.map(|status| status.run.clone()).collect()
    }

    /// Adds what the queue shows to the runs that have a folder here, and adds the other runs. Returns all workers.
    fn add_to(&self, runs: &mut Vec<LiveRun>, heartbeats: &mut Heartbeats, now_ms: i64) -> Vec<LiveWorker> {
        let Self { runs: statuses, workers: notices, depths, problem, depth_problem } = self;
        let names: BTreeSet<&str> = statuses
            .iter()
            .map(|status| status.run.as_str())
            .chain(notices.iter().map(|notice| notice.name.as_str()))
            .collect();
        heartbeats.retain(|name| names.contains(name));
        for status in statuses {
            let known = runs.iter().position(|run| run.key == status.run.as_str());
            let run = match known {
                Some(position) => {
                    let run = &mut runs[position];
                    // A later session, without the queue, executes the run.
                    if run.started_ms.is_some_and(|started| started > status.started_ms) {
                        continue;
                    }
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

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::StreamExt;
    use lumos_reports::live::LiveState;

    use super::super::feeds::tests::status;
    use super::*;

    #[test]
    fn a_status_of_an_earlier_session_does_not_replace_that_of_the_folder() {
        let cancelled = RunStatus { state: RunState::Cancelled, ..status(3) };
        let notices = QueueNotices { runs: vec![cancelled], ..QueueNotices::default() };
        for (started_ms, expected) in [(1, LiveState::Running), (0, LiveState::Cancelled)] {
            let mut heartbeats = Heartbeats::default();
            let of_folder = RunStatus { started_ms, ..status(3) };
            let mut runs = vec![LiveRun::of_status(&of_folder, &mut heartbeats, 0)];
            notices.add_to(&mut runs, &mut heartbeats, 0);
            assert_eq!((runs.len(), runs[0].state), (1, expected));
        }
    }

    #[tokio::test]
    async fn a_queue_that_does_not_respond_does_not_delay_the_folders() {
        let feeds = Feeds::new([].iter());
        let mut events = pin!(feeds.events("", CancellationToken::new()).unwrap());
        let (_notices, latest) = watch::channel(QueueNotices::default());
        tokio::select! {
            () = publish_states(Vec::new(), latest, &feeds) => panic!("ended"),
            () = tokio::time::sleep(PATIENCE) => panic!("timed out"),
            event = events.next() => assert_eq!(event.unwrap().kind, "snapshot"),
        }
    }
}
