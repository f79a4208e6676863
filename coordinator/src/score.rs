//! Scores recorded outcomes.
//!
//! Scoring needs the checkpoint only, neither models nor data files: [`rescore`] can be repeated with another
//! [`Scoring`] at any time. [`is_correct`] scores a single outcome, for the running accuracy.

use lumos_benchmarks::{Benchmark, ItemScore, Scoring};
use lumos_tasks::{Outcome, Target};
use thiserror::Error;

use crate::checkpoint::{CheckpointError, CheckpointReader};
use crate::manifest::Manifest;
use crate::unit_view::{UnitState, for_each_unit};

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

/// The score of one unit under one scoring.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitScore {
    /// The configuration's position in the manifest.
    pub position: usize,
    /// The item's position in its data set.
    pub item: u64,
    /// The scoring.
    pub scoring: Scoring,
    /// The score.
    pub score: ItemScore,
}

/// Finds a benchmark by name.
///
/// # Errors
/// If this version does not have it.
pub(crate) fn benchmark(name: &str) -> Result<&'static dyn Benchmark, ScoreError> {
    lumos_benchmarks::find(name).ok_or_else(|| ScoreError::UnknownBenchmark(name.to_owned()))
}

/// Whether an outcome reaches the full score in the benchmark's main metric; `None` if it is not scored.
pub fn is_correct(
    benchmark: &dyn Benchmark,
    target: &Target,
    outcome: &Outcome,
    scoring: Scoring,
) -> Option<bool> {
    let score = benchmark.score(target, outcome, scoring)?;
    Some(score.is_full(benchmark.metrics().first()?.name))
}

/// Scores every settled unit of a run under the given scorings, in the order of reports.
///
/// # Errors
/// If the checkpoint cannot be read or the benchmark is unknown.
pub fn rescore(
    manifest: &Manifest,
    checkpoint: &CheckpointReader,
    scorings: &[Scoring],
    mut take: impl FnMut(UnitScore),
) -> Result<(), ScoreError> {
    for_each_unit(manifest, checkpoint, |view| {
        let UnitState::Settled(record) = &view.state else { return Ok(()) };
        let benchmark = benchmark(&view.configuration.configuration.benchmark)?;
        for &scoring in scorings {
            if let Some(score) = benchmark.score(&view.item.target, &record.outcome, scoring) {
                take(UnitScore { position: view.position, item: view.item.index, scoring, score });
            }
        }
        Ok(())
    })
}
