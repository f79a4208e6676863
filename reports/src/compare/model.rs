//! Result of a comparison.

use std::path::PathBuf;

use lumos_benchmarks::Scoring;
use lumos_coordinator::manifest::RunIdentity;
use lumos_tasks::{ItemId, Step, UnitId};
use serde::Serialize;

use crate::results::MetricComparison;

/// All compared pairs of configurations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The first run, the baseline of every difference.
    pub a: RunReference,
    /// The scoring of all figures.
    pub scoring: Scoring,
    /// One entry per pair of configurations.
    pub comparisons: Vec<PairComparison>,
    /// What a reader must know before relying on a difference.
    pub warnings: Vec<String>,
}

/// A compared run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunReference {
    /// The run's name.
    pub run: String,
    /// The name shown.
    pub label: String,
    /// The run's identity.
    pub identity: RunIdentity,
    /// The run's folder, as given.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// Configurations of both sides that are compared, pooled over their seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairComparison {
    /// The run of b.
    pub b: RunReference,
    /// The benchmark's name.
    pub benchmark: String,
    /// The benchmark's title.
    #[serde(skip)]
    pub title: String,
    /// The settings of both sides: formulation and behaviour, without the axis that separates them.
    pub group: String,
    /// Names of the sides.
    pub pair: (String, String),
    /// Number of items that both runs have.
    pub items: u64,
    /// Whether items are compared one by one.
    pub paired: bool,
    /// Units that are not part of the figures.
    pub not_compared: NotCompared,
    /// Tokens, time and cost of both sides.
    pub usage: (SideUsage, SideUsage),
    /// The settings that differ.
    pub settings: Vec<SettingDifference>,
    /// The compared metrics, with the main one first.
    pub metrics: Vec<MetricComparison>,
    /// Items that a has right and b has wrong in the first metric, by position in a.
    pub newly_wrong: Vec<FlippedItem>,
    /// Items that a has wrong and b has right in the first metric, by position in a.
    pub newly_right: Vec<FlippedItem>,
    /// Items with the same result on both sides in the first metric, but another cause, number of turns or number of
    /// tokens, by position in a. With several seeds, the first settled one of each side counts.
    pub otherwise_different: Vec<FlippedItem>,
    /// Positions of the runs among the given ones.
    #[serde(skip)]
    pub(crate) sides: (usize, usize),
}

/// Numbers of items and units that are not part of the figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NotCompared {
    /// Items that only a has.
    pub a_only: u64,
    /// Items that only b has.
    pub b_only: u64,
    /// Faulted units of a among the common items.
    pub faulted_a: u64,
    /// Faulted units of b among the common items.
    pub faulted_b: u64,
    /// Outstanding units of a among the common items.
    pub outstanding_a: u64,
    /// Outstanding units of b among the common items.
    pub outstanding_b: u64,
}

/// What the settled units of a side took, per unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SideUsage {
    /// Mean number of prompt tokens.
    pub prompt_tokens: f64,
    /// Mean number of generated tokens.
    pub completion_tokens: f64,
    /// Mean seconds.
    pub seconds: f64,
    /// Mean cost in US dollars, if all models have a price.
    pub cost: Option<f64>,
}

/// A setting that differs between the sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingDifference {
    /// Its name.
    pub setting: String,
    /// Its value in a.
    pub a: String,
    /// Its value in b.
    pub b: String,
}

/// An item that differs between the sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlippedItem {
    /// Position in the data file of a, from 0.
    pub item: u64,
    /// Position in the data file of b, from 0.
    pub item_b: u64,
    /// The item as an argument of `lumos show` with the run of b.
    #[serde(skip)]
    pub(crate) argument_b: String,
    /// Identity of the item.
    pub id: ItemId,
    /// The data set's name of the item.
    pub name: Option<String>,
    /// The unit of a; with several seeds, that of the first with the item's result.
    pub unit_a: UnitId,
    /// The unit of b; with several seeds, that of the first with the item's result.
    pub unit_b: UnitId,
    /// The groups of the item, one per line, if the benchmark has groups.
    pub group: Option<String>,
    /// Cause of the result in a.
    pub cause_a: &'static str,
    /// Cause of the result in b.
    pub cause_b: &'static str,
    /// Planner turn in which a ended, from 1.
    pub turn_a: u16,
    /// Planner turn in which b ended, from 1.
    pub turn_b: u16,
    /// Texts from the checkpoints, if they were read.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub texts: Option<FlipTexts>,
}

/// Texts of an item that differs between the sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlipTexts {
    /// The task.
    pub task: String,
    /// The gold answer.
    pub gold: String,
    /// The prediction of a.
    pub prediction_a: Option<String>,
    /// The prediction of b.
    pub prediction_b: Option<String>,
    /// The steps of a, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trajectory_a: Option<Vec<Step>>,
    /// The steps of b, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trajectory_b: Option<Vec<Step>>,
}
