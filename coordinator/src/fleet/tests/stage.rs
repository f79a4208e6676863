//! Test environment: a server, a run and workers.

use std::time::Duration;

use lumos_queue::nats::{Access, Connecting, Layout, NatsQueue};
use lumos_queue::{Lease, Queue};
use lumos_tasks::fleet::{HeldLease, ResultMessage, RunNotice, RunStatus, WorkMessage};
use lumos_tasks::{Ending, Fault, FaultKind, Outcome, RunToken, Telemetry};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::worker_registry::tests::notice;
use super::super::*;
use super::nats_server::NatsServer;
use crate::samples::{configuration, item, manifest_of};
use crate::spec::FailOnError;

/// Longer than any test. Leases last even longer, so that none expires.
const LONG: Duration = Duration::from_secs(240);

pub(super) struct Stage {
    pub(super) nats: NatsServer,
    pub(super) server: Server,
    pub(super) manifest: Manifest,
    pub(super) checkpoint: Checkpoint,
    pub(super) drain: CancellationToken,
    pub(super) run: RunToken,
    _folder: tempfile::TempDir,
}

fn layout() -> Layout {
    Layout {
        lease: Duration::from_secs(600),
        owners_max_age: Duration::from_secs(2),
        results_max_bytes: 64 << 20,
        work_max_bytes: 64 << 20,
        ..Layout::default()
    }
}

async fn connect(nats: &NatsServer, name: &str) -> Server {
    let connecting =
        Connecting { name: name.to_owned(), patience: Some(Duration::from_secs(20)), layout: layout() };
    Server::connect(&Access::new(&nats.url()).unwrap(), connecting).await.unwrap()
}

impl Stage {
    pub(super) async fn new(items: u64) -> Option<Self> {
        Some(Self::on(NatsServer::start()?, items).await)
    }

    pub(super) async fn on(nats: NatsServer, items: u64) -> Self {
        let server = connect(&nats, "coordinator").await;
        let folder = tempfile::tempdir().unwrap();
        let items: Vec<_> = (0..items).map(item).collect();
        let manifest = manifest_of(&[configuration(0), configuration(1)], &items);
        let checkpoint = Checkpoint::create(&folder.path().join("checkpoint")).unwrap();
        checkpoint.store_items("svamp", &items).unwrap();
        let run = run_token(&manifest);
        let drain = CancellationToken::new();
        Self { nats, server, manifest, checkpoint, drain, run, _folder: folder }
    }

    pub(super) async fn coordinate(
        &self,
        terms: DispatchConfig,
        settings: CoordinatorSettings,
    ) -> (Result<Summary, CoordinatorError>, Vec<Event>) {
        self.coordinate_with(terms, settings, |_| ()).await
    }

    /// Runs a coordinator and calls `react` with every event.
    pub(super) async fn coordinate_with(
        &self,
        terms: DispatchConfig,
        settings: CoordinatorSettings,
        mut react: impl FnMut(&Event),
    ) -> (Result<Summary, CoordinatorError>, Vec<Event>) {
        let (events, mut received) = mpsc::channel(64);
        let watching = async {
            let mut seen = Vec::new();
            while let Some(event) = received.recv().await {
                react(&event);
                seen.push(event);
            }
            seen
        };
        let running = async {
            let fleet = Fleet {
                manifest: &self.manifest,
                checkpoint: &self.checkpoint,
                server: &self.server,
                terms,
                settings,
                events: &events,
                drain: &self.drain,
            };
            let ended = timeout(LONG, run_fleet(fleet)).await.expect("the run ends");
            drop(events);
            ended
        };
        tokio::join!(running, watching)
    }

    pub(super) fn terms(&self) -> DispatchConfig {
        DispatchConfig {
            retry_on_error: 1,
            fail_on_error: FailOnError::Never,
            window: 16,
            at_once: usize::MAX,
        }
    }

    /// Runs a session that is killed once a worker holds a number of units, which are returned with the worker.
    pub(super) async fn killed_session(&self, units: usize) -> (Hand, Vec<Lease<WorkMessage>>) {
        let (events, _received) = mpsc::channel(1000);
        let drain = CancellationToken::new();
        let fleet = Fleet {
            manifest: &self.manifest,
            checkpoint: &self.checkpoint,
            server: &self.server,
            terms: self.terms(),
            settings: CoordinatorSettings { quiet: LONG, reconcile_every: LONG, ..settings() },
            events: &events,
            drain: &drain,
        };
        let hand = self.worker("w");
        let leases = tokio::select! {
            _ = run_fleet(fleet) => panic!("it does not end"),
            leases = hand.claim(units) => leases,
        };
        leave_claim(self, |claim| claim.released = true).await;
        (hand, leases)
    }

