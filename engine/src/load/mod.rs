//! Reads models from files: Hugging Face folders, GGUF files, LoRA adapters, embedded and random models.
//!
//! [`open`] reads configuration and tokenizer and finds the weights; the result, [`Opened`], reads tensors on request.

mod adapter;
pub(crate) mod block;
mod checkpoint;
pub(crate) mod config;
pub(crate) mod families;
mod files;
mod folder;
pub(crate) mod fuzzing;
mod gguf;
mod packed;
pub(crate) mod pickle;
mod quantization;
pub(crate) mod random;
pub(crate) mod tensors;
pub(crate) mod weights;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::LoadError;
use crate::options::{ModelSource, check_adapted};
use crate::tokenizer::Tokenizer;
use adapter::Adapter;
use block::ModelConfig;
use files::read;
use folder::ModelFolder;
use random::RandomWeights;
use tensors::EMBEDDING;
use weights::Weights;

pub use adapter::{AdapterBase, adapter_base};
pub use checkpoint::ModelCheckpoint;
pub use files::{WeightFile, read_configuration};
pub use folder::shard_names;
pub use gguf::StoredChat;

/// A model whose configuration and tokenizer are read, and whose weight files are found.
pub(crate) struct Opened {
    pub(crate) config: ModelConfig,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) weights: Weights,
    files: Files,
}

/// The source of the weights.
enum Files {
    Paths(Vec<PathBuf>),
    Memory {
        name: &'static str,
        bytes: &'static [u8],
    },
    /// Random weights, described by a name.
    Random(String),
}

impl Files {
    /// Names and sizes, with hashes if `hashed`, which reads all files.
    fn described(&self, hashed: bool) -> Result<Vec<WeightFile>, LoadError> {
        match self {
            Self::Paths(paths) => paths.iter().map(|path| files::weight_file(path, hashed)).collect(),
            Self::Memory { name, bytes } => Ok(vec![files::embedded_weights(name, bytes, hashed)]),
            Self::Random(name) => {
                let sha256 = hex::encode(Sha256::digest(name));
                Ok(vec![WeightFile { name: name.clone(), bytes: 0, sha256 }])
            }
        }
    }
}

/// Reads configuration and tokenizer, and opens the weights.
pub(crate) fn open(source: &ModelSource) -> Result<Opened, LoadError> {
    match source {
        ModelSource::Folder(path) => {
            if let ModelSource::Gguf(file) = ModelSource::of_path(path)? {
                return open_gguf(&file);
            }
            let folder = ModelFolder::open(path)?;
            let config = ModelConfig::from_folder(&folder)?;
            let tokenizer = folder.tokenizer()?;
            let files = folder.weights()?;
            let weights = Weights::open(&files)?.packed(folder.packing()?)?;
            Ok(Opened { config, tokenizer, weights, files: Files::Paths(files.files) })
        }
        ModelSource::Gguf(path) => open_gguf(path),
        ModelSource::Adapted { base, adapter } => {
            check_adapted(base, adapter)?;
            open(&ModelSource::Folder(base.clone()))?.adapted(&ModelFolder::open(adapter)?)
        }
        ModelSource::Memory(files) => {
            let config = ModelConfig::parse(files.config, None, Path::new("embedded config.json"))?;
            let tokenizer = Tokenizer::from_json(files.tokenizer, Path::new("embedded tokenizer.json"))?;
            let name = "embedded model.safetensors";
            let weights = Weights::of_bytes(files.weights, Path::new(name))?;
            Ok(Opened { config, tokenizer, weights, files: Files::Memory { name, bytes: files.weights } })
        }
        ModelSource::Random { shape, seed } => {
            let name = format!("random {shape} with seed {seed}");
            let config = shape.parsed(Path::new(&name))?;
            let random = RandomWeights::new(*seed, &config);
            let weights = Weights::random(config.tensors(shape.vocabulary()), random, Path::new(&name));
            Ok(Opened { config, tokenizer: Tokenizer::none(), weights, files: Files::Random(name) })
        }
    }
}

fn open_gguf(path: &Path) -> Result<Opened, LoadError> {
    let (config, tokenizer, tensors) = gguf::open(path)?;
    let (weights, files) = (Weights::of_gguf(tensors, path), Files::Paths(vec![path.to_owned()]));
    Ok(Opened { config, tokenizer, weights, files })
}

impl Opened {
    /// The model with an adapter, and with the adapter's tokenizer if it has one.
    fn adapted(self, folder: &ModelFolder) -> Result<Self, LoadError> {
        if let Some(format) = self.weights.packed_format() {
            let reason = format!("the base has {format} weights, which adapters cannot change");
            return Err(LoadError::UnsupportedAdapter { file: folder.file("adapter_config.json"), reason });
        }
        let rows = self.weights.rows(EMBEDDING, self.config.hidden_size)?;
        let adapter = Adapter::open(folder, &self.config, rows)?;
        let tokenizer = if folder.has_tokenizer() { folder.tokenizer()? } else { self.tokenizer };
        let files = match self.files {
            Files::Paths(paths) => Files::Paths([&paths[..], &adapter.files].concat()),
            files => files,
        };
        Ok(Self { config: self.config, tokenizer, weights: self.weights.adapted(adapter), files })
    }

    /// The weight files, with their hashes if `hashed`, which reads all of them.
    pub(crate) fn weight_files(&self, hashed: bool) -> Result<Vec<WeightFile>, LoadError> {
        self.files.described(hashed)
    }
}

/// Opens the folder of a model that is not a language model, whose config.json `parse` reads.
pub(crate) fn contents<C>(
    path: &Path,
    parse: impl Fn(&[u8], &Path) -> Result<C, LoadError>,
) -> Result<(C, Tokenizer, Weights), LoadError> {
    let folder = ModelFolder::open(path)?;
    let config_file = folder.required("config.json", "copy it from where the model was published")?;
    let config = read(&config_file)?;
    let tokenizer = folder.tokenizer()?;
    let weights = Weights::open(&folder.weights()?)?.packed(folder.packing()?)?;
    Ok((parse(&config, &config_file)?, tokenizer, weights))
}

impl Tokenizer {
    /// Reads the tokenizer of a model, without its weights. A model with random weights has an empty one.
    ///
    /// # Errors
    /// Fails if the model has no tokenizer, or an invalid one.
    pub fn of(source: &ModelSource) -> Result<Self, LoadError> {
        match source {
            ModelSource::Folder(path) => match ModelSource::of_path(path)? {
                ModelSource::Gguf(file) => gguf::tokenizer(&file),
                _ => ModelFolder::open(path)?.tokenizer(),
            },
            ModelSource::Gguf(path) => gguf::tokenizer(path),
            ModelSource::Adapted { base, adapter } => {
                let adapter = ModelFolder::open(adapter)?;
                if adapter.has_tokenizer() {
                    adapter.tokenizer()
                } else {
                    ModelFolder::open(base)?.tokenizer()
                }
            }
            ModelSource::Memory(files) => {
                Self::from_json(files.tokenizer, Path::new("embedded tokenizer.json"))
            }
            ModelSource::Random { .. } => Ok(Self::none()),
        }
    }

    /// Reads tokenizer.json of a folder, or otherwise its `tokenizer.model` with `added_tokens.json`.
    ///
    /// # Errors
    /// Fails if the folder has neither, or one of the files is corrupt.
    pub fn from_folder(folder: &Path) -> Result<Self, LoadError> {
        ModelFolder::open(folder)?.tokenizer()
    }
}
