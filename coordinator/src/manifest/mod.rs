//! Manifest of a run: the resolved request, written before anything runs.
//!
//! A [`Manifest`] contains the specification, the configurations, models and data with their hashes, and
//! versions. Its [`RunIdentity`] decides whether an existing folder contains the same run
//! ([`Manifest::open_or_create`]); if it does not, the error lists the differences.

pub(crate) mod compare;
mod file;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use lumos_benchmarks::Benchmark;
use lumos_tasks::{Configuration, ContentHash, ItemId, ModelIdentity};
use serde::{Deserialize, Serialize};

use crate::plan::PlannedCell;
use crate::spec::{MissingBenchmark, ResolvedSpec, StopRule, Stopped, is_default};

pub(crate) use file::FILE_NAME;
pub use {crate::identity::RunIdentity, compare::settings, file::ManifestError};

/// Layout version of the file.
const SCHEMA: u32 = 1;

/// The manifest of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Layout version of this file.
    pub(crate) schema: u32,
    /// Hash of configurations and selected items.
    pub identity: RunIdentity,
    /// Identity of the whole run, if this run is one of its parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) whole: Option<RunIdentity>,
    /// When the run was planned.
    pub created: Timestamp,
    /// The resolved specification.
    pub spec: ResolvedSpec,
    /// The cells of the matrix, in the order of reports.
    pub configurations: Vec<PlannedConfiguration>,
    /// The models, with their files.
    pub models: Vec<ModelRecord>,
    /// The data, by benchmark in the order of the tasks.
    pub data: Vec<DataRecord>,
    /// Hash of the prompt texts, by benchmark.
    pub(crate) prompts: BTreeMap<String, ContentHash>,
    /// Versions of the components that affect results.
    pub versions: BTreeMap<String, String>,
    /// Git revision of the source, if known.
    pub git_revision: Option<String>,
    /// The machine that planned the run.
    pub machine: MachineInfo,
}

/// One cell of the matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedConfiguration {
    /// Hash of everything that can affect a trajectory.
    pub identity: ContentHash,
    /// Unique name for display.
    pub label: String,
    /// Number of planned units.
    pub planned: u64,
    /// Position after its last item, if it has fewer items than its benchmark has in this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Priority of its units; higher ones are dispatched first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// When it ends before its last item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopRule>,
    /// Set once it ended before its last item. Number and positions of its units are those until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// The configuration.
    pub configuration: Arc<Configuration>,
}

impl PlannedConfiguration {
    /// Whether the item at a position of the benchmark's data is one of the configuration's.
    pub fn has_item(&self, position: u64) -> bool {
        let end = self.stopped.as_ref().map(|stopped| stopped.end);
        [self.limit, end].into_iter().flatten().all(|end| position < end)
    }
}

/// A model and its files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRecord {
    /// Name as given, and hash of its content.
    #[serde(flatten)]
    pub identity: ModelIdentity,
    /// Its files, if it has any.
    pub files: Vec<FileRecord>,
}

/// A file of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Path within the model's folder.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 of the content.
    pub sha256: ContentHash,
}

/// The data of one benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRecord {
    /// The benchmark.
    pub benchmark: String,
    /// Where it was read from: a path, or `built-in samples`.
    pub source: String,
    /// SHA-256 of the data.
    pub sha256: ContentHash,
    /// Number of records read.
    pub records: u64,
    /// Number of selected items.
    pub selected: u64,
    /// Number of malformed records that were skipped.
    pub invalid: u64,
    /// Hash of the selected items' identities, in order.
    pub items: ContentHash,
}

/// The machine a run was planned on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// Number of cores available to this process.
    pub cores: usize,
    /// The operating system.
    pub os: String,
    /// The processor architecture.
    pub architecture: String,
}

/// The data of one benchmark, found by planning.
#[derive(Debug, Clone)]
pub struct PlannedData<'a> {
    /// The benchmark.
    pub benchmark: &'a str,
    /// Where it was read from.
    pub source: String,
    /// SHA-256 of the data.
    pub sha256: ContentHash,
    /// Number of records read.
    pub records: u64,
    /// Number of malformed records that were skipped.
    pub invalid: u64,
    /// Positions and identities of the selected items, in order; of all parts if the specification has a partition.
    pub items: &'a [(u64, ItemId)],
}

