//! Benchmarks: data loaders, scores and metrics, and the replay of recorded cases.
//!
//! [`all`] lists the benchmarks, and [`find`] returns one by name. A [`Benchmark`] streams its items from a
//! file or from the built-in samples ([`DataSource`]), scores outcomes ([`Scoring`]) into values that can be
//! summed ([`Tally`]), and provides published figures for comparison. [`replay`](mod@replay) runs recorded
//! cases with the current code. A program adds benchmarks of its own with a [`BenchmarkBuilder`]. [`statistics`] has intervals, paired tests and power.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod benchmark;
mod builder;
mod error;
mod gsm8k;
mod hotpotqa;
mod intercode_sql;
pub mod judge;
mod loading;
mod metrics;
mod mind2web;
mod python_float;
mod registry;
pub mod replay;
mod score;
pub mod statistics;
mod strategyqa;
mod svamp;
pub mod task_file;
mod test_items;
mod webshop;

pub use benchmark::{Benchmark, BenchmarkDescription, Download, PublishedFigure, PublishedItems};
pub use builder::{BenchmarkBuilder, InvalidBenchmark};
pub use error::DataError;
pub use loading::{Content, DataSource, Items, RecordError};
pub use metrics::{
    Estimate, GroupedTally, IntervalMethod, MetricDefinition, MetricKind, Tally, Unit, main_metric,
    prediction,
};
pub use registry::{RegisterError, UnknownBenchmark, all, find, get, register};
pub use score::{ItemScore, Scoring, Share};
pub use test_items::{is_training_data, test_item_fingerprint};
