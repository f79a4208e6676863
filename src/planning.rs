//! Plans a run: creates the manifest and selects the items for a resolved specification.
//!
//! [`plan`] reads the data, hashes the models' files and resolves the tools' backends. It runs no model. The
//! result is a [`Planned`] run, whose items are read again when they are stored in the checkpoint.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use lumos_benchmarks::{Benchmark, DataError, DataSource};
use lumos_coordinator::Checkpoint;
use lumos_coordinator::manifest::{FileRecord, Manifest, ManifestParts, ModelRecord, PlannedData};
use lumos_coordinator::plan::{SelectError, Selected, expand, select};
use lumos_coordinator::spec::ResolvedSpec;
use lumos_models::ModelRegistry;
use lumos_models::{Identified, hash_file};
use lumos_tasks::families::shop::{self, Exemplars};
use lumos_tasks::{ContentHash, Item, ItemId, Task, ToolBackend};
use lumos_tools::{ToolSets, backends};

use crate::data_folder;
use crate::exit::{Exit, Failure};

/// A planned run.
pub(crate) struct Planned {
    pub(crate) manifest: Manifest,
    /// The selected items, by benchmark in the order of the tasks.
    pub(crate) items: Vec<PlannedItems>,
}

/// The selected items of a benchmark.
pub(crate) struct PlannedItems {
    benchmark: &'static dyn Benchmark,
    path: Option<PathBuf>,
    /// Identities of the selected items, by position.
    ids: Vec<ItemId>,
    /// Exemplars of the run, if they are not the project's own.
    exemplars: Option<Exemplars>,
}

