//! Runs over a real nats-server, with workers made of plain queue calls. Passed over where there is no server.

#[path = "../../../queue/tests/support/nats_server.rs"]
mod nats_server;

use std::time::Duration;

use lumos_queue::nats::{Access, Connecting, Layout, NatsQueue};
use lumos_queue::{Lease, Queue};
use lumos_tasks::fleet::{HeldLease, RunNotice, RunStatus, UnitMessage, WorkMessage};
use lumos_tasks::{Ending, Fault, FaultKind, Outcome, RunToken, Telemetry};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::crew::tests::notice;
use super::*;
use crate::samples::{configuration, item, manifest_of};
use crate::spec::FailOnError;
use nats_server::NatsServer;

/// Longer than anything here takes; leases last longer still, so that none runs out by itself.
const LONG: Duration = Duration::from_secs(90);

struct Stage {
    nats: NatsServer,
    server: Server,
    manifest: Manifest,
    checkpoint: Checkpoint,
    drain: CancellationToken,
    run: RunToken,
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
    async fn new(items: u64) -> Option<Self> {
        let nats = NatsServer::start()?;
        let server = connect(&nats, "coordinator").await;
        let folder = tempfile::tempdir().unwrap();
        let items: Vec<_> = (0..items).map(item).collect();
        let manifest = manifest_of(&[configuration(0), configuration(1)], &items);
        let checkpoint = Checkpoint::create(&folder.path().join("checkpoint")).unwrap();
        checkpoint.store_items("svamp", &items).unwrap();
        let run = run_token(&manifest);
        let drain = CancellationToken::new();
        Some(Self { nats, server, manifest, checkpoint, drain, run, _folder: folder })
    }