/// Input of [`Manifest::new`].
#[derive(Debug, Clone)]
pub struct ManifestParts<'a> {
    /// The specification.
    pub spec: ResolvedSpec,
    /// The cells of the matrix.
    pub configurations: Vec<PlannedCell>,
    /// The models.
    pub models: Vec<ModelRecord>,
    /// The data, by benchmark.
    pub data: Vec<PlannedData<'a>>,
    /// The revision of the source.
    pub git_revision: Option<String>,
    /// The time of planning.
    pub created: Timestamp,
}

impl Manifest {
    /// Creates a manifest.
    pub fn new(mut parts: ManifestParts<'_>) -> Self {
        for cell in &mut parts.configurations {
            // A limit that all items are below has no effect.
            let data = parts.data.iter().find(|data| data.benchmark == cell.configuration.benchmark);
            let last = data.and_then(|data| data.items.last()).map(|(position, _)| *position);
            cell.limit = cell.limit.filter(|limit| last.is_some_and(|last| last >= *limit));
        }
        let partition = parts.spec.partition;
        let kept = |items: &[(u64, ItemId)]| -> Vec<(u64, ItemId)> {
            let is_kept =
                |(_, item): &&(u64, ItemId)| partition.is_none_or(|partition| partition.keeps(item));
            items.iter().filter(is_kept).cloned().collect()
        };
        let ids =
            |items: &[(u64, ItemId)]| -> Vec<ItemId> { items.iter().map(|(_, id)| id.clone()).collect() };
        let cells = || parts.configurations.iter().map(|cell| (&cell.configuration, cell.limit));
        let whole = partition.map(|_| {
            RunIdentity::of(cells(), parts.data.iter().map(|data| (data.benchmark, ids(data.items))))
        });
        let items: Vec<Vec<(u64, ItemId)>> = parts.data.iter().map(|data| kept(data.items)).collect();
        let by_benchmark = parts.data.iter().zip(&items);
        let identity =
            RunIdentity::of(cells(), by_benchmark.clone().map(|(data, items)| (data.benchmark, ids(items))));
        let data: Vec<DataRecord> = by_benchmark
            .map(|(data, items)| DataRecord {
                benchmark: data.benchmark.to_owned(),
                source: data.source.clone(),
                sha256: data.sha256.clone(),
                records: data.records,
                selected: items.len() as u64,
                invalid: data.invalid,
                items: ContentHash::of_json(&ids(items)),
            })
            .collect();
        let counts = |cell: &PlannedCell| {
            let at = data.iter().position(|data| data.benchmark == cell.configuration.benchmark);
            let items = at.and_then(|at| items.get(at)).map(Vec::as_slice).unwrap_or_default();
            let end = cell.limit.map_or(items.len(), |limit| items.partition_point(|(at, _)| *at < limit));
            end as u64
        };
        let planned_units: Vec<u64> = parts.configurations.iter().map(counts).collect();
        let prompts = parts
            .configurations
            .iter()
            .map(|PlannedCell { configuration, .. }| {
                (configuration.benchmark.clone(), configuration.prompts.clone())
            })
            .collect();
        Self {
            schema: SCHEMA,
            identity,
            whole,
            created: parts.created,
            versions: versions(&parts.spec),
            spec: parts.spec,
            configurations: planned(parts.configurations, &planned_units),
            models: parts.models,
            data,
            prompts,
            git_revision: parts.git_revision,
            machine: MachineInfo {
                cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
                os: std::env::consts::OS.to_owned(),
                architecture: std::env::consts::ARCH.to_owned(),
            },
        }
    }

