//! What the tests of the program share: its command, its processes, servers that it talks to, and its files.
//!
//! [`lumos`] builds a command and runs it: to its end ([`Ended`]), followed by its output ([`Followed`]) or in the
//! background with a log ([`Process`]). [`Serving`] starts a server of models or the shop, and [`Fleet`] coordinators
//! and workers on a queue. [`finished_run`] copies a small complete run, which is made once. The fault campaign and
//! the bench of fleets include this module, too.

pub(crate) mod browser;
pub(crate) mod certificates;
mod command;
pub(crate) mod disk;
mod files;
mod fleet;
mod followed;
pub(crate) mod hub_server;
#[path = "../../../tools/tests/support/mariadb.rs"]
pub(crate) mod mariadb;
pub(crate) mod model_server;
#[path = "../../../queue/tests/support/nats_server.rs"]
pub(crate) mod nats;
pub(crate) mod paced;
mod process;
#[path = "../../../queue/tests/support/proxy.rs"]
pub(crate) mod proxy;
#[allow(dead_code, reason = "the bench of fleets uses more of it")]
pub(crate) mod rehearsal;
pub(crate) mod scripts;

use std::time::{Duration, Instant};

pub(crate) use command::{Ended, Lumos, limited, lumos, program};
pub(crate) use files::{
    UNITS, all, assert_nowhere, content, files, finished_run, read_json, replies, results, rows,
};
pub(crate) use fleet::{Fleet, set_up, set_up_at, settled};
pub(crate) use followed::{Followed, Serving};
pub(crate) use process::{Process, send};

/// Time limit for everything that a test waits for. Reached only if something hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Polls a condition until it holds; otherwise fails with a message after [`PATIENCE`].
pub(crate) fn wait_until(mut holds: impl FnMut() -> bool, message: impl FnOnce() -> String) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "timed out: {}", message());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a future to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Path of the library that sets the clock of a process, in Debian's package `libfaketime`.
pub(crate) fn faketime() -> Option<std::path::PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten();
    folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1")).find(|file| file.is_file())
}

/// Path of a folder or file of the repository.
pub(crate) fn repository(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns a text with its white space and line breaks reduced to single spaces.
pub(crate) fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
