//! What a model folder holds, as an identity: the files that are loaded, hashed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lumos_tasks::ContentHash;
use sha2::{Digest, Sha256};

/// A file that a model depends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct ModelFile {
    /// Its name within the model's folder.
    pub name: String,
    /// Its SHA-256.
    pub sha256: ContentHash,
    /// Its length in bytes.
    pub bytes: u64,
}

impl ModelFile {
    /// A file on disk.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { name, sha256: hash_file(path)?, bytes: fs::metadata(path)?.len() })
    }

    /// A file within the binary.
    pub(super) fn embedded(name: &str, content: &[u8]) -> Self {
        Self { name: name.to_owned(), sha256: ContentHash::of_bytes(content), bytes: content.len() as u64 }
    }

    /// Whether it is what takes memory once the model is loaded.
    pub(super) fn is_weights(&self) -> bool {
        is_weights(&self.name)
    }
}

/// The identity of a model: hash over its files' names and hashes. The name of a GGUF file, which is a whole model, is
/// anybody's choice and does not count.
pub(super) fn identity(files: &[ModelFile]) -> ContentHash {
    let name = |file: &ModelFile| match file.name.ends_with(".gguf") {
        true => "model.gguf".to_owned(),
        false => file.name.clone(),
    };
    let files: Vec<_> = files.iter().map(|file| (name(file), &file.sha256)).collect();
    ContentHash::of_json(&files)
}

/// SHA-256 of a file's bytes.
///
/// # Errors
/// If it cannot be read.
pub fn hash_file(path: &Path) -> io::Result<ContentHash> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher)?;
    Ok(ContentHash::from_hex(hex::encode(hasher.finalize())))
}

/// What a Hugging Face folder's model is: the hash of its identity.
///
/// # Errors
/// If the folder or one of the files cannot be read.
pub(crate) fn hash_folder(folder: &Path) -> io::Result<ContentHash> {
    Ok(identity(&of_folder(folder)?))
}

/// The files of a Hugging Face folder that a loaded model depends on, sorted by name.
///
/// # Errors
/// If the folder or one of the files cannot be read.
pub(super) fn of_folder(folder: &Path) -> io::Result<Vec<ModelFile>> {
    listed(folder)?.into_iter().map(|(_, path)| ModelFile::read(&path)).collect()
}

/// Bytes of the weights in a Hugging Face folder.
///
/// # Errors
/// If the folder or one of the files cannot be read.
pub(super) fn weights_in(folder: &Path) -> io::Result<u64> {
    let weights = listed(folder)?.into_iter().filter(|(name, _)| is_weights(name));
    weights.map(|(_, path)| Ok(fs::metadata(path)?.len())).sum()
}

/// Whether a file of a model's holds weights, or recorded replies: what takes memory.
fn is_weights(name: &str) -> bool {
    !(name.ends_with(".json") || name.ends_with(".model") || name.ends_with(".jinja"))
}

/// Names and paths of the files that matter. Safetensors are preferred to PyTorch's files where both are there, as
/// in loading.
fn listed(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            files.push((name.to_owned(), path.clone()));
        }
    }
    let has_safetensors = files.iter().any(|(name, _)| name.ends_with(".safetensors"));
    let matters = |name: &str| {
        let described = ["config.json", "tokenizer.json", "tokenizer.model", "added_tokens.json"];
        // What lays conversations out.
        let chats = ["chat_template.jinja", "tokenizer_config.json"];
        described.contains(&name)
            || chats.contains(&name)
            || name.ends_with(".safetensors")
            || (!has_safetensors && name.starts_with("pytorch_model") && name.ends_with(".bin"))
    };
    files.retain(|(name, _)| matters(name));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_loaded_is_hashed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["config.json", "pytorch_model.bin", "README.md"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let names =
            |folder: &Path| of_folder(folder).unwrap().into_iter().map(|file| file.name).collect::<Vec<_>>();
        assert_eq!(names(folder.path()), ["config.json", "pytorch_model.bin"]);
        fs::write(folder.path().join("model.safetensors"), "").unwrap();
        assert_eq!(names(folder.path()), ["config.json", "model.safetensors"]);
    }
}
