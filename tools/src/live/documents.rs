//! Documents on disk, by address: fetched once for a whole sweep, across processes.
//!
//! A file is written under a temporary name and renamed, so that it is complete or absent; its checksum
//! detects damage. Two processes that fetch the same document at once write the same file.
//!
//! The size of the folder is limited: the oldest files make room for new ones. Each process adds up the sizes of the files
//! that it writes, and reads the folder again when they reach the limit, so several processes may exceed it for a while.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

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
    /// Maximum size of all files, in bytes.
    limit: u64,
    /// Size of all files, once they are counted. Files that others have removed since are included.
    total: Arc<Mutex<Option<u64>>>,
}

/// A stored document.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    address: String,
    fetched: jiff::Timestamp,
    text: String,
}

impl Documents {
    /// Opens the documents of a cache folder, which may not exist yet. Documents of more than `most_bytes` are ignored.
    /// All files have at most `limit` bytes.
    pub(super) fn new(cache: &Path, most_bytes: usize, limit: u64) -> Self {
        // Text may be longer than the original bytes, and JSON longer than text.
        let most_bytes = (most_bytes as u64).saturating_mul(8);
        Self { folder: cache.join(FORM), most_bytes, limit, total: Arc::default() }
    }

    /// Returns a document if it is stored and undamaged. Blocks.
    pub(super) fn get(&self, address: &str) -> Option<String> {
        let file = File::open(self.path(address)).ok()?;
        let mut json = String::new();
        GzDecoder::new(file).take(self.most_bytes).read_to_string(&mut json).ok()?;
        let kept: Kept = serde_json::from_str(&json).ok()?;
        (kept.address == address).then_some(kept.text)
    }

    /// Stores a document, unless it is larger than the whole cache may be. Blocks.
    pub(super) fn put(&self, address: &str, text: &str) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let packed = packed(address, text)?;
        if !self.make_room(packed.len() as u64) {
            return Ok(());
        }
        let path = self.path(address);
        let parent = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(parent)?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let beside = path.with_extension(format!("{}-{count}.part", std::process::id()));
        let written = fs::write(&beside, packed).and_then(|()| fs::rename(&beside, &path));
        if written.is_err() {
            // A temporary file that is left here would never be removed.
            let _ = fs::remove_file(&beside);
        }
        written
    }

    /// Counts a new file, after removing the oldest ones if the limit would be exceeded. Returns whether there is room.
    fn make_room(&self, bytes: u64) -> bool {
        if bytes > self.limit {
            return false;
        }
        let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.limit - bytes;
        if total.is_none_or(|total| total > most) {
            let stored = self.stored();
            let mut left: u64 = stored.iter().map(|(_, bytes, _)| bytes).sum();
            // More than needed, because the whole folder is read to find the oldest files.
            let target = if left > most { most.saturating_sub(self.limit / 8) } else { most };
            for (_, bytes, path) in stored {
                if left <= target {
                    break;
                }
                if fs::remove_file(path).is_ok() {
                    left -= bytes;
                }
            }
            *total = Some(left);
        }
        let has_room = total.is_some_and(|total| total <= most);
        if has_room {
            *total = total.map(|total| total + bytes);
        }
        has_room
    }

    /// Returns the files of this cache, the oldest first, with their times of modification and sizes.
    fn stored(&self) -> Vec<(SystemTime, u64, PathBuf)> {
        let folders = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
        let own = files.filter(|file| file.file_name().to_str().is_some_and(is_own));
        let sized = own.filter_map(|file| {
            let metadata = file.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), file.path())).filter(|_| metadata.is_file())
        });
        let mut stored: Vec<_> = sized.collect();
        stored.sort();
        stored
    }

    fn path(&self, address: &str) -> PathBuf {
        let hash = ContentHash::of_bytes(address.as_bytes());
        let name = hash.as_str();
        self.folder.join(name.get(..2).unwrap_or_default()).join(format!("{name}.json.gz"))
    }
}

/// Whether a file has the name of a document, or of one that is being written.
fn is_own(name: &str) -> bool {
    name.split_once(".json.").is_some_and(|(hash, rest)| {
        let is_hash = hash.len() == 64 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_hash && (rest == "gz" || rest.ends_with(".part"))
    })
}

fn packed(address: &str, text: &str) -> io::Result<Vec<u8>> {
    let kept = Kept { address: address.to_owned(), fetched: jiff::Timestamp::now(), text: text.to_owned() };
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&serde_json::to_vec(&kept)?)?;
    packed.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMIT: u64 = 1 << 20;

    #[test]
    fn a_document_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let documents = Documents::new(folder.path(), 1_000, LIMIT);
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
        let documents = Documents::new(folder.path(), 1_000, LIMIT);
        documents.put("a", &"x".repeat(100_000)).unwrap();
        assert_eq!(documents.get("a"), None);
    }

    #[test]
    fn the_oldest_documents_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let limit = 10 * packed("00", "text").unwrap().len() as u64;
        let documents = Documents::new(folder.path(), 1_000, limit);
        documents.put("00", "text").unwrap();
        let other = documents.path("00").with_file_name("other");
        fs::write(&other, "not of this cache").unwrap();
        for path in [&documents.path("00"), &other] {
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        }
        let names: Vec<String> = (1..40).map(|number| format!("{number:02}")).collect();
        for name in &names {
            // Another process has counted nothing yet.
            let documents = Documents::new(folder.path(), 1_000, limit);
            documents.put(name, "text").unwrap();
            let size: u64 = documents.stored().iter().map(|(_, bytes, _)| bytes).sum();
            assert!(size <= limit, "{size} bytes");
            assert!(documents.get(name).is_some(), "{name}");
        }
        assert!(documents.get("00").is_none() && other.exists());
        // The total of the first process has reached the limit by now.
        for name in &names {
            documents.put(name, "text").unwrap();
        }
        let left = names.iter().filter(|name| documents.get(name).is_some()).count();
        assert!((5..=10).contains(&left), "{left} documents");
        let large: String =
            (0..10_000_u32).map(|number| format!("{:x}", number.wrapping_mul(2_654_435_761))).collect();
        documents.put("large", &large).unwrap();
        assert!(documents.get("large").is_none());
        assert_eq!(names.iter().filter(|name| documents.get(name).is_some()).count(), left);
    }
}
