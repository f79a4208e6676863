//! The background tasks of a worker, each with a name. A panic of a task is logged. The panic of an essential task is
//! also an error, which ends the worker: otherwise it would continue, for example, without heartbeats.

use std::collections::HashMap;
use std::future::pending;

use tokio::task::{Id, JoinError, JoinSet};

use super::worker::WorkerError;
use crate::serve::log_panic;

/// The background tasks of a worker. Dropping it aborts them.
#[derive(Debug, Default)]
pub(super) struct BackgroundTasks {
    tasks: JoinSet<()>,
    /// The name of each task, and whether the task is essential.
    names: HashMap<Id, (&'static str, bool)>,
}

impl BackgroundTasks {
    /// Starts a task. If it panics, the worker continues without it.
    pub(super) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, (name, false));
    }

    /// Starts a task that the worker needs.
    pub(super) fn spawn_essential(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, (name, true));
    }

    /// Returns the error of an essential task that panicked. Waits without limit if none does.
    pub(super) async fn failed(&mut self) -> WorkerError {
        while let Some(joined) = self.tasks.join_next().await {
            if let Err(error) = self.ended(joined) {
                return error;
            }
        }
        pending().await
    }

    /// Waits until all tasks have ended.
    ///
    /// # Errors
    /// If an essential task panicked.
    pub(super) async fn join(&mut self) -> Result<(), WorkerError> {
        let mut result = Ok(());
        while let Some(joined) = self.tasks.join_next().await {
            result = result.and(self.ended(joined));
        }
        result
    }

    fn ended(&self, joined: Result<(), JoinError>) -> Result<(), WorkerError> {
        let Err(error) = joined else { return Ok(()) };
        let (task, essential) = self.names.get(&error.id()).copied().unwrap_or(("background", false));
        match log_panic(task, error) {
            Some(message) if essential => Err(WorkerError::Panicked { task, message }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn panicking() {
        panic!("no shard 7");
    }

    #[tokio::test(start_paused = true)]
    async fn the_panic_of_an_essential_task_is_an_error() {
        let mut tasks = BackgroundTasks::default();
        tasks.spawn("warnings", panicking());
        tasks.spawn_essential("closing", async {});
        assert!(timeout(Duration::from_secs(1), tasks.failed()).await.is_err(), "nothing essential failed");
        tasks.spawn_essential("verification", pending());
        tasks.spawn_essential("heartbeats", panicking());
        let error = tasks.failed().await.to_string();
        assert_eq!(error, "the task `heartbeats` of this worker panicked: no shard 7");
    }

    #[tokio::test]
    async fn all_tasks_are_joined_after_a_panic() {
        let mut tasks = BackgroundTasks::default();
        tasks.spawn("warnings", panicking());
        tasks.join().await.unwrap();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tasks.spawn_essential("heartbeats", panicking());
        tasks.spawn("leftovers", async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            sender.send(()).unwrap();
        });
        let joined = tasks.join().await;
        assert!(matches!(joined, Err(WorkerError::Panicked { task: "heartbeats", .. })), "{joined:?}");
        receiver.await.unwrap();
    }
}
