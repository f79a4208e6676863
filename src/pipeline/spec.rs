//! The first stage: what a command asks for, and the models, tools and workers that execute it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lumos_coordinator::fleet::CoordinatorSettings;
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::spec::MemorySize;
use lumos_coordinator::spec::ResolvedSpec;
use lumos_models::{Identified, ModelRegistry, ModelsSettings};
use lumos_queue::nats::Server;
use lumos_tasks::{Configuration, Formulation, Role, Swap, ToolBackend};
use lumos_tools::ToolSets;
use lumos_worker::stall::{Wait, reminded};

use crate::cli::{FleetArgs, RunArgs, Verbosity};
use crate::exit::Failure;
use crate::progress::write_line;
use crate::{fleet, settings, writable};

/// Folder for screenshots in a run's folder.
const SCREENSHOTS: &str = "screenshots";

/// Hint for a model or tool that has changed since the run was planned.
const CHANGED: &str = "restore the old files to continue, or start another run with --name NAME";

/// Settings of a command that do not change what a run computes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// How much is printed.
    pub(crate) verbosity: Verbosity,
    /// Write events as JSON lines instead of progress and table.
    pub(crate) json: bool,
    /// File for the recorded cases.
    pub(crate) record: Option<PathBuf>,
    /// Lowest accuracy in percent for which the run succeeds.
    pub(crate) fail_under: Option<f64>,
    /// Whether to save screenshots of browsers.
    pub(crate) screenshots: bool,
    /// Time without progress before a warning that states the cause; zero disables the warning.
    pub(crate) stall_warning: Duration,
}

/// A resolved specification and its executor.
pub(crate) struct Spec {
    pub(crate) resolved: ResolvedSpec,
    pub(crate) executor: Executor,
}

/// What executes a run.
pub(crate) struct Executor {
    pub(crate) models: Arc<ModelRegistry>,
    pub(crate) tools: Arc<ToolSets>,
    /// The queue whose workers execute the run instead of this process.
    pub(crate) fleet: Option<(Server, CoordinatorSettings)>,
    pub(crate) options: Options,
}

impl Spec {
    /// Resolves the arguments of `run` and `validate`, and checks that the output files can be written.
    pub(crate) fn of(arguments: &RunArgs, verbosity: Verbosity) -> Result<Self, Failure> {
        let resolved = settings::resolve(arguments)?;
        let (folder, output) = (resolved.folder(), &arguments.output);
        writable::check_folder(&folder, Some("--output-path (LUMOS_OUTPUT_PATH)"))?;
        // A folder inside the run's folder is created before the file is written.
        if let Some(file) = output.record.as_deref().filter(|file| !file.starts_with(&folder)) {
            writable::check_file(file)?;
        }
        let models =
            settings::models_of(&resolved, &arguments.engine, settings::Computes::of(&arguments.fleet))?;
        let options = Options {
            verbosity,
            json: output.json,
            record: output.record.clone(),
            fail_under: arguments.limits.fail_under,
            screenshots: output.screenshots,
            stall_warning: fleet::stall_warning(&arguments.fleet)?,
        };
        Ok(Self { executor: Executor::new(models, &folder, options), resolved })
    }

    /// Adds the workers of a queue, if one is specified.
    pub(crate) async fn with_fleet(mut self, arguments: &FleetArgs) -> Result<Self, Failure> {
        self.executor.fleet = fleet::coordinator(arguments).await?;
        Ok(self)
    }
}

impl Executor {
    /// Creates the executor of the run in `folder`, in this process.
    pub(crate) fn new(models: ModelsSettings, folder: &Path, options: Options) -> Self {
        let screenshots = options.screenshots.then(|| folder.join(SCREENSHOTS));
        Self {
            models: Arc::new(ModelRegistry::new(models)),
            tools: Arc::new(ToolSets::with_screenshots(screenshots)),
            fleet: None,
            options,
        }
    }

    /// Checks that the models have not changed since the run was planned.
    pub(crate) async fn check_models(&self, manifest: &Manifest) -> Result<(), Failure> {
        for planned in &manifest.configurations {
            let formulation = planned.configuration.formulation;
            for (role, planned) in &planned.configuration.models {
                let (models, expected, role) = (Arc::clone(&self.models), planned.clone(), *role);
                let found = tokio::task::spawn_blocking(move || {
                    models.identify_planned(&expected, role, formulation)
                });
                let found = found.await?.map_err(Failure::usage)?;
                if found.identity.content != planned.content {
                    let changed = format!("model `{}` has changed since the run was planned", planned.name);
                    return Err(Failure::input(changed).hint(CHANGED));
                }
            }
        }
        Ok(())
    }

