//! Loads a model from files into memory.
//!
//! [`open`] reads configuration and tokenizer and finds the weights; [`Opened::load`] reads the weights and
//! returns [`Loaded`], from which [`Engine`](crate::Engine) starts its scheduler.

mod adapter;
pub(crate) mod config;
mod folder;
mod gguf;
mod hash;
mod mapped;
pub(crate) mod quantized;
pub(crate) mod random;
pub(crate) mod weights;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::backend::Backend;
use crate::cache::{KeyValueShape, PageLayout, Storage, TILE};
use crate::description::{ModelDescription, WeightFile};
use crate::device::DeviceName;
use crate::error::LoadError;
use crate::footprint::Footprint;
use crate::memory::Reservation;
use crate::model::Matrices;
use crate::options::{DType, LoadOptions, ModelSource};
use crate::tokenizer::Tokenizer;
use adapter::Adapter;
use config::ModelConfig;
use folder::ModelFolder;
use gguf::GgufFile;
use weights::Weights;

pub use adapter::{AdapterBase, adapter_base};
pub use gguf::StoredChat;

const EMBEDDING: &str = "model.embed_tokens.weight";

/// All parts of a loaded model.
pub(crate) struct Loaded {
    pub(crate) config: ModelConfig,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) model: Backend,
    pub(crate) description: ModelDescription,
    pub(crate) matrices: Matrices,
    /// Size of the weights in memory, in bytes.
    pub(crate) weight_bytes: u64,
    /// The weights' part of the memory budget.
    pub(crate) reservation: Option<Reservation>,
}

/// A model whose configuration and tokenizer are read, and whose weight files are found.
pub(crate) struct Opened {
    pub(crate) config: ModelConfig,
    tokenizer: Tokenizer,
    pub(crate) weights: Weights,
    files: Files,
}

/// The source of the weights.
enum Files {
    /// One file with weights, configuration and tokenizer.
    Gguf(PathBuf),
    Paths(Vec<PathBuf>),
    Memory {
        name: &'static str,
        bytes: &'static [u8],
    },
    /// Random weights, described by a name.
    Random(String),
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
            let weights = Weights::open(&files)?;
            Ok(Opened { config, tokenizer, weights, files: Files::Paths(files.paths().to_vec()) })
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
            let weights = Weights::from_memory(files.weights, Path::new(name))?;
            Ok(Opened { config, tokenizer, weights, files: Files::Memory { name, bytes: files.weights } })
        }
        ModelSource::Random { shape, seed } => {
            let name = format!("random {shape} with seed {seed}");
            let config = shape.config().to_string();
            let config = ModelConfig::parse(config.as_bytes(), None, Path::new(&name))?;
            let weights = Weights::random(shape.tensors(), *seed, Path::new(&name));
            Ok(Opened { config, tokenizer: Tokenizer::none(), weights, files: Files::Random(name) })
        }
    }
}

fn open_gguf(path: &Path) -> Result<Opened, LoadError> {
    let file = GgufFile::open(path)?;
    let (config, tokenizer) = (file.config()?, file.tokenizer()?);
    let weights = Weights::of_gguf(file.into_tensors(&config)?);
    Ok(Opened { config, tokenizer, weights, files: Files::Gguf(path.to_owned()) })
}

impl Opened {
    /// The model with an adapter, and with the adapter's tokenizer if it has one.
    fn adapted(self, folder: &ModelFolder) -> Result<Self, LoadError> {
        let rows = self.weights.rows(EMBEDDING, self.config.hidden_size)?;
        let adapter = Adapter::open(folder, &self.config, rows)?;
        let tokenizer = if folder.has_tokenizer() { folder.tokenizer()? } else { self.tokenizer };
        let files = match self.files {
            Files::Paths(paths) => Files::Paths([&paths, adapter.files()].concat()),
            files => files,
        };
        Ok(Self { config: self.config, tokenizer, weights: self.weights.adapted(adapter), files })
    }

    /// The weight files, with their hashes if `hashed`, which reads all of them.
    pub(crate) fn weight_files(&self, hashed: bool) -> Result<Vec<WeightFile>, LoadError> {
        match &self.files {
            Files::Paths(paths) => hash::files(paths, hashed),
            Files::Gguf(path) => hash::files(std::slice::from_ref(path), hashed),
            Files::Memory { name, bytes } => Ok(vec![hash::bytes(name, bytes, hashed)]),
            Files::Random(name) => {
                let sha256 = hex::encode(Sha256::digest(name));
                Ok(vec![WeightFile { name: name.clone(), bytes: 0, sha256 }])
            }
        }
    }

    /// A hash of shape, tokenizer and weights. Models that compute the same have the same hash, independent
    /// of their location.
    pub(crate) fn content(&self, files: &[WeightFile]) -> String {
        let mut hasher = Sha256::new();
        hasher.update(format!("{:?}\0{}\0", self.config, self.tokenizer.id_limit()));
        hasher.update(self.tokenizer.sha256());
        for file in files {
            hasher.update(format!("\0{}\0{}", file.bytes, file.sha256));
        }
        hex::encode(hasher.finalize())
    }

