//! Executes episodes: calls models and tools, and returns the outcomes.
//!
//! A worker receives tasks without gold answers. It has models and tools, and does not depend on benchmarks.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod access;
pub mod activity;
pub mod browser;
pub mod drive;
mod files;
pub mod fleet;
mod hosts;
pub mod http_server;
pub mod hub;
pub mod model;
mod retry_after;
pub mod serve;
pub mod serve_model;
mod server_key;
pub mod sessions;
pub mod stall;
pub mod terms;
mod tool;
pub mod tools;

/// Entry points of fuzz targets. Not part of the public interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::model::fuzz_chat as chat;
}

pub use drive::{Backends, EpisodeLimits, drive};
pub use fleet::{FleetSummary, WorkerError, WorkerSettings, serve_fleet};
pub use model::{ModelBackend, ModelError, ModelName, ModelRegistry};
pub use serve::{ServeError, Worker};
pub use terms::{LeaseTerms, RunTerms, Runs};
pub use tools::{ToolFault, Tools};
