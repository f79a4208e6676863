//! A worker of a fleet: executes the units of all runs on a shared server until it is stopped.

pub mod catalogue;
pub mod eligibility;
pub mod held;
pub mod history;
pub mod lanes;
mod line;
pub mod meter;
pub mod policy;
pub mod presence;
pub mod source;
pub mod spool;
mod spool_files;
pub mod watch;
mod worker;

pub use worker::{FleetError, FleetSettings, FleetSummary, serve_fleet, worker_name};
