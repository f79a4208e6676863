//! The models of a worker, by content. Each is identified once, loaded once and kept.

mod placing;
mod prompts;
mod uses;

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use lumos_engine::{LoadError, ModelFiles, ModelSource, Tokenizer};
use lumos_http::AccessPolicy;
use lumos_tasks::{
    Configuration, ContentHash, Device, EngineUse, Formulation, ModelIdentity, PromptTemplate, Role,
    ServerUse,
};
use thiserror::Error;
use tokio::sync::{Mutex, OnceCell};

use self::placing::Placed;
pub use self::placing::{Arranged, PlacingError};
pub use self::prompts::{PromptRenderer, SentPrompt};
use self::uses::Uses;
use crate::ModelBackend;
use crate::builtin::{BuiltinDomain, builtin_files, builtin_listed, builtin_with};
use crate::engine::EngineBackend;
use crate::error::{IdentifyError, LoadModelError};
use crate::files::{self, ModelFile};
use crate::hub::Hub;
use crate::in_process;
use crate::located::{LocateError, locate};
use crate::name::ModelName;
use crate::openai::{OpenAiBackend, OpenAiName, Servers};
use crate::script::{Script, ScriptBackend};
use crate::settings::{EngineSettings, ModelsSettings};
use crate::swap_lock::Load;

/// A model's identity and the files it was computed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// The identity.
    pub identity: ModelIdentity,
    /// The files, sorted by name.
    pub files: Vec<ModelFile>,
}

impl Identified {
    /// Size of its weights in bytes, as stored.
    pub fn bytes(&self) -> u64 {
        self.files.iter().filter(|file| file.is_weights()).map(|file| file.bytes).sum()
    }
}

/// Whether the price of a model is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelPricing {
    /// The model runs in this process and costs nothing.
    Free,
    /// A price is configured.
    Known,
    /// The model may cost money, but no price is configured.
    Unknown {
        /// Name of the model on the server.
        model: String,
    },
}

/// Key of an engine: content, data type and device.
pub(super) type Key = (ContentHash, Option<String>, Device);

/// A loaded model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedModel {
    /// Its identity, with the name by which it was first requested.
    pub identity: ModelIdentity,
    /// Size of its weights in bytes, as stored.
    pub bytes: u64,
}

/// A slot for one model. The first request loads it; further requests wait for that.
struct Slot<T> {
    identity: ModelIdentity,
    loaded: Arc<OnceCell<Loaded<T>>>,
}

#[derive(Clone)]
struct Loaded<T> {
    backend: Arc<T>,
    bytes: u64,
}

impl<T> Slot<T> {
    fn new(identity: &ModelIdentity) -> Self {
        Self { identity: identity.clone(), loaded: Arc::default() }
    }

    fn listed(&self) -> Option<LoadedModel> {
        let bytes = self.loaded.get()?.bytes;
        Some(LoadedModel { identity: self.identity.clone(), bytes })
    }
}

/// A model of a backend that the program adds.
struct AddedModel(Arc<dyn ModelBackend>);

/// The models of a worker.
pub struct ModelRegistry {
    pub(super) settings: ModelsSettings,
    /// The engines' shares of limited memory.
    placed: Placed,
    uses: Arc<Uses>,
    engines: Mutex<HashMap<Key, Slot<EngineBackend>>>,
    scripts: Mutex<HashMap<ContentHash, Slot<Script>>>,
    remotes: Mutex<HashMap<ContentHash, Slot<OpenAiBackend>>>,
    added: Mutex<HashMap<ContentHash, Slot<AddedModel>>>,
    servers: Arc<Servers>,
    hub: Arc<Hub>,
}

impl ModelRegistry {
    /// Creates a registry without loaded models.
    pub fn new(settings: impl Into<ModelsSettings>) -> Self {
        let settings = settings.into();
        let hub = Arc::new(Hub::new(settings.hub.clone()));
        Self {
            settings,
            placed: Placed::default(),
            uses: Arc::default(),
            engines: Mutex::default(),
            scripts: Mutex::default(),
            remotes: Mutex::default(),
            added: Mutex::default(),
            servers: Arc::default(),
            hub,
        }
    }

