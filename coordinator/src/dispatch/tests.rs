//! Sessions over in-memory queues, with workers that call the queue directly.

use std::sync::Mutex;

use lumos_queue::MemoryQueue;
use lumos_tasks::{Ending, Fault, FaultKind, Outcome, Telemetry};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::checkpoint::Checkpoint;
use crate::samples::{configuration, item, manifest_of};
use crate::spec::DispatchOrder;

/// Work of a worker on a unit: true for an answer, false for a fault.
type Work = fn(&Assignment) -> bool;

pub(super) struct Stage {
    _folder: tempfile::TempDir,
    pub(super) manifest: Manifest,
    checkpoint: Checkpoint,
}

impl Stage {
    pub(super) fn new(items: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let items: Vec<_> = (0..items).map(item).collect();
        let manifest = manifest_of(&[configuration(0), configuration(1)], &items);
        let checkpoint = Checkpoint::create(&folder.path().join("checkpoint")).unwrap();
        checkpoint.store_items("svamp", &items).unwrap();
        Self { _folder: folder, manifest, checkpoint }
    }

    pub(super) async fn run(
        &self,
        terms: DispatchConfig,
        answers: Work,
        repeats: usize,
    ) -> (Summary, Vec<Event>, u64) {
        let work: MemoryQueue<Assignment> = MemoryQueue::bounded(64);
        let results: MemoryQueue<Finished> = MemoryQueue::bounded(64);
        let drain = CancellationToken::new();
        let worker = worker(&work, &results, &drain, answers, repeats);
        let (events, mut received) = mpsc::channel(64);
        let seen = Mutex::new(Vec::new());
        let watching = async {
            while let Some(event) = received.recv().await {
                seen.lock().unwrap().push(event);
            }
        };
        let dispatching = async {
            let ended =
                dispatch(&self.manifest, &terms, &self.checkpoint, &work, &results, &events, &drain).await;
            drop(events);
            ended.unwrap()
        };
        let (summary, ()) = tokio::join!(dispatching, watching);
        (summary, seen.into_inner().unwrap(), worker.await.unwrap())
    }

    pub(super) fn terms(&self) -> DispatchConfig {
        DispatchConfig { retry_on_error: 1, window: 10, ..DispatchConfig::of(&self.manifest) }
    }
}

/// Works until the queue is closed. Returns the number of units it received.
fn worker(
    work: &MemoryQueue<Assignment>,
    results: &MemoryQueue<Finished>,
    drain: &CancellationToken,
    answers: Work,
    repeats: usize,
) -> JoinHandle<u64> {
    let (work, results, drain) = (work.clone(), results.clone(), drain.clone());
    tokio::spawn(async move {
        let mut given = 0;
        loop {
            let leases = tokio::select! {
                biased;
                () = drain.cancelled() => break,
                leases = work.claim(3) => leases.unwrap(),
            };
            if leases.is_empty() {
                break;
            }
            for lease in leases {
                given += 1;
                for copy in 0..repeats {
                    let mut finished = finished(lease.body(), answers(lease.body()));
                    finished.telemetry.worker = format!("worker-{copy}");
                    results.publish(&finished.message_id(), finished).await.unwrap();
                }
                lease.acknowledge().await.unwrap();
            }
        }
        results.close();
        given
    })
}

fn finished(assignment: &Assignment, answered: bool) -> Finished {
    let fault = Fault { kind: FaultKind::Worker, message: "broken".to_owned() };
    let ending = if answered { Ending::Answered } else { Ending::Faulted(fault) };
    Finished {
        unit: assignment.unit.id.clone(),
        attempt: assignment.attempt,
        outcome: Outcome { ending, evidence: None, steps: Vec::new() },
        telemetry: Telemetry::default(),
        run: assignment.run.clone(),
    }
}

fn count(events: &[Event], what: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| what(event)).count()
}

