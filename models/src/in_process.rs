//! [`InProcessModel`]: a model that this process computes, with the engine or with candle-transformers.
//!
//! [`resolved`] selects the backend of a model: the engine, unless candle-transformers is requested or is the only one
//! that has the architecture. The backend is part of a model's identity, so that results of two backends are never
//! mixed, and workers use the recorded one.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use lumos_engine::{
    DeviceName, Engine, Footprint, GenerateError, GenerateRequest, Generation, LoadError, ModelDescription,
    ModelSource, Tokenizer,
};
use lumos_tasks::BackendChoice;

#[cfg(feature = "candle-transformers")]
use crate::candle_transformers::{self, CandleTransformersBackend};
use crate::settings::EngineSettings;

/// A model that this process computes. Clones share it.
#[derive(Debug, Clone)]
pub enum InProcessModel {
    /// The engine.
    Native(Engine),
    /// candle-transformers.
    #[cfg(feature = "candle-transformers")]
    CandleTransformers(std::sync::Arc<CandleTransformersBackend>),
}

impl InProcessModel {
    /// Loads a model with the backend of the settings. Blocks while weights are read and converted.
    ///
    /// # Errors
    /// As [`Engine::load`], and [`LoadError::UnsupportedByBackend`] for models that candle-transformers does not compute
    /// like transformers. In builds without candle-transformers, also [`LoadError::InvalidOption`] if that backend is
    /// requested, and [`LoadError::UnsupportedByBackend`] if the model needs it.
    pub fn load(source: ModelSource, settings: &EngineSettings) -> Result<Self, LoadError> {
        match resolved(settings.backend, &source)? {
            BackendChoice::Auto | BackendChoice::Native => {
                Engine::load(source, settings.options()).map(Self::Native)
            }
            #[cfg(feature = "candle-transformers")]
            BackendChoice::CandleTransformers => CandleTransformersBackend::load(&source, settings)
                .map(|backend| Self::CandleTransformers(backend.into())),
            #[cfg(not(feature = "candle-transformers"))]
            BackendChoice::CandleTransformers => Err(missing()),
        }
    }

    /// Generates one sequence. Dropping the future cancels it.
    ///
    /// # Errors
    /// As [`Engine::generate`].
    pub async fn generate(&self, request: GenerateRequest) -> Result<Generation, GenerateError> {
        match self {
            Self::Native(engine) => engine.generate(request).await,
            #[cfg(feature = "candle-transformers")]
            Self::CandleTransformers(backend) => backend.generate(request).await,
        }
    }

    /// Describes the model.
    pub fn description(&self) -> &ModelDescription {
        match self {
            Self::Native(engine) => engine.description(),
            #[cfg(feature = "candle-transformers")]
            Self::CandleTransformers(backend) => backend.description(),
        }
    }

    /// The model's tokenizer.
    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        match self {
            Self::Native(engine) => engine.tokenizer(),
            #[cfg(feature = "candle-transformers")]
            Self::CandleTransformers(backend) => backend.tokenizer(),
        }
    }

    /// Whether a line ends at a single token: see
    /// [`Tokenizer::newline_is_unique`](lumos_engine::Tokenizer::newline_is_unique).
    pub(crate) fn newline_is_unique(&self) -> bool {
        match self {
            Self::Native(engine) => engine.newline_is_unique(),
            #[cfg(feature = "candle-transformers")]
            Self::CandleTransformers(backend) => backend.newline_is_unique(),
        }
    }

    /// The device that computes.
    pub(crate) fn device(&self) -> DeviceName {
        match self {
            Self::Native(engine) => engine.device(),
            #[cfg(feature = "candle-transformers")]
            Self::CandleTransformers(backend) => backend.device(),
        }
    }

    /// The format of the weights, and the backend if it is not the engine.
    pub(crate) fn weights(&self) -> String {
        let description = self.description();
        let format = description.quantization.clone().unwrap_or_else(|| description.dtype.to_string());
        match self {
            Self::Native(_) => format,
            #[cfg(feature = "candle-transformers")]
            Self::CandleTransformers(_) => format!("{format} ({})", BackendChoice::CandleTransformers),
        }
    }
}

/// Selects the backend of a model: never [`BackendChoice::Auto`]. Warns once per architecture if candle-transformers
/// is selected automatically. Reads the configuration of a folder.
///
/// # Errors
/// [`LoadError::UnsupportedByBackend`] in builds without candle-transformers, for architectures that the engine does not
/// support.
pub(crate) fn resolved(choice: BackendChoice, source: &ModelSource) -> Result<BackendChoice, LoadError> {
    if choice != BackendChoice::Auto {
        return Ok(choice);
    }
    // Other errors are reported when the model is loaded.
    if let Err(LoadError::UnsupportedFamily { file, architecture, .. }) = source.check_family()
        && has(&architecture, &file)?
    {
        warn_once(&architecture);
        return Ok(BackendChoice::CandleTransformers);
    }
    Ok(BackendChoice::Native)
}

/// The memory that a model needs with a backend.
///
/// # Errors
/// As [`InProcessModel::load`], except errors of reading weights.
pub(crate) fn footprint(source: &ModelSource, settings: &EngineSettings) -> Result<Footprint, LoadError> {
    match resolved(settings.backend, source)? {
        BackendChoice::Auto | BackendChoice::Native => Footprint::of(source, &settings.options()),
        #[cfg(feature = "candle-transformers")]
        BackendChoice::CandleTransformers => candle_transformers::footprint(source),
        #[cfg(not(feature = "candle-transformers"))]
        BackendChoice::CandleTransformers => Err(missing()),
    }
}

/// Whether candle-transformers has the architecture that a configuration file names.
#[cfg(feature = "candle-transformers")]
fn has(architecture: &str, _: &Path) -> Result<bool, LoadError> {
    Ok(candle_transformers::has(architecture))
}

/// Returns an error: this build does not contain the list of architectures.
#[cfg(not(feature = "candle-transformers"))]
fn has(architecture: &str, file: &Path) -> Result<bool, LoadError> {
    Err(LoadError::UnsupportedByBackend {
        file: file.to_owned(),
        reason: format!(
            "the engine does not support `{architecture}`, and this program was built without \
             `candle-transformers`"
        ),
        hint:
            "build it with `--features candle-transformers`, which may support it, or serve the model with \
               another program and pass openai-chat:<model>@<base url>"
                .to_owned(),
    })
}

#[cfg(not(feature = "candle-transformers"))]
fn missing() -> LoadError {
    LoadError::InvalidOption { reason: crate::settings::REFERENCE_MISSING.to_owned() }
}

fn warn_once(architecture: &str) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if warned.insert(architecture.to_owned()) {
        tracing::warn!(
            "the engine does not support `{architecture}`; using candle-transformers, which is slower and not \
             batch-invariant; hint: pass --backend native to refuse such models"
        );
    }
}