    /// As [`ModelRegistry::identify_for`], for mathematics.
    ///
    /// # Errors
    /// See [`IdentifyError`].
    pub fn identify(
        &self,
        name: &str,
        role: Role,
        formulation: Formulation,
    ) -> Result<Identified, IdentifyError> {
        self.identify_for(BuiltinDomain::Maths, name, role, formulation)
    }

    /// Returns the identity of the model on this host that should be the one with a planned identity. Blocks, as
    /// [`ModelRegistry::identify_for`].
    ///
    /// # Errors
    /// See [`IdentifyError`].
    pub fn identify_planned(
        &self,
        planned: &ModelIdentity,
        role: Role,
        formulation: Formulation,
    ) -> Result<Identified, IdentifyError> {
        if let ModelName::BuiltinTiny = self.permitted(&planned.name)?
            && let Some(files) = builtin_with(&planned.content)
        {
            return Ok(self.identified_builtin(&planned.name, role, files));
        }
        self.identify(&planned.name, role, formulation)
    }

    fn identified_builtin(&self, name: &str, role: Role, files: &ModelFiles) -> Identified {
        let files = builtin_listed(files);
        let dtype = Some(self.settings.engine_of(role).computed_in(true));
        let identity = ModelIdentity { name: name.to_owned(), content: files::identity(&files), dtype };
        Identified { identity, files }
    }

    /// Returns the identity of the model that a name means for a role in a domain: the hashes of the files that would
    /// be loaded. The domain matters for `builtin:tiny`. Blocks, because it reads files and downloads missing files
    /// from the hub. For a hub model, the name in the identity includes the commit.
    ///
    /// # Errors
    /// See [`IdentifyError`].
    pub fn identify_for(
        &self,
        domain: BuiltinDomain,
        name: &str,
        role: Role,
        formulation: Formulation,
    ) -> Result<Identified, IdentifyError> {
        let engine = self.settings.engine_of(role);
        let mut known_as = name.to_owned();
        let (files, dtype) = match self.permitted(name)? {
            ModelName::OpenAi(here) => return self.identify_remote(name, &here),
            ModelName::Added(here) => {
                let content = here.content().map_err(|message| IdentifyError::unusable(name, message))?;
                let identity = ModelIdentity { name: known_as, content, dtype: None };
                return Ok(Identified { identity, files: Vec::new() });
            }
            ModelName::BuiltinTiny => {
                let files =
                    builtin_files(domain, role, formulation).ok_or_else(|| unsupported(name, role))?;
                return Ok(self.identified_builtin(name, role, files));
            }
            ModelName::Candle(path) => self.located(name, &path, engine, &mut known_as)?,
            ModelName::Lumos(pair) => {
                let asked = pair
                    .resolve(role, formulation)
                    .map_err(|message| IdentifyError::unusable(name, message))?;
                self.located(name, Path::new(&asked.to_string()), engine, &mut known_as)?
            }
            ModelName::Script(file) => {
                (vec![ModelFile::read(&file).map_err(|source| unreadable(name, &file, source))?], None)
            }
        };
        let identity = ModelIdentity { name: known_as, content: files::identity(&files), dtype };
        Ok(Identified { identity, files })
    }

    /// Resolves a name on this host and checks that it may be used. Files of the engine's models are checked
    /// when they are located, because the base of an adapter is only known then.
    fn permitted(&self, name: &str) -> Result<ModelName, IdentifyError> {
        let here: ModelName = self.settings.here(name).parse()?;
        let access = self.access_of(name);
        let checked = match &here {
            ModelName::Script(file) => access.check_path(file),
            ModelName::OpenAi(server) => {
                let wrong = |message| IdentifyError::unusable(&here, message);
                access.check_url(&server.clone().resolved().map_err(wrong)?.1)
            }
            ModelName::Added(name) => (name.description.check)(&name.model, &access),
            ModelName::BuiltinTiny | ModelName::Candle(_) | ModelName::Lumos(_) => Ok(()),
        };
        let refused = |refusal| IdentifyError::NotAllowed { name: name.to_owned(), refusal };
        checked.map(|()| here).map_err(refused)
    }

