//! Finds the files of a model folder: configuration, tokenizer and weights.
//!
//! [`ModelFolder`] checks that the folder exists and loads its tokenizer; [`WeightPaths`] lists the weight
//! files to read.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::files::read;
use super::packed::Packing;
use super::quantization;
use crate::error::LoadError;
use crate::tokenizer::Tokenizer;

/// A folder that exists and is readable.
pub(super) struct ModelFolder {
    path: PathBuf,
}

/// The weight files to read, in order.
pub(super) struct WeightPaths {
    pub(super) folder: PathBuf,
    pub(super) files: Vec<PathBuf>,
    pub(super) format: WeightFormat,
}

/// The format of weight files.
#[derive(Clone, Copy)]
pub(super) enum WeightFormat {
    Safetensors,
    /// PyTorch's pickles.
    Pickle,
}

#[derive(Deserialize)]
struct ShardIndex {
    weight_map: HashMap<String, String>,
}

impl ModelFolder {
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        match std::fs::read_dir(path) {
            Ok(_) => Ok(Self { path: path.to_owned() }),
            Err(source) if source.kind() == ErrorKind::NotFound => {
                Err(LoadError::FolderMissing { folder: path.to_owned() })
            }
            Err(source) => Err(LoadError::FolderUnreadable { folder: path.to_owned(), source }),
        }
    }

    /// Path of a file, if it exists.
    pub(super) fn optional(&self, name: &str) -> Option<PathBuf> {
        Some(self.path.join(name)).filter(|path| path.exists())
    }

    /// Path that a file has, if it exists.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The layout of packed weights that config.json describes.
    pub(super) fn packing(&self) -> Result<Option<Packing>, LoadError> {
        let Some(file) = self.optional("config.json") else { return Ok(None) };
        quantization::packing(&read(&file)?, &file)
    }

    /// Path of a file, or the error that it is missing.
    pub(super) fn required(&self, name: &str, remedy: &str) -> Result<PathBuf, LoadError> {
        self.optional(name).ok_or_else(|| self.missing(name, remedy))
    }

    fn missing(&self, expected: &str, remedy: &str) -> LoadError {
        LoadError::FileMissing {
            folder: self.path.clone(),
            expected: expected.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    /// Whether the folder contains a tokenizer.
    pub(super) fn has_tokenizer(&self) -> bool {
        ["tokenizer.json", "tokenizer.model"].into_iter().any(|name| self.optional(name).is_some())
    }

    /// Loads tokenizer.json, or otherwise the SentencePiece model with its added tokens.
    pub(super) fn tokenizer(&self) -> Result<Tokenizer, LoadError> {
        if let Some(file) = self.optional("tokenizer.json") {
            return Tokenizer::from_json(&read(&file)?, &file);
        }
        let Some(file) = self.optional("tokenizer.model") else {
            return Err(self.missing(
                "tokenizer.json or tokenizer.model",
                "copy the tokenizer of the model or of its base model into the folder",
            ));
        };
        let added = self.optional("added_tokens.json");
        let special = self.optional("special_tokens_map.json");
        let added = added.map(|file| Ok((read(&file)?, file))).transpose()?;
        let special = special.map(|file| Ok((read(&file)?, file))).transpose()?;
        Tokenizer::from_sentencepiece(&read(&file)?, added, special, &file)
    }

    /// The safetensors files if there are any, otherwise PyTorch pickles; one file or shards with an index.
    pub(super) fn weights(&self) -> Result<WeightPaths, LoadError> {
        let expected = "weights (model.safetensors, model.safetensors.index.json, pytorch_model.bin or \
                        pytorch_model.bin.index.json)";
        let (safetensors, pickle) = (self.shards("model.safetensors")?, || self.shards("pytorch_model.bin"));
        self.weight_paths(safetensors, pickle, expected, "copy the weight files into the folder")
    }

    /// The weights of an adapter: safetensors if they exist, otherwise PyTorch's pickle.
    pub(super) fn adapter_weights(&self) -> Result<WeightPaths, LoadError> {
        let expected = "adapter_model.safetensors or adapter_model.bin";
        let file = |name: &str| self.optional(name).map(|file| vec![file]);
        let (safetensors, pickle) = (file("adapter_model.safetensors"), || Ok(file("adapter_model.bin")));
        self.weight_paths(safetensors, pickle, expected, "copy the adapter's weights into the folder")
    }

    fn weight_paths(
        &self,
        safetensors: Option<Vec<PathBuf>>,
        pickle: impl Fn() -> Result<Option<Vec<PathBuf>>, LoadError>,
        expected: &str,
        remedy: &str,
    ) -> Result<WeightPaths, LoadError> {
        let (files, format) = match safetensors {
            Some(files) => (Some(files), WeightFormat::Safetensors),
            None => (pickle()?, WeightFormat::Pickle),
        };
        let files = files.ok_or_else(|| self.missing(expected, remedy))?;
        Ok(WeightPaths { folder: self.path.clone(), files, format })
    }

    fn shards(&self, name: &str) -> Result<Option<Vec<PathBuf>>, LoadError> {
        let Some(index) = self.optional(&format!("{name}.index.json")) else {
            return Ok(self.optional(name).map(|file| vec![file]));
        };
        let parsed: ShardIndex = serde_json::from_slice(&read(&index)?).map_err(LoadError::json(&index))?;
        let mut names: Vec<String> = parsed.weight_map.into_values().collect();
        names.sort_unstable();
        names.dedup();
        let remedy = "the index names this shard; copy it into the folder";
        names.iter().map(|name| self.required(name, remedy)).collect::<Result<_, _>>().map(Some)
    }
}
