//! Replaying recorded cases through today's code.
//!
//! A [`Case`] holds what the models and tools said in one episode, the prompts they were asked with, and what
//! came of it. [`replay`] runs the episode again with these replies and says where it differs. Rows that record
//! a single function ([`UnitRow`]) are replayed likewise. [`record`] is the other side: it writes a case from an
//! episode's outcome.

mod compare;
mod drive;
mod read;
mod record;
mod shop;
mod sql;
mod unit;
mod web;

use std::path::{Path, PathBuf};

use lumos_tasks::recorded::Case;

pub use drive::configuration;
pub use read::{Cases, ReadError, Recorded, read_cases};
pub use record::{NotRecordable, record};
pub use shop::{ShopCase, ShopExpected, ShopTool};
pub use sql::SqlRow;
pub use unit::{UnitRow, replay_unit};

/// The data folder of recorded cases: the one that the environment names, or else the one that belongs to the folder they
/// lie in.
fn data_folder(folder: &Path) -> PathBuf {
    std::env::var_os("LUMOS_DATA").map_or_else(|| folder.join("../../data"), PathBuf::from)
}

/// What came of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The case.
    pub id: String,
    /// The first difference, in words.
    pub difference: Option<String>,
    /// Why the case was not replayed: it is of a family that is not there.
    pub skipped: Option<String>,
}

impl Verdict {
    fn of(id: &str, result: Result<(), String>) -> Self {
        Self { id: id.to_owned(), difference: result.err(), skipped: None }
    }

    /// What came of a replay that may have been left out, and why.
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

    /// Whether the case was replayed and nothing differs.
    pub fn passed(&self) -> bool {
        self.difference.is_none() && self.skipped.is_none()
    }
}

/// Replays a recorded case, in paper behaviour unless the case is tagged otherwise.
///
/// Prompts are compared byte for byte and tool calls one by one, as far as they can influence the outcome: the
/// recorded run may have gone on asking after the item was solved or failed. Then the record is compared field
/// by field. A case that ends with an exception passes if the item ends without a prediction.
pub fn replay(case: &Case) -> Verdict {
    match crate::registry::find(&case.benchmark) {
        Some(benchmark) => Verdict::of(&case.id, compare::case(case, benchmark)),
        None => Verdict::skip(&case.id, format!("unknown benchmark `{}`", case.benchmark)),
    }
}
