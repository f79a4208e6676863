//! How a worker handles its leases.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lumos_models::ModelRegistry;
use lumos_queue::{MemoryQueue, Queue};
use lumos_tasks::{Ending, FaultKind, Finished};
use lumos_tools::ToolSets;
use tokio_util::sync::CancellationToken;

use super::support::{Handed, LONG, assignment, configuration, identity, script, slow_models};
use crate::{EpisodeLimits, LeaseTerms, RunTerms, Worker};

fn worker(models: Arc<ModelRegistry>, runs: RunTerms, terms: LeaseTerms) -> Arc<Worker> {
    Arc::new(Worker {
        name: "test".to_owned(),
        concurrency: 4,
        models,
        tools: Arc::new(ToolSets::default()),
        runs: Arc::new(runs),
        terms,
    })
}

async fn results(queue: &MemoryQueue<Finished>) -> Vec<Finished> {
    queue.close();
    queue.claim(64).await.unwrap().iter().map(|lease| lease.body().clone()).collect()
}

fn fault(finished: &Finished) -> &lumos_tasks::Fault {
    match &finished.outcome.ending {
        Ending::Faulted(fault) => fault,
        other => panic!("expected a fault, found {other:?}"),
    }
}

#[tokio::test]
async fn a_stalled_episode_is_given_up_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = configuration(identity(&script(folder.path(), "one", 1, 0)));
    let duration = Some(Duration::from_millis(60));
    let work = Handed::lasting(vec![(assignment(&configuration, 0), 1)], duration);
    let queue = MemoryQueue::bounded(8);
    let terms = LeaseTerms { stall: Some(Duration::from_millis(400)), ..LeaseTerms::default() };
    let worker = worker(slow_models(LONG * 100), RunTerms::default(), terms);
    let serving = worker.serve(Arc::clone(&work) as _, Arc::new(queue.clone()), CancellationToken::new());
    tokio::time::timeout(LONG, serving).await.unwrap().unwrap();

    let finished = results(&queue).await;
    assert_eq!(fault(&finished[0]).kind, FaultKind::Timeout);
    assert!(fault(&finished[0]).message.contains("no reply"), "{}", fault(&finished[0]));
    assert!(work.counts.extended.load(Ordering::SeqCst) > 0, "the lease is extended until then");
    assert_eq!(work.counts.ended(), (1, 0, 0));
}

#[tokio::test]
async fn what_fails_after_its_lease_was_lost_is_left_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = configuration(identity(&script(folder.path(), "one", 1, 0)));
    // The script has no reply to the second unit.
    let work = Handed::new(vec![(assignment(&configuration, 0), 1), (assignment(&configuration, 7), 1)]);
    work.counts.lost.store(true, Ordering::SeqCst);
    let queue = MemoryQueue::bounded(8);
    let worker = worker(super::support::models(), RunTerms::default(), LeaseTerms::default());
    worker.serve(Arc::clone(&work) as _, Arc::new(queue.clone()), CancellationToken::new()).await.unwrap();
    let finished = results(&queue).await;
    assert_eq!(finished.len(), 1);
    assert_eq!(finished[0].outcome.ending, Ending::Answered);
    assert_eq!(work.counts.ended(), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_slow_episode_is_held_as_long_as_its_time_limit() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = configuration(identity(&script(folder.path(), "one", 1, 0)));
    let duration = Some(Duration::from_secs(30));
    let work = Handed::lasting(vec![(assignment(&configuration, 0), 1)], duration);
    let queue = MemoryQueue::bounded(8);
    let terms = LeaseTerms { stall: Some(Duration::from_secs(60)), ..LeaseTerms::default() };
    let runs =
        RunTerms { limits: EpisodeLimits { time: Some(Duration::from_secs(600)) }, ..RunTerms::default() };
    let worker = worker(slow_models(Duration::from_secs(300)), runs, terms);
    worker.serve(Arc::clone(&work) as _, Arc::new(queue.clone()), CancellationToken::new()).await.unwrap();
    assert_eq!(results(&queue).await[0].outcome.ending, Ending::Answered);
    let extended = work.counts.extended.load(Ordering::SeqCst);
    assert!((20..=30).contains(&extended), "expected one extension per 10 s of 300 s, found {extended}");
}

#[tokio::test]
async fn a_poisoned_unit_is_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = configuration(identity(&script(folder.path(), "one", 2, 0)));
    let work = Handed::new(vec![(assignment(&configuration, 0), 6), (assignment(&configuration, 1), 5)]);
    let queue = MemoryQueue::bounded(8);
    let terms = LeaseTerms { max_deliveries: Some(5), ..LeaseTerms::default() };
    let worker = worker(super::support::models(), RunTerms::default(), terms);
    worker.serve(Arc::clone(&work) as _, Arc::new(queue.clone()), CancellationToken::new()).await.unwrap();

    let finished = results(&queue).await;
    let (poisoned, run): (Vec<_>, Vec<_>) = finished.iter().partition(|one| one.outcome.is_fault());
    assert_eq!((poisoned.len(), run.len()), (1, 1));
    assert_eq!(fault(poisoned[0]).kind, FaultKind::Worker);
    assert!(fault(poisoned[0]).message.contains("delivered 6 times without a result"));
    assert_eq!(work.counts.ended(), (2, 0, 0));
}

#[tokio::test]
async fn draining_gives_back_what_does_not_end_within_its_grace() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = configuration(identity(&script(folder.path(), "one", 3, 0)));
    let work = Handed::new((0..3).map(|number| (assignment(&configuration, number), 1)).collect());
    let queue = MemoryQueue::bounded(8);
    let terms = LeaseTerms { grace: Some(Duration::from_millis(50)), ..LeaseTerms::default() };
    let drain = CancellationToken::new();
    let worker = worker(slow_models(LONG * 100), RunTerms::default(), terms);
    let serving = tokio::spawn(worker.serve(Arc::clone(&work) as _, Arc::new(queue.clone()), drain.clone()));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(work.counts.ended(), (0, 0, 0));
    drain.cancel();
    tokio::time::timeout(LONG, serving).await.unwrap().unwrap().unwrap();
    assert_eq!(work.counts.ended(), (0, 3, 0), "all leases are released");
    assert!(results(&queue).await.is_empty());
}

#[tokio::test]
async fn a_cancelled_run_is_dropped_and_taken_out() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = configuration(identity(&script(folder.path(), "one", 3, 0)));
    let work = Handed::new((0..3).map(|number| (assignment(&configuration, number), 1)).collect());
    let queue = MemoryQueue::bounded(8);
    let runs = RunTerms::default();
    let worker = worker(slow_models(LONG * 100), runs.clone(), LeaseTerms::default());
    let serving =
        tokio::spawn(worker.serve(Arc::clone(&work) as _, Arc::new(queue.clone()), CancellationToken::new()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    runs.cancelled.cancel();
    tokio::time::timeout(LONG, serving).await.unwrap().unwrap().unwrap();
    assert_eq!(work.counts.ended(), (0, 0, 3));
    assert!(results(&queue).await.is_empty());
}
