//! A worker of a fleet: executes the units of all runs on a shared server until it is stopped.

mod background;
mod catalogue;
mod eligibility;
mod lease_table;
mod notice_limits;
mod policy;
mod presence;
mod result_batcher;
mod shards;
mod source;
mod spool;
mod spool_files;
#[cfg(test)]
mod tests;
mod watch;
mod worker;

pub use worker::{FleetSummary, WorkerError, WorkerSettings, serve_fleet, worker_access, worker_name};
