//! Models by content: named once, loaded once, kept.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use lumos_engine::{LoadError, ModelSource, RotaryPrecision};
use lumos_tasks::{Configuration, ContentHash, Fault, FaultKind, Formulation, ModelIdentity, Role};
use thiserror::Error;
use tokio::sync::{Mutex, OnceCell};

use super::engine::{EngineBackend, EngineSettings};
use super::files::ModelFile;
use super::name::{ModelName, NameError};
use super::script::{Script, ScriptBackend};
use super::{ModelBackend, builtin, files};
use crate::drive::Backends;
use crate::tools::ToolSets;

/// Why a name could not be turned into an identity.
#[derive(Debug, Error)]
pub enum IdentifyError {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The model has nothing for this role.
    #[error(
        "{name} has no {role}; use it for planner and grounder (formulations iterative, onetime, integrated)"
    )]
    NoSuchRole {
        /// The model's name.
        name: String,
        /// The role asked for.
        role: Role,
    },
    /// A file cannot be read.
    #[error("model {name}: cannot read {}: {source}; check that it is there and that you may read it", path.display())]
    Unreadable {
        /// The model's name.
        name: String,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder is no model's.
    #[error("model {name}: {} holds no weights; copy *.safetensors or pytorch_model*.bin into it", path.display())]
    NoWeights {
        /// The model's name.
        name: String,
        /// The folder.
        path: PathBuf,
    },
}

/// A model's identity and the files it was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// The identity.
    pub identity: ModelIdentity,
    /// The files, sorted by name.
    pub files: Vec<ModelFile>,
}

/// Why a model could not be loaded.
#[derive(Debug, Clone, Error)]
#[error("model {name}: {message}")]
pub struct LoadModelError {
    /// The model's name.
    pub name: String,
    /// What went wrong, and a remedy.
    pub message: String,
}

/// What names a loaded thing: content and the type it computes in.
type Key = (ContentHash, Option<String>);

/// One slot: filled by the first who asks, awaited by the others.
type Slot<T> = Arc<OnceCell<Arc<T>>>;

/// The models of a worker.
pub struct Models {
    settings: EngineSettings,
    engines: Mutex<HashMap<Key, Slot<EngineBackend>>>,
    scripts: Mutex<HashMap<ContentHash, Slot<Script>>>,
}

impl Models {
    /// No model is loaded yet.
    pub fn new(settings: EngineSettings) -> Self {
        Self { settings, engines: Mutex::default(), scripts: Mutex::default() }
    }

    /// The identity of the model that a name means for a role: hashes of what would be loaded. Reads files, so
    /// it blocks.
    ///
    /// # Errors
    /// See [`IdentifyError`].
    pub fn identify(
        &self,
        name: &str,
        role: Role,
        formulation: Formulation,
    ) -> Result<Identified, IdentifyError> {
        let unreadable = |path: &PathBuf, source| IdentifyError::Unreadable {
            name: name.to_owned(),
            path: path.clone(),
            source,
        };
        let computed_in = |rotary| Some(EngineSettings { rotary, ..self.settings }.computed_in());
        let (files, dtype) = match name.parse()? {
            ModelName::BuiltinTiny => {
                let files = builtin::files(role, formulation)
                    .ok_or_else(|| IdentifyError::NoSuchRole { name: name.to_owned(), role })?;
                // Ours were trained and measured in full precision.
                (builtin::listed(files), computed_in(RotaryPrecision::Full))
            }
            ModelName::Candle(folder) => {
                let files = files::of_folder(&folder).map_err(|source| unreadable(&folder, source))?;
                let is_weights = |name: &str| name.ends_with(".safetensors") || name.ends_with(".bin");
                if !files.iter().any(|file| is_weights(&file.name)) {
                    return Err(IdentifyError::NoWeights { name: name.to_owned(), path: folder });
                }
                (files, computed_in(self.settings.rotary))
            }
            ModelName::Script(file) => {
                (vec![ModelFile::read(&file).map_err(|source| unreadable(&file, source))?], None)
            }
        };
        let identity = ModelIdentity { name: name.to_owned(), content: files::identity(&files), dtype };
        Ok(Identified { identity, files })
    }

    /// The backends of a configuration; what is not loaded yet is loaded.
    ///
    /// # Errors
    /// If a model cannot be loaded or a tool's backend is unknown.
    pub async fn backends(&self, configuration: &Configuration, tools: &ToolSets) -> Result<Backends, Fault> {
        let mut models: BTreeMap<Role, Arc<dyn ModelBackend>> = BTreeMap::new();
        for (role, identity) in &configuration.models {
            let model = self
                .get(identity, *role, configuration)
                .await
                .map_err(|error| Fault { kind: FaultKind::Model, message: error.to_string() })?;
            models.insert(*role, model);
        }
        let tools = tools
            .of(configuration)
            .map_err(|error| Fault { kind: FaultKind::Tool, message: error.to_string() })?;
        Ok(Backends { models, tools })
    }

    /// The backend of one model.
    ///
    /// # Errors
    /// If it cannot be loaded.
    pub async fn get(
        &self,
        identity: &ModelIdentity,
        role: Role,
        configuration: &Configuration,
    ) -> Result<Arc<dyn ModelBackend>, LoadModelError> {
        let failed = |message: String| LoadModelError { name: identity.name.clone(), message };
        let name: ModelName = identity.name.parse().map_err(|error: NameError| failed(error.to_string()))?;
        let source = match name {
            ModelName::Script(file) => {
                let slot = self.scripts.lock().await.entry(identity.content.clone()).or_default().clone();
                let script = slot
                    .get_or_try_init(|| blocking(move || Script::read(&file)))
                    .await
                    .map_err(|error| failed(error.to_string()))?;
                return Ok(Arc::new(ScriptBackend {
                    script: Arc::clone(script),
                    benchmark: configuration.benchmark.clone(),
                    formulation: configuration.formulation,
                }));
            }
            ModelName::BuiltinTiny => builtin::source(role, configuration.formulation)
                .ok_or_else(|| failed(format!("it has no {role}")))?,
            ModelName::Candle(folder) => ModelSource::Folder(folder),
        };
        let key = (identity.content.clone(), identity.dtype.clone());
        let slot = self.engines.lock().await.entry(key).or_default().clone();
        let settings = self.settings.computing_in(identity.dtype.as_deref());
        let engine = slot
            .get_or_try_init(|| blocking(move || EngineBackend::load(source, settings)))
            .await
            .map_err(|error| failed(error.to_string()))?;
        Ok(Arc::clone(engine) as Arc<dyn ModelBackend>)
    }

    /// How many engines are loaded: one per content, however many roles and configurations share it.
    pub async fn loaded(&self) -> usize {
        self.engines.lock().await.values().filter(|slot| slot.initialized()).count()
    }
}

/// What loading on a blocking thread can fail with.
#[derive(Debug, Error)]
enum Blocking {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("loading was cut short: {0}")]
    Join(#[from] tokio::task::JoinError),
}

async fn blocking<T, E>(load: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<Arc<T>, Blocking>
where
    T: Send + 'static,
    E: Send + 'static,
    Blocking: From<E>,
{
    Ok(tokio::task::spawn_blocking(load).await?.map(Arc::new)?)
}
