//! Results for a server that is unreachable or full, or that are not sent when this process ends.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lumos_queue::{Lease, Queue, QueueError};
use lumos_tasks::fleet::{ResultBatch, ResultMessage, RunState};
use lumos_tasks::{ContentHash, Ending, Finished, Outcome, RunToken, Telemetry, Throughput, UnitId};
use tokio::time::timeout;

use super::support::LONG;
use crate::RunTerms;
use crate::fleet::source::ResultsSink;
use crate::fleet::spool::Spool;

/// A server that can be made unreachable.
#[derive(Default, Clone)]
struct Sink {
    here: Arc<AtomicBool>,
    small: Arc<AtomicBool>,
    arrived: Arc<Mutex<Vec<(String, ResultMessage)>>>,
}

#[async_trait]
impl ResultsSink for Sink {
    async fn open(&self, _run: &RunToken) -> Result<Arc<dyn Queue<ResultBatch>>, QueueError> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Queue<ResultBatch> for Sink {
    async fn publish(&self, id: &str, body: ResultBatch) -> Result<(), QueueError> {
        if !self.here.load(Ordering::SeqCst) {
            return Err(QueueError::Full);
        }
        let [result] = body.results.as_slice() else { panic!("expected one result per batch") };
        if self.small.load(Ordering::SeqCst) && !result.outcome.is_fault() {
            return Err(QueueError::TooLarge { id: id.to_owned(), bytes: 9, limit: 5 });
        }
        self.arrived.lock().unwrap().push((id.to_owned(), ResultMessage::clone(result)));
        Ok(())
    }

    async fn claim(&self, _max: usize) -> Result<Vec<Lease<ResultBatch>>, QueueError> {
        Err(QueueError::Closed)
    }

    fn close(&self) {}
}

fn finished(number: u8) -> Finished {
    Finished {
        unit: UnitId::new(ContentHash::of_bytes(&[number])),
        attempt: 1,
        outcome: Outcome { ending: Ending::Answered, evidence: None, steps: Vec::new() },
        telemetry: Telemetry { worker: "host-1-abc".to_owned(), ..Telemetry::default() },
        run: Some(RunToken::of(&ContentHash::of_bytes(b"run"))),
    }
}

fn spool(sink: &Sink, folder: &Path) -> Arc<Spool> {
    spool_under(sink, folder, RunTerms::default())
}

fn spool_under(sink: &Sink, folder: &Path, terms: RunTerms) -> Arc<Spool> {
    let meter = Arc::new(Throughput::since(Instant::now()));
    let spool = Spool::new(Arc::new(sink.clone()), Some(folder.to_owned()), meter, Arc::new(terms));
    Arc::new(spool.unwrap())
}

async fn until(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, waiting).await.unwrap();
}

fn files(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[tokio::test]
async fn publishing_answers_once_the_server_has_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::default();
    let spool = spool(&sink, folder.path());
    let publishing = {
        let spool = Arc::clone(&spool);
        tokio::spawn(async move {
            let finished = finished(1);
            spool.publish(&finished.message_id(), finished).await
        })
    };
    until(|| spool.waiting() == 1 && files(folder.path()).iter().any(|name| name.ends_with(".result.json")))
        .await;
    assert!(!publishing.is_finished());
    sink.here.store(true, Ordering::SeqCst);
    timeout(LONG, publishing).await.unwrap().unwrap().unwrap();
    assert_eq!((spool.waiting(), files(folder.path()).len()), (0, 0));
    let arrived = sink.arrived.lock().unwrap();
    assert_eq!(arrived[0].0, finished(1).message_id());
    assert_eq!(Finished::from(arrived[0].1.clone()), finished(1));
}

#[tokio::test]
async fn what_an_earlier_process_left_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::default();
    for number in 0..3 {
        let spool = spool(&sink, folder.path());
        let publishing = tokio::spawn(async move {
            let finished = finished(number);
            spool.publish(&finished.message_id(), finished).await
        });
        let count = usize::from(number) + 1;
        until(|| files(folder.path()).iter().filter(|name| name.ends_with(".result.json")).count() == count)
            .await;
        // Simulates the end of the process.
        publishing.abort();
        let _ = publishing.await;
    }
    std::fs::write(folder.path().join("torn.result.json"), b"{\"run\":").unwrap();

    sink.here.store(true, Ordering::SeqCst);
    let spool = spool(&sink, folder.path());
    let left = spool.leftovers().await;
    assert_eq!(left.len(), 4);
    let still = spool.send_leftovers(left, |_| None).await;
    assert_eq!(still.len(), 3, "their run is not known yet; the damaged one is set aside");
    let still = spool.send_leftovers(still, |_| Some(RunState::Active)).await;
    assert_eq!((still.len(), sink.arrived.lock().unwrap().len()), (0, 3));
    assert_eq!(files(folder.path()), ["torn.result.damaged"]);
}

#[tokio::test]
async fn results_of_ended_runs_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::default();
    let message = ResultMessage::pack(finished(1)).unwrap();
    std::fs::write(folder.path().join("a.result.json"), serde_json::to_vec(&message).unwrap()).unwrap();
    let spool = spool(&sink, folder.path());
    let left = spool.leftovers().await;
    assert!(spool.send_leftovers(left, |_| Some(RunState::Ended)).await.is_empty());
    assert!(files(folder.path()).is_empty());
}

#[tokio::test]
async fn the_file_of_a_result_is_removed_with_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let (sink, terms) = (Sink::default(), RunTerms::default());
    let spool = spool_under(&sink, folder.path(), terms.clone());
    let publishing = tokio::spawn(async move {
        let finished = finished(1);
        spool.publish(&finished.message_id(), finished).await
    });
    until(|| files(folder.path()).iter().any(|name| name.ends_with(".result.json"))).await;
    terms.cancelled.cancel();
    publishing.abort();
    assert!(publishing.await.unwrap_err().is_cancelled());
    until(|| files(folder.path()).is_empty()).await;
}

#[cfg(unix)]
#[test]
fn other_users_cannot_read_a_new_folder() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    spool(&Sink::default(), &path);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn batchers_of_earlier_runs_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::default();
    let spool = spool(&sink, folder.path());
    let of_run = |number: u32| Finished {
        run: Some(RunToken::of(&ContentHash::of_bytes(&number.to_le_bytes()))),
        ..finished(1)
    };
    // A result of the first run waits meanwhile.
    let waiting = {
        let (spool, finished) = (Arc::clone(&spool), of_run(0));
        tokio::spawn(async move { spool.publish("0", finished).await })
    };
    until(|| spool.runs().len() == 1).await;
    let first = spool.runs().values().next().cloned().unwrap();
    sink.here.store(true, Ordering::SeqCst);
    for number in 1..1000 {
        spool.publish(&number.to_string(), of_run(number)).await.unwrap();
        assert!(spool.runs().len() <= 65);
    }
    assert!(spool.runs().values().any(|line| Arc::ptr_eq(line, &first)), "it is in use");
    timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(sink.arrived.lock().unwrap().len(), 1000);
}

#[tokio::test]
async fn a_result_that_never_fits_becomes_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::default();
    sink.here.store(true, Ordering::SeqCst);
    sink.small.store(true, Ordering::SeqCst);
    let spool = spool(&sink, folder.path());
    timeout(LONG, spool.publish("id", finished(1))).await.unwrap().unwrap();
    assert!(sink.arrived.lock().unwrap()[0].1.outcome.is_fault());
    assert!(files(folder.path()).is_empty());
}
