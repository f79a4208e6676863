//! The second stage: the manifest and the selected items of a run.
//!
//! [`Plan::of`] reads the data (see `data`), hashes the models' files and resolves the tools' backends (see
//! `tool_backends`). It runs no model. The items are read again when [`Plan::open`] stores them in the checkpoint, so that
//! plans of millions of items fit in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use lumos_benchmarks::{Benchmark, DataError, DataSource};
use lumos_coordinator::manifest::{
    FileRecord, Manifest, ManifestError, ManifestParts, ModelRecord, PlannedData,
};
use lumos_coordinator::spec::ResolvedSpec;
use lumos_coordinator::{Checkpoint, CheckpointReader, PlanMark, SelectError, Selected, expand, select};
use lumos_models::{Identified, IdentifyError, ModelFile, hash_file};
use lumos_tasks::families::shop::{self, Exemplars};
use lumos_tasks::{ContentHash, Item, ItemId, Task};
use lumos_worker::stall::{Wait, reminded};

use super::data::LocalData;
use super::tool_backends::{replaced_backends, tool_backends};
use super::{Executor, Run, Spec, manifest_failure, open_checkpoint};
use crate::exit::{Exit, Failure};
use crate::progress::write_line;
use crate::settings;

/// File with the checksums of the other files of a data folder, as written by `sha256sum *.json`.
const SUMS: &str = "SHA256SUMS";

/// A planned run.
pub(crate) struct Plan {
    pub(crate) manifest: Manifest,
    pub(crate) executor: Executor,
    /// The data of the benchmarks, in the order of the tasks.
    data: Vec<SelectedData>,
    /// Exemplars of the run, if they are not the project's own.
    exemplars: Option<Exemplars>,
}

/// The selected items of a benchmark.
struct SelectedData {
    benchmark: &'static dyn Benchmark,
    data: LocalData,
    sha256: ContentHash,
    /// Number of records read.
    records: u64,
    /// Number of malformed records that were skipped.
    invalid: u64,
    /// Positions and identities of the selected items.
    items: Vec<(u64, ItemId)>,
}

impl Plan {
    /// Plans a run.
    pub(crate) async fn of(spec: Spec) -> Result<Self, Failure> {
        let stall_warning = spec.executor.options.stall_warning;
        let planning = tokio::task::spawn_blocking(move || Self::read(spec));
        reminded(stall_warning, Wait::Planning, planning).await?
    }

    /// As [`Plan::of`]. Blocks: reads the data and hashes the models' files.
    fn read(Spec { resolved: mut spec, executor }: Spec) -> Result<Self, Failure> {
        let Executor { models, tools, .. } = &executor;
        let backends = tool_backends(&spec, tools)?;
        let replaced = replaced_backends(&spec, tools)?;
        let mut identified: Vec<Identified> = Vec::new();
        let mut configurations = expand(
            &spec,
            |benchmark, name, role, formulation| {
                let domain = settings::builtin_domain(benchmark);
                let model = models.identify_for(domain, name, role, formulation)?;
                if !identified.contains(&model) {
                    identified.push(model.clone());
                }
                Ok::<_, IdentifyError>(model.identity)
            },
            |benchmark, rules| {
                let of_run = backends.get(benchmark.name());
                let backend_of = |tool: &&str| {
                    let of_rule = rules.get_key_value(*tool).and_then(|rule| replaced.get(&rule));
                    of_rule.or_else(|| of_run?.iter().find(|backend| backend.tool == *tool)).cloned()
                };
                benchmark.tools().iter().filter_map(backend_of).collect()
            },
        )
        .map_err(Failure::usage)?;
        let format = settings::prompt_format(&spec)?;
        for cell in &mut configurations {
            cell.configuration.format = format.clone();
        }
        let exemplars = spec.exemplars.as_deref().map(read_exemplars).transpose()?;
        if let Some(exemplars) = &exemplars {
            let all = configurations.iter_mut().map(|cell| &mut cell.configuration);
            for configuration in all.filter(|one| one.benchmark == "webshop") {
                configuration.prompts = shop::prompts_hash(exemplars);
            }
        }
        let read = |task: &String| SelectedData::read(&spec, task);
        let mut data = spec.tasks.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        for (task, commit) in data.iter().filter_map(SelectedData::commit) {
            if let Some(file) = spec.task_files.get_mut(task) {
                file.definition.data.revision = Some(commit.to_owned());
            }
        }
        let partition = spec.partition;
        let manifest = Manifest::new(ManifestParts {
            configurations,
            models: identified.into_iter().map(model_record).collect(),
            data: data.iter().map(SelectedData::planned).collect(),
            git_revision: option_env!("LUMOS_GIT_REVISION").map(str::to_owned),
            created: Timestamp::now(),
            spec,
        });
        for data in &mut data {
            data.items.retain(|(_, id)| partition.is_none_or(|partition| partition.keeps(id)));
        }
        Ok(Self { manifest, executor, data, exemplars })
    }

