//! Loads models outside the threads that run futures. [`EngineLoad`] is how the engine of a model is loaded, from local
//! files or files that are downloaded first.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use lumos_engine::{LoadError, ModelSource};
use lumos_http::AccessPolicy;
use lumos_tasks::{Formulation, ModelIdentity, Role};
use thiserror::Error;

use super::ModelRegistry;
use super::loaded::Key;
use super::uses::Uses;
use crate::ModelBackend;
use crate::builtin::{BuiltinDomain, builtin_files, builtin_with};
use crate::engine::EngineBackend;
use crate::error::LoadModelError;
use crate::files;
use crate::hub::Hub;
use crate::located::{LocateError, locate};
use crate::name::ModelName;
use crate::settings::EngineSettings;
use crate::swap_lock::Load;

impl ModelRegistry {
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
    pub(super) fn load(&self) -> Result<(EngineBackend, u64), Blocking> {
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

/// A loaded model, with the size of its weights in bytes, as stored.
#[derive(Clone)]
pub(super) struct Loaded<T> {
    pub(super) backend: Arc<T>,
    pub(super) bytes: u64,
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

/// Loads a model on a thread for blocking work. `load` returns it with the size of its weights.
pub(super) async fn blocking<T, E>(
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
