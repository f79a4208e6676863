//! Where a run reads the items of a benchmark on this host.
//!
//! A task file may name a data set of the Hugging Face hub. Its file is downloaded into the cache of the hub at a
//! commit, which the manifest keeps as the revision, so that a resumed run reads the same data. Only planning reads data: the
//! checkpoint has the items, and workers receive them with their work, so workers download no data.

use std::path::Path;

use lumos_benchmarks::task_file::TaskFile;
use lumos_benchmarks::{Benchmark, DataSource};
use lumos_coordinator::spec::place_of_key;
use lumos_models::fetch_data;
use lumos_models::hub::{Hub, HubError, HubName};

use crate::exit::Failure;

/// The data of a benchmark on this host.
pub(super) struct LocalData {
    pub(super) source: DataSource,
    /// Name in the manifest: a path, or that of a file of the hub with its commit.
    pub(super) shown: String,
    /// Commit of a data set of the hub.
    pub(super) commit: Option<String>,
}

impl LocalData {
    /// Finds the data of a benchmark. Blocks during a download.
    pub(super) fn of(benchmark: &dyn Benchmark, folder: Option<&Path>) -> Result<Self, Failure> {
        if let Some(file) = benchmark.task_file()
            && let Some(id) = &file.definition.data.hub
        {
            return Self::of_hub(file, id);
        }
        let source = benchmark.source(folder);
        let shown = match &source {
            DataSource::File(path) => path.display().to_string(),
            DataSource::Samples => "built-in samples".to_owned(),
        };
        Ok(Self { source, shown, commit: None })
    }

    fn of_hub(file: &TaskFile, id: &str) -> Result<Self, Failure> {
        let data = &file.definition.data;
        let at = |key: &str, error: &dyn std::fmt::Display| {
            Failure::input(format!("{}: {error}", place_of_key(&file.path, key)))
        };
        let name =
            HubName::data_set(id, data.revision.as_deref()).ok_or_else(|| {
                match HubName::data_set(id, None) {
                    Some(_) => at("data.revision", &"expected a branch, tag or commit"),
                    None => at("data.hub", &format!("invalid data set `{id}`: expected owner/name")),
                }
            })?;
        let path = data.file.to_string_lossy().replace('\\', "/");
        let fetched = fetch_data(&Hub::default(), &name, &path).map_err(|error| {
            let key = match &error {
                HubError::Missing { what, .. } if *what != path => "data.revision",
                HubError::Missing { .. } | HubError::FileName { .. } => "data.file",
                _ => "data.hub",
            };
            at(key, &error)
        })?;
        let commit = fetched.name.revision().to_owned();
        let shown = format!("{}@{commit}", file.data_file().display());
        Ok(Self { source: DataSource::File(fetched.path), shown, commit: Some(commit) })
    }
}
