//! Batches the results of a run. One message is sent at a time; results that finish meanwhile are sent together in the
//! next message, so that short items do not cost a message each, and long items do not wait.
//!
//! There is no dedicated sender: the first waiting task whose turn it is sends for all. If it is cancelled, the others
//! send for themselves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lumos_queue::{Queue, QueueError};
use lumos_tasks::fleet::{ResultBatch, ResultMessage};
use tokio::sync::oneshot;

/// A result that waits, with the channel for its outcome.
struct Waiting {
    message: Arc<ResultMessage>,
    told: oneshot::Sender<Result<(), QueueError>>,
}

/// Batches the results of one run.
pub(super) struct ResultBatcher {
    queue: Arc<dyn Queue<ResultBatch>>,
    waiting: Mutex<Vec<Waiting>>,
    /// Locked by the task that is sending.
    turn: tokio::sync::Mutex<()>,
}

impl ResultBatcher {
    pub(super) fn new(queue: Arc<dyn Queue<ResultBatch>>) -> Self {
        Self { queue, waiting: Mutex::default(), turn: tokio::sync::Mutex::new(()) }
    }

    /// Sends a result together with others that wait. Returns once the server has stored it, or with the
    /// error of the message that contained it.
    pub(super) async fn send(&self, message: &Arc<ResultMessage>) -> Result<(), QueueError> {
        let mut answer = self.wait(message);
        loop {
            let turn = tokio::select! {
                biased;
                answered = &mut answer => match answered {
                    Ok(sent) => return sent,
                    // The task that was sending this result was cancelled.
                    Err(_) => {
                        answer = self.wait(message);
                        continue;
                    }
                },
                turn = self.turn.lock() => turn,
            };
            self.gather().await;
            let (results, tell): (Vec<_>, Vec<_>) =
                self.take().into_iter().map(|waiting| (waiting.message, waiting.told)).unzip();
            if !results.is_empty() {
                let sent = self.send_batch(ResultBatch { results }).await;
                for told in tell {
                    // The receiver may have been dropped.
                    let _ = told.send(sent.clone());
                }
            }
            drop(turn);
        }
    }

    /// Waits for results of episodes that are about to end: yields to other tasks as long as every round adds
    /// a result.
    async fn gather(&self) {
        let mut before = 0;
        loop {
            let waiting = self.waiting().len();
            if waiting == before || waiting >= ResultBatch::MOST {
                return;
            }
            before = waiting;
            tokio::task::yield_now().await;
        }
    }

    /// Queues a result. Returns the receiver of its outcome.
    fn wait(&self, message: &Arc<ResultMessage>) -> oneshot::Receiver<Result<(), QueueError>> {
        let (told, answer) = oneshot::channel();
        self.waiting().push(Waiting { message: Arc::clone(message), told });
        answer
    }

    /// Sends results as one message.
    pub(super) async fn send_batch(&self, batch: ResultBatch) -> Result<(), QueueError> {
        self.queue.publish(&batch.message_id(), batch).await
    }

    pub(super) fn close(&self) {
        self.queue.close();
    }

    /// Takes the oldest results whose senders still wait, up to the maximum size of a batch.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        waiting.retain(|one| !one.told.is_closed());
        let most = waiting.len().min(ResultBatch::MOST);
        waiting.drain(..most).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use lumos_queue::Lease;
    use lumos_tasks::{ContentHash, Ending, Outcome, RunToken, Telemetry, UnitId};
    use tokio::sync::Semaphore;

    use super::*;

    /// A server that accepts one message per permit.
    struct Slow {
        permits: Semaphore,
        arrived: Mutex<Vec<usize>>,
    }

    #[async_trait]
    impl Queue<ResultBatch> for Slow {
        async fn publish(&self, _id: &str, body: ResultBatch) -> Result<(), QueueError> {
            self.permits.acquire().await.unwrap().forget();
            self.arrived.lock().unwrap().push(body.results.len());
            Ok(())
        }

        async fn claim(&self, _max: usize) -> Result<Vec<Lease<ResultBatch>>, QueueError> {
            Err(QueueError::Closed)
        }

        fn close(&self) {}
    }

    fn message(number: u8) -> Arc<ResultMessage> {
        Arc::new(ResultMessage {
            run: RunToken::of(&ContentHash::of_bytes(b"run")),
            unit: UnitId::new(ContentHash::of_bytes(&[number])),
            attempt: 1,
            outcome: Outcome { ending: Ending::Answered, evidence: None, steps: Vec::new() },
            telemetry: Telemetry { worker: "host".to_owned(), ..Telemetry::default() },
        })
    }

    fn line() -> (Arc<Slow>, Arc<ResultBatcher>) {
        let slow = Arc::new(Slow { permits: Semaphore::new(0), arrived: Mutex::default() });
        (Arc::clone(&slow), Arc::new(ResultBatcher::new(slow)))
    }

    /// Waits until no task can continue. Time is paused.
    async fn until_still() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_at_the_same_time_leaves_together() {
        let (slow, line) = line();
        slow.permits.add_permits(1);
        let sending: Vec<_> = (0..8)
            .map(|number| {
                let line = Arc::clone(&line);
                tokio::spawn(async move { line.send(&message(number)).await })
            })
            .collect();
        for sent in sending {
            sent.await.unwrap().unwrap();
        }
        assert_eq!(*slow.arrived.lock().unwrap(), [8]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_while_a_message_is_on_its_way_leaves_together() {
        let (slow, line) = line();
        let mut sending = tokio::task::JoinSet::new();
        for number in 0..20 {
            let line = Arc::clone(&line);
            sending.spawn(async move { line.send(&message(number)).await });
            if number == 0 {
                until_still().await;
            }
        }
        until_still().await;
        slow.permits.add_permits(100);
        while let Some(sent) = sending.join_next().await {
            sent.unwrap().unwrap();
        }
        assert_eq!(*slow.arrived.lock().unwrap(), [1, ResultBatch::MOST, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_broken_off_takes_nobody_along() {
        let (slow, line) = line();
        let send = |number| {
            let line = Arc::clone(&line);
            tokio::spawn(async move { line.send(&message(number)).await })
        };
        let first = send(0);
        until_still().await;
        let (second, third) = (send(1), send(2));
        until_still().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        second.abort();
        slow.permits.add_permits(100);
        third.await.unwrap().unwrap();
        assert!(!slow.arrived.lock().unwrap().is_empty());
    }

    #[test]
    fn a_message_is_named_after_its_units() {
        let batch = ResultBatch { results: vec![message(1), message(2)] };
        let (first, second) = (&batch.results[0].unit, &batch.results[1].unit);
        assert_eq!(batch.message_id(), format!("{first}-1-host_{second}-1"));
    }
}
