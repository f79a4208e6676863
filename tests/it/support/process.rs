//! Processes in the background, which are killed when they are dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::PATIENCE;

/// A process whose output is in a log.
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
        send(name, self.id());
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
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the process ends and asserts its exit code.
    #[track_caller]
    pub(crate) fn exits(&mut self, code: i32) {
        let status = self.wait(PATIENCE);
        assert_eq!(status.code(), Some(code), "{}", self.said());
    }

    /// Asks the process to stop, and returns its output when it has ended with exit code 0.
    #[track_caller]
    pub(crate) fn drained(mut self) -> String {
        self.signal("-TERM");
        self.exits(0);
        self.said()
    }

    /// Waits until the output of the running process fulfils a condition.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        let began = Instant::now();
        loop {
            let ended = self.ended();
            let said = self.said();
            if holds(&said) {
                return;
            }
            assert!(ended.is_none(), "the process ended before it said `{what}`:\n{said}");
            assert!(began.elapsed() < PATIENCE, "timed out waiting for `{what}`:\n{said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the output of the running process contains a text.
    pub(crate) fn until_said(&mut self, text: &str) {
        self.until(text, |said| said.contains(text));
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

/// Sends a signal to a process, which may have ended meanwhile.
pub(crate) fn send(signal: &str, process: u32) {
    let _ = Command::new("kill").args([signal, &process.to_string()]).stderr(Stdio::null()).status();
}
