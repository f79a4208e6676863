//! [`ModelCheckpoint`]: the files of a model for a forward pass outside of this crate.
//!
//! A checkpoint has the model's configuration as JSON, its tokenizer and its tensors by name, whatever its architecture
//! is. It reads a tensor when it is requested and checks its shape first, as for models of the engine. Adapters are
//! merged into models that the engine supports, because merging needs to know their tensors.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use candle_core::{DType as CandleType, Tensor};
use serde_json::Value;

use super::config::end_of_sequence;
use super::files::read;
use super::folder::ModelFolder;
use super::weights::Weights;
use super::{EMBEDDING, Files, Opened, WeightFile};
use crate::error::LoadError;
use crate::options::ModelSource;
use crate::tokenizer::Tokenizer;

/// The files of a model for a forward pass outside of this crate.
///
/// ```
/// use lumos_engine::{ModelCheckpoint, LoadError, ModelSource};
///
/// # fn read(folder: &std::path::Path) -> Result<(), LoadError> {
/// let checkpoint = ModelCheckpoint::open(&ModelSource::Folder(folder.to_owned()))?;
/// println!("{}", checkpoint.config()["architectures"][0]);
/// let hidden = checkpoint.shape("model.norm.weight").map_or(0, |shape| shape[0]);
/// let norm = checkpoint.tensor("model.norm.weight", &[hidden])?; // float32
/// # Ok(())
/// # }
/// ```
pub struct ModelCheckpoint {
    config: Value,
    config_file: PathBuf,
    pub(crate) end_of_sequence: Vec<u32>,
    pub(crate) tokenizer: Tokenizer,
    /// Computed when it is needed, because it decodes the vocabulary.
    newline_is_unique: OnceLock<bool>,
    weights: Weights,
    files: Files,
    pub(crate) vocabulary: usize,
}

impl std::fmt::Debug for ModelCheckpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ModelCheckpoint").field("config", &self.config_file).finish_non_exhaustive()
    }
}

impl ModelCheckpoint {
    /// Opens a folder, a folder with an adapter, or an embedded model. Reads its configuration and tokenizer, and the
    /// headers of its weight files.
    ///
    /// # Errors
    /// [`LoadError::UnsupportedByBackend`] for other sources; otherwise as [`Engine::load`](crate::Engine::load),
    /// except errors of architectures and of reading weights.
    pub fn open(source: &ModelSource) -> Result<Self, LoadError> {
        match source {
            ModelSource::Folder(path) => {
                if let ModelSource::Gguf(file) = ModelSource::of_path(path)? {
                    return Self::open(&ModelSource::Gguf(file));
                }
                let folder = ModelFolder::open(path)?;
                let (config, generation) = configurations(&folder)?;
                let paths = folder.weights()?;
                let weights = Weights::open(&paths)?;
                Self::of(config, generation.as_ref(), folder.tokenizer()?, weights, Files::Paths(paths.files))
            }
            ModelSource::Adapted { base, .. } => {
                let Opened { tokenizer, weights, files, .. } = super::open(source)?;
                let (config, generation) = configurations(&ModelFolder::open(base)?)?;
                Self::of(config, generation.as_ref(), tokenizer, weights, files)
            }
            ModelSource::Memory(files) => {
                let config = parsed(files.config, Path::new("embedded config.json"))?;
                let Opened { tokenizer, weights, files, .. } = super::open(source)?;
                Self::of(config, None, tokenizer, weights, files)
            }
            ModelSource::Gguf(file) => Err(LoadError::UnsupportedByBackend {
                file: file.clone(),
                reason: "this backend does not read GGUF files".to_owned(),
                hint: "pass the folder of the float checkpoint, or --backend native".to_owned(),
            }),
            ModelSource::Random { shape, .. } => Err(LoadError::InvalidOption {
                reason: format!("random weights of {shape}: this backend reads weights from files only"),
            }),
        }
    }

