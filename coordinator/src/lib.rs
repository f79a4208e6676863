//! Plans runs, dispatches units, records outcomes and writes reports.
//!
//! A run passes through these modules: [`spec`] reads the request, [`plan`] creates configurations and units,
//! [`manifest`] stores the plan before anything runs, [`Checkpoint`] records every outcome, and [`report`]
//! and [`export`] write the results.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod atomic_file;
mod checkpoint;
pub mod computing;
pub mod dispatch;
mod display;
pub mod events;
pub mod export;
pub mod fleet;
mod identity;
pub mod judge;
mod ledger;
pub mod manifest;
pub mod merge;
pub mod plan;
pub mod report;
#[cfg(test)]
mod samples;
mod score;
pub mod spec;
pub mod trajectory;
mod unit_key;
mod unit_view;

/// Entry points of fuzz targets. Not part of the public interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::checkpoint::{
        fuzz_checksums as journal_checksums, fuzz_reader as reader, fuzz_records as records,
    };
}

pub use atomic_file::remove_left_behind;
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointReader, Damage, PlanMark, Record, Recorded};
