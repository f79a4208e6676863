//! The table of a run's scored units, and the benchmark of a unit, by which it is scored.
//!
//! Scoring needs neither models nor data files, so it can be repeated with another scoring at any time.

use std::collections::HashMap;

use lumos_benchmarks::{Benchmark, ItemScore, MetricDefinition, Scoring, Share};
use lumos_coordinator::manifest::{Manifest, PlannedConfiguration};
use lumos_coordinator::spec::{MissingBenchmark, ResolvedSpec};
use lumos_coordinator::{CheckpointError, CheckpointReader, UnitView, for_each_unit};
use lumos_tasks::{Ending, Item, ItemId, NanoDollars, UnitId};
use thiserror::Error;

use crate::judge::{JudgeReport, Verdicts};

use super::cause::{Cause, turn_of};
use super::seeds::seed_groups;

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

/// Scored units of a run under one scoring. Texts (tasks, predictions, prompts) stay in the checkpoint.
///
/// ```no_run
/// use std::path::Path;
/// use lumos_benchmarks::Scoring;
/// use lumos_coordinator::CheckpointReader;
/// use lumos_coordinator::manifest::Manifest;
/// use lumos_reports::results::RunTable;
///
/// let manifest = Manifest::read(Path::new("runs/sample"))?;
/// let checkpoint = CheckpointReader::open(Path::new("runs/sample/checkpoint"))?;
/// let table = RunTable::read(&manifest, &checkpoint, Scoring::Paper)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RunTable {
    pub(crate) manifest: Manifest,
    /// The scoring of all rows.
    pub(crate) scoring: Scoring,
    /// Items by benchmark, in the order in which configurations first use them.
    pub(crate) benchmarks: Vec<BenchmarkItems>,
    /// Configurations, in the manifest's order.
    pub(crate) cells: Vec<CellRows>,
    /// The judge whose verdicts are included, if the run was judged.
    pub(crate) judge: Option<JudgeReport>,
}

/// Items of one benchmark, in the order of the data file.
pub(crate) struct BenchmarkItems {
    pub(crate) benchmark: &'static dyn Benchmark,
    pub(crate) ids: Vec<ItemId>,
    /// Positions in the data file.
    pub(crate) indexes: Vec<u64>,
    pub(crate) names: Vec<Option<String>>,
    pub(crate) groups: Vec<Option<String>>,
    /// Number of each item's cluster; an item that the benchmark puts in none is a cluster of its own.
    pub(crate) clusters: Vec<u32>,
    /// Whether the benchmark has clusters.
    pub(crate) is_clustered: bool,
}

impl std::fmt::Debug for BenchmarkItems {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} items of {}", self.ids.len(), self.benchmark.name())
    }
}

/// Units of one configuration.
#[derive(Debug)]
pub(crate) struct CellRows {
    pub(crate) planned: PlannedConfiguration,
    /// The metrics that are measured, in the benchmark's order.
    pub(crate) metrics: Vec<MetricDefinition>,
    /// One row per item of the configuration: the first items of the benchmark, in their order.
    pub(crate) rows: Vec<UnitRow>,
}

/// State of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitState {
    /// Settled with a prediction.
    Answered,
    /// Settled without a prediction.
    GaveUp,
    /// Every attempt so far ended with a fault.
    Faulted,
    /// Nothing is recorded yet.
    Outstanding,
}

/// One unit, scored.
#[derive(Debug, Clone)]
pub(crate) struct UnitRow {
    pub(crate) unit: UnitId,
    pub(crate) cause: Cause,
    /// Planner turn in which the episode ended, from 1; 0 without steps.
    pub(crate) turn: u16,
    pub(crate) state: UnitState,
    scores: Box<[Share]>,
    pub(crate) prompt_tokens: u32,
    pub(crate) completion_tokens: u32,
    pub(crate) seconds: f32,
    pub(crate) cost: Option<NanoDollars>,
}

/// Stands for a metric that an item has no value of.
const UNSCORED: Share = Share { numerator: 0.0, denominator: f64::NAN };