    /// Opens the folder of the run, which is created unless it contains the same run, and stores the items.
    pub(crate) async fn open(self) -> Result<Run, Failure> {
        let Self { manifest, executor, data, exemplars } = self;
        let folder = manifest.spec.folder();
        // Load a new run's models before its folder is created, so that a run that cannot start leaves no files.
        let in_phases = match Manifest::read(&folder) {
            Err(ManifestError::Missing { .. }) => {
                check_vacant(&folder)?;
                Some(executor.prepare(&manifest).await?)
            }
            _ => {
                // Another run is refused before its checkpoint is opened, which would repair it.
                manifest.open_or_create(&folder).map_err(manifest_failure)?;
                None
            }
        };
        let stall_warning = executor.options.stall_warning;
        let checkpoint = open_checkpoint(&folder, Checkpoint::create, stall_warning).await?;
        let (manifest, is_planned) = match claim_folder(manifest, &folder, &checkpoint) {
            Ok(claimed) => claimed,
            Err(failure) => {
                checkpoint.abandon();
                return Err(failure);
            }
        };
        if !is_planned {
            let stored: Result<u64, Failure> =
                data.iter().map(|data| data.store(&checkpoint, exemplars.as_ref())).sum();
            let marked = stored.and_then(|items| {
                let scoring = manifest.spec.scoring.clone();
                let mark = PlanMark { identity: manifest.identity.clone(), items, scoring };
                checkpoint.plan_complete(&mark).map_err(Failure::from)
            });
            if let Err(failure) = marked {
                checkpoint.abandon();
                return Err(failure);
            }
        }
        Ok(Run { manifest, folder, checkpoint, executor, in_phases, budget: None })
    }
}

/// Rejects a folder that contains anything else than a run whose manifest is missing: reports would replace files there.
///
/// # Errors
/// If it contains a file or folder that no such run leaves.
pub(crate) fn check_vacant(folder: &Path) -> Result<(), Failure> {
    // Errors of reading it are reported when the manifest is written.
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    // Temporary files of a manifest that was never completed end with `.tmp`.
    let of_run = |name: &String| name == "screenshots" || name.ends_with(".tmp");
    if names.iter().any(|name| name == "checkpoint") || names.iter().all(of_run) {
        return Ok(());
    }
    Err(Failure::input(format!("`{}` contains other files than those of a run", folder.display()))
        .hint("choose another --name or --output-path"))
}

/// Reads the manifest of a run's folder, or writes it if it is missing. Call it while the checkpoint is locked, so that
/// runs that start at the same time cannot combine the manifest of one with the checkpoint of the other. Returns the
/// manifest, and whether the plan is complete.
///
/// # Errors
/// If the checkpoint or the manifest belongs to another run, or the manifest cannot be read or written.
fn claim_folder(
    asked: Manifest,
    folder: &Path,
    checkpoint: &CheckpointReader,
) -> Result<(Manifest, bool), Failure> {
    let is_planned = is_planned(&asked, checkpoint)?;
    let manifest = match asked.open_or_create(folder).map_err(manifest_failure)? {
        Some(found) => continued(asked, &found, folder, is_planned)?,
        None => asked,
    };
    Ok((manifest, is_planned))
}

/// Whether the plan of a run is complete in its checkpoint.
///
/// # Errors
/// If the checkpoint belongs to another run, or cannot be read.
pub(crate) fn is_planned(manifest: &Manifest, checkpoint: &CheckpointReader) -> Result<bool, Failure> {
    let Some(mark) = checkpoint.plan()? else { return Ok(false) };
    if mark.identity == manifest.identity {
        return Ok(true);
    }
    let folder = checkpoint.folder().display();
    let (found, expected) = (mark.identity.short(), manifest.identity.short());
    let message =
        format!("the checkpoint in `{folder}` belongs to another run: expected {expected}, found {found}");
    Err(Failure::input(message)
        .hint("choose another --name; to continue the recorded run, restore its manifest.json"))
}

/// Returns the manifest of a run's folder with the settings of another manifest of the same run, and writes it if they
/// differ: commands that read the run, and `resume`, must know that a stopped configuration continues.
fn continued(
    asked: Manifest,
    found: &Manifest,
    folder: &Path,
    is_planned: bool,
) -> Result<Manifest, Failure> {
    let mut adopted = found.clone();
    adopted.adopt(asked);
    let mut written = adopted.clone();
    if is_planned {
        // The scorings in the file stay those with which the run was planned; see `commands::results::open`.
        written.spec.scoring.clone_from(&found.spec.scoring);
    }
    if written != *found {
        written.write(folder).map_err(manifest_failure)?;
    }
    Ok(adopted)
}

