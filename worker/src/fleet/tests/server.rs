//! The whole worker with a real nats-server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lumos_models::ModelRegistry;
use lumos_queue::nats::{Access, Connecting, Layout, Server};
use lumos_queue::{Lease, Queue};
use lumos_tasks::fleet::{NEWEST, ResultBatch, ResultMessage, WorkMessage, WorkerNotice};
use lumos_tasks::{ContentHash, Ending, FaultKind, ModelIdentity};
use lumos_tools::ToolSets;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::nats_server::NatsServer;
use super::support::{LONG, Run, configuration, identity, models, script, slow_models};
use crate::fleet::{FleetSummary, WorkerError, WorkerSettings, serve_fleet};

const PATIENCE: Duration = Duration::from_secs(300);
const LEASE: Duration = Duration::from_secs(6);

struct Bench {
    nats: NatsServer,
    connection: Server,
}

impl Bench {
    /// Starts a server. If nats-server is missing, skips the test and returns `None`.
    async fn start() -> Option<Self> {
        Self::with_leases_of(LEASE).await
    }

    async fn with_leases_of(lease: Duration) -> Option<Self> {
        let nats = NatsServer::start()?;
        let connection = connect(&nats, lease).await;
        connection.ensure().await.unwrap();
        Some(Self { nats, connection })
    }

    fn script(&self, name: &str, count: usize) -> String {
        script(self.nats.folder(), name, count, 0)
    }

    fn spool(&self) -> PathBuf {
        self.nats.folder().join("spool")
    }

    /// Announces a run with one configuration and publishes its units.
    async fn run(&self, name: &str, model: ModelIdentity, units: usize) -> Run {
        let run = Run::new(name, vec![configuration(model)]);
        self.announce(&run).await;
        let shard = run.notice.shards[0].to_string();
        let publisher =
            self.connection.shard_publisher::<WorkMessage>(&shard, run.token().as_str()).await.unwrap();
        let messages = (0..units).map(|number| run.message(0, number)).map(|one| (one.message_id(), one));
        publisher.publish_all(messages.collect()).await.unwrap();
        run
    }

    async fn announce(&self, run: &Run) {
        self.connection.shared().await.unwrap().put(&run.shared).await.unwrap();
        let runs = self.connection.runs().await.unwrap();
        runs.put(run.token().as_str(), &run.written()).await.unwrap();
    }

    /// Collects the results of a run until there are `count` different units. Returns them, and the total
    /// number of results.
    async fn results(&self, run: &Run, count: usize) -> (BTreeMap<String, ResultMessage>, usize) {
        let queue = self.connection.results_consumer::<ResultBatch>(run.token().as_str()).await.unwrap();
        let mut results = BTreeMap::new();
        let mut all = 0;
        let collecting = async {
            while results.len() < count {
                for lease in queue.claim(64).await.unwrap() {
                    for result in &lease.body().results {
                        results.insert(result.unit.to_string(), ResultMessage::clone(result));
                        all += 1;
                    }
                    lease.acknowledge().await.unwrap();
                }
            }
        };
        timeout(PATIENCE, collecting).await.unwrap();
        (results, all)
    }

    async fn notices(&self) -> Vec<WorkerNotice> {
        let entries = self.connection.workers().await.unwrap().entries().await.unwrap();
        entries.iter().map(|(_, value)| serde_json::from_slice(value).unwrap()).collect()
    }

