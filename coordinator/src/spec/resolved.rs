//! A specification without open questions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lumos_benchmarks::Scoring;
use lumos_tasks::{Behaviour, Device, Formulation, GenerationSettings, Placement, Role, Swap};
use serde::{Deserialize, Serialize};

use super::computing::MemorySize;
use super::partition::Partition;
use super::run_spec::Preset;
use super::selection::Selection;
use super::values::{BatchSize, FailOnError};

/// What a run does, completely; stands in the manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedSpec {
    /// The run's name.
    pub name: String,
    /// The preset it started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Benchmarks, each once.
    pub tasks: Vec<String>,
    /// Formulations, each once.
    pub formulation: Vec<Formulation>,
    /// Behaviours, each once.
    pub behaviour: Vec<Behaviour>,
    /// Scorings, each once; the first is the main one.
    pub scoring: Vec<Scoring>,
    /// Sets of models.
    pub models: Vec<ResolvedModels>,
    /// Seeds, each once.
    pub seed: Vec<u64>,
    /// Items by benchmark.
    pub items: BTreeMap<String, ItemChoice>,
    /// The part of these items that is run, where the run is one of several parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// The data folder; `None` for the samples built into the program.
    pub data: Option<PathBuf>,
    /// The folder that run folders go into.
    pub output_path: PathBuf,
    /// How replies are generated.
    pub generation: GenerationSettings,
    /// Backends by tool, where one was asked for.
    pub tools: BTreeMap<String, String>,
    /// How many requests are computed at a time.
    pub batch_size: BatchSize,
    /// Where models compute.
    pub device: Placement,
    /// Memory that models may take on each device, where it is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySize>,
    /// Whether models that do not fit into it together take turns.
    #[serde(default, skip_serializing_if = "is_default")]
    pub swap: Swap,
    /// Episodes driven side by side, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<u32>,
    /// The type models compute in, where one was asked for.
    pub dtype: Option<String>,
    /// Limits.
    pub limits: Limits,
    /// Whether malformed records are left out.
    pub skip_invalid: bool,
    /// The file of exemplars in front of WebShop's prompts; `None` for those that ship with the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exemplars: Option<PathBuf>,
    /// The browser in which the shop and pages of the web are visited, where no backend of theirs is named; `None` for
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub browser: Option<String>,
}

/// Limits of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Seconds an item may take.
    pub time_limit: Option<f64>,
    /// How many faulted items are tolerated.
    pub fail_on_error: FailOnError,
    /// How often a faulted item is tried again.
    pub retry_on_error: u32,
}

/// A model for every role the formulations need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResolvedModels(pub BTreeMap<Role, String>);

/// The items of one benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemChoice {
    /// All of them.
    All,
    /// The first so many, or all where there are fewer.
    First(u64),
    /// Exactly these.
    Chosen(Selection),
}

impl ItemChoice {
    /// Whether the item at a position is chosen.
    pub fn keeps(&self, position: u64) -> bool {
        match self {
            Self::All => true,
            Self::First(count) => position < *count,
            Self::Chosen(selection) => selection.contains(position),
        }
    }

    /// The position behind the last chosen one; `None` where all are chosen. Reading can stop there.
    pub fn end(&self) -> Option<u64> {
        match self {
            Self::All => None,
            Self::First(count) => Some(*count),
            Self::Chosen(selection) => Some(selection.last().map_or(0, |last| last.saturating_add(1))),
        }
    }
}

impl std::fmt::Display for ItemChoice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => formatter.write_str("all"),
            Self::First(count) => write!(formatter, "first {count}"),
            Self::Chosen(selection) => selection.fmt(formatter),
        }
    }
}

impl ResolvedSpec {
    /// The type to compute in on a device: what was asked for, else half precision on a GPU under the paper
    /// preset, else the backend's own choice.
    pub fn dtype_on(&self, device: Device) -> Option<&str> {
        match (&self.dtype, self.preset) {
            (Some(dtype), _) => Some(dtype),
            (None, Some(Preset::Paper)) if matches!(device, Device::Cuda(_)) => Some("f16"),
            (None, _) => None,
        }
    }

    /// The run's folder.
    pub fn folder(&self) -> PathBuf {
        self.output_path.join(&self.name)
    }
}

/// Whether a value is what is assumed without it.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
