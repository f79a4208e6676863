//! Plans runs, dispatches units and records outcomes.
//!
//! A run passes through these modules: [`spec`] reads the request, [`expand`] and [`select`] create configurations and units,
//! [`manifest`] stores the plan before anything runs, [`dispatch`](mod@dispatch) gives units to workers, and [`Checkpoint`] records
//! every outcome. The crate `lumos-reports` reads what is recorded.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod atomic_file;
mod checkpoint;
mod computing;
pub mod dispatch;
mod events;
pub mod fleet;
mod identity;
pub mod manifest;
mod merge;
mod plan;
#[doc(hidden)]
pub mod samples;
pub mod spec;
mod unit_key;
mod unit_view;

#[doc(hidden)]
pub use checkpoint::fuzzing;
pub use {
    checkpoint::{Checkpoint, CheckpointError, CheckpointReader, Damage, PlanMark, Record, Recorded},
    computing::{Computing, WorkerComputing},
    events::Event,
    merge::{MergeError, merge},
    plan::{MatrixError, PlannedCell, SelectError, Selected, expand, select},
    unit_view::{UnitView, for_each_unit, for_each_unit_of, unit_of},
};