#[tokio::test]
async fn every_unit_is_done_once_and_a_second_session_does_nothing() {
    let stage = Stage::new(40);
    let (summary, events, given) = stage.run(stage.terms(), |_| true, 1).await;
    assert_eq!((summary.planned, summary.settled, summary.outstanding()), (80, 80, 0));
    assert_eq!(given, 80);
    assert!(matches!(&events[0], Event::Started { planned: 80, settled: 0, .. }));
    assert!(matches!(events.last(), Some(Event::Finished { settled: 80, .. })));
    assert_eq!(count(&events, |event| matches!(event, Event::Settled { status: "answered", .. })), 80);
    // There is no evidence, so no outcome is correct, but each is scored.
    let scored = |event: &Event| matches!(event, Event::Settled { correct: Some(false), .. });
    assert_eq!(count(&events, scored), 80);
    let seconds = stage.checkpoint.seconds().unwrap().unwrap();
    assert!(seconds > 0.0);
    let (again, _, given) = stage.run(stage.terms(), |_| true, 1).await;
    assert_eq!((again.settled, given), (80, 0));
    assert_eq!(stage.checkpoint.seconds().unwrap(), Some(seconds), "nothing was done in the second session");
}

#[tokio::test]
async fn settled_units_come_with_the_number_of_episodes_in_progress() {
    let stage = Stage::new(10);
    let terms = DispatchConfig { at_once: 3, ..stage.terms() };
    let (_, events, _) = stage.run(terms, |_| true, 1).await;
    let at_hand = |event: &Event| match event {
        Event::Settled { at_hand, .. } => Some(*at_hand),
        _ => None,
    };
    let at_hand: Vec<u64> = events.iter().filter_map(at_hand).collect();
    assert_eq!((at_hand.len(), at_hand.iter().max(), at_hand.last()), (20, Some(&3), Some(&0)));
}

#[tokio::test]
async fn second_outcomes_are_counted_and_dropped() {
    let stage = Stage::new(10);
    let (summary, events, given) = stage.run(stage.terms(), |_| true, 2).await;
    assert_eq!((summary.settled, given), (20, 20));
    // Results that arrive after the last unit was settled are not read.
    let duplicates = count(&events, |event| matches!(event, Event::Duplicate { .. }));
    assert_eq!(stage.checkpoint.duplicates(), duplicates as u64);
    assert!(duplicates >= 10, "{duplicates}");
    assert_eq!(stage.checkpoint.records().count(), 20);
}

#[tokio::test]
async fn faults_are_retried_and_then_kept_for_the_next_session() {
    let stage = Stage::new(5);
    let (summary, events, given) = stage.run(stage.terms(), |unit| unit.attempt == 2, 1).await;
    assert_eq!((summary.settled, summary.faulted, given), (10, 0, 20));
    let retried = |event: &Event| matches!(event, Event::Faulted { will_retry: true, attempt: 1, .. });
    assert_eq!(count(&events, retried), 10);

    let stage = Stage::new(5);
    let (summary, _, given) = stage.run(stage.terms(), |_| false, 1).await;
    assert_eq!((summary.settled, summary.faulted, summary.outstanding(), given), (0, 10, 0, 20));
    // The next session continues with the third attempt.
    let (summary, _, given) = stage.run(stage.terms(), |unit| unit.attempt == 3, 1).await;
    assert_eq!((summary.settled, summary.faulted, given), (10, 0, 10));
}

#[tokio::test]
async fn too_many_faults_end_a_session_early() {
    let stage = Stage::new(200);
    let terms = DispatchConfig { retry_on_error: 0, fail_on_error: FailOnError::Count(3), ..stage.terms() };
    let (summary, events, given) = stage.run(terms, |_| false, 1).await;
    assert!(summary.too_many_faults && !summary.cancelled);
    assert!(summary.faulted > 3 && given < 400, "{summary:?} {given}");
    assert_eq!(count(&events, |event| matches!(event, Event::Draining { .. })), 1);
    assert_eq!(summary.faulted + summary.outstanding(), 400);
}

#[tokio::test]
async fn a_drained_session_leaves_the_rest_outstanding() {
    let stage = Stage::new(30);
    let work: MemoryQueue<Assignment> = MemoryQueue::bounded(4);
    let results: MemoryQueue<Finished> = MemoryQueue::bounded(64);
    let drain = CancellationToken::new();
    let (events, mut received) = mpsc::channel(256);
    let terms = DispatchConfig { at_once: 2, ..stage.terms() };
    let session = dispatch(&stage.manifest, &terms, &stage.checkpoint, &work, &results, &events, &drain);
    let worker = async {
        for lease in work.claim(3).await.unwrap() {
            let finished = finished(lease.body(), true);
            results.publish(&finished.message_id(), finished).await.unwrap();
            lease.acknowledge().await.unwrap();
        }
        while !matches!(received.recv().await, Some(Event::Settled { .. })) {}
        drain.cancel();
        loop {
            if let Some(Event::Draining { at_hand, .. }) = received.recv().await {
                results.close();
                return at_hand;
            }
        }
    };
    let (summary, at_hand) = tokio::join!(session, worker);
    let summary = summary.unwrap();
    assert_eq!(at_hand, 2, "queued units do not count as in progress");
    assert!(stage.checkpoint.seconds().unwrap().is_some());
    assert!(summary.settled >= 1 && summary.outstanding() > 50, "{summary:?}");
    assert_eq!(stage.checkpoint.settled(), summary.settled);
}

