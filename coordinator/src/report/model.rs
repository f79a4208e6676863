//! The report as data.

use lumos_benchmarks::{Estimate, MetricKind, Scoring, Unit};
use serde::Serialize;

use crate::computing::{Computing, WorkerComputing};
use crate::judge::JudgeReport;
use crate::ledger::Ledger;
use crate::manifest::Manifest;

use super::attribution::Attribution;
use super::usage::Usage;

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What was asked.
    pub manifest: Manifest,
    /// One entry for each configuration, in the manifest's order.
    pub configurations: Vec<ConfigurationReport>,
    /// All units together.
    pub total: Ledger,
    /// Outcomes that were dropped because their unit was settled already.
    pub duplicates: u64,
    /// How its sessions computed the models, where they did in their own process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub computing: Vec<Computing>,
    /// How workers of a queue computed them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerComputing>,
    /// Seconds in which units were dispatched and recorded, all sessions together: loading models and planning are not
    /// among them. `None` where nothing was recorded, or by a version that did not measure it.
    pub seconds: Option<f64>,
    /// The pass of judging, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeReport>,
}

impl Report {
    /// Settled units and tokens per second of [`Report::seconds`].
    pub fn throughput(&self) -> Option<(f64, f64)> {
        let seconds = self.seconds.filter(|seconds| *seconds > 0.0)?;
        let tokens = |usage: &Usage| usage.prompt_tokens + usage.completion_tokens;
        let tokens: u64 = self.configurations.iter().map(|one| tokens(&one.usage)).sum();
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        let rate = |count: u64| count as f64 / seconds;
        Some((rate(self.total.settled()), rate(tokens)))
    }

    /// The main scoring: the first that was asked for.
    pub fn main_scoring(&self) -> Option<Scoring> {
        self.configurations.first()?.scores.first().map(|scores| scores.scoring)
    }
}

/// What came of one configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfigurationReport {
    /// Its name for people.
    pub label: String,
    /// The benchmark's name.
    pub benchmark: String,
    /// The benchmark's name in reports.
    pub title: String,
    /// Where its units are.
    pub ledger: Ledger,
    /// The figures, by scoring.
    pub scores: Vec<ScoringReport>,
    /// What every planned unit came to, under the main scoring.
    pub attribution: Attribution,
    /// What failed in units that have faulted, most frequent first.
    pub faults: Vec<(String, u64)>,
    /// What they said, most frequent first; the most frequent ones only.
    pub fault_messages: Vec<FaultMessage>,
    /// Tokens and time.
    pub usage: Usage,
    /// What its groups are called.
    pub group_label: Option<String>,
    /// The first items that are not correct.
    pub examples: Vec<Example>,
}

impl ConfigurationReport {
    /// The main metric under the main scoring.
    pub fn main(&self) -> Option<&MetricReport> {
        self.scores.first()?.metrics.first()
    }
}

/// A message of faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultMessage {
    /// What failed and why, shortened.
    pub message: String,
    /// Units whose latest attempt ended with it.
    pub count: u64,
}

/// Figures under one scoring.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoringReport {
    /// The scoring.
    pub scoring: Scoring,
    /// The benchmark's metrics, the main one first.
    pub metrics: Vec<MetricReport>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricReport {
    /// The metric.
    pub metric: String,
    /// What an item's value can be.
    #[serde(flatten)]
    pub kind: MetricKind,
    /// How the figure is shown.
    pub unit: Unit,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// The figure over the settled units; `None` before the first.
    pub estimate: Option<Estimate>,
    /// The figure if every faulted unit had the least value, and if every one had the greatest.
    pub bounds: Option<(f64, f64)>,
    /// How far it is from published figures of the same formulation.
    pub published: Vec<PublishedComparison>,
    /// The figure by group.
    pub groups: Vec<GroupReport>,
}

/// A published figure beside ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedComparison {
    /// What was measured.
    pub system: String,
    /// Where it was published.
    pub source: String,
    /// The figure in percent.
    pub percent: f64,
    /// Ours minus theirs, in percentage points, where they may be compared.
    pub points: Option<f64>,
    /// Whether theirs lies within our 95 % interval, where they may be compared.
    pub inside: Option<bool>,
    /// Why they may not: what differs from the published items and settings, most important first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<String>,
}

/// The figure of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupReport {
    /// The group.
    pub group: String,
    /// The figure.
    pub estimate: Estimate,
}

/// An item that is not correct, for reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    /// The item's position.
    pub item: u64,
    /// The item's name.
    pub name: Option<String>,
    /// The unit's first digits.
    pub unit: String,
    /// The task.
    pub task: String,
    /// The prediction.
    pub prediction: Option<String>,
    /// The gold answer.
    pub gold: String,
    /// What it came to.
    pub cause: String,
    /// What happened, where something did.
    pub detail: Option<String>,
}
