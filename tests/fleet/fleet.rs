//! Coordinators and workers as separate processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::lumos;

/// A process that is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, log: log.to_owned() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        // The process may have ended meanwhile.
        let _ =
            Command::new("kill").args([name, &self.id().to_string()]).stderr(Stdio::null()).status().unwrap();
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until the process ends.
    pub(crate) fn wait(&mut self, patience: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(began.elapsed() < patience, "the process did not end:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns its output.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A queue and a folder for runs.
pub(crate) struct Fleet {
    pub(crate) folder: PathBuf,
    /// Additional arguments for the queue.
    pub(crate) queue: Vec<String>,
    started: std::cell::Cell<u32>,
}

impl Fleet {
    pub(crate) fn new(folder: &Path, url: &str) -> Self {
        let queue = vec!["--queue".to_owned(), url.to_owned()];
        Self { folder: folder.to_owned(), queue, started: std::cell::Cell::new(0) }
    }

    /// Uses the same queue as another user.
    pub(crate) fn with_user(mut self, user: &str, password: &str) -> Self {
        self.queue.extend(["--queue-user", user, "--queue-password", password].map(str::to_owned));
        self
    }

    fn log(&self, kind: &str) -> PathBuf {
        self.started.set(self.started.get() + 1);
        self.folder.join(format!("{kind}-{}-{}.log", self.queue.len(), self.started.get()))
    }

    /// Starts or restarts a coordinator.
    pub(crate) fn coordinator(&self, name: &str, arguments: &[&str]) -> Process {
        self.coordinator_with(lumos(), name, arguments)
    }

    /// Starts a coordinator with a given command, for example one with other environment variables.
    pub(crate) fn coordinator_with(&self, mut command: Command, name: &str, arguments: &[&str]) -> Process {
        command.arg("run").args(arguments).args(&self.queue).args([
            "--output-path",
            self.folder.to_str().unwrap(),
            "--name",
            name,
        ]);
        Process::start(&mut command, &self.log("coordinator"))
    }

    /// Starts a worker.
    pub(crate) fn worker(&self, arguments: &[&str]) -> Process {
        self.worker_with(lumos(), arguments)
    }

    /// Starts a worker with a given command, for example one in another network namespace. Runs may use files
    /// in the folder.
    pub(crate) fn worker_with(&self, command: Command, arguments: &[&str]) -> Process {
        let folder = self.folder.to_str().unwrap();
        self.restricted_worker(command, &[&["--allow-path", folder], arguments].concat())
    }

    /// Starts a worker that lets runs use only what these arguments allow.
    pub(crate) fn restricted_worker(&self, mut command: Command, arguments: &[&str]) -> Process {
        let log = self.log("worker");
        command
            .arg("worker")
            .args(arguments)
            .args(&self.queue)
            .args(["--spool", log.with_extension("spool").to_str().unwrap()]);
        Process::start(&mut command, &log)
    }

    /// Returns `lumos status --json`, or `None` while the queue cannot be reached.
    pub(crate) fn status(&self) -> Option<Value> {
        let output = lumos().args(["status", "--json"]).args(&self.queue).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Polls the status until a condition holds.
    pub(crate) fn until(&self, what: &str, patience: Duration, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let status = self.status();
            if let Some(status) = status.as_ref().filter(|status| holds(status)) {
                return status.clone();
            }
            assert!(began.elapsed() < patience, "timed out waiting for {what}: {status:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
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