    /// Returns a worker that returns results.
    pub(super) fn worker(&self, name: &str) -> Hand {
        self.worker_at(name, settings().priority)
    }

    /// Returns a worker for units of a priority.
    pub(super) fn worker_at(&self, name: &str, priority: u8) -> Hand {
        Hand {
            server: self.server.clone(),
            shard: announce::shards(&self.manifest, priority)[0].to_string(),
            run: self.run.clone(),
            name: name.to_owned(),
        }
    }

    pub(super) async fn status(&self) -> RunStatus {
        let status = self.server.status().await.unwrap();
        serde_json::from_slice(&status.get(self.run.as_str()).await.unwrap().unwrap().0).unwrap()
    }

    pub(super) async fn notice(&self) -> RunNotice {
        let runs = self.server.runs().await.unwrap();
        serde_json::from_slice(&runs.get(self.run.as_str()).await.unwrap().unwrap().0).unwrap()
    }
}

pub(super) fn settings() -> CoordinatorSettings {
    CoordinatorSettings {
        claim_every: Duration::from_millis(400),
        worker_lost_after: Duration::from_millis(1500),
        reconcile_every: Duration::from_secs(2),
        quiet: Duration::from_secs(1),
        status_every: Duration::from_millis(200),
        lonely_after: Duration::from_secs(1),
        drain_grace: Duration::from_secs(60),
        ..CoordinatorSettings::default()
    }
}

/// A worker that calls the queue directly.
#[derive(Clone)]
pub(super) struct Hand {
    server: Server,
    shard: String,
    run: RunToken,
    name: String,
}

impl Hand {
    pub(super) async fn open(&self) -> (NatsQueue<WorkMessage>, NatsQueue<ResultBatch>) {
        loop {
            if let Ok(work) = self.server.shard_consumer(&self.shard).await {
                return (work, self.server.results_publisher(self.run.as_str()).await.unwrap());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) fn result(&self, message: &WorkMessage, fault: Option<&str>) -> ResultMessage {
        let ending = match fault {
            None => Ending::Answered,
            Some(text) => Ending::Faulted(Fault { kind: FaultKind::Worker, message: text.to_owned() }),
        };
        ResultMessage {
            run: message.run.clone(),
            unit: message.work.id.clone(),
            attempt: message.attempt,
            outcome: Outcome { ending, evidence: None, steps: Vec::new() },
            telemetry: Telemetry { worker: self.name.clone(), ..Telemetry::default() },
        }
    }

    pub(super) async fn deliver(&self, results: &NatsQueue<ResultBatch>, result: ResultMessage) {
        let batch = ResultBatch::from(Arc::new(result));
        while let Err(error) = results.publish(&batch.message_id(), batch.clone()).await {
            assert!(matches!(error, lumos_queue::QueueError::Unreachable(_)), "{error}");
        }
    }

    /// Returns a result for every unit until it is aborted.
    pub(super) fn answering(self, fault: Option<&'static str>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let (work, results) = self.open().await;
            loop {
                let Ok(leases) = work.claim(4).await else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                for lease in leases {
                    self.deliver(&results, self.result(lease.body(), fault)).await;
                    // An unacknowledged message is redelivered, and its second outcome is dropped.
                    let _ = lease.acknowledge().await;
                }
            }
        })
    }

    pub(super) async fn claim(&self, count: usize) -> Vec<Lease<WorkMessage>> {
        let (work, _) = self.open().await;
        let mut leases = Vec::new();
        while leases.len() < count {
            leases.extend(work.claim(count - leases.len()).await.unwrap());
        }
        leases
    }

    /// Publishes its notice several times, as a worker does, because a watch that is being opened may miss
    /// one.
    pub(super) async fn show(&self, leases: &[Lease<WorkMessage>]) {
        let held = leases.iter().map(|lease| HeldLease {
            run: self.run.clone(),
            message: lease.id().to_owned(),
            token: lease.token().unwrap().to_owned(),
        });
        let notice = serde_json::to_vec(&notice(&self.name, held.collect())).unwrap();
        let workers = self.server.workers().await.unwrap();
        for _ in 0..3 {
            workers.put(&self.name, &notice).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Leaves a claim of another coordinator.
pub(super) async fn leave_claim(stage: &Stage, change: impl FnOnce(&mut claim::Claim)) {
    stage.server.ensure().await.unwrap();
    let mut left = claim::Claim::here(7);
    change(&mut left);
    let bytes = serde_json::to_vec(&left).unwrap();
    stage.server.owners().await.unwrap().put(stage.run.as_str(), &bytes).await.unwrap();
}
