//! Loads models outside the threads that run futures. [`EngineLoad`] is how the engine of a model is loaded, from local
//! files or files that are downloaded first.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use lumos_engine::{LoadError, ModelSource};
use lumos_http::AccessPolicy;
use lumos_tasks::{ContentHash, Formulation, ModelIdentity, Role};
use thiserror::Error;

use super::ModelRegistry;
use super::identify::files_of;
use super::loaded::Key;
use super::uses::Uses;
use crate::ModelBackend;
use crate::builtin::{BuiltinDomain, builtin_files, builtin_with};
use crate::engine::EngineBackend;
use crate::error::LoadModelError;
use crate::files::{self, FileStamp, ModelFile};
use crate::hub::Hub;
use crate::located::{LocateError, locate};
use crate::name::ModelName;
use crate::script::Script;
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
            verified: Arc::clone(&self.verified),
        })
    }

    /// Whether loading a model with this content found other files than those that were identified with it. It must be
    /// identified again before its next use.
    pub fn has_changed(&self, content: &ContentHash) -> bool {
        self.verified.lock().get(content).is_some_and(Vec::is_empty)
    }
}

/// The stamps of the files that were identified, by content. A model whose files have changed since has none.
#[derive(Debug, Default)]
pub(super) struct VerifiedFiles(Mutex<HashMap<ContentHash, Vec<FileStamp>>>);

impl VerifiedFiles {
    /// Records the stamp of files with this content. Without a stamp, they are hashed again when they are needed.
    pub(super) fn record(&self, content: ContentHash, stamp: Option<FileStamp>) {
        let Some(stamp) = stamp else { return };
        let mut stamps = self.lock();
        let known = stamps.entry(content).or_default();
        if !known.contains(&stamp) {
            known.push(stamp);
        }
    }

    /// Whether files with this stamp had this content.
    pub(super) fn contains(&self, content: &ContentHash, stamp: &FileStamp) -> bool {
        self.lock().get(content).is_some_and(|known| known.contains(stamp))
    }

    /// Checks that the files with this stamp are those that were identified with the planned content, if any were. Files
    /// with another stamp are hashed again by `read`. Returns the stamp, or `None` if no files were identified with
    /// this content.
    fn verify(
        &self,
        content: &ContentHash,
        stamp: Option<FileStamp>,
        read: impl FnOnce() -> Option<Vec<ModelFile>>,
    ) -> Result<Option<FileStamp>, Blocking> {
        if !self.lock().contains_key(content) {
            return Ok(None);
        }
        let has_content = || read().is_some_and(|files| files::identity(&files) == *content);
        let stamp = stamp.filter(|stamp| self.contains(content, stamp) || has_content());
        if stamp.is_none() {
            self.lock().insert(content.clone(), Vec::new());
            return Err(Blocking::Changed);
        }
        self.record(content.clone(), stamp.clone());
        Ok(stamp)
    }

    /// Loads a script from the file that was identified with the planned content. Returns it with the size of the
    /// file in bytes. Blocks.
    pub(super) fn load_script(&self, content: &ContentHash, file: &Path) -> Result<(Script, u64), Blocking> {
        let stamp = || FileStamp::of_file(file).ok();
        let before = self.verify(content, stamp(), || Some(vec![ModelFile::read(file).ok()?]))?;
        let bytes = fs::metadata(file)?.len();
        let script = Script::read(file)?;
        if before.is_some() && stamp() != before {
            return Err(Blocking::Changed);
        }
        Ok((script, bytes))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ContentHash, Vec<FileStamp>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    verified: Arc<VerifiedFiles>,
}

impl EngineLoad {
    /// Returns the files on this host. Blocks while they are downloaded.
    pub(super) fn source(&self) -> Result<ModelSource, Blocking> {
        Ok(match &self.place {
            Place::Known(source) => source.clone(),
            Place::Path(path) => locate(path, &self.hub, self.pinned_only, &self.access)?.source,
        })
    }