impl UnitRow {
    /// Returns the item's share of the metric at a position in [`CellRows::metrics`]; `None` if the unit is not settled
    /// or the item has no value.
    pub(crate) fn share(&self, metric: usize) -> Option<Share> {
        self.scores.get(metric).copied().filter(|share| !share.denominator.is_nan())
    }

    /// Whether the unit is settled.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state, UnitState::Answered | UnitState::GaveUp)
    }

    /// Returns what differs between most different trajectories: cause, turns, and tokens read and generated.
    pub(crate) fn course(&self) -> (Cause, u16, u32, u32) {
        (self.cause, self.turn, self.prompt_tokens, self.completion_tokens)
    }

    /// Whether the unit has the full score in the metric at a position in [`CellRows::metrics`].
    pub(crate) fn is_full(&self, at: usize, metric: &MetricDefinition) -> bool {
        self.share(at).is_some_and(|share| metric.is_full(share))
    }

    fn of(view: &UnitView<'_>, score: Option<&ItemScore>, metrics: &[MetricDefinition]) -> Self {
        let Some(record) = &view.record else {
            return Self {
                unit: view.unit.clone(),
                cause: Cause::Outstanding,
                turn: 0,
                state: UnitState::Outstanding,
                scores: Box::default(),
                prompt_tokens: 0,
                completion_tokens: 0,
                seconds: 0.0,
                cost: None,
            };
        };
        let share =
            |metric: &MetricDefinition| score.and_then(|score| score.share(metric.name)).unwrap_or(UNSCORED);
        let correct = score.is_some_and(|score| score.is_correct(metrics));
        let (prompt_tokens, completion_tokens) = record.outcome.tokens();
        let count = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        Self {
            unit: view.unit.clone(),
            cause: Cause::of(&record.outcome, correct),
            turn: u16::try_from(turn_of(&record.outcome)).unwrap_or(u16::MAX),
            state: match record.outcome.ending {
                Ending::Answered => UnitState::Answered,
                Ending::GaveUp(_) => UnitState::GaveUp,
                Ending::Faulted(_) => UnitState::Faulted,
            },
            scores: score.map(|_| metrics.iter().map(share).collect()).unwrap_or_default(),
            prompt_tokens: count(prompt_tokens),
            completion_tokens: count(completion_tokens),
            #[expect(clippy::cast_possible_truncation, reason = "seven digits are enough for a duration")]
            seconds: record.telemetry.seconds as f32,
            cost: record.telemetry.cost,
        }
    }
}

impl RunTable {
    /// Reads and scores all units of a run in one pass.
    ///
    /// # Errors
    /// If the checkpoint cannot be read or a benchmark is unknown.
    pub fn read(
        manifest: &Manifest,
        checkpoint: &CheckpointReader,
        scoring: Scoring,
    ) -> Result<Self, ScoreError> {
        let verdicts = Verdicts::beside(checkpoint)?;
        let mut builder = TableBuilder::new(manifest, scoring, verdicts)?;
        for_each_unit(manifest, checkpoint, |view| {
            builder.add(view);
            Ok::<_, ScoreError>(())
        })?;
        Ok(builder.finish(manifest))
    }

    /// Returns the items of a benchmark.
    pub(crate) fn items_of(&self, benchmark: &str) -> Option<&BenchmarkItems> {
        self.benchmarks.iter().find(|items| items.benchmark.name() == benchmark)
    }

    /// Number of units that are not settled.
    pub fn unsettled(&self) -> usize {
        self.cells.iter().flat_map(|cell| &cell.rows).filter(|row| !row.is_settled()).count()
    }
}

/// Adds units in the order of reports.
pub(crate) struct TableBuilder {
    scoring: Scoring,
    verdicts: Option<Verdicts>,
    benchmarks: Vec<BenchmarkItems>,
    /// Numbers of named clusters, by position of the benchmark and name.
    clusters: HashMap<(usize, String), u32>,
    /// Number of the next cluster, named or of one item.
    next_cluster: u32,
    cells: Vec<CellRows>,
}