impl SelectedData {
    /// Selects the items of a benchmark.
    fn read(spec: &ResolvedSpec, task: &str) -> Result<Self, Failure> {
        let benchmark = spec.benchmark(task).map_err(Failure::usage)?;
        let data = LocalData::of(benchmark, spec.data.as_deref())?;
        let choice = spec.needed_items(task);
        let mut told = 0u32;
        let items = benchmark.open(data.source.clone()).map_err(Failure::usage)?;
        let selected = select(task, items, &choice, |error: &DataError| {
            let skipped = spec.skip_invalid && error.is_skippable();
            if skipped && told < 10 {
                told += 1;
                tracing::warn!("skipped record: {error}");
            }
            skipped
        })
        .map_err(|error| selection_failure(error, spec.skip_invalid))?;
        if selected.invalid > 0 {
            write_line(format_args!("{task}: skipped {} malformed records", selected.invalid));
        }
        let sha256 = match &data.source {
            DataSource::File(path) => hash(path)?,
            DataSource::Samples => ContentHash::of_bytes(benchmark.samples()),
        };
        let Selected { items, records, invalid } = selected;
        Ok(Self { benchmark, data, sha256, records, invalid, items })
    }

    /// Returns the name of the benchmark and the commit of its data, if they are from the hub.
    fn commit(&self) -> Option<(&str, &str)> {
        Some((self.benchmark.name(), self.data.commit.as_deref()?))
    }

    /// Describes the data for the manifest.
    fn planned(&self) -> PlannedData<'_> {
        PlannedData {
            benchmark: self.benchmark.name(),
            source: self.data.shown.clone(),
            sha256: self.sha256.clone(),
            records: self.records,
            invalid: self.invalid,
            items: &self.items,
        }
    }

    /// Reads the items again and stores them. Returns their number.
    fn store(&self, checkpoint: &Checkpoint, exemplars: Option<&Exemplars>) -> Result<u64, Failure> {
        let name = self.benchmark.name();
        let items = self.benchmark.open(self.data.source.clone()).map_err(Failure::usage)?;
        let failed = RefCell::new(None);
        let mut expected = self.items.iter().peekable();
        let selected = items.into_iter().map_while(|item| {
            expected.peek()?;
            match item {
                Ok(item) => {
                    Some(expected.next_if(|(_, id)| *id == item.id).map(|_| with_exemplars(item, exemplars)))
                }
                // The record was also skipped during planning.
                Err(error) if error.is_skippable() => Some(None),
                Err(error) => {
                    *failed.borrow_mut() = Some(Failure::usage(error));
                    None
                }
            }
        });
        let stored = checkpoint.store_items(name, selected.flatten())?;
        if let Some(failure) = failed.into_inner() {
            return Err(failure);
        }
        if stored != self.items.len() as u64 {
            return Err(Failure::input(format!("the data of {name} changed during planning"))
                .hint("wait until the data file is complete, then run the command again"));
        }
        Ok(stored)
    }
}

/// Returns an item with the run's exemplars, if it has any.
fn with_exemplars(mut item: Item, of_run: Option<&Exemplars>) -> Item {
    if let Task::Shop { exemplars, .. } = &mut item.task {
        *exemplars = of_run.cloned();
    }
    item
}

/// Reads exemplars from a file.
fn read_exemplars(path: &Path) -> Result<Exemplars, Failure> {
    let bad = |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| bad(&error))?;
    Exemplars::read(&text).map_err(|error| bad(&error))
}

pub(crate) fn model_record(model: Identified) -> ModelRecord {
    let file = |file: ModelFile| FileRecord { name: file.name, bytes: file.bytes, sha256: file.sha256 };
    ModelRecord { identity: model.identity, files: model.files.into_iter().map(file).collect() }
}

/// Returns the positions of the items of a benchmark that a run would select, in ascending order.
pub(crate) fn item_positions(spec: &ResolvedSpec, task: &str) -> Result<Vec<u64>, Failure> {
    let items = SelectedData::read(spec, task)?.items;
    let kept = |(_, id): &&(u64, ItemId)| spec.partition.is_none_or(|partition| partition.keeps(id));
    Ok(items.iter().filter(kept).map(|(position, _)| *position).collect())
}

/// Computes the hash of a data file or folder.
fn hash(path: &Path) -> Result<ContentHash, Failure> {
    if path.is_dir() {
        return hash_folder(path);
    }
    hash_file(path).map_err(|error| Failure::input(format!("{}: {error}", path.display())))
}

