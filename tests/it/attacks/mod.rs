//! The attacks in docs/security.md, run end to end against the program.
//!
//! Every test prints one line per attack: its row in the table, the attack, the result, and the peak memory
//! (`VmHWM`) of the attacked process. `just attacks` runs the long form on the release build. `LUMOS_PROGRAM`
//! selects another program, and `LUMOS_ATTACKS=full` the long form of attacks that also have a short one.

mod bus;
mod files;
mod http;
#[path = "../../../tools/tests/support/rogue_server.rs"]
mod rogue_server;
mod secrets;
mod sql;
mod sql_agent;
#[path = "../../../tools/tests/support/statements.rs"]
mod statements;
mod tls;

use std::time::Duration;

use crate::support::{Ended, Lumos};

/// Maximum memory of a process under attack, in MiB.
const MOST_MEMORY: u64 = 512;

/// Whether attacks run in their long form.
fn is_full() -> bool {
    std::env::var_os("LUMOS_ATTACKS").is_some_and(|form| form == "full")
}

/// Prints the attack and its result.
fn line(row: &str, tried: &str, happened: &str) {
    println!("{row:<4}| {tried} | {happened}");
}

/// Peak memory of a process in MiB; `None` after it has ended.
fn peak_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10)
}

/// Runs a command to its end, samples its memory every few milliseconds, and asserts exit code and memory limit. Also
/// returns the peak memory in MiB.
fn watched(code: i32, command: Lumos) -> (Ended, u64) {
    let mut process = command.follow();
    let mut peak = 0;
    while process.is_running() {
        peak = peak.max(peak_memory(process.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = process.ended().with_code(code);
    assert!(peak < MOST_MEMORY, "{peak} MiB: {ended}");
    (ended, peak)
}
