//! Executes episodes: calls models and tools, and returns the outcomes.
//!
//! A worker receives tasks without gold answers. It has models and tools, and does not depend on benchmarks.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod activity;
mod drive;
pub mod fleet;
mod serve;
pub mod stall;

pub use drive::{Backends, EpisodeLimits, drive};
pub use serve::{LeaseTerms, RunTerms, Runs, ServeError, Worker};
