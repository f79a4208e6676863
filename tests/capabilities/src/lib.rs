//! Capabilities that a test needs from its machine: servers, a browser, data that does not ship with the
//! project.
//!
//! A test without a required [`Capability`] calls [`skip`] and returns. Two environment variables control the
//! effect:
//!
//! - `LUMOS_REQUIRE=nats,browser,…`: the test fails if the capability is in the list. `test.sh` lists the
//!   capabilities that it installed.
//! - `LUMOS_SKIPPED=<PATH>`: the test is appended to this file, so that `test.sh` counts it as skipped, not
//!   as passed.
//!
//! ```no_run
//! use lumos_capabilities::{Capability, shared};
//!
//! let Some(folder) = shared("golden/gsm8k") else { return };
//! ```
//!
//! Tests with random cases draw them from [`seed`], which `LUMOS_TEST_SEED` sets.

#[cfg(unix)]
mod fake_gpu;

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::path::PathBuf;

#[cfg(unix)]
pub use fake_gpu::fake_gpu;

/// A resource that a machine may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// `nats-server`, on the path or named by `LUMOS_NATS_SERVER`.
    Nats,
    /// A second `nats-server` of another version, named by `LUMOS_NATS_SERVER_CURRENT`.
    NatsCurrent,
    /// `chromium` and `chromedriver` on the path.
    Browser,
    /// An MCP server for Node.js, named by `LUMOS_MCP_SERVER`.
    Mcp,
    /// `mariadbd` and `mariadb-install-db`.
    MariaDb,
    /// The folder of recorded cases and data sets, named by `LUMOS_SHARED`.
    Shared,
    /// A C++ compiler.
    Cxx,
    /// `openssl` on the path.
    OpenSsl,
    /// Permission to mount small file systems.
    Mount,
    /// `libfaketime`, to set the clock of a process.
    Faketime,
    /// NVIDIA's runtime compiler, `libnvrtc.so`, and `nvdisasm`, in the folder that `LUMOS_NVRTC` names.
    Nvrtc,
    /// A GPU, named by `LUMOS_DEVICE`.
    Gpu,
    /// An instruction set of the processor.
    InstructionSet,
}

impl Capability {
    /// The name in `LUMOS_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nats => "nats",
            Self::NatsCurrent => "nats-current",
            Self::Browser => "browser",
            Self::Mcp => "mcp",
            Self::MariaDb => "mariadb",
            Self::Shared => "shared",
            Self::Cxx => "c++",
            Self::OpenSsl => "openssl",
            Self::Mount => "mount",
            Self::Faketime => "faketime",
            Self::Nvrtc => "nvrtc",
            Self::Gpu => "gpu",
            Self::InstructionSet => "instruction-set",
        }
    }
}

/// Records that the current test is skipped because a capability is missing. The test returns afterwards.
///
/// # Panics
/// Panics if `LUMOS_REQUIRE` lists the capability, or if the file in `LUMOS_SKIPPED` cannot be written.
#[track_caller]
pub fn skip(lacking: Capability, reason: &str) {
    record("skipped", lacking, reason);
}

/// Records that a part of the current test is skipped; the test continues with the rest and counts as passed.
///
/// # Panics
/// As for [`skip`].
#[track_caller]
pub fn skip_part(lacking: Capability, reason: &str) {
    record("partly", lacking, reason);
}

#[track_caller]
fn record(kind: &str, lacking: Capability, reason: &str) {
    let test = current_test();
    let name = lacking.name();
    let required = std::env::var("LUMOS_REQUIRE").unwrap_or_default();
    assert!(!is_listed(&required, name), "{test} requires `{name}` (LUMOS_REQUIRE): {reason}");
    eprintln!("{kind}: {test}: {reason}");
    if let Some(path) = std::env::var_os("LUMOS_SKIPPED").filter(|path| !path.is_empty()) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        // A single write, so that lines of concurrent processes are not interleaved.
        file.write_all(format!("{kind}\t{test}\t{name}\t{reason}\n").as_bytes()).unwrap();
    }
}

/// The name of the current test; outside of a test's thread, the place of the caller.
#[track_caller]
fn current_test() -> String {
    let caller = Location::caller();
    let thread = std::thread::current();
    let named = thread.name().filter(|name| *name != "main").map(str::to_owned);
    named.unwrap_or_else(|| format!("{}:{}", caller.file(), caller.line()))
}

fn is_listed(list: &str, name: &str) -> bool {
    list.split(',').any(|one| one.trim() == name)
}

/// A file or folder of the shared material; `None` (and the test is skipped) if `LUMOS_SHARED` is not set.
///
/// # Panics
/// As for [`skip`].
#[track_caller]
pub fn shared(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("LUMOS_SHARED").filter(|folder| !folder.is_empty());
    if folder.is_none() {
        skip(Capability::Shared, "LUMOS_SHARED is not set");
    }
    folder.map(|folder| PathBuf::from(folder).join(path))
}

/// Whether Chromium and its driver are installed; if not, the test is skipped.
///
/// # Panics
/// As for [`skip`].
#[track_caller]
pub fn has_browser() -> bool {
    let found = on_path("chromium").is_some() && on_path("chromedriver").is_some();
    if !found {
        skip(Capability::Browser, "chromium and chromedriver are not installed");
    }
    found
}

/// Whether long tests run in their long form: all cases and combinations of settings (`LUMOS_VARIATIONS=all`).
pub fn all_variations() -> bool {
    std::env::var("LUMOS_VARIATIONS").is_ok_and(|which| which == "all")
}

/// The seed of the current test's random cases: `LUMOS_TEST_SEED`, or `default`. Prints the seed, so that the output
/// of a failed test says how to repeat it.
///
/// # Panics
/// Panics if `LUMOS_TEST_SEED` is not a number.
#[track_caller]
pub fn seed(default: u64) -> u64 {
    let set = std::env::var("LUMOS_TEST_SEED").ok().filter(|text| !text.is_empty());
    let seed = set.map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("LUMOS_TEST_SEED={text}: expected a whole number from 0 on"))
    });
    eprintln!("{}: LUMOS_TEST_SEED={seed}", current_test());
    seed
}

/// The path of a program found on `PATH`.
pub fn on_path(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name.as_ref())).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_whole_capabilities() {
        assert!(is_listed("nats, browser", "browser") && is_listed("c++", "c++"));
        assert!(!is_listed("nats-current", "nats") && !is_listed("", "nats"));
    }

    /// Runs in a separate process, because environment variables belong to the process.
    #[test]
    fn skipped_tests_are_recorded_or_fail() {
        if std::env::var_os("LUMOS_SKIP_NOW").is_some() {
            return skip(Capability::Gpu, "tried");
        }
        let file = std::env::temp_dir().join(format!("lumos-skipped-{}", std::process::id()));
        let run = |required: &str| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "tests::skipped_tests_are_recorded_or_fail"]);
            command.env("LUMOS_SKIP_NOW", "1").env("LUMOS_SKIPPED", &file).env("LUMOS_REQUIRE", required);
            command.output().unwrap().status.success()
        };
        assert!(run("nats") && !run("nats,gpu"));
        let lines = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(lines.starts_with("skipped\t") && lines.ends_with("\tgpu\ttried\n"), "{lines}");
        assert_eq!(lines.lines().count(), 1, "{lines}");
    }
}