    async fn coordinate(
        &self,
        terms: Terms,
        settings: FleetSettings,
    ) -> (Result<Summary, FleetError>, Vec<Event>) {
        let (events, mut received) = mpsc::channel(64);
        let watching = async {
            let mut seen = Vec::new();
            while let Some(event) = received.recv().await {
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

    fn terms(&self) -> Terms {
        Terms { retry_on_error: 1, fail_on_error: FailOnError::Never, window: 16 }
    }

    fn lane(&self) -> String {
        announce::lanes(&self.manifest, settings().priority)[0].to_string()
    }

    /// A worker of this name that answers.
    fn worker(&self, name: &str) -> Hand {
        Hand { server: self.server.clone(), lane: self.lane(), run: self.run.clone(), name: name.to_owned() }
    }

    async fn status(&self) -> RunStatus {
        let status = self.server.status().await.unwrap();
        serde_json::from_slice(&status.get(self.run.as_str()).await.unwrap().unwrap().0).unwrap()
    }

    async fn notice(&self) -> RunNotice {
        let runs = self.server.runs().await.unwrap();
        serde_json::from_slice(&runs.get(self.run.as_str()).await.unwrap().unwrap().0).unwrap()
    }
}

fn settings() -> FleetSettings {
    FleetSettings {
        claim_every: Duration::from_millis(400),
        worker_lost_after: Duration::from_millis(1500),
        reconcile_every: Duration::from_secs(2),
        quiet: Duration::from_secs(1),
        status_every: Duration::from_millis(200),
        lonely_after: Duration::from_secs(1),
        drain_grace: Duration::from_secs(10),
        ..FleetSettings::default()
    }
}

/// A worker made of plain queue calls.
#[derive(Clone)]
struct Hand {
    server: Server,
    lane: String,
    run: RunToken,
    name: String,
}

impl Hand {
    async fn open(&self) -> (NatsQueue<WorkMessage>, NatsQueue<ResultMessage>) {
        loop {
            if let Ok(work) = self.server.lane_consumer(&self.lane).await {
                return (work, self.server.results_publisher(self.run.as_str()).await.unwrap());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn result(&self, message: &WorkMessage, fault: Option<&str>) -> ResultMessage {
        let UnitMessage::Episode { id, .. } = &message.work;
        let ending = match fault {
            None => Ending::Answered,
            Some(text) => Ending::Faulted(Fault { kind: FaultKind::Worker, message: text.to_owned() }),
        };
        ResultMessage {
            run: message.run.clone(),
            unit: id.clone(),
            attempt: message.attempt,
            outcome: Outcome { ending, evidence: None, steps: Vec::new() },
            telemetry: Telemetry { worker: self.name.clone(), ..Telemetry::default() },
        }
    }

    async fn deliver(&self, results: &NatsQueue<ResultMessage>, result: ResultMessage) {
        let id = format!("{}-{}-{}", result.unit, result.attempt, self.name);
        while let Err(error) = results.publish(&id, result.clone()).await {
            assert!(matches!(error, lumos_queue::QueueError::Unreachable(_)), "{error}");
        }
    }

    /// Answers whatever comes until it is aborted.
    fn answering(self, fault: Option<&'static str>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let (work, results) = self.open().await;
            loop {
                let Ok(leases) = work.claim(4).await else { continue };
                for lease in leases {
                    self.deliver(&results, self.result(lease.body(), fault)).await;
                    // What is not acknowledged comes again, and its second outcome is dropped.
                    let _ = lease.acknowledge().await;
                }
            }
        })
    }

    async fn claim(&self, count: usize) -> Vec<Lease<WorkMessage>> {
        let (work, _) = self.open().await;
        let mut leases = Vec::new();
        while leases.len() < count {
            leases.extend(work.claim(count - leases.len()).await.unwrap());
        }
        leases
    }

    async fn show(&self, leases: &[Lease<WorkMessage>]) {
        let held = leases.iter().map(|lease| HeldLease {
            run: self.run.clone(),
            message: lease.id().to_owned(),
            token: lease.token().unwrap().to_owned(),
        });
        let notice = serde_json::to_vec(&notice(&self.name, held.collect())).unwrap();
        self.server.workers().await.unwrap().put(&self.name, &notice).await.unwrap();
    }
}

fn count(events: &[Event], what: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| what(event)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_done_once_and_leaves_nothing_behind() {
    let Some(stage) = Stage::new(30).await else { return };
    let worker = stage.worker("w").answering(None);
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    let summary = summary.unwrap();
    assert_eq!((summary.planned, summary.settled, summary.cancelled), (60, 60, false));
    assert_eq!(count(&events, |event| matches!(event, Event::Settled { .. })), 60);
    assert_eq!(stage.checkpoint.duplicates(), 0);
    assert_eq!(stage.checkpoint.records().count(), 60);
    let status = stage.status().await;
    assert_eq!((status.state, status.configurations[0].answered, status.in_flight), (RunState::Ended, 30, 0));
    assert_eq!(stage.notice().await.state, RunState::Ended);
    assert!(stage.server.work_present(stage.run.as_str()).await.unwrap().is_empty());
    // The same process may run it again at once: the claim was released.
    let (again, _) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(again.unwrap().settled, 60);
    worker.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_outcomes_and_retries_are_counted() {
    let Some(stage) = Stage::new(5).await else { return };
    let (faulty, honest) = (stage.worker("faulty"), stage.worker("honest"));
    let worker = tokio::spawn(async move {
        let (work, results) = honest.open().await;
        loop {
            for lease in work.claim(2).await.unwrap() {
                let first = (lease.body().attempt == 1).then_some("broken");
                faulty.deliver(&results, faulty.result(lease.body(), first)).await;
                honest.deliver(&results, honest.result(lease.body(), first)).await;
                lease.acknowledge().await.unwrap();
            }
        }
    });
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(summary.unwrap().settled, 10);
    assert_eq!(count(&events, |event| matches!(event, Event::Faulted { will_retry: true, .. })), 10);
    assert!(count(&events, |event| matches!(event, Event::Duplicate { .. })) >= 10);
    worker.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_worker_held_is_worked_on_without_waiting_for_its_leases() {
    let Some(stage) = Stage::new(10).await else { return };
    let (lost, other) = (stage.worker("lost"), stage.worker("other"));
    let workers = tokio::spawn(async move {
        let leases = lost.claim(6).await;
        lost.show(&leases).await;
        // As kill -9 would: nothing is given back.
        std::mem::forget(leases);
        other.answering(None).await
    });
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(summary.unwrap().settled, 20);
    let told = |event: &Event| matches!(event, Event::WorkerLost { worker, recalled: 6 } if worker == "lost");
    assert_eq!(count(&events, told), 1);
    assert_eq!(stage.status().await.recovered, 6);
    workers.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_whose_messages_vanished_are_given_out_again() {
    let Some(stage) = Stage::new(10).await else { return };
    let (zombie, other) = (stage.worker("zombie"), stage.worker("other"));
    let workers = tokio::spawn(async move {
        for lease in zombie.claim(5).await {
            lease.acknowledge().await.unwrap();
        }
        other.answering(None).await
    });
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(summary.unwrap().settled, 20);
    let recovered: u64 =
        events.iter().map(|event| if let Event::Recovered { units } = event { *units } else { 0 }).sum();
    assert_eq!(recovered, 5);
    workers.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_item_names_the_workers_it_killed() {
    let Some(stage) = Stage::new(1).await else { return };
    let (lost, other) = (stage.worker("lost"), stage.worker("other"));
    let workers = tokio::spawn(async move {
        let leases = lost.claim(2).await;
        lost.show(&leases).await;
        std::mem::forget(leases);
        other.answering(Some("delivered 6 times and never finished")).await
    });
    let terms = Terms { retry_on_error: 0, ..stage.terms() };
    let (summary, events) = stage.coordinate(terms, settings()).await;
    assert_eq!(summary.unwrap().faulted, 2);
    let named = |event: &Event| {
        matches!(event, Event::Faulted { fault, will_retry: false, .. }
            if fault.message == "delivered 6 times and never finished (lost while they held it: lost)")
    };
    assert_eq!(count(&events, named), 2, "{events:?}");
    assert_eq!(stage.status().await.recent_faults.len(), 2);
    workers.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_has_one_coordinator() {
    let Some(stage) = Stage::new(5).await else { return };
    let other = tempfile::tempdir().unwrap();
    let copy = Checkpoint::create(other.path()).unwrap();
    copy.store_items("svamp", (0..5).map(item)).unwrap();
    let second = async {
        // The first one has the run once workers see it.
        drop(stage.worker("w").open().await);
        let (events, _received) = mpsc::channel(1000);
        let refused = run_fleet(Fleet {
            manifest: &stage.manifest,
            checkpoint: &copy,
            server: &stage.server,
            terms: stage.terms(),
            settings: settings(),
            events: &events,
            drain: &CancellationToken::new(),
        })
        .await;
        let worker = stage.worker("w").answering(None);
        (refused, worker)
    };
    let ((first, _), (refused, worker)) = tokio::join!(stage.coordinate(stage.terms(), settings()), second);
    assert_eq!(first.unwrap().settled, 10);
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, FleetError::Owned { process, .. } if process == std::process::id()),
        "{refused}"
    );
    assert!(refused.to_string().starts_with("another coordinator has this run: process "), "{refused}");
    worker.abort();
}

/// A claim that somebody else might have left.
async fn leave_claim(stage: &Stage, change: impl FnOnce(&mut claim::Claim)) {
    stage.server.ensure().await.unwrap();
    let mut left = claim::Claim::here(7);
    change(&mut left);
    let bytes = serde_json::to_vec(&left).unwrap();
    stage.server.owners().await.unwrap().put(stage.run.as_str(), &bytes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_owner_is_replaced() {
    let Some(stage) = Stage::new(2).await else { return };
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    leave_claim(&stage, |claim| claim.process = child.id()).await;
    let worker = stage.worker("w").answering(None);
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(summary.unwrap().settled, 4);
    assert_eq!(count(&events, |event| matches!(event, Event::Waiting { .. })), 0);
    worker.abort();

    // One elsewhere is given until its claim has run out.
    let Some(stage) = Stage::new(2).await else { return };
    leave_claim(&stage, |claim| claim.machine = "elsewhere".to_owned()).await;
    let worker = stage.worker("w").answering(None);
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(summary.unwrap().settled, 4);
    assert_eq!(count(&events, |event| matches!(event, Event::Waiting { .. })), 1);
    worker.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_displaced_coordinator_stops() {
    let Some(stage) = Stage::new(2).await else { return };
    let usurper = async {
        drop(stage.worker("w").open().await);
        leave_claim(&stage, |claim| claim.machine = "elsewhere".to_owned()).await;
    };
    let ((ended, _), ()) = tokio::join!(stage.coordinate(stage.terms(), settings()), usurper);
    let error = ended.unwrap_err();
    assert!(matches!(error, FleetError::Dispatch(DispatchError::Displaced(_))), "{error}");
    assert_eq!(stage.checkpoint.records().count(), 0);
    assert_eq!(stage.notice().await.state, RunState::Active, "the run is the other one's now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_comes_back_loses_nothing() {
    let Some(mut stage) = Stage::new(300).await else { return };
    let nats = std::mem::replace(&mut stage.nats, NatsServer::start().unwrap());
    let worker = stage.worker("w").answering(None);
    let (killed, killing) = tokio::sync::oneshot::channel();
    let killer = tokio::spawn(async move {
        let mut nats = nats;
        killing.await.unwrap();
        tokio::task::spawn_blocking(move || {
            nats.kill();
            std::thread::sleep(Duration::from_secs(1));
            nats.restart();
            nats
        })
        .await
        .unwrap()
    });
    let watch = async {
        while stage.checkpoint.settled() < 100 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        killed.send(()).unwrap();
    };
    let ((summary, _), ()) = tokio::join!(stage.coordinate(stage.terms(), settings()), watch);
    assert_eq!(summary.unwrap().settled, 600);
    assert_eq!(stage.checkpoint.records().count(), 600);
    worker.abort();
    drop(killer.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_run_ends_and_can_be_started_again() {
    let Some(stage) = Stage::new(20).await else { return };
    let canceller = async {
        let leases = stage.worker("w").claim(1).await;
        let cancelled = cancel(&stage.server, &stage.run).await.unwrap();
        assert_eq!(cancelled.name, stage.manifest.spec.name);
        drop(leases);
    };
    let ((summary, events), ()) = tokio::join!(stage.coordinate(stage.terms(), settings()), canceller);
    let summary = summary.unwrap();
    assert!(summary.cancelled && summary.settled == 0, "{summary:?}");
    assert_eq!(count(&events, |event| matches!(event, Event::Cancelled { .. })), 1);
    assert_eq!(stage.notice().await.state, RunState::Cancelled);
    assert_eq!(stage.status().await.state, RunState::Cancelled);
    let stranger = RunToken::of(&lumos_tasks::ContentHash::of_bytes(b"stranger"));
    assert!(matches!(cancel(&stage.server, &stranger).await, Err(FleetError::NoRun(_))));

    let worker = stage.worker("w").answering(None);
    let (summary, _) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(summary.unwrap().settled, 40);
    worker.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_run_waits_for_what_workers_hold() {
    let Some(stage) = Stage::new(20).await else { return };
    let hand = stage.worker("w");
    let holding = async {
        let (_, results) = hand.open().await;
        let leases = hand.claim(3).await;
        hand.show(&leases).await;
        stage.drain.cancel();
        tokio::time::sleep(Duration::from_millis(300)).await;
        for lease in leases {
            hand.deliver(&results, hand.result(lease.body(), None)).await;
            let _ = lease.acknowledge().await;
        }
        for _ in 0..8 {
            hand.show(&[]).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let ((summary, events), ()) = tokio::join!(stage.coordinate(stage.terms(), settings()), holding);
    let summary = summary.unwrap();
    assert_eq!((summary.settled, summary.outstanding(), summary.cancelled), (3, 37, false));
    assert_eq!(count(&events, |event| matches!(event, Event::Draining { .. })), 1);
    assert_eq!(stage.notice().await.state, RunState::Ended);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_a_dead_session_are_taken_up_and_missing_workers_told_of() {
    let Some(stage) = Stage::new(4).await else { return };
    // A session that dies after its units were done and before their results were taken.
    let first = async {
        let (events, _received) = mpsc::channel(1000);
        let drain = CancellationToken::new();
        let fleet = Fleet {
            manifest: &stage.manifest,
            checkpoint: &stage.checkpoint,
            server: &stage.server,
            terms: stage.terms(),
            settings: FleetSettings { quiet: LONG, reconcile_every: LONG, ..settings() },
            events: &events,
            drain: &drain,
        };
        let hand = stage.worker("w");
        tokio::select! {
            _ = run_fleet(fleet) => panic!("it does not end"),
            leases = hand.claim(8) => (hand, leases),
        }
    };
    let (hand, leases) = first.await;
    let results = stage.server.results_publisher(stage.run.as_str()).await.unwrap();
    for lease in leases {
        hand.deliver(&results, hand.result(lease.body(), None)).await;
        lease.acknowledge().await.unwrap();
    }
    leave_claim(&stage, |claim| claim.released = true).await;
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    // Nobody worked in this session: what was done before is enough.
    assert_eq!(summary.unwrap().settled, 8);
    assert_eq!(count(&events, |event| matches!(event, Event::NoWorkers { .. })), 0);

    let Some(stage) = Stage::new(1).await else { return };
    let told = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        stage.drain.cancel();
    };
    let ((summary, events), ()) = tokio::join!(stage.coordinate(stage.terms(), settings()), told);
    assert_eq!(summary.unwrap().outstanding(), 2);
    assert_eq!(count(&events, |event| matches!(event, Event::NoWorkers { .. })), 1);
}
