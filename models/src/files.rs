//! The files of a model, their hashes and their identity.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lumos_engine::ModelSource;
use lumos_http::sha256_of_file;
use lumos_tasks::ContentHash;

/// A file that a model depends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct ModelFile {
    /// Name within the model's folder.
    pub name: String,
    /// SHA-256 of its content.
    pub sha256: ContentHash,
    /// Size in bytes.
    pub bytes: u64,
}

impl ModelFile {
    /// Reads and hashes a file on disk.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { name, sha256: hash_file(path)?, bytes: fs::metadata(path)?.len() })
    }

    /// Whether the file takes memory when the model is loaded.
    pub(crate) fn is_weights(&self) -> bool {
        is_weights(&self.name)
    }
}

/// Names, sizes, modification times and, on Unix, inodes of a model's files. While they stay the same, the files are not
/// hashed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStamp(Vec<(String, u64, Option<SystemTime>, u64)>);

impl FileStamp {
    /// Returns the stamp of the files that a loaded model depends on.
    ///
    /// # Errors
    /// If a folder or the metadata of a file cannot be read.
    pub(crate) fn of(source: &ModelSource) -> io::Result<Self> {
        match source {
            ModelSource::Folder(folder) => Self::of_files(listed(folder)?),
            ModelSource::Gguf(file) => Self::of_file(file),
            ModelSource::Adapted { base, adapter } => {
                Self::of_files([listed(base)?, adapter_listed(adapter)?].concat())
            }
            ModelSource::Memory(_) | ModelSource::Random { .. } => Ok(Self(Vec::new())),
        }
    }

    /// Returns the stamp of a single file.
    ///
    /// # Errors
    /// If its metadata cannot be read.
    pub(crate) fn of_file(file: &Path) -> io::Result<Self> {
        Self::of_files(vec![(String::new(), file.to_owned())])
    }

    fn of_files(files: Vec<(String, PathBuf)>) -> io::Result<Self> {
        let mut stamps = Vec::new();
        for (name, path) in files {
            let metadata = fs::metadata(&path)?;
            stamps.push((name, metadata.len(), metadata.modified().ok(), inode(&metadata)));
        }
        Ok(Self(stamps))
    }
}

#[cfg(unix)]
fn inode(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_metadata: &fs::Metadata) -> u64 {
    0
}

/// Returns the identity of a model: a hash over the names and hashes of its files. The name of a GGUF file,
/// which is a complete model, is arbitrary and not included.
pub(crate) fn identity(files: &[ModelFile]) -> ContentHash {
    let name = |file: &ModelFile| match file.name.ends_with(".gguf") {
        true => "model.gguf".to_owned(),
        false => file.name.clone(),
    };
    let files: Vec<_> = files.iter().map(|file| (name(file), &file.sha256)).collect();
    ContentHash::of_json(&files)
}

/// Returns the SHA-256 of a file's content.
///
/// # Errors
/// If it cannot be read.
pub fn hash_file(path: &Path) -> io::Result<ContentHash> {
    sha256_of_file(path).map(ContentHash::from_hex)
}

/// Returns the identity of the model in a Hugging Face folder.
///
/// # Errors
/// If the folder or one of the files cannot be read.
pub fn hash_folder(folder: &Path) -> io::Result<ContentHash> {
    Ok(identity(&of_folder(folder)?))
}

/// Returns the files of a Hugging Face folder that a loaded model depends on, sorted by name.
///
/// # Errors
/// If the folder or one of the files cannot be read.
pub(crate) fn of_folder(folder: &Path) -> io::Result<Vec<ModelFile>> {
    listed(folder)?.into_iter().map(|(_, path)| ModelFile::read(&path)).collect()
}

/// Returns the files of an adapter that a loaded model depends on, sorted by name. A prefix distinguishes
/// their names from those of the base.
///
/// # Errors
/// If the folder or one of the files cannot be read.
pub(crate) fn of_adapter(folder: &Path) -> io::Result<Vec<ModelFile>> {
    let read = |(name, path): (String, PathBuf)| {
        Ok(ModelFile { name: format!("adapter/{name}"), ..ModelFile::read(&path)? })
    };
    adapter_listed(folder)?.into_iter().map(read).collect()
}

