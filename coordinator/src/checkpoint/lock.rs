//! Lock of a checkpoint's folder: one process writes at a time; readers do not wait, and keep a writer out only while
//! they read a damaged checkpoint.
//!
//! The lock file also contains a copy of the journal's header, so that losses can be counted if the whole
//! journal is lost.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use super::error::CheckpointError;
use super::frame::{Head, HeadRead};

const FILE_NAME: &str = "lock";
/// The file that sled locks.
const DATABASE_FILE: &str = "db";

/// How long to wait for a lock that another process holds. A child process holds its parent's files between
/// fork and exec.
const PATIENCE: Duration = Duration::from_millis(500);

/// The exclusive lock for writing a checkpoint, held until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct FolderLock {
    file: File,
}

impl FolderLock {
    /// Acquires the lock of an existing folder.
    pub(super) fn acquire(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join(FILE_NAME);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|error| CheckpointError::of_io(&path, &error))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file }),
                Err(TryLockError::Error(error)) => return Err(CheckpointError::of_lock(folder, &error)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(25));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(CheckpointError::InUse { folder: folder.to_owned() });
                }
            }
        }
    }

    /// Returns the lock file, for writing the journal's header.
    pub(super) fn file(&self) -> Result<File, CheckpointError> {
        self.file.try_clone().map_err(|error| CheckpointError::of_io(Path::new(FILE_NAME), &error))
    }

    /// Reads the copy of the journal's header. Returns `None` if it is damaged or was written by an earlier
    /// version.
    pub(super) fn head(folder: &Path) -> Option<Head> {
        match Head::decode(&std::fs::read(folder.join(FILE_NAME)).ok()?) {
            HeadRead::Intact(head) => Some(head),
            HeadRead::Damaged | HeadRead::Version(_) => None,
        }
    }

    /// Acquires shared locks, which keep writers out until the returned files are dropped. Returns `None` if
    /// a process is writing. Changes nothing in the folder.
    pub(super) fn share(folder: &Path) -> Option<Vec<File>> {
        let mut shared = Vec::new();
        // Earlier versions lock the database only.
        for name in [FILE_NAME, DATABASE_FILE] {
            let Ok(file) = File::open(folder.join(name)) else { continue };
            if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
                return None;
            }
            shared.push(file);
        }
        Some(shared)
    }
}
