//! A run as exports see it: its report, and its recorded units with their scores.

use std::collections::BTreeSet;

use lumos_benchmarks::judge::JudgeVerdict;
use lumos_benchmarks::{Benchmark, ItemScore, MetricDefinition, Scoring, Share};
use lumos_coordinator::manifest::{Manifest, PlannedConfiguration};
use lumos_coordinator::{CheckpointReader, Record, UnitView, for_each_unit_of};
use lumos_tasks::{Ending, Item, Outcome, UnitId};

use crate::judge::Verdicts;
use crate::model_id::ModelNames;
use crate::report::json::keys;
use crate::report::model::ConfigurationReport;
use crate::report::{Report, report};
use crate::results::{Matrix, RunTable, ScoreError, benchmark, whole_matrix};

use super::ExportError;

/// A recorded run, scored.
pub(super) struct RunSource<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) report: Report,
    /// Name of each configuration in files.
    pub(super) keys: Vec<String>,
    /// The scorings, the main one first.
    pub(super) scorings: Vec<Scoring>,
    checkpoint: &'a CheckpointReader,
    verdicts: Option<Verdicts>,
}

impl<'a> RunSource<'a> {
    /// Scores a run. If `scorings` is empty, uses those of the run.
    pub(super) fn read(
        manifest: &'a Manifest,
        checkpoint: &'a CheckpointReader,
        scorings: &[Scoring],
    ) -> Result<Self, ScoreError> {
        let report = report(manifest, checkpoint, scorings)?;
        let keys = keys(&report);
        let verdicts = Verdicts::beside(checkpoint)?;
        let scorings = if scorings.is_empty() { manifest.spec.scoring.clone() } else { scorings.to_vec() };
        Ok(Self { manifest, report, keys, scorings, checkpoint, verdicts })
    }

    /// Returns every configuration with its position, its key and its results.
    pub(super) fn cells(
        &self,
    ) -> impl Iterator<Item = (usize, &str, &'a PlannedConfiguration, &ConfigurationReport)> {
        let planned = self.manifest.configurations.iter().zip(&self.report.configurations);
        let cells = self.keys.iter().zip(planned).enumerate();
        cells.map(|(position, (key, (planned, report)))| (position, key.as_str(), planned, report))
    }

    /// The scoring of figures that are shown once.
    pub(super) fn main_scoring(&self) -> Scoring {
        self.scorings.first().copied().unwrap_or(Scoring::Paper)
    }

    /// Returns the table of models and settings by benchmark, pooled over seeds.
    pub(super) fn matrix(&self, names: &ModelNames) -> Result<Matrix, ScoreError> {
        let table = RunTable::read(self.manifest, self.checkpoint, self.main_scoring())?;
        let mut matrix = whole_matrix(&table, &names.labels);
        // Rows name what varies. Models are named even if they are the same everywhere.
        let planned = self.manifest.configurations.iter();
        let models: BTreeSet<_> = planned.map(|one| names.aliases(&one.configuration)).collect();
        if let (1, Some(models)) = (models.len(), models.first()) {
            for row in matrix.rows.iter_mut().filter(|row| row.label != *models) {
                row.label = format!("{models}, {}", row.label);
            }
        }
        Ok(matrix)
    }

    /// Returns the metrics that are measured under a configuration.
    pub(super) fn metrics(
        &self,
        planned: &PlannedConfiguration,
    ) -> Result<Vec<MetricDefinition>, ScoreError> {
        let configuration = &planned.configuration;
        let benchmark = benchmark(&self.manifest.spec, &configuration.benchmark)?;
        Ok(benchmark.measured_metrics(configuration))
    }

    /// Calls the visitor for every recorded unit of the configuration at a position, in the order of items. Holds
    /// one unit in memory at a time.
    pub(super) fn for_each_recorded(
        &self,
        position: usize,
        mut visit: impl FnMut(&RecordedUnit<'_>) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let planned = &self.manifest.configurations[position];
        let benchmark = benchmark(&self.manifest.spec, &planned.configuration.benchmark)?;
        let metrics = benchmark.measured_metrics(&planned.configuration);
        for_each_unit_of(position, planned, self.checkpoint, |view| match &view.record {
            Some(record) => visit(&self.scored(view, record, benchmark, &metrics)),
            None => Ok(()),
        })
    }

    fn scored<'b>(
        &self,
        view: &'b UnitView<'_>,
        record: &'b Record,
        benchmark: &'static dyn Benchmark,
        metrics: &'b [MetricDefinition],
    ) -> RecordedUnit<'b> {
        let outcome = &record.outcome;
        let verdict = (self.verdicts.as_ref())
            .filter(|_| view.settled().is_some())
            .and_then(|verdicts| verdicts.of(metrics, &view.unit, view.item, outcome));
        let score = |&scoring: &Scoring| {
            let score = view.settled().and_then(|_| benchmark.score(&view.item.target, outcome, scoring));
            let score = match &verdict {
                Some(verdict) => score.map(|score| verdict.add_to(score, scoring)),
                None => score,
            };
            (scoring, score)
        };
        let scores = self.scorings.iter().map(score).collect();
        let planned = view.configuration;
        RecordedUnit { planned, item: view.item, unit: &view.unit, record, metrics, scores, verdict }
    }
}

/// A recorded unit and its scores.
pub(super) struct RecordedUnit<'a> {
    pub(super) planned: &'a PlannedConfiguration,
    pub(super) item: &'a Item,
    pub(super) unit: &'a UnitId,
    pub(super) record: &'a Record,
    /// The metrics that are measured, the main one first.
    pub(super) metrics: &'a [MetricDefinition],
    /// Scores by scoring, the main one first; `None` for a fault.
    pub(super) scores: Vec<(Scoring, Option<ItemScore>)>,
    /// The judge's verdict, if there is one.
    pub(super) verdict: Option<JudgeVerdict>,
}

impl RecordedUnit<'_> {
    pub(super) fn outcome(&self) -> &Outcome {
        &self.record.outcome
    }

    pub(super) fn is_fault(&self) -> bool {
        self.outcome().is_fault()
    }

    /// Returns the contribution to every metric under every scoring, main scoring first. Metrics without a value (of
    /// an item that was not judged, or with weight 0) are omitted.
    pub(super) fn shares(&self) -> impl Iterator<Item = (Scoring, &MetricDefinition, Share)> {
        self.scores.iter().flat_map(|(scoring, score)| {
            let share = |metric| -> Option<(Scoring, &MetricDefinition, Share)> {
                let metric: &MetricDefinition = metric;
                Some((*scoring, metric, score.as_ref()?.share(metric.name)?))
            };
            self.metrics.iter().filter_map(share).filter(|(.., share)| share.denominator > 0.0)
        })
    }

    /// Returns the value of the metric under the main scoring.
    pub(super) fn main_value(&self, metric: &str) -> Option<f64> {
        let (scoring, _) = self.scores.first()?;
        let mut shares = self.shares();
        let (.., share) = shares.find(|(by, one, _)| by == scoring && one.name == metric)?;
        Some(share.value())
    }

    /// Whether the unit has the full score in the main metric, under the main scoring.
    pub(super) fn is_correct(&self) -> bool {
        let score = self.scores.first().and_then(|(_, score)| score.as_ref());
        score.is_some_and(|score| score.is_correct(self.metrics))
    }

    /// Returns the fault's message, if the unit faulted.
    pub(super) fn fault(&self) -> Option<String> {
        match &self.outcome().ending {
            Ending::Faulted(fault) => Some(fault.to_string()),
            Ending::Answered | Ending::GaveUp(_) => None,
        }
    }
}