    async fn until(&self, mut condition: impl FnMut(&[WorkerNotice]) -> bool) {
        let waiting = async {
            while !condition(&self.notices().await) {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap();
    }

    async fn until_no_work(&self, run: &Run) {
        let waiting = async {
            while !self.connection.work_present(run.token().as_str()).await.unwrap().is_empty() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap();
    }
}

async fn connect(nats: &NatsServer, lease: Duration) -> Server {
    let layout = Layout { lease, ..Layout::default() };
    let connecting = Connecting { name: "test".to_owned(), patience: Some(LONG), layout };
    Server::connect(&Access::new(&nats.url()).unwrap(), connecting).await.unwrap()
}

/// A running worker.
struct Serving {
    drain: CancellationToken,
    stop: CancellationToken,
    server: Server,
    task: JoinHandle<Result<FleetSummary, WorkerError>>,
}

impl Serving {
    async fn start(nats: &NatsServer, models: Arc<ModelRegistry>, settings: WorkerSettings) -> Self {
        let (drain, stop) = (CancellationToken::new(), CancellationToken::new());
        let server = connect(nats, LEASE).await;
        let task = tokio::spawn(serve_fleet(
            server.clone(),
            settings,
            models,
            Arc::new(ToolSets::default()),
            drain.clone(),
            stop.clone(),
        ));
        Self { drain, stop, server, task }
    }

    async fn drain(self) -> FleetSummary {
        self.drain.cancel();
        self.end().await
    }

    async fn end(self) -> FleetSummary {
        let summary = timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap();
        self.server.close().await;
        summary
    }
}

fn settings(concurrency: usize) -> WorkerSettings {
    WorkerSettings { concurrency, heartbeat: Duration::from_millis(500), ..WorkerSettings::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_a_run() {
    let Some(bench) = Bench::start().await else { return };
    let mut workers = Vec::new();
    for _ in 0..2 {
        let models = slow_models(Duration::from_millis(200));
        workers.push(Serving::start(&bench.nats, models, settings(2)).await);
    }
    bench.until(|notices| notices.len() == 2).await;
    let run = bench.run("shared", identity(&bench.script("one", 40)), 40).await;
    let (results, all) = bench.results(&run, 40).await;
    assert_eq!(all, 40, "each unit once");
    assert!(results.values().all(|result| result.outcome.ending == Ending::Answered));
    let names: BTreeSet<_> = results.values().map(|result| &result.telemetry.worker).collect();
    assert_eq!(names.len(), 2, "both workers execute units");
    bench.until_no_work(&run).await;
    bench
        .until(|notices| {
            notices.iter().map(|one| one.finished).sum::<u64>() == 40
                && notices.iter().all(|one| one.held.is_empty() && one.holdings.models.len() == 1)
        })
        .await;
    let mut finished = 0;
    for worker in workers {
        finished += worker.drain().await.finished;
    }
    assert_eq!(finished, 40);
    assert!(bench.notices().await.is_empty(), "a worker that ends removes its notice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_outlives_the_server_and_is_sent_after_its_restart() {
    let Some(mut bench) = Bench::start().await else { return };
    let run = bench.run("run", identity(&bench.script("one", 1)), 1).await;
    let settings = WorkerSettings { spool: Some(bench.spool()), ..settings(2) };
    let worker = Serving::start(&bench.nats, slow_models(Duration::from_millis(1_500)), settings).await;
    bench.until(|notices| notices.iter().any(|one| one.held.len() == 1)).await;
    bench.nats.kill();
    let spool = bench.spool();
    let spooled = async {
        while !std::fs::read_dir(&spool)
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with(".result.json"))
        {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, spooled).await.unwrap();
    bench.nats.restart();
    let (results, _) = bench.results(&run, 1).await;
    assert!(results.values().all(|result| result.outcome.ending == Ending::Answered));
    bench.until_no_work(&run).await;
    worker.drain().await;
    assert_eq!(std::fs::read_dir(&spool).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_worker_gives_back_what_it_holds() {
    // Long leases, so that no unit is redelivered because its lease expired.
    let Some(bench) = Bench::with_leases_of(PATIENCE * 10).await else { return };
    let run = bench.run("run", identity(&bench.script("one", 3)), 3).await;
    let settings = WorkerSettings { grace: Duration::from_millis(200), ..settings(4) };
    let worker = Serving::start(&bench.nats, slow_models(LONG * 100), settings).await;
    bench.until(|notices| notices.iter().any(|one| one.held.len() == 3 && one.in_use == 3)).await;
    worker.drain().await;
    assert!(bench.notices().await.is_empty());
    let shard =
        bench.connection.shard_consumer::<WorkMessage>(&run.notice.shards[0].to_string()).await.unwrap();
    let mut leases = Vec::new();
    let claiming = async {
        while leases.len() < 3 {
            leases.extend(shard.claim(3 - leases.len()).await.unwrap());
        }
    };
    timeout(PATIENCE, claiming).await.unwrap();
    let deliveries: Vec<u32> = leases.iter().map(Lease::deliveries).collect();
    assert!(deliveries.iter().all(|count| *count <= 2), "released and claimed again: {deliveries:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_episodes_keep_their_leases_and_stalled_ones_are_reported() {
    let Some(bench) = Bench::start().await else { return };
    let run = bench.run("run", identity(&bench.script("one", 1)), 1).await;
    let settings = WorkerSettings { stall: Duration::from_secs(15), ..settings(4) };
    let worker = Serving::start(&bench.nats, slow_models(LONG * 100), settings).await;
    // The stall limit is longer than two leases.
    let (results, all) = bench.results(&run, 1).await;
    let result = results.values().next().unwrap();
    assert!(matches!(&result.outcome.ending, Ending::Faulted(fault) if fault.kind == FaultKind::Timeout));
    assert_eq!(all, 1, "the unit is not redelivered meanwhile");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_waits_for_its_server_to_be_set_up_and_refuses_what_it_must() {
    let Some(nats) = NatsServer::start() else { return };
    let name = script(nats.folder(), "one", 2, 0);
    let settings = WorkerSettings { idle_exit: Some(Duration::from_secs(3)), ..settings(4) };
    let worker = Serving::start(&nats, models(), settings).await;
    let connection = connect(&nats, LEASE).await;
    connection.ensure().await.unwrap();
    let bench = Bench { nats, connection };

    let other = ModelIdentity { content: ContentHash::of_bytes(b"other"), ..identity(&name) };
    let refused = bench.run("refused", other, 1).await;
    let mut foreign = Run::new("foreign", vec![configuration(identity(&name))]);
    foreign.notice.protocol = NEWEST + 1;
    bench.announce(&foreign).await;
    let run = bench.run("run", identity(&name), 2).await;
    bench.results(&run, 2).await;
    bench
        .until(|notices| {
            notices.iter().any(|one| {
                one.refusals
                    .iter()
                    .any(|why| why.contains("differs from the model that the run was planned with"))
            })
        })
        .await;
    assert_eq!(bench.connection.work_present(refused.token().as_str()).await.unwrap().len(), 1);
    let summary = worker.end().await;
    assert_eq!((summary.finished, summary.idle), (2, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_run_leaves_the_slots() {
    let Some(bench) = Bench::start().await else { return };
    let mut run = bench.run("run", identity(&bench.script("one", 2)), 2).await;
    let worker = Serving::start(&bench.nats, slow_models(LONG * 100), settings(2)).await;
    bench.until(|notices| notices.iter().any(|one| one.held.len() == 2)).await;
    run.notice.state = lumos_tasks::fleet::RunState::Cancelled;
    bench.announce(&run).await;
    bench.until(|notices| notices.iter().any(|one| one.held.is_empty() && one.in_use == 0)).await;
    bench.until_no_work(&run).await;
    worker.stop.cancel();
    assert_eq!(worker.end().await.finished, 0);
}
