//! The benchmark of a recorded unit, by which it is scored.
//!
//! Scoring needs neither models nor data files, so it can be repeated with another scoring at any time.

use lumos_benchmarks::Benchmark;
use lumos_coordinator::CheckpointError;
use lumos_coordinator::spec::ResolvedSpec;
use thiserror::Error;

/// Error of scoring a run.
#[derive(Debug, Error)]
pub enum ScoreError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The run uses a benchmark that this version does not have.
    #[error("unknown benchmark `{0}`: use the version of lumos that made the run")]
    UnknownBenchmark(String),
}

/// Finds a benchmark of a run by name.
///
/// # Errors
/// If this version does not have it.
pub(crate) fn benchmark(spec: &ResolvedSpec, name: &str) -> Result<&'static dyn Benchmark, ScoreError> {
    spec.benchmark(name).ok_or_else(|| ScoreError::UnknownBenchmark(name.to_owned()))
}
