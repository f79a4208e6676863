//! A worker of a fleet: executes the units of all runs on a shared server until it is stopped.

pub mod catalogue;
pub mod eligibility;
pub mod lease_table;
pub mod policy;
pub mod presence;
mod result_batcher;
pub mod shards;
pub mod source;
pub mod spool;
mod spool_files;
pub mod watch;
mod worker;

pub use worker::{FleetSummary, WorkerError, WorkerSettings, serve_fleet, worker_access, worker_name};
