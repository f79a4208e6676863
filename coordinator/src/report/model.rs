//! The report as data.

use lumos_benchmarks::{Estimate, Scoring};
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
    /// The pass of judging, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeReport>,
}

impl Report {
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
    /// Whether more is better.
    pub higher_is_better: bool,
    /// The figure over the settled units; `None` before the first.
    pub estimate: Option<Estimate>,
    /// The figure if every faulted unit were wrong, and if every one were right.
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
    /// Ours minus theirs, in percentage points.
    pub points: Option<f64>,
    /// Whether theirs lies within our 95 % interval.
    pub inside: Option<bool>,
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