impl TableBuilder {
    pub(crate) fn new(
        manifest: &Manifest,
        scoring: Scoring,
        verdicts: Option<Verdicts>,
    ) -> Result<Self, ScoreError> {
        let mut builder = Self {
            scoring,
            verdicts,
            benchmarks: Vec::new(),
            clusters: HashMap::new(),
            next_cluster: 0,
            cells: Vec::new(),
        };
        for planned in &manifest.configurations {
            let benchmark = benchmark(&manifest.spec, &planned.configuration.benchmark)?;
            let metrics = benchmark.measured_metrics(&planned.configuration);
            builder.cells.push(CellRows { planned: planned.clone(), metrics, rows: Vec::new() });
            if !builder.benchmarks.iter().any(|items| items.benchmark.name() == benchmark.name()) {
                builder.benchmarks.push(BenchmarkItems {
                    benchmark,
                    ids: Vec::new(),
                    indexes: Vec::new(),
                    names: Vec::new(),
                    groups: Vec::new(),
                    clusters: Vec::new(),
                    is_clustered: false,
                });
            }
        }
        Ok(builder)
    }

    pub(crate) fn add(&mut self, view: &UnitView<'_>) {
        let Self { scoring, verdicts, benchmarks, clusters, next_cluster, cells } = self;
        let Some(cell) = cells.get_mut(view.position) else { return };
        let name = view.configuration.configuration.benchmark.as_str();
        let Some(at) = benchmarks.iter().position(|items| items.benchmark.name() == name) else { return };
        let items = &mut benchmarks[at];
        // Configurations of a benchmark have the same first items in the same order. Those with more items add them.
        if items.ids.len() == cell.rows.len() {
            items.add(view.item, |name| {
                let mut new = || {
                    let cluster = *next_cluster;
                    *next_cluster = next_cluster.saturating_add(1);
                    cluster
                };
                match name {
                    Some(name) => *clusters.entry((at, name)).or_insert_with(new),
                    None => new(),
                }
            });
        }
        let score = view.settled().and_then(|record| {
            let score = items.benchmark.score(&view.item.target, &record.outcome, *scoring)?;
            let verdict = verdicts
                .as_ref()
                .and_then(|verdicts| verdicts.of(&cell.metrics, &view.unit, view.item, &record.outcome));
            Some(match verdict {
                Some(verdict) => verdict.add_to(score, *scoring),
                None => score,
            })
        });
        cell.rows.push(UnitRow::of(view, score.as_ref(), &cell.metrics));
    }

    pub(crate) fn finish(self, manifest: &Manifest) -> RunTable {
        let mut table = RunTable {
            manifest: manifest.clone(),
            scoring: self.scoring,
            benchmarks: self.benchmarks,
            cells: self.cells,
            judge: self.verdicts.as_ref().map(Verdicts::report),
        };
        for group in seed_groups(&table) {
            // A judged metric has no values before the run is judged. Seeds keep equal metrics, found by position.
            let has_value = |at: usize| {
                group
                    .cells
                    .iter()
                    .any(|&cell| table.cells[cell].rows.iter().any(|row| row.share(at).is_some()))
            };
            let metrics = group.first(&table).metrics.iter().enumerate();
            let unjudged: Vec<usize> =
                metrics.filter(|(at, metric)| metric.judged && !has_value(*at)).map(|(at, _)| at).collect();
            for &cell in &group.cells {
                for &at in unjudged.iter().rev() {
                    table.cells[cell].remove_metric(at);
                }
            }
        }
        table
    }
}

impl CellRows {
    /// Removes the metric at a position, which has no values.
    fn remove_metric(&mut self, at: usize) {
        self.metrics.remove(at);
        for row in self.rows.iter_mut().filter(|row| !row.scores.is_empty()) {
            let mut scores = std::mem::take(&mut row.scores).into_vec();
            scores.remove(at);
            row.scores = scores.into_boxed_slice();
        }
    }
}

impl BenchmarkItems {
    /// Adds an item. `cluster` returns the number of a named cluster, or of a new one.
    fn add(&mut self, item: &Item, cluster: impl FnOnce(Option<String>) -> u32) {
        let named = self.benchmark.cluster(item);
        self.is_clustered |= named.is_some();
        self.clusters.push(cluster(named));
        self.ids.push(item.id.clone());
        self.indexes.push(item.index);
        self.names.push(item.name.clone());
        self.groups.push(item.group.clone());
    }
}
