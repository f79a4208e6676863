//! The identity of a model: what a name means on this host, and the hashes of the files that would be loaded.
//!
//! Names are checked against the operator's access policy before a file is opened.

use std::io;
use std::path::{Path, PathBuf};

use lumos_engine::{ModelFiles, ModelSource, Tokenizer};
use lumos_http::AccessPolicy;
use lumos_tasks::{ContentHash, Formulation, ModelIdentity, Role};

use super::ModelRegistry;
use crate::builtin::{BuiltinDomain, builtin_files, builtin_listed, builtin_with};
use crate::error::{IdentifyError, LoadModelError};
use crate::files::{self, FileStamp, ModelFile};
use crate::in_process;
use crate::located::{LocateError, locate};
use crate::name::ModelName;
use crate::openai::{OpenAiName, Price};
use crate::settings::EngineSettings;

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
#[derive(Debug, Clone, PartialEq)]
pub enum ModelPricing {
    /// The model runs in this process and costs nothing.
    Free,
    /// A price is configured.
    Known(Price),
    /// The model may cost money, but no price is configured.
    Unknown {
        /// Name of the model on the server.
        model: String,
    },
}

impl ModelRegistry {
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
            return self.identified_builtin(&planned.name, role, files);
        }
        self.identify(&planned.name, role, formulation)
    }

    fn identified_builtin(
        &self,
        name: &str,
        role: Role,
        files: &ModelFiles,
    ) -> Result<Identified, IdentifyError> {
        let files = builtin_listed(files);
        let computed_in = self.settings.engine_of(role).computed_in(true);
        let dtype = Some(computed_in.map_err(|message| IdentifyError::unusable(name, message))?);
        let identity = ModelIdentity { name: name.to_owned(), content: files::identity(&files), dtype };
        Ok(Identified { identity, files })
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
                return self.identified_builtin(name, role, files);
            }
            ModelName::Candle(path) => self.located(name, &path, engine, &mut known_as)?,
            ModelName::Lumos(pair) => {
                let asked = pair
                    .resolve(role, formulation)
                    .map_err(|message| IdentifyError::unusable(name, message))?;
                self.located(name, Path::new(&asked.to_string()), engine, &mut known_as)?
            }
            ModelName::Script(file) => {
                let stamp = FileStamp::of_file(&file);
                let files = vec![ModelFile::read(&file).map_err(|source| unreadable(name, &file, source))?];
                self.verified.record(files::identity(&files), stamp.ok());
                (files, None)
            }
        };
        let identity = ModelIdentity { name: known_as, content: files::identity(&files), dtype };
        Ok(Identified { identity, files })
    }

    /// Whether the files that a name means on this host are still those that were identified with this content: their
    /// names, sizes, modification times and inodes are compared. Models without files count as unchanged. Blocks, as
    /// [`ModelRegistry::identify_for`].
    pub fn is_unchanged(
        &self,
        name: &str,
        role: Role,
        formulation: Formulation,
        content: &ContentHash,
    ) -> bool {
        let stamp_at = |path: &Path| {
            let located = locate(path, &self.hub, self.pinned_only(name), &self.access_of(name)).ok()?;
            FileStamp::of(&located.source).ok()
        };
        let stamp = match self.permitted(name) {
            Ok(ModelName::OpenAi(_) | ModelName::Added(_) | ModelName::BuiltinTiny) => return true,
            Ok(ModelName::Candle(path)) => stamp_at(&path),
            Ok(ModelName::Lumos(pair)) => {
                let asked = pair.resolve(role, formulation).ok();
                asked.and_then(|asked| stamp_at(Path::new(&asked.to_string())))
            }
            Ok(ModelName::Script(file)) => FileStamp::of_file(&file).ok(),
            Err(_) => None,
        };
        stamp.is_some_and(|stamp| self.verified.contains(content, &stamp))
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
    pub(super) fn access_of(&self, name: &str) -> AccessPolicy {
        if self.settings.here(name) == name { self.settings.access.clone() } else { AccessPolicy::default() }
    }

    /// Whether hub models are accepted for this name only at a commit.
    pub(super) fn pinned_only(&self, name: &str) -> bool {
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
        // Read before the files are hashed, so that a change in the meantime is noticed later.
        let stamp = FileStamp::of(&located.source);
        let backend = in_process::resolved(engine.backend, &located.source)
            .map_err(|error| IdentifyError::unusable(name, error))?;
        // A model without a valid tokenizer fails when it is loaded.
        let is_unique =
            Tokenizer::of(&located.source).map_or(true, |tokenizer| tokenizer.newline_is_unique());
        let computed_in = EngineSettings { backend, ..engine }
            .computed_in(is_unique)
            .map_err(|message| IdentifyError::unusable(name, message))?;
        let files = files_of(name, located.source)?;
        self.verified.record(files::identity(&files), stamp.ok());
        Ok((files, Some(computed_in)))
    }

    /// Returns the identity of a server's model: its name and address, because its weights cannot be hashed.
    /// If this host maps the name to another server ([`ModelsSettings::names`](crate::ModelsSettings::names)), the identity is that of the
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
        Ok(backend.price().map_or(ModelPricing::Unknown { model }, ModelPricing::Known))
    }

    /// Resolves the name of a model on this host.
    pub(super) fn name_of(&self, identity: &ModelIdentity) -> Result<ModelName, LoadModelError> {
        let name = &identity.name;
        self.permitted(name).map_err(|error| match error {
            IdentifyError::NotAllowed { refusal, .. } => LoadModelError::new(name, refusal.to_string()),
            error => LoadModelError::new(name, error.to_string()),
        })
    }
}

/// Returns the files of a model: those of its folder, those of a base and an adapter, or the single file.
pub(super) fn files_of(name: &str, source: ModelSource) -> Result<Vec<ModelFile>, IdentifyError> {
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

#[cfg(all(test, not(feature = "candle-transformers")))]
mod tests {
    use lumos_tasks::BackendChoice;

    use super::*;
    use crate::in_process::InProcessModel;
    use crate::settings::ModelsSettings;

    /// Such identities would be rejected by every worker.
    #[test]
    fn models_that_need_the_missing_backend_are_not_identified() {
        let folder = tempfile::tempdir().unwrap();
        let config = r#"{ "architectures": ["GemmaForCausalLM"] }"#;
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let folder_name = format!("candle:{}", folder.path().display());
        let on = |backend| EngineSettings { backend, ..EngineSettings::default() };
        for (backend, name) in [
            (BackendChoice::CandleTransformers, "builtin:tiny"),
            (BackendChoice::CandleTransformers, &*folder_name),
            (BackendChoice::Auto, &*folder_name),
        ] {
            let models = ModelRegistry::new(ModelsSettings::from(on(backend)));
            let error = models.identify(name, Role::Planner, Formulation::Iterative).unwrap_err().to_string();
            assert!(error.starts_with(&format!("model {name}: ")), "{error}");
            assert!(error.contains("build it with `--features candle-transformers`"), "{error}");
        }
        let source = ModelSource::Folder(folder.path().to_owned());
        let error = InProcessModel::load(source, &on(BackendChoice::Auto)).unwrap_err().to_string();
        assert!(error.contains("GemmaForCausalLM") && error.contains("candle-transformers"), "{error}");
    }
}