    /// Returns the access policy for a name. Names that the operator of this worker maps to local ones are
    /// unrestricted.
    fn access_of(&self, name: &str) -> AccessPolicy {
        if self.settings.here(name) == name { self.settings.access.clone() } else { AccessPolicy::default() }
    }

    /// Whether hub models are accepted for this name only at a commit.
    fn pinned_only(&self, name: &str) -> bool {
        self.settings.pinned_only && self.settings.here(name) == name
    }

    /// Returns the files that a path refers to and the data type of the engine. The name of a hub model is
    /// pinned to its commit, so that all workers of the run use the same files, unless this host maps the
    /// name.
    fn located(
        &self,
        name: &str,
        path: &Path,
        engine: EngineSettings,
        known_as: &mut String,
    ) -> Result<(Vec<ModelFile>, Option<String>), IdentifyError> {
        let failed = |source| match source {
            LocateError::NotAllowed(refusal) => IdentifyError::NotAllowed { name: name.to_owned(), refusal },
            source => IdentifyError::Located { name: name.to_owned(), source: Box::new(source) },
        };
        let located =
            locate(path, &self.hub, self.pinned_only(name), &self.access_of(name)).map_err(failed)?;
        if let Some(pinned) = located.pinned.filter(|_| self.settings.here(name) == name) {
            *known_as = pinned;
        }
        let backend = in_process::resolved(engine.backend, &located.source);
        // A model without a valid tokenizer fails when it is loaded.
        let is_unique =
            Tokenizer::of(&located.source).map_or(true, |tokenizer| tokenizer.newline_is_unique());
        let computed_in = EngineSettings { backend, ..engine }.computed_in(is_unique);
        Ok((files_of(name, located.source)?, Some(computed_in)))
    }

    /// Returns the identity of a server's model: its name and address, because its weights cannot be hashed.
    /// If this host maps the name to another server ([`ModelsSettings::names`]), the identity is that of the
    /// planned name.
    fn identify_remote(&self, name: &str, here: &OpenAiName) -> Result<Identified, IdentifyError> {
        let wrong = |message| IdentifyError::unusable(here, message);
        let planned = match name.parse()? {
            ModelName::OpenAi(planned) => planned,
            _ => here.clone(),
        };
        let (planned, _) = planned.resolved().map_err(wrong)?;
        // Reports invalid settings before the run starts.
        self.servers.backend(here.clone(), self.settings.openai.as_ref()).map_err(wrong)?;
        let identity = ModelIdentity { name: planned.to_string(), content: planned.content(), dtype: None };
        Ok(Identified { identity, files: Vec::new() })
    }

    /// Whether the price of a model is known.
    ///
    /// # Errors
    /// If the name or the settings of its server are invalid.
    pub fn pricing(&self, name: &str) -> Result<ModelPricing, IdentifyError> {
        let ModelName::OpenAi(here) = self.settings.here(name).parse()? else {
            return Ok(ModelPricing::Free);
        };
        let (name, model) = (here.to_string(), here.model.clone());
        let backend = self.servers.backend(here, self.settings.openai.as_ref());
        let backend = backend.map_err(|message| IdentifyError::unusable(name, message))?;
        Ok(if backend.is_priced() { ModelPricing::Known } else { ModelPricing::Unknown { model } })
    }

