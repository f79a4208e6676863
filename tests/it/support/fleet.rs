//! Coordinators and workers on a queue, as separate processes.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lumos_queue::nats::{Access, Connecting, Layout, Server};
use lumos_tasks::fleet::PROTOCOL;
use serde_json::Value;

use super::nats::NatsServer;
use super::{Ended, Lumos, PATIENCE, Process, block_on, lumos};

/// A queue and a folder for runs.
pub(crate) struct Fleet {
    folder: PathBuf,
    /// Arguments for the queue.
    queue: String,
    started: Cell<u32>,
}

impl Fleet {
    pub(crate) fn new(folder: &Path, url: &str) -> Self {
        Self { folder: folder.to_owned(), queue: format!("--queue {url}"), started: Cell::new(0) }
    }

    /// Adds arguments for the queue, such as a certificate.
    pub(crate) fn with(mut self, arguments: &str) -> Self {
        self.queue = format!("{} {arguments}", self.queue);
        self
    }

    /// Uses the same queue as another user.
    pub(crate) fn with_user(self, user: &str, password: &str) -> Self {
        self.with(&format!("--queue-user {user} --queue-password {password}"))
    }

    fn log(&self, kind: &str) -> PathBuf {
        self.started.set(self.started.get() + 1);
        self.folder.join(format!("{kind}-{}-{}.log", self.queue.len(), self.started.get()))
    }

    /// Runs another command on the queue.
    pub(crate) fn run(&self, arguments: &str) -> Ended {
        lumos().args(arguments).args(&self.queue).run()
    }

    /// Starts `lumos watch`.
    pub(crate) fn watch(&self, run: &str) -> Process {
        let command = lumos().args("watch --interval 0.1").args(run).args(&self.queue);
        command.start(&self.log("watch"))
    }

    /// Starts or restarts a coordinator.
    pub(crate) fn coordinator(&self, name: &str, arguments: impl AsRef<str>) -> Process {
        self.coordinator_with(lumos(), name, arguments)
    }

    /// Starts a coordinator with a given command, for example one with other environment variables.
    pub(crate) fn coordinator_with(&self, command: Lumos, name: &str, arguments: impl AsRef<str>) -> Process {
        let command = command.args("run").args(arguments).args(&self.queue);
        command.output(&self.folder, name).start(&self.log("coordinator"))
    }

    /// Starts a worker.
    pub(crate) fn worker(&self, arguments: impl AsRef<str>) -> Process {
        self.worker_with(lumos(), arguments)
    }

    /// Starts a worker with a given command, for example one with another clock. Runs may use files in the folder.
    pub(crate) fn worker_with(&self, command: Lumos, arguments: impl AsRef<str>) -> Process {
        let folder = self.folder.display();
        self.restricted_worker(command, format!("--allow-path '{folder}' {}", arguments.as_ref()))
    }

    /// Starts a worker that lets runs use only what these arguments allow.
    pub(crate) fn restricted_worker(&self, command: Lumos, arguments: impl AsRef<str>) -> Process {
        let log = self.log("worker");
        let command = command.args("worker").args(arguments).args(&self.queue);
        command.args("--spool").arg(log.with_extension("spool")).start(&log)
    }

    /// Returns `lumos status --json`, or `None` while the queue cannot be reached.
    pub(crate) fn status(&self) -> Option<Value> {
        let status = self.run("status --json");
        (status.code == 0).then(|| status.json())
    }

    /// Polls the status until a condition holds.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let status = self.status();
            if let Some(status) = status.as_ref().filter(|status| holds(status)) {
                return status.clone();
            }
            assert!(began.elapsed() < PATIENCE, "timed out waiting for {what}: {status:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Sets up a server as a coordinator does, so that workers can register before the first run.
pub(crate) fn set_up(nats: &NatsServer) {
    set_up_at(&nats.url());
}

/// The same at a URL, which may contain a user.
pub(crate) fn set_up_at(url: &str) {
    block_on(async {
        let layout = Layout { protocol: PROTOCOL, ..Layout::default() };
        let connecting = Connecting { name: "test".to_owned(), patience: Some(PATIENCE), layout };
        let server = Server::connect(&Access::new(url).unwrap(), connecting).await.unwrap();
        server.ensure().await.unwrap();
        server.close().await;
    });
}

/// Number of settled units of all runs in a status.
pub(crate) fn settled(status: &Value) -> u64 {
    let configurations =
        status["runs"].as_array().unwrap().iter().flat_map(|run| run["configurations"].as_array());
    configurations
        .flatten()
        .map(|one| one["answered"].as_u64().unwrap() + one["gave_up"].as_u64().unwrap())
        .sum()
}
