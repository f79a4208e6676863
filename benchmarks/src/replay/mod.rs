//! Replays recorded cases with the current code.
//!
//! A [`Case`] contains the replies of models and tools in one episode, the prompts, and the outcome.
//! [`replay`] runs the episode again with these replies and reports differences. Rows that record a single
//! function (`UnitRow`) are replayed in the same way. [`record`] is the inverse: it writes a case from an
//! episode's outcome.

mod compare;
mod drive;
mod read;
mod record;
mod requests;
mod shop;
mod sql;
mod unit;
mod web;

use std::path::{Path, PathBuf};

use lumos_tasks::recorded::Case;

use crate::benchmark::Benchmark;

pub use drive::configuration;
pub use read::{CaseError, Cases, RecordedRow, read_cases};
pub use record::{NotRecordable, record, record_on};
pub use requests::{RecordedRequest, recorded_requests};

/// Returns the data folder for recorded cases: `LUMOS_DATA`, or `../../data` relative to their
/// folder.
fn data_folder(folder: &Path) -> PathBuf {
    std::env::var_os("LUMOS_DATA").map_or_else(|| folder.join("../../data"), PathBuf::from)
}

/// Result of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayResult {
    /// The case.
    pub id: String,
    /// Description of the first difference.
    pub difference: Option<String>,
    /// Why the case was not replayed: its family is unsupported.
    pub skipped: Option<String>,
}

impl ReplayResult {
    fn of(id: &str, result: Result<(), String>) -> Self {
        Self { id: id.to_owned(), difference: result.err(), skipped: None }
    }

    /// Returns the result of a replay that may have been skipped, with the reason.
    fn of_either(id: &str, result: Result<Option<String>, String>) -> Self {
        match result {
            Ok(Some(reason)) => Self::skip(id, reason),
            Ok(None) => Self::of(id, Ok(())),
            Err(difference) => Self::of(id, Err(difference)),
        }
    }

    fn skip(id: &str, reason: impl Into<String>) -> Self {
        Self { id: id.to_owned(), difference: None, skipped: Some(reason.into()) }
    }

    /// Whether the case was replayed without a difference.
    pub fn passed(&self) -> bool {
        self.difference.is_none() && self.skipped.is_none()
    }
}

/// Replays a recorded case, in behaviour `paper` unless it is tagged otherwise.
///
/// Compares prompts byte for byte and tool calls one by one, as far as they can affect the outcome: the
/// recorded run may have made further calls after the item was solved or had failed. Then compares the
/// recorded evidence field by field. A case that ends with an exception passes if the item ends without a
/// prediction.
pub fn replay(case: &Case) -> ReplayResult {
    match crate::registry::find(&case.benchmark) {
        Some(benchmark) => replay_on(case, benchmark),
        None => ReplayResult::skip(&case.id, unknown(&case.benchmark)),
    }
}

/// States why cases of a benchmark are not replayed.
fn unknown(benchmark: &str) -> String {
    format!(
        "unknown benchmark `{benchmark}`; `lumos replay --task-file <file>` replays the cases of a task file"
    )
}

/// Replays a recorded case on another benchmark than the one it names, such as one that a task file describes.
pub fn replay_on(case: &Case, benchmark: &dyn Benchmark) -> ReplayResult {
    ReplayResult::of(&case.id, compare::case(case, benchmark))
}