/// Returns the size of an adapter's weights in bytes.
///
/// # Errors
/// If the folder or one of the files cannot be read.
pub(crate) fn adapter_weights_in(folder: &Path) -> io::Result<u64> {
    let weights = adapter_listed(folder)?.into_iter().filter(|(name, _)| is_weights(name));
    weights.map(|(_, path)| Ok(fs::metadata(path)?.len())).sum()
}

/// Returns the size of the weights in a Hugging Face folder in bytes.
///
/// # Errors
/// If the folder or one of the files cannot be read.
pub(crate) fn weights_in(folder: &Path) -> io::Result<u64> {
    let weights = listed(folder)?.into_iter().filter(|(name, _)| is_weights(name));
    weights.map(|(_, path)| Ok(fs::metadata(path)?.len())).sum()
}

/// Whether a file holds weights or recorded replies, which take memory.
fn is_weights(name: &str) -> bool {
    !(name.ends_with(".json") || name.ends_with(".model") || name.ends_with(".jinja"))
}

/// Files that describe the text of a model: tokenizer and chat template.
const TEXT: [&str; 5] = [
    "tokenizer.json",
    "tokenizer.model",
    "added_tokens.json",
    "chat_template.jinja",
    "tokenizer_config.json",
];

/// Returns the files that describe the text of a model, named as in its identity, without its weights. Files of GGUF
/// and embedded models are not listed.
///
/// # Errors
/// If a folder or one of the files cannot be read.
pub(crate) fn texts_of(source: &ModelSource) -> io::Result<Vec<ModelFile>> {
    let folders: &[(&str, &Path)] = match source {
        ModelSource::Folder(folder) => &[("", folder)],
        ModelSource::Adapted { base, adapter } => &[("", base), ("adapter/", adapter)],
        ModelSource::Gguf(_) | ModelSource::Memory(_) | ModelSource::Random { .. } => &[],
    };
    let mut files = Vec::new();
    for (prefix, folder) in folders {
        for (name, path) in entries(folder)?.into_iter().filter(|(name, _)| TEXT.contains(&name.as_str())) {
            files.push(ModelFile { name: format!("{prefix}{name}"), ..ModelFile::read(&path)? });
        }
    }
    Ok(files)
}

/// Lists names and paths of all entries in a folder.
fn entries(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            files.push((name.to_owned(), path.clone()));
        }
    }
    files.sort();
    Ok(files)
}

/// Lists names and paths of the relevant files of an adapter.
fn adapter_listed(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files = entries(folder)?;
    let has_safetensors = files.iter().any(|(name, _)| name == "adapter_model.safetensors");
    files.retain(|(name, _)| match name.as_str() {
        "adapter_config.json" | "adapter_model.safetensors" => true,
        "adapter_model.bin" => !has_safetensors,
        name => TEXT.contains(&name),
    });
    Ok(files)
}

/// Lists names and paths of the relevant files of a folder. Safetensors take precedence over PyTorch files,
/// as in loading.
fn listed(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files = entries(folder)?;
    // An adapter in the same folder is not loaded.
    let is_safetensors = |name: &str| name.ends_with(".safetensors") && !name.starts_with("adapter_model.");
    let has_safetensors = files.iter().any(|(name, _)| is_safetensors(name));
    let matters = |name: &str| {
        name == "config.json"
            || TEXT.contains(&name)
            || is_safetensors(name)
            || (!has_safetensors && name.starts_with("pytorch_model") && name.ends_with(".bin"))
    };
    files.retain(|(name, _)| matters(name));
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
        for name in
            ["adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "tokenizer.json"]
        {
            fs::write(folder.path().join(name), name).unwrap();
        }
        assert_eq!(names(folder.path()), ["config.json", "model.safetensors", "tokenizer.json"]);
        let adapter = of_adapter(folder.path()).unwrap();
        let adapter: Vec<&str> = adapter.iter().map(|file| file.name.as_str()).collect();
        let files = ["adapter_config.json", "adapter_model.safetensors", "tokenizer.json"];
        assert_eq!(adapter, files.map(|name| format!("adapter/{name}")));
        assert_eq!(adapter_weights_in(folder.path()).unwrap(), "adapter_model.safetensors".len() as u64);
    }
}
