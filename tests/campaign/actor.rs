//! A coordinator or a worker that is restarted whenever it ends, as by a service manager.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Lumos, Process};

/// Delay before a process is restarted.
const AGAIN: Duration = Duration::from_secs(1);

/// Time within which a process must end on request (its grace time is 5 s).
const ENDS: Duration = Duration::from_secs(30);

pub(crate) struct Actor {
    pub(crate) name: String,
    pub(crate) process: Option<Process>,
    log: PathBuf,
    /// Bytes of the log written by earlier processes.
    earlier: u64,
    /// Bytes of the log whose events are counted.
    read: u64,
    /// Number of active faults that prevent a restart.
    pub(crate) held: u32,
    /// Memory limit: maximum number of mapped bytes.
    pub(crate) limit: Option<u64>,
    /// When it was sent SIGTERM.
    asked: Option<Instant>,
    due: Instant,
    /// When it ended with exit code 0: its run is complete.
    pub(crate) done: Option<Instant>,
    /// Units that were reported as recorded, with the time of each report.
    pub(crate) settled: Vec<(Instant, String)>,
    /// How processes ended that had not been sent SIGTERM.
    pub(crate) exits: Vec<String>,
    /// Violations of the rules for all processes.
    pub(crate) problems: Vec<String>,
}

impl Actor {
    pub(crate) fn new(name: &str, folder: &Path) -> Self {
        Self {
            name: name.to_owned(),
            process: None,
            log: folder.join(format!("{name}.log")),
            earlier: 0,
            read: 0,
            held: 0,
            limit: None,
            asked: None,
            due: Instant::now(),
            done: None,
            settled: Vec::new(),
            exits: Vec::new(),
            problems: Vec::new(),
        }
    }

    pub(crate) fn is_coordinator(&self) -> bool {
        !self.name.starts_with("worker")
    }

    /// Detects that the process ended, and starts it unless a fault prevents that.
    pub(crate) fn supervise(&mut self, command: impl FnOnce(&Self) -> Lumos) {
        self.count();
        if let Some(status) = self.process.as_mut().and_then(Process::ended) {
            self.process = None;
            self.count();
            self.ended(status);
        }
        if self.process.is_none() && self.held == 0 && self.done.is_none() && Instant::now() >= self.due {
            self.earlier = fs::metadata(&self.log).map_or(0, |file| file.len());
            self.process = Some(command(self).start(&self.log));
        }
    }

    fn ended(&mut self, status: ExitStatus) {
        self.due = Instant::now() + AGAIN;
        let said = self.said_since(self.earlier);
        let reason = said.lines().rev().find(|line| line.starts_with("error")).unwrap_or_default();
        let (code, signal) = (status.code(), status.signal());
        let how = code
            .map_or_else(|| format!("signal {}", signal.unwrap_or(0)), |code| format!("exit code {code}"));
        self.exits.push(format!("{how} {reason}").trim_end().to_owned());
        let asked = self.asked.take();
        if said.contains("panicked at") {
            self.problems.push(format!("{} panicked", self.name));
        }
        match code {
            Some(0) if self.is_coordinator() => self.done = Some(Instant::now()),
            Some(0 | 130) if asked.is_some() => {}
            Some(code) if code != 0 && !reason.is_empty() => {}
            // 5: items are outstanding or faulted, as shown in the run's table.
            Some(5) => {}
            None if self.limit.is_some() => {}
            _ => self.problems.push(format!("{} ended with {how} and without a stated reason", self.name)),
        }
        if let Some(asked) = asked.filter(|asked| asked.elapsed() > ENDS) {
            self.problems.push(format!("{} took {:.0} s to end", self.name, asked.elapsed().as_secs_f64()));
        }
    }

    pub(crate) fn signal(&self, name: &str) -> bool {
        self.process.as_ref().inspect(|process| process.signal(name)).is_some()
    }

    /// Sends SIGTERM.
    pub(crate) fn stop(&mut self) -> bool {
        self.asked = self.process.is_some().then(Instant::now);
        self.signal("-TERM")
    }

    pub(crate) fn kill(&mut self) -> bool {
        self.due = Instant::now();
        self.asked = None;
        let killed = self.process.take().map(|mut process| process.kill()).is_some();
        self.count();
        killed
    }

    /// Number of bytes it has written to its log.
    pub(crate) fn written(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |file| file.len())
    }

    /// Returns its log from a byte on.
    pub(crate) fn said_since(&self, byte: u64) -> String {
        let mut said = Vec::new();
        let read = fs::File::open(&self.log).and_then(|mut file| {
            file.seek(SeekFrom::Start(byte))?;
            file.read_to_end(&mut said)
        });
        let _ = read;
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Counts the events written since the last call.
    fn count(&mut self) {
        if !self.is_coordinator() || self.written() == self.read {
            return;
        }
        let said = self.said_since(self.read);
        let Some(end) = said.rfind('\n') else { return };
        for line in said[..end].lines().filter(|line| line.starts_with("{\"event\":\"settled\"")) {
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let unit = event["unit"].as_str().unwrap_or_default().to_owned();
            self.settled.push((Instant::now(), unit));
        }
        self.read += end as u64 + 1;
    }
}