    /// Checks the files; see [`VerifiedFiles::verify`].
    fn verify(&self, source: &ModelSource) -> Result<Option<FileStamp>, Blocking> {
        if matches!(self.place, Place::Known(_)) {
            return Ok(None);
        }
        let read = || files_of(&self.name, source.clone()).ok();
        self.verified.verify(&self.key.0, FileStamp::of(source).ok(), read)
    }

    /// Loads the engine. Returns it with the size of its weights in bytes, as stored. Blocks.
    pub(super) fn load(&self) -> Result<(EngineBackend, u64), Blocking> {
        let source = self.source()?;
        let stamp = self.verify(&source)?;
        let bytes = weights(&source)?;
        // Download time is not included.
        let began = Instant::now();
        let loaded = EngineBackend::load(source.clone(), self.settings);
        self.uses.loaded(&self.key, loaded.as_ref().ok(), began.elapsed());
        let loaded = loaded?;
        if stamp.is_some() && FileStamp::of(&source).ok() != stamp {
            return Err(Blocking::Changed);
        }
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
    #[error(
        "the files changed since they were verified; hint: restore the files that the run was planned with, or \
         start another run with `lumos run --name <NAME>`"
    )]
    Changed,
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
        ModelSource::Gguf(file) => Ok(fs::metadata(file)?.len()),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lumos_tasks::{Behaviour, Configuration, GenerationSettings, PromptFormat};

    use super::*;
    use crate::settings::ModelsSettings;

    #[tokio::test]
    async fn files_that_changed_since_they_were_identified_are_not_loaded() {
        let (role, formulation) = (Role::Planner, Formulation::Iterative);
        let files = builtin_files(BuiltinDomain::Maths, role, formulation).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
        write("config.json", files.config);
        write("tokenizer.json", files.tokenizer);
        write("model.safetensors", files.weights);
        let models = ModelRegistry::new(ModelsSettings::default());
        let name = format!("candle:{}", folder.path().display());
        let identity = models.identify(&name, role, formulation).unwrap().identity;
        let is_unchanged = || models.is_unchanged(&name, role, formulation, &identity.content);
        let load = || models.engine_source(&identity, role, formulation).unwrap().load();
        assert!(is_unchanged());
        load().unwrap();

        write("config.json", &[files.config, b"\n"].concat());
        assert!(!is_unchanged() && !models.has_changed(&identity.content));
        let error = load().unwrap_err();
        assert!(matches!(error, Blocking::Changed), "{error}");
        assert!(models.has_changed(&identity.content));

        // Other files with the same content.
        write("config.json", files.config);
        load().unwrap();
        assert!(is_unchanged() && !models.has_changed(&identity.content));
    }

    #[tokio::test]
    async fn a_script_that_changed_since_it_was_identified_is_not_loaded() {
        let (role, formulation) = (Role::Planner, Formulation::Iterative);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cases.jsonl");
        fs::write(&file, "\n").unwrap();
        let models = ModelRegistry::new(ModelsSettings::default());
        let name = format!("script:{}", file.display());
        let identity = models.identify(&name, role, formulation).unwrap().identity;
        let configuration = Configuration {
            benchmark: "gsm8k".to_owned(),
            formulation,
            behaviour: Behaviour::Paper,
            max_rounds: 8,
            models: BTreeMap::from([(role, identity.clone())]),
            tools: Vec::new(),
            generation: GenerationSettings::default(),
            seed: 0,
            prompts: ContentHash::of_bytes(b""),
            format: PromptFormat::default(),
            agent: None,
        };
        let error = async || models.get(&identity, role, &configuration).await.err();

        fs::write(&file, "\n\n").unwrap();
        let changed = error().await.unwrap().message;
        assert!(changed.starts_with("the files changed since they were verified"), "{changed}");
        assert!(models.has_changed(&identity.content));

        fs::write(&file, "\n").unwrap();
        assert!(error().await.is_none() && !models.has_changed(&identity.content));
    }
}