    /// Returns the backend of one model.
    ///
    /// # Errors
    /// If it cannot be loaded.
    pub async fn get(
        &self,
        identity: &ModelIdentity,
        role: Role,
        configuration: &Configuration,
    ) -> Result<Arc<dyn ModelBackend>, LoadModelError> {
        let failed = |message: String| LoadModelError::new(&identity.name, message);
        let name = self.name_of(identity)?;
        match name {
            ModelName::Script(file) => {
                let cell = cell(&self.scripts, identity.content.clone(), identity).await;
                let loaded = cell
                    .get_or_try_init(|| {
                        blocking(move || {
                            let bytes = std::fs::metadata(&file)?.len();
                            Script::read(&file).map(|script| (script, bytes))
                        })
                    })
                    .await
                    .map_err(|error| failed(error.to_string()))?;
                return Ok(Arc::new(ScriptBackend {
                    script: Arc::clone(&loaded.backend),
                    benchmark: configuration.benchmark.clone(),
                    formulation: configuration.formulation,
                    latency: self.settings.script_latency,
                }));
            }
            ModelName::OpenAi(name) => return Ok(self.remote(name, identity).await?),
            ModelName::Added(name) => {
                let cell = cell(&self.added, identity.content.clone(), identity).await;
                let open = move || (name.description.open)(&name.model).map(|model| (AddedModel(model), 0));
                let open = || blocking(move || open().map_err(io::Error::other));
                let loaded = cell.get_or_try_init(open).await.map_err(|error| failed(error.to_string()))?;
                return Ok(Arc::clone(&loaded.backend.0));
            }
            ModelName::BuiltinTiny | ModelName::Candle(_) | ModelName::Lumos(_) => {}
        }
        let key = self.key(identity, role);
        let source = self.engine_source(identity, role, configuration.formulation)?;
        let mut load = EngineLoad { settings: self.engine_settings(identity, role)?, ..source };
        if let Some(share) = self.placed.share(&key) {
            load.settings.memory = Some(share);
        }
        let phased = self.placed.phased(&key, identity, || Arc::new(load.clone()));
        self.uses.asked(&key, identity, role, phased.is_some());
        if let Some(backend) = phased {
            return Ok(backend);
        }
        let cell = cell(&self.engines, key, identity).await;
        let loaded =
            cell.get_or_try_init(|| blocking(move || load.load())).await.map_err(|error| LoadModelError {
                is_exhaustion: matches!(&error, Blocking::Load(error) if error.is_exhaustion()),
                ..failed(error.to_string())
            })?;
        // Models that take turns are checked when their first prompt is rendered.
        if configuration.format.template == PromptTemplate::Chat {
            loaded.backend.chat.check_own().map_err(failed)?;
        }
        Ok(Arc::clone(&loaded.backend) as Arc<dyn ModelBackend>)
    }

    /// Returns the backend of a server's model.
    pub(super) async fn remote(
        &self,
        name: OpenAiName,
        identity: &ModelIdentity,
    ) -> Result<Arc<OpenAiBackend>, LoadModelError> {
        let cell = cell(&self.remotes, identity.content.clone(), identity).await;
        let loaded = cell
            .get_or_try_init(|| async {
                let backend = self.servers.backend(name, self.settings.openai.as_ref())?;
                Ok::<_, String>(Loaded { backend: Arc::new(backend), bytes: 0 })
            })
            .await
            .map_err(|message| LoadModelError::new(&identity.name, message))?;
        Ok(Arc::clone(&loaded.backend))
    }

    /// Resolves the name of a model on this host.
    pub(super) fn name_of(&self, identity: &ModelIdentity) -> Result<ModelName, LoadModelError> {
        let name = &identity.name;
        self.permitted(name).map_err(|error| match error {
            IdentifyError::NotAllowed { refusal, .. } => LoadModelError::new(name, refusal.to_string()),
            error => LoadModelError::new(name, error.to_string()),
        })
    }

    /// Returns the key of a model's engine for a role.
    pub(super) fn key(&self, identity: &ModelIdentity, role: Role) -> Key {
        (identity.content.clone(), identity.dtype.clone(), self.settings.placement.of(role))
    }

    /// Returns the settings for loading a model's engine for a role.
    ///
    /// # Errors
    /// When the model was planned to be computed in a way that this version does not support.
    pub fn engine_settings(
        &self,
        identity: &ModelIdentity,
        role: Role,
    ) -> Result<EngineSettings, LoadModelError> {
        let settings = self.settings.engine_of(role).computing_in(identity.dtype.as_deref());
        settings.map_err(|message| LoadModelError::new(&identity.name, message))
    }

    /// Whether the model runs on an engine in this process.
    pub(super) fn is_engine(&self, identity: &ModelIdentity) -> Result<bool, LoadModelError> {
        Ok(!matches!(
            self.name_of(identity)?,
            ModelName::Script(_) | ModelName::OpenAi(_) | ModelName::Added(_)
        ))
    }

