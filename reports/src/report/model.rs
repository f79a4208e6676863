//! Data of a report.

use std::collections::BTreeMap;

use lumos_benchmarks::{Estimate, MetricKind, Scoring, Unit};
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::{Computing, WorkerComputing};
use serde::Serialize;

use crate::judge::JudgeReport;
use crate::ledger::{Ledger, LedgerError};
use crate::results::{Cause, GroupFigure, Matrix};
use crate::trajectory::item_argument;

use super::usage::TokenTotals;

/// Results of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The manifest.
    pub(crate) manifest: Manifest,
    /// Results of each configuration, in the manifest's order.
    pub configurations: Vec<ConfigurationReport>,
    /// Ledger of all units.
    pub total: Ledger,
    /// Number of outcomes that were dropped because their unit was already settled.
    pub(crate) duplicates: u64,
    /// How sessions computed the models in their own process.
    pub(crate) computing: Vec<Computing>,
    /// How workers of a queue computed the models.
    pub(crate) workers: Vec<WorkerComputing>,
    /// Address of the queue whose workers executed the latest session; `None` for a session in one process.
    pub queue: Option<String>,
    /// Whether another process was executing the run when its checkpoint was read.
    pub in_progress: bool,
    /// Seconds spent dispatching and recording units, over all sessions, without planning and loading models.
    /// `None` if nothing was recorded, or if the version that recorded it did not measure the time.
    pub(crate) seconds: Option<f64>,
    /// Figures of the judge, if the run was judged.
    pub(crate) judge: Option<JudgeReport>,
    /// Models and settings by benchmark, if the run has several or several seeds.
    pub(crate) matrix: Option<Matrix>,
    /// Figures pooled over seeds, for groups of at least two seeds.
    pub(crate) groups: Vec<GroupFigure>,
}

impl Report {
    /// Settled units and tokens per second of [`Report::seconds`].
    pub(crate) fn throughput(&self) -> Option<(f64, f64)> {
        let seconds = self.seconds.filter(|seconds| *seconds > 0.0)?;
        let tokens = |usage: &TokenTotals| usage.prompt_tokens + usage.completion_tokens;
        let tokens: u64 = self.configurations.iter().map(|one| tokens(&one.usage)).sum();
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        let rate = |count: u64| count as f64 / seconds;
        Some((rate(self.total.settled()), rate(tokens)))
    }

    /// Returns the benchmark of the first recorded item that is not correct, and the item as an argument of `lumos show`.
    pub fn first_failure(&self) -> Option<(String, String)> {
        self.configurations.iter().find_map(|configuration| {
            let Example { item, name, unit, .. } = configuration.examples.first()?;
            let benchmark = &configuration.benchmark;
            let item = item_argument(&self.manifest.spec, benchmark, *item, name.as_deref(), unit);
            Some((benchmark.clone(), item))
        })
    }

    /// Checks that the units of every configuration, and those of the whole run, add up.
    ///
    /// # Errors
    /// The first sum that does not balance.
    pub fn check(&self) -> Result<(), LedgerError> {
        self.total.check()?;
        self.configurations.iter().try_for_each(|configuration| configuration.ledger.check())
    }
}

/// Results of one configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigurationReport {
    /// Name for display.
    pub label: String,
    /// The benchmark's name.
    pub(crate) benchmark: String,
    /// Numbers of units by state.
    pub ledger: Ledger,
    /// Figures, by scoring.
    pub(crate) scores: Vec<ScoringReport>,
    /// Numbers of units by cause, under the main scoring. Their sum is the number of planned units.
    pub(crate) attribution: BTreeMap<Cause, u64>,
    /// Numbers of units whose stage failed, by cause and turn.
    pub(crate) failed_turns: BTreeMap<(Cause, u32), u64>,
    /// Failed components in faulted units, most frequent first.
    pub(crate) faults: Vec<(String, u64)>,
    /// The most frequent fault messages, most frequent first.
    pub(crate) fault_messages: Vec<FaultMessage>,
    /// Token counts and durations.
    pub(crate) usage: TokenTotals,
    /// The first items that are not correct.
    pub(crate) examples: Vec<Example>,
}

impl ConfigurationReport {
    /// Returns the main metric under the main scoring.
    pub(crate) fn main(&self) -> Option<&MetricReport> {
        self.scores.first()?.metrics.first()
    }

    /// Returns the value of the main metric under the main scoring, if any unit is settled.
    pub fn main_value(&self) -> Option<f64> {
        Some(self.main()?.estimate.as_ref()?.value)
    }
}

/// A fault message and its frequency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FaultMessage {
    /// The failed component and the cause, shortened.
    pub(crate) message: String,
    /// Number of units whose latest attempt ended with it.
    pub(crate) count: u64,
}

/// Figures under one scoring.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ScoringReport {
    /// The scoring.
    pub(crate) scoring: Scoring,
    /// The benchmark's metrics, with the main one first.
    pub(crate) metrics: Vec<MetricReport>,
}

/// Figure of one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MetricReport {
    /// The metric.
    pub(crate) metric: String,
    /// Possible values of an item.
    #[serde(flatten)]
    pub(crate) kind: MetricKind,
    /// Unit in which the figure is shown.
    pub(crate) unit: Unit,
    /// Whether higher values are better.
    pub(crate) higher_is_better: bool,
    /// Figure over the settled units; `None` if there are none.
    pub(crate) estimate: Option<Estimate>,
    /// Figure if every faulted unit had the lowest value, and if every one had the highest.
    pub(crate) bounds: Option<(f64, f64)>,
    /// Comparison with published figures of the same formulation.
    pub(crate) published: Vec<PublishedComparison>,
    /// Figure by group.
    pub(crate) groups: Vec<GroupReport>,
}

/// Comparison with a published figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PublishedComparison {
    /// The measured system.
    pub(crate) system: String,
    /// The publication.
    pub(crate) source: String,
    /// The published figure in percent.
    pub(crate) percent: f64,
    /// Difference in percentage points (lumos minus published), if they are comparable.
    pub(crate) points: Option<f64>,
    /// Whether the published figure lies within the 95 % interval, if they are comparable.
    pub(crate) inside: Option<bool>,
    /// Why they are not comparable: differences from the published items and settings, most important first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_compared: Vec<String>,
}

/// Figure of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GroupReport {
    /// The group.
    pub(crate) group: String,
    /// The figure.
    pub(crate) estimate: Estimate,
}

/// An item that is not correct, as an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Example {
    /// Position of the item.
    pub(crate) item: u64,
    /// Name of the item.
    pub(crate) name: Option<String>,
    /// First digits of the unit's identity.
    pub(crate) unit: String,
    /// The task.
    pub(crate) task: String,
    /// The prediction.
    pub(crate) prediction: Option<String>,
    /// The gold answer.
    pub(crate) gold: String,
    /// The cause.
    pub(crate) cause: String,
    /// Details, if there are any.
    pub(crate) detail: Option<String>,
}
