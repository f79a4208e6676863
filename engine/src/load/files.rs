//! Reads files of models up to a limit, maps weights, and describes weight files by size and SHA-256 ([`WeightFile`]).

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::LoadError;

/// Largest size in bytes of a configuration, an index of weights, a list of added tokens or a chat template. An index
/// has about 100 bytes for each tensor.
const MOST_CONFIGURATION_BYTES: u64 = 16 << 20;
/// Largest size in bytes of a tokenizer. Published ones have less than 40 MB.
const MOST_TOKENIZER_BYTES: u64 = 512 << 20;
/// Maximum characters of a name from a file in a message.
const LONGEST_SHOWN: usize = 200;

/// Reads a configuration, an index of weights, a list of added tokens or a chat template of a model.
///
/// # Errors
/// Fails if it cannot be read, is not a regular file, or has more than 16 MiB ([`ErrorKind::FileTooLarge`]).
pub fn read_configuration(file: &Path) -> io::Result<Vec<u8>> {
    read_at_most(file, MOST_CONFIGURATION_BYTES)
}

/// As [`read_configuration`], for files that are JSON.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, LoadError> {
    let too_large = |file, reason| LoadError::InvalidJson { file, reason };
    read_configuration(file).map_err(|error| described(file, error, too_large))
}

/// Reads tokenizer.json or a SentencePiece model.
pub(super) fn read_tokenizer(file: &Path) -> Result<Vec<u8>, LoadError> {
    let too_large = |file, reason| LoadError::InvalidTokenizer { file, reason };
    read_at_most(file, MOST_TOKENIZER_BYTES).map_err(|error| described(file, error, too_large))
}

fn described(file: &Path, error: io::Error, too_large: impl Fn(PathBuf, String) -> LoadError) -> LoadError {
    match error.kind() {
        ErrorKind::FileTooLarge => too_large(file.to_owned(), error.to_string()),
        _ => LoadError::unreadable(file)(error),
    }
}

fn read_at_most(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(file)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("longer than {most} bytes")));
    }
    Ok(bytes)
}

/// Opens a regular file. Opening a pipe may wait forever, and a device may have no end.
fn open(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(path)
}

/// Escapes and shortens a name from a file for a message.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(LONGEST_SHOWN).flat_map(char::escape_debug).collect()
}

/// Maps a file into memory, read-only.
///
/// The engine's other unsafe code is in `cuda/driver` (CUDA's functions) and the crate `lumos-kernels`; all other code
/// is safe Rust, enforced by the crate's `unsafe_code` lint.
#[allow(unsafe_code)]
pub(super) fn map(path: &Path) -> Result<Mmap, LoadError> {
    let file = open(path).map_err(LoadError::unreadable(path))?;
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
    let mut reader = open(path).map_err(&unreadable)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let file = File::create(&path).unwrap();
        file.set_len(MOST_CONFIGURATION_BYTES).unwrap();
        assert_eq!(read(&path).unwrap().len() as u64, MOST_CONFIGURATION_BYTES);
        file.set_len(MOST_CONFIGURATION_BYTES + 1).unwrap();
        assert_eq!(read_configuration(&path).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("config.json") && error.contains("longer than 16777216 bytes"), "{error}");
        assert_eq!(read_tokenizer(&path).unwrap().len() as u64, MOST_CONFIGURATION_BYTES + 1);
        let too_large = read_at_most(&path, 4).unwrap_err();
        let error = described(&path, too_large, |file, reason| LoadError::InvalidTokenizer { file, reason });
        assert!(error.to_string().contains("config.json: longer than 4 bytes"), "{error}");
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path(), Path::new("/dev/zero")] {
            for error in [read(path).unwrap_err(), map(path).unwrap_err()] {
                let error = error.to_string();
                let is_named = error.contains(&path.display().to_string());
                assert!(is_named && error.contains("failed to read"), "{error}");
            }
        }
        assert!(read(&folder.path().join("absent")).unwrap_err().to_string().contains("absent"));
    }

    #[test]
    fn names_in_messages_are_short_and_escaped() {
        assert_eq!(shown("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
        assert_eq!(shown(&"x".repeat(100_000)).len(), LONGEST_SHOWN);
    }
}
