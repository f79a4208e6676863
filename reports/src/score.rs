//! The benchmark of a recorded unit, by which it is scored.
//!
//! Scoring needs neither models nor data files, so it can be repeated with another scoring at any time.

use lumos_benchmarks::Benchmark;
use lumos_coordinator::CheckpointError;
use lumos_coordinator::spec::{MissingBenchmark, ResolvedSpec};
use thiserror::Error;

/// Error of scoring a run.
#[derive(Debug, Error)]
pub enum ScoreError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The run uses a benchmark that this program does not have.
    #[error(transparent)]
    Benchmark(#[from] MissingBenchmark),
}

/// Finds a benchmark of a run by name.
///
/// # Errors
/// If this program does not have it, or has another version.
pub(crate) fn benchmark(spec: &ResolvedSpec, name: &str) -> Result<&'static dyn Benchmark, ScoreError> {
    Ok(spec.benchmark(name)?)
}