    /// The memory requirements of the model.
    pub(crate) fn footprint(&self, dtype: DType) -> Result<Footprint, LoadError> {
        let config = &self.config;
        let (rows, matrices) = self.matrices(DeviceName::Cpu, dtype)?;
        let weight_bytes = Backend::weight_bytes(DeviceName::Cpu, config, rows, dtype, &matrices);
        let layout = PageLayout {
            shape: KeyValueShape {
                layers: config.layers,
                heads: config.key_value_heads,
                head_size: config.head_size,
            },
            positions: TILE,
            storage: Storage::Memory,
        };
        let cache_bytes_per_token = (layout.bytes() / TILE) as u64;
        Ok(Footprint { weight_bytes, cache_bytes_per_token, context_length: config.context_length })
    }

    /// Rows of the embedding, and the sizes of the matrices. On a GPU, blocks are widened to floats.
    fn matrices(&self, device: DeviceName, dtype: DType) -> Result<(usize, Matrices), LoadError> {
        let rows = self.weights.rows(EMBEDDING, self.config.hidden_size)?;
        let mut matrices = Matrices::new(&self.config, rows, dtype);
        let unread = (!self.config.tied_embeddings).then_some(EMBEDDING);
        let kept = self.weights.quantized_bytes(unread, dtype.width());
        if let Some(bytes) = kept.filter(|_| !matches!(device, DeviceName::Cuda(_))) {
            matrices.bytes = bytes;
            matrices.format = self.weights.most_common_format();
        }
        Ok((rows, matrices))
    }

    /// Reads the weights. `options` must name a concrete device, not
    /// [`DeviceName::Auto`](crate::DeviceName::Auto). `files` is the result of
    /// [`weight_files`](Self::weight_files) if it is already known.
    pub(crate) fn load(
        mut self,
        options: &LoadOptions,
        files: Option<Vec<WeightFile>>,
    ) -> Result<Loaded, LoadError> {
        let (rows, matrices) = self.matrices(options.device, options.dtype)?;
        let weight_bytes =
            Backend::weight_bytes(options.device, &self.config, rows, options.dtype, &matrices);
        let reservation = Backend::reserve(options, "weights", weight_bytes)?;
        if self.tokenizer.id_limit() > rows {
            let file = self.tokenizer.file().to_owned();
            return Err(LoadError::VocabularyTooLarge { file, pieces: self.tokenizer.id_limit(), rows });
        }
        let (model, weight_files) = std::thread::scope(|scope| {
            let opened = &self;
            let hashes = std::thread::Builder::new()
                .spawn_scoped(scope, move || {
                    files.map_or_else(|| opened.weight_files(options.hash_weights), Ok)
                })
                .map_err(|error| LoadError::Thread { reason: error.to_string() })?;
            let model = Backend::load(&self.config, &self.weights, options, weight_bytes)?;
            let failed = |_| LoadError::Thread { reason: "hashing the weights failed".to_owned() };
            Ok::<_, LoadError>((model, hashes.join().map_err(failed)??))
        })?;
        if let Some(limit) = options.max_sequence_length {
            self.config.context_length = self.config.context_length.min(limit);
        }
        let description = ModelDescription {
            architecture: self.config.architecture.clone(),
            parameters: self.weights.parameters(),
            vocabulary: rows,
            dtype: options.dtype,
            quantization: self.weights.quantization(),
            weight_files,
            tokenizer_sha256: self.tokenizer.sha256().to_owned(),
            context_length: self.config.context_length,
        };
        let Self { config, tokenizer, .. } = self;
        Ok(Loaded { config, tokenizer, model, description, matrices, weight_bytes, reservation })
    }
}

/// Rejects GGUF files, and folders of them, as an adapter's base and as an adapter.
pub(crate) fn check_adapted(base: &Path, adapter: &Path) -> Result<(), LoadError> {
    let refuse = |file: &Path, reason: &str| {
        Err(LoadError::UnsupportedAdapter { file: file.to_owned(), reason: reason.to_owned() })
    };
    let is_gguf =
        |path: &Path| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let holds_gguf = || {
        matches!(ModelSource::of_path(base), Ok(ModelSource::Gguf(_)) | Err(LoadError::SeveralModels { .. }))
    };
    if is_gguf(base) || holds_gguf() {
        let reason = "an adapter cannot be merged into the weights of a GGUF file; pass the folder of the \
            float checkpoint";
        return refuse(base, reason);
    }
    if is_gguf(adapter) {
        return refuse(adapter, "an adapter must be a folder as peft saves it, not a GGUF file");
    }
    Ok(())
}

fn read(file: &Path) -> Result<Vec<u8>, LoadError> {
    std::fs::read(file).map_err(|source| LoadError::FileUnreadable { file: file.to_owned(), source })
}

/// The contents of a model folder, with the configuration not yet parsed.
pub(crate) struct Contents {
    pub(crate) config: Vec<u8>,
    pub(crate) config_file: PathBuf,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) weights: Weights,
}

/// Opens the folder of a model outside the Llama family.
pub(crate) fn contents(path: &Path) -> Result<Contents, LoadError> {
    let folder = ModelFolder::open(path)?;
    let config_file = folder.required("config.json", "copy it from where the model was published")?;
    let config = read(&config_file)?;
    let tokenizer = folder.tokenizer()?;
    let weights = Weights::open(&folder.weights()?)?;
    Ok(Contents { config, config_file, tokenizer, weights })
}

/// Loads the tokenizer of a model folder.
pub(crate) fn tokenizer(path: &Path) -> Result<Tokenizer, LoadError> {
    ModelFolder::open(path)?.tokenizer()
}
