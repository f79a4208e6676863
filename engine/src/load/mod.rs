//! From files to a model in memory.

pub(crate) mod config;
mod folder;
mod hash;
mod mapped;
pub(crate) mod weights;

use std::path::Path;

use crate::description::ModelDescription;
use crate::error::LoadError;
use crate::model::Llama;
use crate::options::{LoadOptions, ModelSource, RotaryPrecision};
use crate::tokenizer::Tokenizer;
use config::ModelConfig;
use folder::ModelFolder;
use weights::Weights;

/// All parts of a loaded model.
pub(crate) struct Loaded {
    pub(crate) config: ModelConfig,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) model: Llama,
    pub(crate) description: ModelDescription,
}

/// Reads configuration, tokenizer and weights.
pub(crate) fn load(source: &ModelSource, options: &LoadOptions) -> Result<Loaded, LoadError> {
    match source {
        ModelSource::Folder(path) => {
            let folder = ModelFolder::open(path)?;
            let config = ModelConfig::from_folder(&folder)?;
            let tokenizer = folder.tokenizer()?;
            let files = folder.weights()?;
            std::thread::scope(|scope| {
                let hashes = scope.spawn(|| hash::files(files.paths(), options.hash_weights));
                let weights = Weights::open(&files)?;
                let model = Llama::load(&config, &weights, options.dtype)?;
                let weight_files = hashes
                    .join()
                    .map_err(|_| LoadError::Thread { reason: "hashing the weights failed".to_owned() })??;
                finish(config, tokenizer, model, &weights, weight_files, options)
            })
        }
        ModelSource::Memory(files) => {
            let config = ModelConfig::parse(files.config, None, Path::new("embedded config.json"))?;
            let tokenizer = Tokenizer::from_json(files.tokenizer, Path::new("embedded tokenizer.json"))?;
            let name = "embedded model.safetensors";
            let weights = Weights::from_memory(files.weights, Path::new(name))?;
            let model = Llama::load(&config, &weights, options.dtype)?;
            let weight_files = vec![hash::bytes(name, files.weights, options.hash_weights)];
            finish(config, tokenizer, model, &weights, weight_files, options)
        }
    }
}

/// The tokenizer of a model folder.
pub(crate) fn tokenizer(path: &Path) -> Result<Tokenizer, LoadError> {
    ModelFolder::open(path)?.tokenizer()
}

fn finish(
    mut config: ModelConfig,
    tokenizer: Tokenizer,
    model: Llama,
    weights: &Weights,
    weight_files: Vec<crate::description::WeightFile>,
    options: &LoadOptions,
) -> Result<Loaded, LoadError> {
    if options.rotary_precision == RotaryPrecision::Stored {
        config.rope_dtype = weights.stored_dtype("model.embed_tokens.weight");
    }
    let rows = model.vocabulary();
    if tokenizer.id_limit() > rows {
        let file = tokenizer.file().to_owned();
        return Err(LoadError::VocabularyTooLarge { file, pieces: tokenizer.id_limit(), rows });
    }
    if let Some(limit) = options.max_sequence_length {
        config.context_length = config.context_length.min(limit);
    }
    let description = ModelDescription {
        architecture: config.architecture.clone(),
        parameters: weights.parameters(),
        vocabulary: rows,
        dtype: options.dtype,
        weight_files,
        tokenizer_sha256: tokenizer.sha256().to_owned(),
        context_length: config.context_length,
    };
    Ok(Loaded { config, tokenizer, model, description })
}
