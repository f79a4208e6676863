//! Plans runs, dispatches work, records outcomes and reports.
//!
//! A run goes through these modules in turn: [`spec`] reads what is asked, [`plan`] makes configurations and
//! units of it, [`manifest`] writes that down before anything runs, [`checkpoint`] records every outcome,
//! [`report`] and [`export`] say what came of it.

mod atomic_file;
pub mod checkpoint;
pub mod computing;
pub mod dispatch;
pub mod events;
pub mod export;
pub mod fleet;
pub mod identity;
pub mod judge;
pub mod ledger;
pub mod manifest;
pub mod merge;
pub mod plan;
pub mod report;
#[cfg(test)]
mod samples;
pub mod score;
pub mod spec;
pub mod trajectory;
mod unit_key;
pub mod walk;
mod words;

/// Entry points of fuzz targets; not part of the interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::checkpoint::{fuzz_checksums as journal_checksums, fuzz_records as records};
}

pub use atomic_file::remove_left_behind;
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointReader, Record, Recorded};
pub use identity::RunIdentity;
pub use ledger::Ledger;
pub use manifest::Manifest;
pub use report::Report;
pub use spec::{ResolvedSpec, RunSpec};
