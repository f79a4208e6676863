//! Data of a report.

use lumos_benchmarks::{Estimate, MetricKind, Scoring, Unit};
use serde::Serialize;

use crate::computing::{Computing, WorkerComputing};
use crate::judge::JudgeReport;
use crate::ledger::Ledger;
use crate::manifest::Manifest;

use super::attribution::Attribution;
use super::usage::TokenTotals;

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The manifest.
    pub manifest: Manifest,
    /// Results of each configuration, in the manifest's order.
    pub configurations: Vec<ConfigurationReport>,
    /// Ledger of all units.
    pub total: Ledger,
    /// Number of outcomes that were dropped because their unit was already settled.
    pub duplicates: u64,
    /// How sessions computed the models in their own process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub computing: Vec<Computing>,
    /// How workers of a queue computed the models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerComputing>,
    /// Seconds spent dispatching and recording units, over all sessions, without planning and loading models.
    /// `None` if nothing was recorded, or if the version that recorded it did not measure the time.
    pub seconds: Option<f64>,
    /// Figures of the judge, if the run was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeReport>,
}

impl Report {
    /// Settled units and tokens per second of [`Report::seconds`].
    pub fn throughput(&self) -> Option<(f64, f64)> {
        let seconds = self.seconds.filter(|seconds| *seconds > 0.0)?;
        let tokens = |usage: &TokenTotals| usage.prompt_tokens + usage.completion_tokens;
        let tokens: u64 = self.configurations.iter().map(|one| tokens(&one.usage)).sum();
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        let rate = |count: u64| count as f64 / seconds;
        Some((rate(self.total.settled()), rate(tokens)))
    }

    /// The main scoring: the first one requested.
    pub fn main_scoring(&self) -> Option<Scoring> {
        self.configurations.first()?.scores.first().map(|scores| scores.scoring)
    }
}

/// Results of one configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfigurationReport {
    /// Name for display.
    pub label: String,
    /// The benchmark's name.
    pub benchmark: String,
    /// Name of the benchmark in reports.
    pub title: String,
    /// Numbers of units by state.
    pub ledger: Ledger,
    /// Figures, by scoring.
    pub scores: Vec<ScoringReport>,
    /// Numbers of units by cause, under the main scoring.
    pub attribution: Attribution,
    /// Failed components in faulted units, most frequent first.
    pub faults: Vec<(String, u64)>,
    /// The most frequent fault messages, most frequent first.
    pub fault_messages: Vec<FaultMessage>,
    /// Token counts and durations.
    pub usage: TokenTotals,
    /// Label of its groups.
    pub group_label: Option<String>,
    /// The first items that are not correct.
    pub examples: Vec<Example>,
}

impl ConfigurationReport {
    /// Returns the main metric under the main scoring.
    pub fn main(&self) -> Option<&MetricReport> {
        self.scores.first()?.metrics.first()
    }
}

/// A fault message and its frequency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultMessage {
    /// The failed component and the cause, shortened.
    pub message: String,
    /// Number of units whose latest attempt ended with it.
    pub count: u64,
}

/// Figures under one scoring.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoringReport {
    /// The scoring.
    pub scoring: Scoring,
    /// The benchmark's metrics, with the main one first.
    pub metrics: Vec<MetricReport>,
}

/// Figure of one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricReport {
    /// The metric.
    pub metric: String,
    /// Possible values of an item.
    #[serde(flatten)]
    pub kind: MetricKind,
    /// Unit in which the figure is shown.
    pub unit: Unit,
    /// Whether higher values are better.
    pub higher_is_better: bool,
    /// Figure over the settled units; `None` if there are none.
    pub estimate: Option<Estimate>,
    /// Figure if every faulted unit had the lowest value, and if every one had the highest.
    pub bounds: Option<(f64, f64)>,
    /// Comparison with published figures of the same formulation.
    pub published: Vec<PublishedComparison>,
    /// Figure by group.
    pub groups: Vec<GroupReport>,
}

/// Comparison with a published figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedComparison {
    /// The measured system.
    pub system: String,
    /// The publication.
    pub source: String,
    /// The published figure in percent.
    pub percent: f64,
    /// Difference in percentage points (lumos minus published), if they are comparable.
    pub points: Option<f64>,
    /// Whether the published figure lies within the 95 % interval, if they are comparable.
    pub inside: Option<bool>,
    /// Why they are not comparable: differences from the published items and settings, most important first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<String>,
}

/// Figure of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupReport {
    /// The group.
    pub group: String,
    /// The figure.
    pub estimate: Estimate,
}

/// An item that is not correct, as an example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    /// Position of the item.
    pub item: u64,
    /// Name of the item.
    pub name: Option<String>,
    /// First digits of the unit's identity.
    pub unit: String,
    /// The task.
    pub task: String,
    /// The prediction.
    pub prediction: Option<String>,
    /// The gold answer.
    pub gold: String,
    /// The cause.
    pub cause: String,
    /// Details, if there are any.
    pub detail: Option<String>,
}
