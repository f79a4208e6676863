//! `lumos run`, `lumos resume` and `lumos validate`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lumos_coordinator::checkpoint::PlanMark;
use lumos_coordinator::fleet::CoordinatorSettings;
use lumos_coordinator::manifest::{Manifest, ManifestError, Opened};
use lumos_coordinator::spec::MemorySize;
use lumos_coordinator::{Checkpoint, ResolvedSpec};
use lumos_models::ModelRegistry;
use lumos_queue::nats::Server;
use lumos_tasks::{Configuration, Swap};
use lumos_tools::ToolSets;
use lumos_worker::stall::{Wait, reminded};

use crate::cli::{EngineArgs, FleetArgs, MemoryArgs, ResumeArgs, RunArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::fleet;
use crate::planning::{self, Planned};
use crate::session::{self, Output};
use crate::settings;
use crate::writable;

/// Folder for screenshots in a run's folder.
const SCREENSHOTS: &str = "screenshots";

/// Models, tools and workers of a run.
struct Means {
    models: Arc<ModelRegistry>,
    tools: Arc<ToolSets>,
    /// The queue whose workers execute the run instead of this process.
    fleet: Option<(Server, CoordinatorSettings)>,
    /// Time without progress before a warning that states the cause; zero disables the warning.
    stall_warning: Duration,
}

impl Means {
    fn of(
        spec: &ResolvedSpec,
        engine: &EngineArgs,
        screenshots: bool,
        fleet: &FleetArgs,
    ) -> Result<Self, Failure> {
        Ok(Self {
            models: Arc::new(ModelRegistry::new(settings::models_of(spec, engine)?)),
            tools: Arc::new(ToolSets::with_screenshots(screenshots.then(|| spec.folder().join(SCREENSHOTS)))),
            fleet: None,
            stall_warning: stall_warning(fleet)?,
        })
    }

    /// Adds the workers of a queue, if one is specified.
    async fn with_fleet(self, arguments: &FleetArgs) -> Result<Self, Failure> {
        Ok(Self { fleet: fleet_of(arguments).await?, ..self })
    }
}

/// Returns the time without progress before a warning.
pub(super) fn stall_warning(arguments: &FleetArgs) -> Result<Duration, Failure> {
    super::worker::seconds("--stall-warning", arguments.stall_warning)
}

/// Connects to the specified queue and returns it with the fleet's settings.
pub(super) async fn fleet_of(
    arguments: &FleetArgs,
) -> Result<Option<(Server, CoordinatorSettings)>, Failure> {
    let Some(access) = fleet::access(&arguments.queue)? else { return Ok(None) };
    let server = fleet::connect_to(
        &access,
        &arguments.queue,
        "lumos coordinator",
        Some(Duration::from_secs(10)),
        Duration::try_from_secs_f64(arguments.lease).ok(),
    )
    .await?;
    let settings = CoordinatorSettings {
        priority: arguments.priority,
        drain_grace: super::worker::seconds("--grace", arguments.grace)?,
        stall_warning: stall_warning(arguments)?,
        address: access.url.clone(),
        ..CoordinatorSettings::default()
    };
    Ok(Some((server, settings)))
}

pub(crate) async fn run(arguments: &RunArgs, quiet: bool) -> CommandResult {
    let spec = settings::resolve(arguments)?;
    let output = Output {
        quiet,
        json: arguments.output.json,
        record: arguments.output.record.clone(),
        fail_under: arguments.limits.fail_under,
    };
    check_outputs(&spec.folder(), output.record.as_deref())?;
    let means = Means::of(&spec, &arguments.engine, arguments.output.screenshots, &arguments.fleet)?;
    start(spec, means.with_fleet(&arguments.fleet).await?, &output).await
}

/// Checks that the output files can be written, before anything is computed.
fn check_outputs(folder: &Path, record: Option<&Path>) -> Result<(), Failure> {
    writable::check_folder(folder, Some("--output-path (LUMOS_OUTPUT_PATH)"))?;
    // A folder inside the run's folder is created before the file is written.
    record.filter(|file| !file.starts_with(folder)).map_or(Ok(()), writable::check_file)
}

/// Plans a run and starts or resumes it.
async fn start(spec: ResolvedSpec, means: Means, output: &Output) -> CommandResult {
    let folder = spec.folder();
    let Planned { manifest, items } = prepare(spec, &means).await?;
    let known = match Manifest::read(&folder) {
        Ok(found) if found.identity == manifest.identity => true,
        // Returns the error with the differences.
        Ok(_) => {
            manifest.open_or_create(&folder).map_err(manifest_failure)?;
            true
        }
        Err(ManifestError::Missing { .. }) => false,
        Err(error) => return Err(manifest_failure(error)),
    };
    // Load a new run's models before its folder is created, so that a run that cannot start leaves no files.
    if !known {
        arrange_here(&manifest, &manifest.spec, &means).await?;
        load(&manifest, &means).await?;
    }
    let opened = manifest.open_or_create(&folder).map_err(manifest_failure)?;
    let manifest = match opened {
        Opened::Created => manifest,
        Opened::Continued(found) => Manifest { spec: manifest.spec, ..*found },
    };
    let checkpoint = open(&folder, means.stall_warning).await?;
    if checkpoint.plan()?.is_none() {
        let stored =
            items.iter().try_fold(0, |stored, one| one.store(&checkpoint).map(|count| stored + count));
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
    // From here on, items are read from the checkpoint, one at a time.
    drop(items);
    go_on(manifest, &folder, checkpoint, &means, output, !known).await
}

pub(crate) async fn resume(arguments: &ResumeArgs, quiet: bool) -> CommandResult {
    let folder = &arguments.runs.folder(&arguments.run)?;
    let mut manifest = Manifest::read(folder).map_err(manifest_failure)?;
    writable::check_folder(folder, None)?;
    arguments.record.as_deref().map_or(Ok(()), writable::check_file)?;
    remember(&mut manifest.spec, &arguments.memory);
    let output = Output { quiet, json: arguments.json, record: arguments.record.clone(), fail_under: None };
    let checkpoint = open(folder, stall_warning(&arguments.fleet)?).await?;
    if checkpoint.plan()?.is_none() {
        // Planning was interrupted: plan again, using the folder's current name.
        checkpoint.close()?;
        let mut spec = manifest.spec;
        (spec.output_path, spec.name) = named(folder)?;
        let means = Means::of(&spec, &EngineArgs::default(), arguments.screenshots, &arguments.fleet)?;
        return start(spec, means.with_fleet(&arguments.fleet).await?, &output).await;
    }
    let mut spec = manifest.spec.clone();
    (spec.output_path, spec.name) = named(folder)?;
    let means = Means::of(&spec, &EngineArgs::default(), arguments.screenshots, &arguments.fleet)?;
    let means = means.with_fleet(&arguments.fleet).await?;
    check_models(&manifest, &means.models).await?;
    go_on(manifest, folder, checkpoint, &means, &output, false).await
}

/// Memory settings of this command replace those of the run's specification.
fn remember(spec: &mut ResolvedSpec, memory: &MemoryArgs) {
    spec.memory = memory.memory.or(spec.memory);
    spec.swap = memory.swap.unwrap_or(spec.swap);
    spec.concurrency = memory.concurrency.or(spec.concurrency);
}

/// Fits a run's models in the available memory. Returns whether some take turns in it.
pub(super) async fn arrange(
    manifest: &Manifest,
    spec: &ResolvedSpec,
    models: &Arc<ModelRegistry>,
) -> Result<bool, Failure> {
    let configurations = manifest.configurations.iter().map(|one| Arc::clone(&one.configuration)).collect();
    arrange_all(configurations, spec.memory, spec.swap, models).await
}

/// As `arrange`, for configurations without a manifest.
pub(super) async fn arrange_all(
    configurations: Vec<Arc<Configuration>>,
    memory: Option<MemorySize>,
    swap: Swap,
    models: &Arc<ModelRegistry>,
) -> Result<bool, Failure> {
    let (models, memory) = (Arc::clone(models), memory.map(|memory| memory.0));
    let arranging = tokio::task::spawn_blocking(move || {
        models.arrange(configurations.iter().map(AsRef::as_ref), memory, swap)
    });
    let arranged = arranging.await?.map_err(Failure::usage)?;
    for device in &arranged.in_phases {
        tracing::info!("models are loaded in turns on {device}");
    }
    Ok(!arranged.in_phases.is_empty())
}

/// As `arrange`, if models are computed in this process.
async fn arrange_here(manifest: &Manifest, spec: &ResolvedSpec, means: &Means) -> Result<bool, Failure> {
    match means.fleet {
        Some(_) => Ok(false),
        None => arrange(manifest, spec, &means.models).await,
    }
}

/// Checks that the models have not changed since the run was planned.
pub(super) async fn check_models(manifest: &Manifest, models: &Arc<ModelRegistry>) -> Result<(), Failure> {
    for planned in &manifest.configurations {
        let configuration = &planned.configuration;
        for (role, planned) in &configuration.models {
            let (models, name, role) = (Arc::clone(models), planned.name.clone(), *role);
            let formulation = configuration.formulation;
            let found = tokio::task::spawn_blocking(move || models.identify(&name, role, formulation))
                .await?
                .map_err(Failure::usage)?;
            if found.identity.content != planned.content {
                return Err(Failure::input(format!(
                    "model `{}` has changed since the run was planned",
                    planned.name
                ))
                .hint("restore the old files to continue, or start another run with --name NAME"));
            }
        }
    }
    Ok(())
}

/// Returns the output path and the run's name for a folder.
fn named(folder: &Path) -> Result<(PathBuf, String), Failure> {
    let folder = folder.canonicalize()?;
    let name = folder.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    match (folder.parent(), name) {
        (Some(parent), Some(name)) => Ok((parent.to_owned(), name)),
        _ => Err(Failure::input(format!("not a run folder: `{}`", folder.display()))),
    }
}

async fn go_on(
    manifest: Manifest,
    folder: &Path,
    checkpoint: Checkpoint,
    means: &Means,
    output: &Output,
    loaded: bool,
) -> CommandResult {
    let prepared = async {
        if checkpoint.settled() >= manifest.planned() {
            return Ok(false);
        }
        let in_phases = arrange_here(&manifest, &manifest.spec, means).await?;
        if !loaded {
            load(&manifest, means).await?;
        }
        Ok(in_phases)
    };
    let in_phases = match prepared.await {
        Ok(in_phases) => in_phases,
        Err(failure) => {
            checkpoint.close()?;
            return Err(failure);
        }
    };
    let by = match &means.fleet {
        Some((server, settings)) => {
            session::Executor::Fleet { server: server.clone(), settings: settings.clone() }
        }
        None => session::Executor::Here {
            models: Arc::clone(&means.models),
            tools: Arc::clone(&means.tools),
            concurrency: settings::concurrency(&manifest.spec, in_phases),
            stall_warning: means.stall_warning,
        },
    };
    let session = session::Session { manifest, folder: folder.to_owned(), checkpoint, means: by, in_phases };
    let outcome = session.run(output).await;
    means.tools.close().await;
    outcome
}

pub(crate) async fn validate(arguments: &RunArgs) -> CommandResult {
    let spec = settings::resolve(arguments)?;
    check_outputs(&spec.folder(), arguments.output.record.as_deref())?;
    let means = Means::of(&spec, &arguments.engine, false, &arguments.fleet)?;
    let Planned { manifest, .. } = prepare(spec, &means).await?;
    let in_phases = arrange_here(&manifest, &manifest.spec, &means).await?;
    load(&manifest, &means).await?;
    if in_phases {
        println!("models are loaded in turns: each fits into memory, but not all together");
    }
    println!("run {}, folder {}", manifest.spec.name, manifest.spec.folder().display());
    for data in &manifest.data {
        println!(
            "{}: {} of {} records from {} (sha256 {})",
            data.benchmark,
            data.selected,
            data.records,
            data.source,
            data.sha256.short()
        );
    }
    for model in &manifest.models {
        println!("{} (content {})", model.identity.name, model.identity.content.short());
    }
    for planned in &manifest.configurations {
        println!("{}: {} units", planned.label, planned.planned);
    }
    println!("{} units; settings, data and models are valid", manifest.planned());
    match Manifest::read(&manifest.spec.folder()) {
        Ok(found) if found.identity == manifest.identity => {
            println!("the run exists: `lumos run` continues it");
        }
        Ok(_) => {
            manifest.open_or_create(&manifest.spec.folder()).map_err(manifest_failure)?;
        }
        Err(_) => {}
    }
    Ok(Exit::Complete)
}

/// Opens a run's checkpoint, and warns if that takes long.
async fn open(folder: &Path, limit: Duration) -> Result<Checkpoint, Failure> {
    reminded(limit, Wait::Checkpoint, session::open(folder, Checkpoint::create)).await
}

async fn prepare(spec: ResolvedSpec, means: &Means) -> Result<Planned, Failure> {
    let (models, tools) = (Arc::clone(&means.models), Arc::clone(&means.tools));
    let planning = tokio::task::spawn_blocking(move || planning::plan(spec, &models, &tools));
    reminded(means.stall_warning, Wait::Planning, planning).await?
}

/// Loads every model and initializes every tool, so that errors are reported before anything runs. Workers of
/// a queue load their own.
async fn load(manifest: &Manifest, means: &Means) -> Result<(), Failure> {
    if means.fleet.is_some() {
        return Ok(());
    }
    reminded(means.stall_warning, Wait::Loading, load_here(manifest, means)).await
}

async fn load_here(manifest: &Manifest, means: &Means) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    let mut models = Vec::new();
    for planned in &manifest.configurations {
        for (role, identity) in &planned.configuration.models {
            if seen.insert((&identity.content, &identity.dtype, *role)) {
                models.push((identity, *role, &planned.configuration));
            }
        }
        means.tools.of(&planned.configuration).await.map_err(Failure::usage)?;
    }
    // If models take turns, the last one loaded stays in memory; it should be the one that episodes use
    // first.
    for (identity, role, configuration) in models.into_iter().rev() {
        means.models.check(identity, role, configuration).await.map_err(Failure::usage)?;
    }
    Ok(())
}

fn manifest_failure(error: ManifestError) -> Failure {
    match error {
        // A full disk is not a usage error.
        ManifestError::Io { ref source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            Failure::from(error)
        }
        ManifestError::Differs { .. } => {
            Failure::usage(error).hint("choose another name with --name, or use the settings of the run")
        }
        error => Failure::usage(error),
    }
}
