//! The resolved specification.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lumos_benchmarks::task_file::TaskFile;
use lumos_benchmarks::{Benchmark, Scoring};
use lumos_tasks::{BackendChoice, Behaviour, Device, Formulation, GenerationSettings, Placement, Role, Swap};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::computing::MemorySize;
use super::partition::Partition;
use super::rules::{ConfigurationFilter, DispatchOrder, OverrideRule, is_default};
use super::run_spec::Preset;
use super::selection::Selection;
use super::values::{BatchSize, FailOnError};

/// Complete specification of a run; part of the manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedSpec {
    /// Name of the run.
    pub name: String,
    /// The preset, if one was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Benchmarks, without duplicates.
    pub tasks: Vec<String>,
    /// Task files by the names of their benchmarks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub task_files: BTreeMap<String, TaskFile>,
    /// Versions of the benchmarks that the program adds to the built-in ones, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub added_benchmarks: BTreeMap<String, u32>,
    /// Formulations, without duplicates.
    pub formulation: Vec<Formulation>,
    /// Behaviours, without duplicates.
    pub behaviour: Vec<Behaviour>,
    /// Scorings, without duplicates; the first is the main one.
    pub scoring: Vec<Scoring>,
    /// Sets of models: names by role, for all roles that the formulations need.
    pub models: Vec<BTreeMap<Role, String>>,
    /// Seeds, without duplicates.
    pub seed: Vec<u64>,
    /// Items by benchmark.
    pub items: BTreeMap<String, ItemChoice>,
    /// The part of these items that is run, if the run is one of several parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// The data folder; `None` for the built-in samples.
    pub data: Option<PathBuf>,
    /// The folder that contains run folders.
    pub output_path: PathBuf,
    /// Generation settings.
    pub generation: GenerationSettings,
    /// Backends by tool, if specified.
    pub tools: BTreeMap<String, String>,
    /// Number of requests computed at a time.
    pub batch_size: BatchSize,
    /// Devices of the models.
    pub device: Placement,
    /// Memory limit for models on each device, if specified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySize>,
    /// Whether models that do not fit in memory together take turns.
    #[serde(default, skip_serializing_if = "is_default")]
    pub swap: Swap,
    /// Number of episodes driven at the same time, if specified.
    #[serde(default, rename = "places", skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Data type of the models, if specified.
    pub dtype: Option<String>,
    /// Which implementation computes the models of this process.
    #[serde(default, skip_serializing_if = "is_default")]
    pub backend: BackendChoice,
    /// Limits.
    pub limits: RunLimits,
    /// Whether malformed records are skipped.
    pub skip_invalid: bool,
    /// File with exemplars for WebShop's prompts; `None` for those included in the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exemplars: Option<PathBuf>,
    /// Browser for the shop and web pages, if no backend is specified for them; `None` for no browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub browser: Option<String>,
    /// Template of conversations by name or path; `None` for Lumos's own layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_template: Option<String>,
    /// Number of worked examples before each conversation, if specified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exemplars_per_prompt: Option<u8>,
    /// Configurations of the matrix that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<ConfigurationFilter>,
    /// Other settings for some configurations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideRule>,
    /// Order in which units are dispatched.
    #[serde(default, skip_serializing_if = "is_default")]
    pub order: DispatchOrder,
}

/// Limits of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RunLimits {
    /// Time limit per item in seconds.
    pub time_limit: Option<f64>,
    /// Number of faulted items that are tolerated.
    pub fail_on_error: FailOnError,
    /// Number of retries of a faulted item.
    pub retry_on_error: u32,
}

/// The items of one benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemChoice {
    /// All items.
    All,
    /// The first items: this many, or all if there are fewer.
    First(u64),
    /// Exactly these items.
    Chosen(Selection),
}

impl ItemChoice {
    /// Whether the item at a position is selected.
    pub(crate) fn keeps(&self, position: u64) -> bool {
        match self {
            Self::All => true,
            Self::First(count) => position < *count,
            Self::Chosen(selection) => selection.contains(position),
        }
    }

    /// Position after the last selected item, where reading can stop; `None` if all are selected.
    pub(crate) fn end(&self) -> Option<u64> {
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
    /// Finds a benchmark of the run by name: that of a task file, otherwise one of this program.
    ///
    /// # Errors
    /// If this program does not have it, or has another version of it.
    pub fn benchmark(&self, name: &str) -> Result<&'static dyn Benchmark, MissingBenchmark> {
        if let Some(file) = self.task_files.get(name) {
            return Ok(file.benchmark());
        }
        let found = lumos_benchmarks::find(name);
        let (name, planned) = (name.to_owned(), self.added_benchmarks.get(name).copied());
        match (found, planned) {
            (Some(found), planned) if found.version() == planned => Ok(found),
            (None, None) => Err(MissingBenchmark::Unknown(name)),
            (None, Some(version)) => Err(MissingBenchmark::NotAdded { name, version }),
            (Some(found), planned) => {
                let shown = |version: Option<u32>| {
                    version
                        .map_or_else(|| "the built-in one".to_owned(), |version| format!("version {version}"))
                };
                Err(MissingBenchmark::Differs {
                    name,
                    found: shown(found.version()),
                    planned: shown(planned),
                })
            }
        }
    }

    /// Checks that this program has the benchmarks of the run, for commands that execute or score it.
    ///
    /// # Errors
    /// See [`benchmark`](Self::benchmark).
    pub fn check_benchmarks(&self) -> Result<(), MissingBenchmark> {
        self.tasks.iter().try_for_each(|task| self.benchmark(task).map(drop))
    }

    /// Data type for a device: the specified one, otherwise half precision on a GPU with the paper preset,
    /// otherwise `None` (the backend's default).
    pub fn dtype_on(&self, device: Device) -> Option<&str> {
        match (&self.dtype, self.preset) {
            (Some(dtype), _) => Some(dtype),
            (None, Some(Preset::Paper)) if matches!(device, Device::Cuda(_)) => Some("f16"),
            (None, _) => None,
        }
    }

    /// Returns the run's folder.
    pub fn folder(&self) -> PathBuf {
        self.output_path.join(&self.name)
    }
}

/// Why a benchmark of a run cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MissingBenchmark {
    /// The benchmark was built in when the run was made.
    #[error("unknown benchmark `{0}`: use the version of lumos that made the run")]
    Unknown(String),
    /// Another program added the benchmark.
    #[error(
        "benchmark `{name}`, version {version}, is not part of this program: the program that made the run adds it; \
         use that program"
    )]
    NotAdded {
        /// The benchmark.
        name: String,
        /// Its version in the run.
        version: u32,
    },
    /// The program has another version.
    #[error(
        "benchmark `{name}`: this program has {found}, the run was made with {planned}; use the program that made the \
         run, or start another run with --name"
    )]
    Differs {
        /// The benchmark.
        name: String,
        /// The version of this program.
        found: String,
        /// The version of the run.
        planned: String,
    },
    /// The program has another version of the benchmark's family in Rust, or other fields.
    #[error(
        "benchmark `{name}`: family `{family}` (version {version} in this program) or fields differ from those of the \
         run; use the program that made the run, or start another run with --name"
    )]
    FamilyDiffers {
        /// The benchmark.
        name: String,
        /// The family.
        family: &'static str,
        /// The version of this program.
        version: u32,
    },
}
