//! Processes that a test follows by their output: runs, to kill or interrupt them at a known point ([`Followed`]), and
//! servers ([`Serving`]).

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Ended, Lumos, PATIENCE, lumos, send};

/// The lines of an output, read as they are written.
struct Lines {
    /// In a lock, so that threads of a test can share a process; only its owner reads.
    lines: Mutex<Receiver<String>>,
    seen: Vec<String>,
}

impl Lines {
    fn of(output: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                // The test may have ended; the output is read to its end, so that the process is not blocked.
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        Self { lines: Mutex::new(lines), seen: Vec::new() }
    }

    /// Waits for the next line. Returns false at the end of the output.
    fn read_line(&mut self) -> bool {
        match self.lines.get_mut().unwrap().recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line);
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("the run hangs:\n{}", self.seen.join("\n")),
        }
    }

    fn read_to_end(&mut self) {
        while self.read_line() {}
    }
}

/// A run in progress, which is killed when it is dropped.
pub(crate) struct Followed {
    child: Child,
    /// The command line.
    line: String,
    stdout: Lines,
    stderr: Lines,
}

impl Followed {
    pub(super) fn start(command: &mut Command, line: String) -> Self {
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{line}: {error}"));
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self { child, line, stdout, stderr }
    }

    /// Returns standard error as far as it was read.
    pub(crate) fn said(&self) -> String {
        self.stderr.seen.join("\n")
    }

    /// Returns the events of a kind that were read (`--json`).
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        // A killed run may leave a part of a line.
        let events = self.stdout.seen.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["event"] == kind).collect()
    }

    /// Returns the ids of the units whose settlement was read (`--json`).
    pub(crate) fn settled(&self) -> Vec<String> {
        self.events("settled").iter().map(|event| event["unit"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns how many units the run found settled (`--json`).
    pub(crate) fn settled_before(&self) -> usize {
        let started = self.events("started");
        assert_eq!(started.len(), 1, "{started:?}\n{}", self.said());
        usize::try_from(started[0]["settled"].as_u64().unwrap()).unwrap()
    }

    /// Waits for its first line on standard output.
    pub(crate) fn first_line(&mut self) -> String {
        assert!(!self.stdout.seen.is_empty() || self.stdout.read_line(), "it ended:\n{}", self.said());
        self.stdout.seen[0].clone()
    }

    /// Waits until it has written a number of events of a kind (`--json`).
    pub(crate) fn until(&mut self, kind: &str, count: usize) {
        while self.events(kind).len() < count {
            let goes_on = self.stdout.read_line();
            assert!(goes_on, "the run ended before {count} events `{kind}`: {:?}", self.stdout.seen);
        }
    }

    /// Waits until standard error fulfils a condition.
    pub(crate) fn until_stderr(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !holds(&self.said()) {
            assert!(began.elapsed() < PATIENCE, "timed out waiting for `{what}`:\n{}", self.said());
            assert!(self.stderr.read_line(), "the run ended before it said `{what}`:\n{}", self.said());
        }
    }

    /// Waits until standard error contains a text.
    pub(crate) fn until_said(&mut self, text: &str) {
        self.until_stderr(text, |said| said.contains(text));
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process has not ended yet.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, name: &str) {
        send(name, self.child.id());
    }

    /// Kills it. Returns false if it had ended by itself.
    pub(crate) fn kill(&mut self) -> bool {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        self.stdout.read_to_end();
        self.stderr.read_to_end();
        status.signal() == Some(9)
    }

    /// Sends a signal until it ends, because one may arrive before it is expected. Returns the exit code.
    pub(crate) fn stop(&mut self, name: &str) -> Option<i32> {
        let began = Instant::now();
        while self.is_running() {
            assert!(began.elapsed() < PATIENCE, "the run does not end:\n{}", self.said());
            self.signal(name);
            std::thread::sleep(Duration::from_millis(20));
        }
        self.end()
    }

    /// Waits until it ends.
    pub(crate) fn ended(mut self) -> Ended {
        self.stdout.read_to_end();
        self.stderr.read_to_end();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        let line = std::mem::take(&mut self.line);
        Ended { line, code, stdout: self.stdout.seen.join("\n"), stderr: self.said() }
    }

    /// Waits until it ends. Returns the exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.stdout.read_to_end();
        self.stderr.read_to_end();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `lumos serve-model` or `lumos serve shop`, as a process that runs until it is dropped.
pub(crate) struct Serving {
    pub(crate) process: Followed,
    pub(crate) url: String,
    /// Its output about its models.
    pub(crate) models: Vec<String>,
}

impl Serving {
    /// Starts a server of models.
    pub(crate) fn models(names: &[&str]) -> Self {
        Self::models_of(lumos(), "", names)
    }

    /// Starts a server of models by a command of the program, with further options.
    pub(crate) fn models_of(command: Lumos, options: &str, names: &[&str]) -> Self {
        let command = command.args("serve-model --listen 127.0.0.1:0 --threads 1").args(options);
        let mut process =
            names.iter().fold(command, |command, name| command.args("--model").arg(name)).follow();
        process.until_said("listening on ");
        let said = process.said();
        let (models, listening) = said.split_once("listening on ").unwrap();
        let url = listening.split(';').next().unwrap().to_owned();
        Self { process, url, models: models.lines().map(str::to_owned).collect() }
    }

    /// Starts the website of the shop.
    pub(crate) fn shop() -> Self {
        let mut process = lumos().args("serve shop --port 0").follow();
        let url = process.first_line();
        Self { process, url, models: Vec::new() }
    }
}
