//! Tests of ownership: one coordinator per run.

use super::stage::{Stage, leave_claim, settings};
use super::*;
use crate::samples::item;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_has_one_coordinator() {
    let Some(stage) = Stage::new(5).await else { return };
    let other = tempfile::tempdir().unwrap();
    let copy = Checkpoint::create(other.path()).unwrap();
    copy.store_items("svamp", (0..5).map(item)).unwrap();
    let second = async {
        // The first coordinator owns the run once workers can see it.
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
        matches!(refused, CoordinatorError::Owned { process, .. } if process == std::process::id()),
        "{refused}"
    );
    assert!(refused.to_string().starts_with("another coordinator owns this run: process "), "{refused}");
    worker.abort();
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

    // An owner on another machine keeps the run until its claim expires.
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
    assert!(matches!(error, CoordinatorError::Dispatch(DispatchError::Displaced(_))), "{error}");
    assert_eq!(stage.checkpoint.records().count(), 0);
    assert_eq!(stage.notice().await.state, RunState::Active, "the other coordinator owns the run");
}