impl PlannedItems {
    /// Reads the items again and stores them. Returns their number.
    pub(crate) fn store(&self, checkpoint: &Checkpoint) -> Result<u64, Failure> {
        let name = self.benchmark.name();
        let items = self.benchmark.open(source(self.path.as_deref())).map_err(Failure::usage)?;
        let failed = RefCell::new(None);
        let mut expected = self.ids.iter().peekable();
        let selected = items.into_iter().map_while(|item| {
            expected.peek()?;
            match item {
                Ok(item) => Some(expected.next_if(|id| **id == item.id).map(|_| self.with_exemplars(item))),
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
        if stored != self.ids.len() as u64 {
            return Err(Failure::input(format!("the data of {name} changed during planning"))
                .hint("run the command again when the data file is no longer being written"));
        }
        Ok(stored)
    }

    /// Returns the item with the run's exemplars, if it has any.
    fn with_exemplars(&self, mut item: Item) -> Item {
        if let Task::Shop { exemplars, .. } = &mut item.task {
            exemplars.clone_from(&self.exemplars);
        }
        item
    }
}

/// Reads exemplars from a file.
fn read_exemplars(path: &Path) -> Result<Exemplars, Failure> {
    let bad = |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| bad(&error))?;
    Exemplars::read(&text).map_err(|error| bad(&error))
}

/// Returns the data source of a benchmark.
fn source(path: Option<&Path>) -> DataSource {
    path.map_or(DataSource::Samples, |path| DataSource::File(path.to_owned()))
}

/// Data of one benchmark: path, hash and selected items.
struct Data {
    benchmark: &'static dyn Benchmark,
    path: Option<PathBuf>,
    source: String,
    sha256: ContentHash,
    selected: Selected,
}

/// Plans a run. Blocks: reads the data and hashes the models' files.
pub(crate) fn plan(spec: ResolvedSpec, models: &ModelRegistry, tools: &ToolSets) -> Result<Planned, Failure> {
    let backends = tool_backends(&spec, tools)?;
    let mut identified: Vec<Identified> = Vec::new();
    let mut configurations = expand(
        &spec,
        |name, role, formulation| {
            let model = models.identify(name, role, formulation)?;
            if !identified.contains(&model) {
                identified.push(model.clone());
            }
            Ok::<_, lumos_models::IdentifyError>(model.identity)
        },
        |benchmark| {
            let used = benchmark.tools();
            backends.iter().filter(|backend| used.contains(&backend.tool.as_str())).cloned().collect()
        },
    )
    .map_err(Failure::usage)?;
    let exemplars = spec.exemplars.as_deref().map(read_exemplars).transpose()?;
    if let Some(exemplars) = &exemplars {
        for configuration in configurations.iter_mut().filter(|one| one.benchmark == "webshop") {
            configuration.prompts = shop::prompts_hash(exemplars);
        }
    }
    let mut data = spec.tasks.iter().map(|task| read(&spec, task)).collect::<Result<Vec<_>, _>>()?;
    let ids: Vec<Vec<ItemId>> = data
        .iter_mut()
        .map(|data| std::mem::take(&mut data.selected.items).into_iter().map(|(_, id)| id).collect())
        .collect();
    let partition = spec.partition;
    let manifest = Manifest::new(ManifestParts {
        configurations,
        models: identified.into_iter().map(model_record).collect(),
        data: data
            .iter()
            .zip(&ids)
            .map(|(data, items)| PlannedData {
                benchmark: data.benchmark.name(),
                source: data.source.clone(),
                sha256: data.sha256.clone(),
                records: data.selected.records,
                invalid: data.selected.invalid,
                items,
            })
            .collect(),
        git_revision: option_env!("LUMOS_GIT_REVISION").map(str::to_owned),
        created: Timestamp::now(),
        spec,
    });
    let items = data
        .into_iter()
        .zip(ids)
        .map(|(data, mut ids)| {
            ids.retain(|id| partition.is_none_or(|partition| partition.keeps(id)));
            PlannedItems { benchmark: data.benchmark, path: data.path, ids, exemplars: exemplars.clone() }
        })
        .collect();
    Ok(Planned { manifest, items })
}

/// Returns the backends of all tools that the run's benchmarks call. The error lists all missing ones.
fn tool_backends(spec: &ResolvedSpec, tools: &ToolSets) -> Result<Vec<ToolBackend>, Failure> {
    let mut backends: BTreeMap<&str, ToolBackend> = BTreeMap::new();
    for (tool, backend) in &spec.tools {
        backends.insert(tool, tools.identify(tool, backend).map_err(Failure::usage)?);
    }
    let mut called: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let calls_tools = spec.formulation.iter().any(|formulation| formulation.calls_tools());
    for task in spec.tasks.iter().filter(|_| calls_tools) {
        for tool in crate::settings::benchmark(task)?.tools() {
            called.entry(tool).or_default().push(task);
        }
    }
    let mut missing = Vec::new();
    for (tool, tasks) in called {
        if backends.contains_key(tool) {
            continue;
        }
        let identified = match usual_backend(spec, tool)? {
            Some(usual) => tools.identify(tool, &usual).map_err(|error| error.to_string()),
            None => Err("no backend is set".to_owned()),
        };
        match identified {
            Ok(backend) => {
                backends.insert(tool, backend);
            }
            Err(why) => missing.push(Missing { tool, tasks, why }),
        }
    }
    if missing.is_empty() { Ok(backends.into_values().collect()) } else { Err(missing_tools(&missing)) }
}

/// A tool that a run calls and that has no backend.
struct Missing<'a> {
    tool: &'a str,
    /// The benchmarks that call it.
    tasks: Vec<&'a str>,
    why: String,
}

/// Returns the default backend of a tool. With the built-in samples every tool has one. With other data, the
/// encyclopaedia and the ranker have none, because the results depend on them.
fn usual_backend(spec: &ResolvedSpec, tool: &str) -> Result<Option<String>, Failure> {
    let (data, browser) = (spec.data.as_deref(), spec.browser.as_deref());
    Ok(match tool {
        "maths" => Some("native".to_owned()),
        "web" => Some(browser.unwrap_or("native").to_owned()),
        "sql" => Some(sqlite_of(data)),
        "shop" => Some(crate::settings::usual_shop(data, browser)?),
        "rank" if data.is_none() => Some("bm25".to_owned()),
        "wiki" if data.is_none() => Some("samples".to_owned()),
        _ => None,
    })
}

fn missing_tools(missing: &[Missing]) -> Failure {
    let mut message = match missing {
        [one] => format!("tool `{}` has no backend", one.tool),
        several => format!("{} tools have no backend", several.len()),
    };
    for Missing { tool, tasks, why } in missing {
        let known = backends(tool).join(", ");
        message
            .push_str(&format!("\n  {tool} (called by {}): {why}\n    backends: {known}", tasks.join(", ")));
    }
    // A tool with a default backend lacks its files; suggesting another backend would change the benchmark.
    let first = |tool: &str| match tool {
        "rank" | "wiki" => Some(format!("--tool {tool}={}", backends(tool).first()?)),
        _ => None,
    };
    let flags: Vec<String> = missing.iter().filter_map(|one| first(one.tool)).collect();
    let mut hints = Vec::new();
    if missing.iter().any(|one| one.tool == "sql") {
        hints.push("build the databases with `lumos data import-sql`".to_owned());
    }
    if flags.is_empty() {
        hints.push("set a backend with --tool NAME=BACKEND".to_owned());
    } else {
        hints.push(format!("set backends, for example {}", flags.join(" ")));
    }
    Failure::input(message).hint(hints.join("; "))
}

/// Returns the embedded databases in the data folder, or those of the samples.
fn sqlite_of(data: Option<&Path>) -> String {
    data.map_or_else(
        || "sqlite".to_owned(),
        |folder| format!("sqlite:{}", folder.join("intercode_sql/sqlite").display()),
    )
}

pub(crate) fn model_record(model: Identified) -> ModelRecord {
    let file = |file: lumos_models::ModelFile| FileRecord {
        name: file.name,
        bytes: file.bytes,
        sha256: file.sha256,
    };
    ModelRecord { identity: model.identity, files: model.files.into_iter().map(file).collect() }
}

fn read(spec: &ResolvedSpec, task: &str) -> Result<Data, Failure> {
    let benchmark = crate::settings::benchmark(task)?;
    let path: Option<PathBuf> = spec.data.as_deref().map(|folder| folder.join(benchmark.data_file()));
    let choice = spec.items.get(task).cloned().unwrap_or(lumos_coordinator::spec::ItemChoice::All);
    let mut told = 0u32;
    let items = benchmark.open(source(path.as_deref())).map_err(Failure::usage)?;
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
        eprintln!("{task}: skipped {} malformed records", selected.invalid);
    }
    let sha256 = match &path {
        Some(path) => hash(path)?,
        None => ContentHash::of_bytes(benchmark.samples()),
    };
    let source =
        path.as_ref().map_or_else(|| "built-in samples".to_owned(), |path| path.display().to_string());
    Ok(Data { benchmark, path, source, sha256, selected })
}

/// Counts the items of a benchmark that a run would select.
pub(crate) fn count(spec: &ResolvedSpec, task: &str) -> Result<u64, Failure> {
    let items = read(spec, task)?.selected.items;
    let kept = |id: &ItemId| spec.partition.is_none_or(|partition| partition.keeps(id));
    Ok(items.iter().filter(|(_, id)| kept(id)).count() as u64)
}

fn hash(path: &Path) -> Result<ContentHash, Failure> {
    if path.is_dir() {
        return data_folder::hash(path);
    }
    hash_file(path).map_err(|error| Failure::input(format!("{}: {error}", path.display())))
}

fn selection_failure(error: SelectError<DataError>, skipping: bool) -> Failure {
    match &error {
        SelectError::Nothing { .. } => Failure { exit: Exit::NothingSelected, ..Failure::usage(error) },
        SelectError::Load(load) if load.is_skippable() && !skipping => Failure::usage(error)
            .hint("fix the record, or pass --skip-invalid to skip and count such records"),
        _ => Failure::usage(error),
    }
}