    fn of(
        (config, config_file): (Value, PathBuf),
        generation: Option<&(Value, PathBuf)>,
        tokenizer: Tokenizer,
        weights: Weights,
        files: Files,
    ) -> Result<Self, LoadError> {
        let own = generation.and_then(|(value, file)| Some((value.get("eos_token_id")?, &**file)));
        let end_of_sequence =
            end_of_sequence(own, config.get("eos_token_id").map(|ids| (ids, &*config_file)))?;
        // Fails with the name of the tensor if it does not exist.
        let columns = weights.shape(EMBEDDING).get(1).copied().unwrap_or_default();
        let vocabulary = weights.rows(EMBEDDING, columns)?;
        tokenizer.check_piece_rows(vocabulary)?;
        Ok(Self {
            config,
            config_file,
            end_of_sequence,
            tokenizer,
            newline_is_unique: OnceLock::new(),
            weights,
            files,
            vocabulary,
        })
    }

    /// The contents of config.json, an object.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The path of config.json, for messages.
    pub fn config_file(&self) -> &Path {
        &self.config_file
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Whether a line ends at a single token: see [`Tokenizer::newline_is_unique`].
    pub fn newline_is_unique(&self) -> bool {
        *self.newline_is_unique.get_or_init(|| self.tokenizer.newline_is_unique())
    }

    /// Rows of the embedding.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The shape of a tensor; `None` if no file has it.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        Some(self.weights.shape(name)).filter(|shape| !shape.is_empty())
    }

    /// Reads a tensor of the given shape, widened to float32.
    ///
    /// # Errors
    /// If it is missing, has another shape or no float type, or cannot be read.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, LoadError> {
        let tensor = self.weights.get(name, shape)?;
        tensor.to_dtype(CandleType::F32).map_err(|error| self.weights.invalid(name, &error))
    }

    /// Number of parameters.
    pub fn parameters(&self) -> u64 {
        self.weights.parameters()
    }

    /// The weight files, with their hashes if `hashed`, which reads all of them.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn weight_files(&self, hashed: bool) -> Result<Vec<WeightFile>, LoadError> {
        self.files.described(hashed)
    }
}

impl ModelSource {
    /// Checks that the engine supports the architecture of a folder. Reads only its configuration.
    ///
    /// # Errors
    /// [`LoadError::UnsupportedFamily`], or another error of the configuration.
    pub fn check_family(&self) -> Result<(), LoadError> {
        match self {
            Self::Folder(path) if !matches!(Self::of_path(path)?, Self::Gguf(_)) => {
                super::ModelConfig::from_folder(&ModelFolder::open(path)?).map(drop)
            }
            Self::Adapted { base, .. } => Self::Folder(base.clone()).check_family(),
            Self::Folder(_) | Self::Gguf(_) | Self::Memory(_) | Self::Random { .. } => Ok(()),
        }
    }

    /// The class name of the model's architecture, whether the engine supports it or not.
    ///
    /// # Errors
    /// If the configuration cannot be read or is invalid.
    pub fn architecture(&self) -> Result<String, LoadError> {
        let config = match self {
            Self::Adapted { base, .. } => return Self::Folder(base.clone()).architecture(),
            Self::Folder(path) if !matches!(Self::of_path(path)?, Self::Gguf(_)) => {
                super::ModelConfig::from_folder(&ModelFolder::open(path)?)
            }
            source => super::open(source).map(|opened| opened.config),
        };
        match config {
            Ok(config) => Ok(config.architecture),
            Err(LoadError::UnsupportedFamily { architecture, .. }) => Ok(architecture),
            Err(error) => Err(error),
        }
    }
}

type JsonFile = (Value, PathBuf);

/// config.json and, if there is one, generation_config.json.
fn configurations(folder: &ModelFolder) -> Result<(JsonFile, Option<JsonFile>), LoadError> {
    let read_json = |file: PathBuf| parsed(&read(&file)?, &file);
    let config = folder.required("config.json", "copy it from where the model was published")?;
    let generation = folder.optional("generation_config.json").map(read_json).transpose()?;
    Ok((read_json(config)?, generation))
}

fn parsed(bytes: &[u8], file: &Path) -> Result<JsonFile, LoadError> {
    let value: Value = serde_json::from_slice(bytes).map_err(LoadError::json(file))?;
    if value.is_object() {
        return Ok((value, file.to_owned()));
    }
    Err(LoadError::InvalidJson { file: file.to_owned(), reason: "expected an object".to_owned() })
}
