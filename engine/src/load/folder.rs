//! Finds the files of a model folder: configuration, tokenizer and weights.
//!
//! [`ModelFolder`] checks that the folder exists and loads its tokenizer; [`WeightPaths`] lists the weight
//! files to read.

use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::files::{read, read_tokenizer, shown};
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

/// Maximum length of a file name in bytes on common file systems.
const LONGEST_NAME: usize = 255;

#[derive(Deserialize)]
struct ShardIndex {
    weight_map: HashMap<String, String>,
}

/// Reads the names of the weight files in an index (`model.safetensors.index.json`), sorted.
///
/// # Errors
/// Fails if the index cannot be read, or names a file that is not directly in the folder of the index.
pub fn shard_names(index: &Path) -> Result<Vec<String>, LoadError> {
    let parsed: ShardIndex = serde_json::from_slice(&read(index)?).map_err(LoadError::json(index))?;
    let names: BTreeSet<String> = parsed.weight_map.into_values().collect();
    if let Some(name) = names.iter().find(|name| !is_file_name(name)) {
        let name = shown(name);
        let reason =
            format!("field `weight_map`: invalid value `{name}`: expected the name of a file in this folder");
        return Err(LoadError::InvalidJson { file: index.to_owned(), reason });
    }
    Ok(names.into_iter().collect())
}

/// Whether a name is one of a file, without a folder.
fn is_file_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME && Path::new(name).file_name().is_some_and(|file| file == name)
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
            return Tokenizer::from_json(&read_tokenizer(&file)?, &file);
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
        Tokenizer::from_sentencepiece(&read_tokenizer(&file)?, added, special, &file)
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

    /// The file of this name, or the files that its index names.
    fn shards(&self, name: &str) -> Result<Option<Vec<PathBuf>>, LoadError> {
        let whole = self.optional(name);
        let Some(index) = self.optional(&format!("{name}.index.json")) else {
            return Ok(whole.map(|file| vec![file]));
        };
        let names = shard_names(&index)?;
        // mlx-lm also writes an index of a single file.
        if whole.is_some() && names != [name] {
            return Err(LoadError::SeveralWeights { folder: self.path.clone(), file: name.to_owned() });
        }
        let remedy = "the index names this shard; copy it into the folder";
        names.iter().map(|name| self.required(name, remedy)).collect::<Result<_, _>>().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_names_files_in_its_own_folder() {
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join("model.safetensors.index.json");
        let names = |shards: &[&str]| {
            let map = shards.iter().enumerate().map(|(number, shard)| (format!("tensor{number}"), *shard));
            let map: HashMap<String, &str> = map.collect();
            std::fs::write(&index, serde_json::json!({ "weight_map": map }).to_string()).unwrap();
            shard_names(&index)
        };
        let sorted = names(&["b.safetensors", "a.safetensors", "b.safetensors"]).unwrap();
        assert_eq!(sorted, ["a.safetensors", "b.safetensors"]);
        let long = "x".repeat(LONGEST_NAME + 1);
        for shard in ["/etc/passwd", "../a", "folder/a", "./a", "a/", "a/.", "..", ".", "", long.as_str()] {
            let error = names(&["a.safetensors", shard]).unwrap_err().to_string();
            let words = ["model.safetensors.index.json", "weight_map", "a file in this folder"];
            assert!(words.iter().all(|word| error.contains(word)) && error.len() < 1000, "{error}");
        }
    }
}