    /// Says what is not guaranteed about replies that a GPU computes again, if a run has any.
    pub(crate) fn note_gpu(manifest: &Manifest) {
        let configurations = manifest.configurations.iter();
        let identities = configurations.flat_map(|planned| planned.configuration.models.values());
        let mut types = identities.filter_map(|identity| identity.dtype.as_deref());
        if types.any(|text| text.contains("+cuda") && !text.starts_with("f32")) {
            write_line(format_args!(
                "note: models are computed on a GPU in half precision: near ties may be decided differently each time, except on \
                 cards where the check of docs/guide/gpus.md passes"
            ));
        }
    }

    /// Checks that the tools' backends have not changed since the run was planned. Blocks: reads their files.
    pub(crate) fn check_tools(&self, manifest: &Manifest) -> Result<(), Failure> {
        verify_tools(&self.tools, &planned_tools(manifest))
    }

    /// As [`Executor::check_tools`], on a blocking thread.
    pub(crate) async fn check_tools_of(&self, manifest: &Manifest) -> Result<(), Failure> {
        let (tools, planned) = (Arc::clone(&self.tools), planned_tools(manifest));
        tokio::task::spawn_blocking(move || verify_tools(&tools, &planned)).await?
    }

    /// Fits the models of configurations in the available memory, if they are computed in this process. Returns
    /// whether some take turns in it.
    pub(crate) async fn arrange(
        &self,
        configurations: Vec<Arc<Configuration>>,
        memory: Option<MemorySize>,
        swap: Swap,
    ) -> Result<bool, Failure> {
        if self.fleet.is_some() {
            return Ok(false);
        }
        let models = Arc::clone(&self.models);
        let arranging = tokio::task::spawn_blocking(move || {
            models.arrange(configurations.iter().map(AsRef::as_ref), memory.map(|memory| memory.0), swap)
        });
        let arranged = arranging.await?.map_err(Failure::usage)?;
        for device in &arranged.in_phases {
            tracing::info!("models are loaded in turns on {device}");
        }
        Ok(!arranged.in_phases.is_empty())
    }

    /// As [`Executor::arrange`], for the configurations of a run.
    pub(crate) async fn arrange_run(&self, manifest: &Manifest) -> Result<bool, Failure> {
        let configurations =
            manifest.configurations.iter().map(|one| Arc::clone(&one.configuration)).collect();
        self.arrange(configurations, manifest.spec.memory, manifest.spec.swap).await
    }

    /// Fits the models of a run in memory, loads them and initializes its tools, so that errors are reported before
    /// anything runs. Workers of a queue load their own. Returns whether models take turns.
    pub(crate) async fn prepare(&self, manifest: &Manifest) -> Result<bool, Failure> {
        let in_phases = self.arrange_run(manifest).await?;
        if self.fleet.is_none() {
            reminded(self.options.stall_warning, Wait::Loading, self.load(manifest)).await?;
        }
        Ok(in_phases)
    }

    async fn load(&self, manifest: &Manifest) -> Result<(), Failure> {
        let mut seen = BTreeSet::new();
        let mut models = Vec::new();
        for planned in &manifest.configurations {
            for (role, identity) in &planned.configuration.models {
                if seen.insert((&identity.content, &identity.dtype, *role)) {
                    models.push((identity, *role, &planned.configuration));
                }
            }
            self.tools.of(&planned.configuration).await.map_err(Failure::usage)?;
        }
        // If models take turns, the last one loaded stays in memory; it should be the one that episodes use
        // first.
        for (identity, role, configuration) in models.into_iter().rev() {
            self.models.check(identity, role, configuration).await.map_err(Failure::usage)?;
        }
        Ok(())
    }
}

/// Returns the tools of a run's configurations, each once.
fn planned_tools(manifest: &Manifest) -> Vec<ToolBackend> {
    let mut planned: Vec<ToolBackend> = Vec::new();
    for tool in manifest.configurations.iter().flat_map(|one| &one.configuration.tools) {
        if !planned.contains(tool) {
            planned.push(tool.clone());
        }
    }
    planned
}

fn verify_tools(tools: &ToolSets, planned: &[ToolBackend]) -> Result<(), Failure> {
    planned.iter().try_for_each(|tool| tools.verify(tool)).map_err(|why| Failure::input(why).hint(CHANGED))
}

/// Identifies a model on a blocking thread.
pub(crate) async fn identify(
    models: &Arc<ModelRegistry>,
    name: &str,
    role: Role,
    formulation: Formulation,
) -> Result<Identified, Failure> {
    let (models, name) = (Arc::clone(models), name.to_owned());
    let identified = tokio::task::spawn_blocking(move || models.identify(&name, role, formulation));
    identified.await?.map_err(Failure::usage)
}
