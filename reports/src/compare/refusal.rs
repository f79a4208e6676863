//! Comparisons that are refused because their result would mislead.

use std::fmt;

use lumos_tasks::UnknownName;
use thiserror::Error;

use crate::display::thousands;
use crate::results::SettingsAxis;

/// Why runs are not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The runs have no benchmark in common.
    NoCommonBenchmark {
        /// Benchmarks of a.
        a: Vec<String>,
        /// Benchmarks of b.
        b: Vec<String>,
    },
    /// The configurations of a benchmark cannot be matched.
    NoMatch {
        /// The benchmark.
        benchmark: String,
    },
    /// The runs have different items of a benchmark, and neither set contains the other.
    ItemsDiffer {
        /// The benchmark.
        benchmark: String,
        /// Number of items of a.
        a: u64,
        /// Number of items of b.
        b: u64,
        /// Number of items that both have.
        common: u64,
    },
    /// Fewer than two items are settled on both sides.
    NothingSettled {
        /// The benchmark.
        benchmark: String,
    },
    /// A tool of one side answers from the benchmark's own items.
    AnswersFromItems {
        /// The benchmark.
        benchmark: String,
        /// The tool.
        tool: String,
    },
    /// The metric is not measured on both sides.
    NotMeasured {
        /// The benchmark.
        benchmark: String,
        /// The metric.
        metric: String,
    },
    /// The judges differ, so that a judged metric does not mean the same.
    JudgesDiffer {
        /// The metric.
        metric: String,
    },
    /// The scorings differ.
    ScoringDiffers {
        /// The benchmark.
        benchmark: String,
        /// Scoring of the baseline.
        baseline: String,
        /// Scoring of the candidate.
        candidate: String,
    },
    /// The baseline is a file that another version of the scoring wrote.
    VersionDiffers {
        /// The benchmark.
        benchmark: String,
        /// Version of the baseline.
        baseline: String,
        /// Version of the candidate.
        candidate: String,
    },
    /// The prompts of the same formulation and behaviour differ.
    PromptsDiffer {
        /// The benchmark and its settings.
        group: String,
    },
    /// The data files differ.
    DataDiffers {
        /// The benchmark.
        benchmark: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommonBenchmark { a, b } => {
                write!(formatter, "no common benchmark: {} and {}", a.join(", "), b.join(", "))
            }
            Self::NoMatch { benchmark } => {
                write!(formatter, "{benchmark}: no configurations with the same formulation and behaviour")
            }
            Self::ItemsDiffer { benchmark, a, b, common } => write!(
                formatter,
                "{benchmark}: different items: {} and {} items, {} in common",
                thousands(*a),
                thousands(*b),
                thousands(*common)
            ),
            Self::NothingSettled { benchmark } => {
                write!(formatter, "{benchmark}: fewer than two items are settled on both sides")
            }
            Self::AnswersFromItems { benchmark, tool } => write!(
                formatter,
                "{benchmark}: tool {tool} of one side was made from the benchmark's own items and may contain their answers"
            ),
            Self::NotMeasured { benchmark, metric } => {
                write!(formatter, "{benchmark}: metric {metric} is not measured on both sides")
            }
            Self::JudgesDiffer { metric } => {
                write!(formatter, "metric {metric}: the judge or its prompt differs")
            }
            Self::VersionDiffers { benchmark, baseline, candidate } => write!(
                formatter,
                "{benchmark}: the baseline has version {baseline} of the scoring, this program version {candidate}"
            ),
            Self::ScoringDiffers { benchmark, baseline, candidate } => {
                write!(
                    formatter,
                    "{benchmark}: the baseline has {baseline} scoring, the run {candidate} scoring"
                )
            }
            Self::PromptsDiffer { group } => write!(formatter, "{group}: the prompts differ"),
            Self::DataDiffers { benchmark } => write!(formatter, "{benchmark}: the data files differ"),
        }
    }
}

impl Refusal {
    /// Returns what to do about it, if there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::ItemsDiffer { .. } => {
                Some("run both on the same items, or compare without pairing: --unpaired")
            }
            Self::PromptsDiffer { .. } => Some("accept the difference: --allow prompts"),
            Self::DataDiffers { .. } => Some("accept the difference: --allow data"),
            Self::ScoringDiffers { .. } => Some("select the baseline's scoring with --scoring"),
            Self::VersionDiffers { .. } => Some("write the baseline again with --save-baseline"),
            _ => None,
        }
    }
}

/// Error of a comparison.
#[derive(Debug, Error)]
pub enum CompareError {
    /// The comparison is refused, for all of these reasons.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  "))]
    Refused(Vec<Refusal>),
    /// Several settings vary, so that it is unclear what to compare.
    #[error("several settings vary: {}", .axes.iter().map(|axis| axis.name()).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// The axes.
        axes: Vec<SettingsAxis>,
        /// Whether configurations of one run are compared.
        within_run: bool,
    },
    /// Several runs are compared, but an axis of one run is selected.
    #[error("--by {axis} compares the configurations of one run, but {runs} runs are given")]
    SeveralRuns {
        /// The axis.
        axis: SettingsAxis,
        /// Number of runs.
        runs: usize,
    },
    /// Nothing varies in the only run.
    #[error("nothing to compare: run {run} has no settings that vary")]
    NothingVaries {
        /// The run.
        run: String,
    },
    /// A filter matches no configuration.
    #[error("run {run} has no configuration with {axis} `{value}`: expected one of {known}")]
    UnknownValue {
        /// The run.
        run: String,
        /// The axis.
        axis: SettingsAxis,
        /// The value.
        value: String,
        /// The values that the run has.
        known: String,
    },
    /// An item is not found, or several benchmarks have one of this name.
    #[error("item `{item}` {}", found(.benchmarks))]
    UnknownItem {
        /// The item.
        item: String,
        /// The benchmarks that have one.
        benchmarks: Vec<String>,
    },
    /// No compared benchmark has the metric.
    #[error(transparent)]
    UnknownMetric(UnknownName),
}

fn found(benchmarks: &[String]) -> String {
    match benchmarks {
        [] => "not found".to_owned(),
        several => format!("found in several benchmarks: {}", several.join(", ")),
    }
}

impl CompareError {
    /// Returns the refusal that the hint is about.
    pub fn hinted(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusals) => refusals.iter().find(|refusal| refusal.hint().is_some()),
            _ => None,
        }
    }

    /// Returns a hint, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused(_) => self.hinted()?.hint().map(str::to_owned),
            Self::Ambiguous { axes, within_run: true } => {
                let first = axes.first()?.name();
                let rest = axes.get(1).map(|axis| format!(", or keep one value with --only {axis}=<VALUE>"));
                Some(format!("select the axis with --by {first}{}", rest.unwrap_or_default()))
            }
            Self::Ambiguous { axes, within_run: false } => {
                Some(format!("keep one value with --only {}=<VALUE>", axes.first()?))
            }
            Self::SeveralRuns { axis, .. } => {
                Some(format!("pass one run, or keep one value with --only {axis}=<VALUE>"))
            }
            Self::NothingVaries { .. } => Some("pass a second run to compare with".to_owned()),
            Self::UnknownItem { benchmarks, item } => Some(match benchmarks.first() {
                Some(benchmark) => format!("name the benchmark: {benchmark}:{item}"),
                None => "pass the item's index (counted from 0) or its name in the data set".to_owned(),
            }),
            Self::UnknownValue { .. } | Self::UnknownMetric(_) => None,
        }
    }
}
