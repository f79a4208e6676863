//! Tests with coordinator and workers as processes and a real nats-server.
//!
//! The server is `LUMOS_NATS_SERVER` or `nats-server` on the path. Without one these tests are skipped.
//! `LUMOS_NATS_SERVER_CURRENT` names a server of a newer version, which is then also tested.

mod access;
mod clock;
mod faults;
mod permissions;
mod runs;
mod security;
mod worlds;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::rehearsal::Rehearsal;
use crate::support::{content, lumos};

/// A rehearsal, and the result of its undisturbed run.
struct Rehearsed {
    folder: tempfile::TempDir,
    /// Arguments of its runs.
    arguments: String,
    expected: (Samples, Value),
}

/// Samples by benchmark.
type Samples = BTreeMap<String, Vec<Value>>;

impl Rehearsed {
    fn new(items: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let arguments = Rehearsal::write(folder.path(), items).arguments();
        lumos().args("run").args(&arguments).output(folder.path(), "alone").ok();
        let expected = content(&folder.path().join("alone"));
        Self { folder, arguments, expected }
    }

    /// Returns the arguments of a run with additional ones.
    fn with(&self, more: &str) -> String {
        format!("{} {more}", self.arguments)
    }

    fn assert_undisturbed(&self, name: &str) {
        let (samples, results) = content(&self.folder.path().join(name));
        let (expected, expected_results) = &self.expected;
        for (benchmark, rows) in expected {
            for (row, expected) in samples[benchmark].iter().zip(rows) {
                assert_eq!(row, expected);
            }
        }
        let counts = |samples: &Samples| -> Vec<_> {
            samples.iter().map(|(benchmark, rows)| (benchmark.clone(), rows.len())).collect()
        };
        assert_eq!(counts(&samples), counts(expected));
        assert_eq!(results, *expected_results);
    }
}

/// Returns the refusals of all workers in a status.
pub(crate) fn refusals(status: &Value) -> Vec<String> {
    let workers = status["workers"].as_array().unwrap();
    let refusals =
        workers.iter().flat_map(|worker| worker["refusals"].as_array().cloned().unwrap_or_default());
    refusals.map(|refusal| refusal.as_str().unwrap().to_owned()).collect()
}

/// Whether a text contains a hash.
pub(crate) fn holds_a_hash(text: &str) -> bool {
    let hexadecimal = |word: &str| word.len() >= 8 && word.chars().all(|one| one.is_ascii_hexdigit());
    text.split(|one: char| !one.is_ascii_alphanumeric()).any(hexadecimal)
}
