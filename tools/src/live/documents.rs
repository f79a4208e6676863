//! Documents on disk, by address: fetched once for a whole sweep, across processes.
//!
//! A file is written under a temporary name and renamed, so that it is complete or absent; its checksum
//! detects damage. Two processes that fetch the same document at once write the same file.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use lumos_tasks::ContentHash;
use serde::{Deserialize, Serialize};

/// Version of the file format. Each version has its own folder.
const FORM: &str = "documents-1";

/// A folder of documents.
#[derive(Debug, Clone)]
pub(super) struct Documents {
    folder: PathBuf,
    most_bytes: u64,
}

/// A stored document.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    address: String,
    fetched: jiff::Timestamp,
    text: String,
}

impl Documents {
    /// Opens the documents of a cache folder, which may not exist yet. Larger documents are ignored.
    pub(super) fn new(cache: &Path, most_bytes: usize) -> Self {
        // Text may be longer than the original bytes, and JSON longer than text.
        let most_bytes = (most_bytes as u64).saturating_mul(8);
        Self { folder: cache.join(FORM), most_bytes }
    }

    /// Returns a document if it is stored and undamaged. Blocks.
    pub(super) fn get(&self, address: &str) -> Option<String> {
        let file = File::open(self.path(address)).ok()?;
        let mut json = String::new();
        GzDecoder::new(file).take(self.most_bytes).read_to_string(&mut json).ok()?;
        let kept: Kept = serde_json::from_str(&json).ok()?;
        (kept.address == address).then_some(kept.text)
    }

    /// Stores a document. Blocks.
    pub(super) fn put(&self, address: &str, text: &str) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let path = self.path(address);
        let parent = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(parent)?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let beside = path.with_extension(format!("{}-{count}.part", std::process::id()));
        let written = write(&beside, address, text).and_then(|()| fs::rename(&beside, &path));
        if written.is_err() {
            // A temporary file that is left here would never be removed.
            let _ = fs::remove_file(&beside);
        }
        written
    }

    fn path(&self, address: &str) -> PathBuf {
        let hash = ContentHash::of_bytes(address.as_bytes());
        let name = hash.as_str();
        self.folder.join(name.get(..2).unwrap_or_default()).join(format!("{name}.json.gz"))
    }
}

fn write(path: &Path, address: &str, text: &str) -> io::Result<()> {
    let kept = Kept { address: address.to_owned(), fetched: jiff::Timestamp::now(), text: text.to_owned() };
    let mut file = GzEncoder::new(File::create(path)?, Compression::fast());
    file.write_all(&serde_json::to_vec(&kept)?)?;
    file.finish()?.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let documents = Documents::new(folder.path(), 1_000);
        let text = "é\u{0}\"山".repeat(20);
        assert_eq!(documents.get("a"), None);
        documents.put("a", &text).unwrap();
        assert_eq!(documents.get("a").as_deref(), Some(text.as_str()));
        assert_eq!(documents.get("b"), None);
        let path = documents.path("a");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        assert_eq!(documents.get("a"), None, "truncated file");
        documents.put("a", &text).unwrap();
        assert_eq!(documents.get("a").as_deref(), Some(text.as_str()));
        let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "no temporary file is left");
    }

    #[test]
    fn a_file_that_unpacks_without_end_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let documents = Documents::new(folder.path(), 1_000);
        documents.put("a", &"x".repeat(100_000)).unwrap();
        assert_eq!(documents.get("a"), None);
    }
}
