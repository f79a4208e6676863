//! Plans runs, dispatches units, records outcomes and writes reports.
//!
//! A run passes through these modules: [`spec`] reads the request, [`plan`] creates configurations and units,
//! [`manifest`] stores the plan before anything runs, [`Checkpoint`] records every outcome, and [`report`]
//! and [`export`] write the results. [`results`] scores a run's units into a table.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod atomic_file;
mod checkpoint;
pub mod compare;
mod computing;
pub mod dispatch;
mod display;
mod events;
pub mod export;
pub mod fleet;
pub mod gate;
mod identity;
pub mod judge;
mod ledger;
pub mod live;
pub mod manifest;
pub mod merge;
mod model_id;
pub mod plan;
pub mod report;
pub mod results;
#[cfg(test)]
mod samples;
pub mod spec;
pub mod trajectory;
mod unit_key;
mod unit_view;
pub mod viewer;

#[doc(hidden)]
pub use checkpoint::fuzzing;
pub use {
    atomic_file::remove_left_behind,
    checkpoint::{Checkpoint, CheckpointError, CheckpointReader, Damage, PlanMark, Record, Recorded},
    computing::Computing,
    events::Event,
    model_id::{ModelId, ModelNames},
};