/// Computes the hash of the names and contents of a folder's JSON files. If the folder contains `SHA256SUMS`,
/// the files must match it.
fn hash_folder(folder: &Path) -> Result<ContentHash, Failure> {
    let failed = |error: std::io::Error| Failure::input(format!("{}: {error}", folder.display()));
    let mut hashes: BTreeMap<String, ContentHash> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            hashes.insert(name, hash_file(&path).map_err(failed)?);
        }
    }
    match std::fs::read_to_string(folder.join(SUMS)) {
        Ok(sums) => check_sums(&sums, &hashes)
            .map_err(|why| Failure::input(format!("{}: {why}", folder.join(SUMS).display())))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    Ok(ContentHash::of_json(&hashes))
}

/// Compares hashes with a list of checksums. The error names the file that differs.
fn check_sums(sums: &str, hashes: &BTreeMap<String, ContentHash>) -> Result<(), String> {
    let mut listed = 0;
    for line in sums.lines().filter(|line| !line.trim().is_empty()) {
        let (sum, name) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| format!("invalid line `{line}`: expected a checksum and a file name"))?;
        let name = name.trim_start().trim_start_matches('*');
        match hashes.get(name) {
            None => return Err(format!("listed file `{name}` not found")),
            Some(hash) if !hash.as_str().eq_ignore_ascii_case(sum) => {
                return Err(format!(
                    "file `{name}` has SHA-256 {hash}, not the listed one: unpack the archive again"
                ));
            }
            Some(_) => listed += 1,
        }
    }
    if listed == hashes.len() {
        Ok(())
    } else {
        Err("not all JSON files in the folder are listed".to_owned())
    }
}

fn selection_failure(error: SelectError<DataError>, skipping: bool) -> Failure {
    match &error {
        SelectError::Nothing { .. } => Failure { exit: Exit::NothingSelected, ..Failure::usage(error) },
        SelectError::Load(load) if load.is_skippable() && !skipping => Failure::usage(error)
            .hint("fix the record, or pass --skip-invalid to skip and count such records"),
        _ => Failure::usage(error),
    }
}

#[cfg(test)]
mod tests {
    use lumos_coordinator::samples::{configuration, item, manifest_of};

    use super::*;

    #[test]
    fn a_checkpoint_of_another_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let run = |items: u64| manifest_of(&[configuration(0)], &(0..items).map(item).collect::<Vec<_>>());
        let checkpoint = Checkpoint::create(&path.join("checkpoint")).unwrap();
        let claim = |items: u64| claim_folder(run(items), path, &checkpoint);
        let refused = |items: u64| claim(items).unwrap_err().error.to_string();
        assert_eq!(claim(2).unwrap(), (run(2), false));
        // Another run that began at the same time, when neither had a manifest.
        assert!(refused(3).contains("contains a run with different settings"), "{}", refused(3));
        let mark = PlanMark { identity: run(2).identity, items: 2, scoring: Vec::new() };
        checkpoint.plan_complete(&mark).unwrap();
        assert!(is_planned(&run(2), &checkpoint).unwrap());
        // The manifest is lost.
        let manifest = path.join("manifest.json");
        std::fs::remove_file(&manifest).unwrap();
        assert!(refused(3).contains("belongs to another run"), "{}", refused(3));
        assert!(!manifest.exists());
        assert_eq!(claim(2).unwrap(), (run(2), true));
        // It was replaced by that of another run.
        run(3).write(path).unwrap();
        assert!(refused(3).contains("belongs to another run"), "{}", refused(3));
        assert_eq!(Manifest::read(path).unwrap(), run(3));
        checkpoint.close().unwrap();
    }

    #[test]
    fn folders_of_other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        check_vacant(&path.join("new")).unwrap();
        check_vacant(path).unwrap();
        std::fs::create_dir(path.join("screenshots")).unwrap();
        std::fs::write(path.join("manifest.json.7.tmp"), "").unwrap();
        check_vacant(path).unwrap();
        std::fs::create_dir(path.join("report")).unwrap();
        let failure = check_vacant(path).unwrap_err();
        assert!(
            failure.error.to_string().contains("contains other files than those of a run"),
            "{failure:?}"
        );
        // A run whose manifest was lost.
        std::fs::create_dir(path.join("checkpoint")).unwrap();
        check_vacant(path).unwrap();
    }

    #[test]
    fn files_that_are_not_those_listed_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.json", "[]");
        write("README.md", "not data");
        let plain = hash(folder.path()).unwrap();
        let sum = ContentHash::of_bytes(b"[]");
        write(SUMS, &format!("{sum}  a.json\n"));
        assert_eq!(hash(folder.path()).unwrap(), plain);
        write("b.json", "[]");
        let refused = || hash(folder.path()).unwrap_err().error.to_string();
        assert!(refused().contains("not all JSON files"), "{}", refused());
        write(SUMS, &format!("{sum}  a.json\n{sum} *b.json\n"));
        assert_ne!(hash(folder.path()).unwrap(), plain);
        write("b.json", "[1]");
        assert!(refused().contains("file `b.json` has SHA-256"), "{}", refused());
    }
}
