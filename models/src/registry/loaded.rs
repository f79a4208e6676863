//! [`ModelRegistry`]: the loaded models of a worker, each in a slot that its first request fills.
//!
//! Engines are kept by content, data type and device, other models by content. Engines that share a limited memory in
//! phases are kept by [`Placed`] instead.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::sync::Arc;

use lumos_tasks::{
    Configuration, ContentHash, Device, EngineUse, ModelIdentity, PromptTemplate, Role, ServerUse,
};
use tokio::sync::{Mutex, OnceCell};

use super::loading::{Blocking, Loaded, VerifiedFiles, blocking};
use super::placing::Placed;
use super::uses::Uses;
use crate::ModelBackend;
use crate::engine::EngineBackend;
use crate::error::LoadModelError;
use crate::hub::Hub;
use crate::name::ModelName;
use crate::openai::{OpenAiBackend, OpenAiName, Servers};
use crate::script::{Script, ScriptBackend};
use crate::settings::{ModelsSettings, resolved};

/// Key of an engine: content, data type and device, which is never [`Device::Auto`].
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
    pub(super) placed: Placed,
    pub(super) uses: Arc<Uses>,
    pub(super) verified: Arc<VerifiedFiles>,
    engines: Mutex<HashMap<Key, Slot<EngineBackend>>>,
    scripts: Mutex<HashMap<ContentHash, Slot<Script>>>,
    remotes: Mutex<HashMap<ContentHash, Slot<OpenAiBackend>>>,
    added: Mutex<HashMap<ContentHash, Slot<AddedModel>>>,
    pub(super) servers: Arc<Servers>,
    pub(super) hub: Arc<Hub>,
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
            verified: Arc::default(),
            engines: Mutex::default(),
            scripts: Mutex::default(),
            remotes: Mutex::default(),
            added: Mutex::default(),
            servers: Arc::default(),
            hub,
        }
    }

    /// Returns a loaded script. Whether its file may be used was checked when it was loaded, so that not every episode
    /// resolves the path.
    async fn loaded_script(&self, identity: &ModelIdentity) -> Option<Arc<Script>> {
        let name: ModelName = self.settings.here(&identity.name).parse().ok()?;
        matches!(name, ModelName::Script(_)).then_some(())?;
        let scripts = self.scripts.lock().await;
        scripts.get(&identity.content)?.loaded.get().map(|loaded| Arc::clone(&loaded.backend))
    }

    /// Returns the replies of a script for a configuration.
    fn replies_of(&self, script: Arc<Script>, configuration: &Configuration) -> Arc<dyn ModelBackend> {
        Arc::new(ScriptBackend {
            script,
            benchmark: configuration.benchmark.clone(),
            formulation: configuration.formulation,
            latency: self.settings.script_latency,
        })
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
        if let Some(script) = self.loaded_script(identity).await {
            return Ok(self.replies_of(script, configuration));
        }
        match self.name_of(identity)? {
            ModelName::Script(file) => {
                let cell = cell(&self.scripts, identity.content.clone(), identity).await;
                let (verified, content) = (Arc::clone(&self.verified), identity.content.clone());
                let load = || blocking(move || verified.load_script(&content, &file));
                let loaded = cell.get_or_try_init(load).await.map_err(|error| failed(error.to_string()))?;
                return Ok(self.replies_of(Arc::clone(&loaded.backend), configuration));
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
        let mut load = self.engine_source(identity, role, configuration.formulation)?;
        load.settings = self.engine_settings(identity, role)?;
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

    /// Returns the key of a model's engine for a role.
    pub(super) fn key(&self, identity: &ModelIdentity, role: Role) -> Key {
        (identity.content.clone(), identity.dtype.clone(), resolved(self.settings.placement.of(role)))
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

/// Returns the cell of a model's slot, creating the slot if it does not exist.
async fn cell<K: Eq + Hash, T>(
    slots: &Mutex<HashMap<K, Slot<T>>>,
    key: K,
    identity: &ModelIdentity,
) -> Arc<OnceCell<Loaded<T>>> {
    let mut slots = slots.lock().await;
    Arc::clone(&slots.entry(key).or_insert_with(|| Slot::new(identity)).loaded)
}
