//! Plans runs, dispatches units, records outcomes and writes reports.
//!
//! A run passes through these modules: [`spec`] reads the request, [`plan`] creates configurations and units,
//! [`manifest`] stores the plan before anything runs, [`checkpoint`] records every outcome, and [`report`]
//! and [`export`] write the results.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod atomic_file;
pub mod checkpoint;
pub mod computing;
pub mod dispatch;
mod display;
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
pub mod unit_view;

/// Entry points of fuzz targets. Not part of the public interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::checkpoint::{fuzz_checksums as journal_checksums, fuzz_records as records};
}

pub use atomic_file::remove_left_behind;
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointReader, Record, Recorded, RunStore};
pub use identity::RunIdentity;
pub use ledger::Ledger;
pub use manifest::Manifest;
pub use report::Report;
pub use spec::{ResolvedSpec, RunSpec};
pub use unit_key::UnitKey;
