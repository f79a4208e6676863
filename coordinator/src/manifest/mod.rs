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
use lumos_tasks::{Configuration, ContentHash, ItemId, ModelIdentity};
use serde::{Deserialize, Serialize};

use crate::spec::ResolvedSpec;

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
    /// The configuration.
    pub configuration: Arc<Configuration>,
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
    /// Identities of the selected items, in order; of all parts if the specification has a partition.
    pub items: &'a [ItemId],
}

/// Input of [`Manifest::new`].
#[derive(Debug, Clone)]
pub struct ManifestParts<'a> {
    /// The specification.
    pub spec: ResolvedSpec,
    /// The cells of the matrix.
    pub configurations: Vec<Configuration>,
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
    pub fn new(parts: ManifestParts<'_>) -> Self {
        let partition = parts.spec.partition;
        let kept = |items: &[ItemId]| match partition {
            Some(partition) => items.iter().filter(|item| partition.keeps(item)).cloned().collect(),
            None => items.to_vec(),
        };
        let identity = RunIdentity::of(
            &parts.configurations,
            parts.data.iter().map(|data| (data.benchmark, kept(data.items))),
        );
        let whole = partition.map(|_| {
            let all = parts.data.iter().map(|data| (data.benchmark, data.items.to_vec()));
            RunIdentity::of(&parts.configurations, all)
        });
        let data: Vec<DataRecord> = parts
            .data
            .iter()
            .map(|data| {
                let items = kept(data.items);
                DataRecord {
                    benchmark: data.benchmark.to_owned(),
                    source: data.source.clone(),
                    sha256: data.sha256.clone(),
                    records: data.records,
                    selected: items.len() as u64,
                    invalid: data.invalid,
                    items: ContentHash::of_json(&items),
                }
            })
            .collect();
        let prompts = parts
            .configurations
            .iter()
            .map(|configuration| (configuration.benchmark.clone(), configuration.prompts.clone()))
            .collect();
        Self {
            schema: SCHEMA,
            identity,
            whole,
            created: parts.created,
            versions: versions(&parts.spec),
            spec: parts.spec,
            configurations: planned(parts.configurations, &data),
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

    /// Returns the data of a benchmark.
    pub fn data_of(&self, benchmark: &str) -> Option<&DataRecord> {
        self.data.iter().find(|data| data.benchmark == benchmark)
    }

    /// Number of planned units of all configurations.
    pub fn planned(&self) -> u64 {
        self.configurations.iter().map(|configuration| configuration.planned).sum()
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

fn planned(configurations: Vec<Configuration>, data: &[DataRecord]) -> Vec<PlannedConfiguration> {
    let mut uses: HashMap<String, u32> = HashMap::new();
    for configuration in &configurations {
        *uses.entry(configuration.label()).or_default() += 1;
    }
    let selected = |benchmark: &str| {
        data.iter().find(|data| data.benchmark == benchmark).map_or(0, |data| data.selected)
    };
    configurations
        .into_iter()
        .map(|configuration| {
            let mut label = configuration.label();
            if uses.get(&label).is_some_and(|uses| *uses > 1) {
                label = format!("{label} [{}]", model_names(&configuration).join(" + "));
            }
            PlannedConfiguration {
                identity: configuration.identity(),
                label,
                planned: selected(&configuration.benchmark),
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