    /// Returns how to load the engine of a model.
    pub(super) fn engine_source(
        &self,
        identity: &ModelIdentity,
        role: Role,
        formulation: Formulation,
    ) -> Result<EngineLoad, LoadModelError> {
        let failed = |message: String| LoadModelError::new(&identity.name, message);
        let place = match self.name_of(identity)? {
            ModelName::BuiltinTiny => {
                let files = builtin_with(&identity.content)
                    .or_else(|| builtin_files(BuiltinDomain::Maths, role, formulation));
                let files = files.ok_or_else(|| failed(format!("unsupported role {role}")))?;
                Place::Known(ModelSource::Memory(*files))
            }
            ModelName::Candle(path) => Place::Path(path),
            ModelName::Lumos(pair) => {
                let asked = pair.resolve(role, formulation).map_err(failed)?;
                Place::Path(asked.to_string().into())
            }
            ModelName::Script(_) | ModelName::OpenAi(_) | ModelName::Added(_) => {
                return Err(failed("not a model of the engine".to_owned()));
            }
        };
        Ok(EngineLoad {
            name: identity.name.clone(),
            place,
            pinned_only: self.pinned_only(&identity.name),
            access: self.access_of(&identity.name),
            hub: Arc::clone(&self.hub),
            settings: self.settings.engine,
            key: self.key(identity, role),
            uses: Arc::clone(&self.uses),
        })
    }

    /// Removes a model. Its memory is freed when the last episode that uses it ends.
    pub async fn unload(&self, identity: &ModelIdentity) {
        let same = |(content, dtype, _): &Key| *content == identity.content && *dtype == identity.dtype;
        // Bound to names, so that they are dropped after the locks are released.
        let _engines: Vec<_> = self.engines.lock().await.extract_if(|key, _| same(key)).collect();
        self.placed.unload(same).await;
        let _script = self.scripts.lock().await.remove(&identity.content);
        let _remote = self.remotes.lock().await.remove(&identity.content);
        let _added = self.added.lock().await.remove(&identity.content);
    }

    /// Lists the loaded models, sorted by content.
    pub async fn list(&self) -> Vec<LoadedModel> {
        let mut listed: Vec<_> = self.engines.lock().await.values().filter_map(Slot::listed).collect();
        listed.extend(self.placed.listed());
        listed.extend(self.scripts.lock().await.values().filter_map(Slot::listed));
        listed.extend(self.remotes.lock().await.values().filter_map(Slot::listed));
        listed.extend(self.added.lock().await.values().filter_map(Slot::listed));
        listed.sort_by(|one, other| {
            let key = |model: &LoadedModel| (model.identity.content.clone(), model.identity.dtype.clone());
            key(one).cmp(&key(other))
        });
        listed
    }

    /// Lists the model servers used so far, with the number of requests that were in progress at the same time.
    pub fn servers(&self) -> Vec<ServerUse> {
        self.servers.used()
    }

    /// Lists the engines requested so far, with the cost of loading them.
    pub fn engines(&self) -> Vec<EngineUse> {
        self.uses.told()
    }
}

/// How to load an engine, from local files or files that are downloaded first.
#[derive(Clone)]
pub(super) struct EngineLoad {
    name: String,
    place: Place,
    pinned_only: bool,
    access: AccessPolicy,
    hub: Arc<Hub>,
    pub(super) settings: EngineSettings,
    key: Key,
    uses: Arc<Uses>,
}

impl EngineLoad {
    /// Returns the files on this host. Blocks while they are downloaded.
    pub(super) fn source(&self) -> Result<ModelSource, Blocking> {
        Ok(match &self.place {
            Place::Known(source) => source.clone(),
            Place::Path(path) => locate(path, &self.hub, self.pinned_only, &self.access)?.source,
        })
    }

    /// Loads the engine. Returns it with the size of its weights in bytes, as stored. Blocks.
    fn load(&self) -> Result<(EngineBackend, u64), Blocking> {
        let source = self.source()?;
        let bytes = weights(&source)?;
        // Download time is not included.
        let began = Instant::now();
        let loaded = EngineBackend::load(source, self.settings);
        self.uses.loaded(&self.key, loaded.as_ref().ok(), began.elapsed());
        let loaded = loaded?;
        EngineSettings::check_line_ends(self.key.1.as_deref(), loaded.model.newline_is_unique())
            .map_err(Blocking::Planned)?;
        Ok((loaded, bytes))
    }
}