    /// Takes over the specification of the same run from another manifest, with settings that may change when a run is
    /// continued, and with the places of models and tools: the same content may be somewhere else now.
    pub fn adopt(&mut self, other: Self) {
        let others: HashMap<&ContentHash, &PlannedConfiguration> =
            other.configurations.iter().map(|planned| (&planned.identity, planned)).collect();
        for planned in &mut self.configurations {
            let other = others.get(&planned.identity);
            if let Some(other) = other {
                planned.configuration = Arc::clone(&other.configuration);
                planned.label.clone_from(&other.label);
            }
            planned.priority = other.map_or(0, |other| other.priority);
            let stop = other.and_then(|other| other.stop.clone());
            // A configuration that another rule stopped continues.
            if planned.stop != stop
                && let Some(stopped) = planned.stopped.take()
            {
                planned.planned = stopped.units;
            }
            planned.stop = stop;
        }
        self.models = other.models;
        self.spec = other.spec;
    }

    /// Ends configurations before their last items: position of each configuration, and why it ended. Returns whether
    /// there are any.
    pub fn stop(&mut self, stopped: Vec<(usize, Stopped)>) -> bool {
        let any = !stopped.is_empty();
        for (position, stopped) in stopped {
            if let Some(planned) = self.configurations.get_mut(position) {
                planned.planned = stopped.after;
                planned.stopped = Some(stopped);
            }
        }
        any
    }

    /// Checks that this program has the benchmarks of the run, and the same version of their families in Rust, for
    /// commands that execute it.
    ///
    /// # Errors
    /// See [`ResolvedSpec::benchmark`]; also if a family differs.
    pub fn check_program(&self) -> Result<(), MissingBenchmark> {
        self.spec.tasks.iter().try_for_each(|task| {
            let benchmark = self.spec.benchmark(task)?;
            self.prompts.get(task).map_or(Ok(()), |prompts| check_family(benchmark, prompts))
        })
    }

    /// Returns the data of a benchmark.
    pub fn data_of(&self, benchmark: &str) -> Option<&DataRecord> {
        self.data.iter().find(|data| data.benchmark == benchmark)
    }

    /// Number of planned units of all configurations.
    pub fn planned(&self) -> u64 {
        self.configurations.iter().map(|configuration| configuration.planned).sum()
    }
}

/// Checks that the family in Rust of a benchmark, if it has one, has the prompts of a run.
fn check_family(benchmark: &dyn Benchmark, prompts: &ContentHash) -> Result<(), MissingBenchmark> {
    match benchmark.definition().and_then(|definition| definition.added_family) {
        Some(family) if benchmark.prompts_hash() != *prompts => Err(MissingBenchmark::FamilyDiffers {
            name: benchmark.name().to_owned(),
            family: family.name,
            version: family.version,
        }),
        _ => Ok(()),
    }
}

/// Returns the versions of lumos and of the benchmarks that the program adds.
fn versions(spec: &ResolvedSpec) -> BTreeMap<String, String> {
    let added = spec.added_benchmarks.iter();
    let mut versions: BTreeMap<_, _> =
        added.map(|(name, version)| (format!("benchmark {name}"), version.to_string())).collect();
    versions.insert("lumos".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    versions
}

fn planned(cells: Vec<PlannedCell>, planned_units: &[u64]) -> Vec<PlannedConfiguration> {
    let mut uses: HashMap<String, u32> = HashMap::new();
    for cell in &cells {
        *uses.entry(cell.configuration.label()).or_default() += 1;
    }
    cells
        .into_iter()
        .zip(planned_units)
        .map(|(PlannedCell { configuration, limit, priority, stop }, &planned)| {
            let mut label = configuration.label();
            if uses.get(&label).is_some_and(|uses| *uses > 1) {
                label = format!("{label} [{}]", model_names(&configuration).join(" + "));
            }
            PlannedConfiguration {
                identity: configuration.identity(),
                label,
                planned,
                limit,
                priority,
                stop,
                stopped: None,
                configuration: Arc::new(configuration),
            }
        })
        .collect()
}

/// Returns the distinct names of a configuration's models, planner first.
fn model_names(configuration: &Configuration) -> Vec<&str> {
    let mut names: Vec<&str> = configuration.models.values().map(|model| model.name.as_str()).collect();
    names.dedup();
    names
}

#[cfg(test)]
mod tests;
