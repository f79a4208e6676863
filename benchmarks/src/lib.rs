//! Data sets: loaders, scores and metrics, and the replay of recorded cases.
//!
//! [`all`] lists the benchmarks, [`find`] gives one by name. A [`Benchmark`] streams its items from a file or
//! from the samples built into the program ([`DataSource`]), scores outcomes ([`Scoring`]) into numbers that
//! add up ([`metrics`]), and knows the published figures to compare with. [`replay`](mod@replay) runs recorded
//! cases through today's code.

mod benchmark;
mod error;
mod gsm8k;
mod hotpotqa;
mod intercode_sql;
pub mod judge;
mod loading;
pub mod metrics;
pub mod mind2web;
mod python_float;
mod registry;
pub mod replay;
mod score;
mod strategyqa;
mod svamp;
mod webshop;

pub use benchmark::{Benchmark, Download, PublishedFigure, PublishedItems};
pub use error::LoadError;
pub use loading::{Content, DataSource, Items, RecordError};
pub use metrics::{Estimate, GroupedTally, IntervalMethod, MetricDefinition, MetricKind, Tally, Unit};
pub use registry::{UnknownBenchmark, all, find, get};
pub use score::{ItemScore, Scoring, Share};