#[async_trait]
impl Load for EngineLoad {
    async fn load(&self) -> Result<Arc<dyn ModelBackend>, String> {
        let load = self.clone();
        let loaded = blocking(move || Self::load(&load)).await;
        match loaded {
            Ok(Loaded { backend, .. }) => Ok(backend),
            Err(error) => Err(format!("model {}: {error}", self.name)),
        }
    }
}

/// Errors of loading on a blocking thread.
#[derive(Debug, Error)]
pub(super) enum Blocking {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Located(#[from] LocateError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Planned(String),
    #[error("loading was interrupted: {0}")]
    Join(#[from] tokio::task::JoinError),
}

/// Source of an engine's model.
#[derive(Clone)]
enum Place {
    Known(ModelSource),
    /// The part after `candle:`.
    Path(PathBuf),
}

/// Returns the cell of a model's slot, creating the slot if it does not exist.
async fn cell<K: Eq + Hash, T>(
    slots: &Mutex<HashMap<K, Slot<T>>>,
    key: K,
    identity: &ModelIdentity,
) -> Arc<OnceCell<Loaded<T>>> {
    let mut slots = slots.lock().await;
    Arc::clone(&slots.entry(key).or_insert_with(|| Slot::new(identity)).loaded)
}

/// Returns the files of a model: those of its folder, those of a base and an adapter, or the single file.
fn files_of(name: &str, source: ModelSource) -> Result<Vec<ModelFile>, IdentifyError> {
    type Read = fn(&Path) -> io::Result<Vec<ModelFile>>;
    let places: Vec<(PathBuf, Read)> = match source {
        ModelSource::Folder(folder) => vec![(folder, files::of_folder)],
        ModelSource::Adapted { base, adapter } => {
            vec![(base, files::of_folder), (adapter, files::of_adapter)]
        }
        ModelSource::Gguf(file) => vec![(file, |file| ModelFile::read(file).map(|file| vec![file]))],
        ModelSource::Memory(_) | ModelSource::Random { .. } => Vec::new(),
    };
    let mut all = Vec::new();
    for (folder, read) in places {
        let files = read(&folder).map_err(|source| unreadable(name, &folder, source))?;
        if !files.iter().any(ModelFile::is_weights) {
            let hint = "copy *.safetensors, pytorch_model*.bin or a *.gguf into it";
            let message = format!("no weights in {}; hint: {hint}", folder.display());
            return Err(IdentifyError::unusable(name, message));
        }
        all.extend(files);
    }
    all.sort();
    Ok(all)
}

fn unsupported(name: &str, role: Role) -> IdentifyError {
    IdentifyError::Unusable(format!(
        "model {name} cannot be used as {role}; hint: use it as planner and grounder (formulations \
         iterative, onetime, integrated)"
    ))
}

fn unreadable(name: &str, path: &Path, source: io::Error) -> IdentifyError {
    IdentifyError::Unreadable { name: name.to_owned(), path: path.to_owned(), source }
}

/// Size in bytes of the weights that would be loaded.
fn weights(source: &ModelSource) -> io::Result<u64> {
    match source {
        ModelSource::Memory(files) => Ok(files.weights.len() as u64),
        ModelSource::Folder(folder) => files::weights_in(folder),
        ModelSource::Gguf(file) => Ok(std::fs::metadata(file)?.len()),
        ModelSource::Adapted { base, adapter } => {
            Ok(files::weights_in(base)? + files::adapter_weights_in(adapter)?)
        }
        ModelSource::Random { shape, .. } => Ok(shape.parameters() * size_of::<f32>() as u64),
    }
}

async fn blocking<T, E>(
    load: impl FnOnce() -> Result<(T, u64), E> + Send + 'static,
) -> Result<Loaded<T>, Blocking>
where
    T: Send + 'static,
    E: Send + 'static,
    Blocking: From<E>,
{
    let (backend, bytes) = tokio::task::spawn_blocking(load).await??;
    Ok(Loaded { backend: Arc::new(backend), bytes })
}
