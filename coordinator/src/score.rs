//! Scores recorded outcomes.
//!
//! Scoring needs the checkpoint only, neither models nor data files, so it can be repeated with another
//! [`Scoring`] at any time. [`is_correct`] scores a single outcome, for the running accuracy.

use lumos_benchmarks::{Benchmark, Scoring};
use lumos_tasks::{Outcome, Target};
use thiserror::Error;

use crate::checkpoint::CheckpointError;

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

/// Finds a benchmark by name.
///
/// # Errors
/// If this version does not have it.
pub(crate) fn benchmark(name: &str) -> Result<&'static dyn Benchmark, ScoreError> {
    lumos_benchmarks::find(name).ok_or_else(|| ScoreError::UnknownBenchmark(name.to_owned()))
}

/// Whether an outcome reaches the full score in the benchmark's main metric; `None` if it is not scored.
pub(crate) fn is_correct(
    benchmark: &dyn Benchmark,
    target: &Target,
    outcome: &Outcome,
    scoring: Scoring,
) -> Option<bool> {
    let score = benchmark.score(target, outcome, scoring)?;
    Some(score.is_full(benchmark.metrics().first()?.name))
}
