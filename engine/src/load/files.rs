//! Reads and maps files, and describes weight files by size and SHA-256 ([`WeightFile`]).

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::LoadError;

/// Reads a file.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, LoadError> {
    std::fs::read(file).map_err(LoadError::unreadable(file))
}

/// Maps a file into memory, read-only.
///
/// The engine's other unsafe code is in `cuda/driver` (CUDA's functions) and the crate `lumos-kernels`; all other code
/// is safe Rust, enforced by the crate's `unsafe_code` lint.
#[allow(unsafe_code)]
pub(super) fn map(path: &Path) -> Result<Mmap, LoadError> {
    let file = File::open(path).map_err(LoadError::unreadable(path))?;
    // SAFETY: the mapping is read only and private to the loader, which drops it as soon as the weights are
    // copied. If another process truncates the file meanwhile, SIGBUS ends this process; if it changes
    // bytes, weights change; neither breaks memory safety of what is copied out. Model files are not written
    // while they are loaded: the hub's clients replace them by renaming.
    unsafe { Mmap::map(&file) }.map_err(LoadError::unreadable(path))
}

/// One weight file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightFile {
    /// File name without its folder.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal; empty if hashing is disabled.
    pub sha256: String,
}

/// Size and hash of a file; the hash is empty unless `wanted`.
pub(super) fn weight_file(path: &Path, wanted: bool) -> Result<WeightFile, LoadError> {
    let unreadable = LoadError::unreadable(path);
    let mut reader = File::open(path).map_err(&unreadable)?;
    let bytes = reader.metadata().map_err(&unreadable)?.len();
    let mut sha256 = String::new();
    if wanted {
        let mut hasher = Sha256::new();
        io::copy(&mut reader, &mut hasher).map_err(unreadable)?;
        sha256 = hex::encode(hasher.finalize());
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(WeightFile { name, bytes, sha256 })
}

/// Size and hash of bytes in memory; the hash is empty unless `wanted`.
pub(super) fn embedded_weights(name: &str, bytes: &[u8], wanted: bool) -> WeightFile {
    let sha256 = if wanted { hex::encode(Sha256::digest(bytes)) } else { String::new() };
    WeightFile { name: name.to_owned(), bytes: bytes.len() as u64, sha256 }
}
