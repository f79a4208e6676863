//! SHA-256 of files.

use std::fs::File;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::description::WeightFile;
use crate::error::LoadError;

/// Size and hash of each file; hashes are empty unless `wanted`.
pub(super) fn files(paths: &[PathBuf], wanted: bool) -> Result<Vec<WeightFile>, LoadError> {
    paths.iter().map(|path| file(path, wanted)).collect()
}

fn file(path: &Path, wanted: bool) -> Result<WeightFile, LoadError> {
    let unreadable = |source| LoadError::FileUnreadable { file: path.to_owned(), source };
    let mut reader = File::open(path).map_err(unreadable)?;
    let bytes = reader.metadata().map_err(unreadable)?.len();
    let mut sha256 = String::new();
    if wanted {
        let mut hasher = Sha256::new();
        std::io::copy(&mut reader, &mut hasher).map_err(unreadable)?;
        sha256 = hex::encode(hasher.finalize());
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(WeightFile { name, bytes, sha256 })
}

/// Size and hash of bytes in memory; the hash is empty unless `wanted`.
pub(super) fn bytes(name: &str, bytes: &[u8], wanted: bool) -> WeightFile {
    let sha256 = if wanted { hex::encode(Sha256::digest(bytes)) } else { String::new() };
    WeightFile { name: name.to_owned(), bytes: bytes.len() as u64, sha256 }
}
