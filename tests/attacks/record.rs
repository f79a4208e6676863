//! Result of an attack: a line of the table, and the memory of a process.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Maximum memory of a process under attack, in MiB.
pub(crate) const MOST_MEMORY: u64 = 512;

/// Whether attacks run in their long form.
pub(crate) fn is_full() -> bool {
    std::env::var_os("LUMOS_ATTACKS").is_some_and(|form| form == "full")
}

/// Prints the attack and its result.
pub(crate) fn line(row: &str, tried: &str, happened: &str) {
    println!("{row:<4}| {tried} | {happened}");
}

/// Peak memory of a process in MiB; `None` after it has ended.
pub(crate) fn peak_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10)
}

/// A command that has ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Peak memory in MiB, sampled every few milliseconds.
    pub(crate) peak: u64,
}

/// Runs a command to its end and samples its memory.
pub(crate) fn watched(command: &mut Command) -> Ended {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = outputs(&mut child);
    let mut peak = 0;
    let status = loop {
        peak = peak.max(peak_memory(child.id()).unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    Ended { code: status.code().unwrap_or(-1), stdout, stderr, peak }
}

type Reading = std::thread::JoinHandle<String>;

/// Reads the output of a child process.
fn outputs(child: &mut Child) -> (Reading, Reading) {
    fn all(mut from: impl Read + Send + 'static) -> Reading {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    (all(child.stdout.take().unwrap()), all(child.stderr.take().unwrap()))
}

impl Ended {
    /// Asserts the exit code and the memory limit.
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.stdout, self.stderr);
        assert!(self.peak < MOST_MEMORY, "{} MiB", self.peak);
        self
    }
}