#[tokio::test]
async fn results_of_strangers_are_dropped() {
    let stage = Stage::new(1);
    let work: MemoryQueue<Assignment> = MemoryQueue::bounded(8);
    let results: MemoryQueue<Finished> = MemoryQueue::bounded(8);
    let drain = CancellationToken::new();
    let (events, _received) = mpsc::channel(256);
    let terms = stage.terms();
    let session = dispatch(&stage.manifest, &terms, &stage.checkpoint, &work, &results, &events, &drain);
    let worker = async {
        for lease in work.claim(2).await.unwrap() {
            let honest = finished(lease.body(), true);
            let stranger = Finished {
                unit: lumos_tasks::UnitId::new(lumos_tasks::ContentHash::of_bytes(b"stranger")),
                ..honest.clone()
            };
            let early = Finished { attempt: 7, ..honest.clone() };
            for one in [stranger, early, honest] {
                results.publish(&one.message_id(), one).await.unwrap();
            }
            lease.acknowledge().await.unwrap();
        }
    };
    let (summary, ()) = tokio::join!(session, worker);
    assert_eq!(summary.unwrap().settled, 2);
    assert_eq!(stage.checkpoint.records().count(), 2);
}

/// Returns the seeds and items of a run's units in the order in which they are published.
async fn published(stage: &Stage) -> Vec<(u64, u64)> {
    let work: MemoryQueue<Assignment> = MemoryQueue::bounded(64);
    let results: MemoryQueue<Finished> = MemoryQueue::bounded(64);
    let drain = CancellationToken::new();
    let (events, _received) = mpsc::channel(1024);
    let order = async {
        let mut order = Vec::new();
        loop {
            let leases = work.claim(1).await.unwrap();
            for lease in &leases {
                let unit = &lease.body().unit;
                let item = (0..20).find(|index| item(*index).id == unit.item).unwrap();
                order.push((unit.configuration.seed, item));
                let finished = finished(lease.body(), true);
                results.publish(&finished.message_id(), finished).await.unwrap();
            }
            if leases.is_empty() {
                results.close();
                return order;
            }
            for lease in leases {
                lease.acknowledge().await.unwrap();
            }
        }
    };
    let terms = stage.terms();
    let dispatching = dispatch(&stage.manifest, &terms, &stage.checkpoint, &work, &results, &events, &drain);
    let (summary, order) = tokio::join!(dispatching, order);
    assert_eq!(summary.unwrap().outstanding(), 0);
    order
}

#[tokio::test]
async fn units_are_published_by_priority_and_order() {
    let all = |seed: u64| (0..4).map(move |item| (seed, item));
    assert_eq!(published(&Stage::new(4)).await, all(0).chain(all(1)).collect::<Vec<_>>());
    let mut stage = Stage::new(4);
    stage.manifest.configurations[1].priority = 1;
    assert_eq!(published(&stage).await, all(1).chain(all(0)).collect::<Vec<_>>());
    let mut stage = Stage::new(4);
    stage.manifest.spec.order = DispatchOrder::RoundRobin;
    // The second configuration has fewer items.
    (stage.manifest.configurations[1].limit, stage.manifest.configurations[1].planned) = (Some(2), 2);
    assert_eq!(published(&stage).await, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3)]);
    let mut stage = Stage::new(4);
    stage.manifest.spec.order = DispatchOrder::ShortestFirst;
    (stage.manifest.configurations[1].limit, stage.manifest.configurations[1].planned) = (Some(2), 2);
    assert_eq!(published(&stage).await, [(1, 0), (1, 1), (0, 0), (0, 1), (0, 2), (0, 3)]);
}
