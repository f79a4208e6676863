//! One process writes a checkpoint at a time; readers do not wait for it. The file that is locked holds the journal's
//! header once more, by which the loss of the whole journal is counted.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use super::error::CheckpointError;
use super::frame::{Head, HeadRead};

const FILE_NAME: &str = "lock";
/// What sled locks.
const DATABASE_FILE: &str = "db";

/// How long a lock that somebody holds is waited for: a process that was just started holds its parent's files until
/// its own program runs.
const PATIENCE: Duration = Duration::from_millis(500);

/// The right to write a checkpoint, until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct FolderLock {
    file: File,
}

impl FolderLock {
    /// Takes the lock of a folder that exists.
    pub(super) fn acquire(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join(FILE_NAME);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|error| CheckpointError::of_io(&path, &error))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file }),
                // sled's own lock remains where the file system has none of these.
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                    return Ok(Self { file });
                }
                Err(TryLockError::Error(error)) => return Err(CheckpointError::of_io(&path, &error)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(25));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(CheckpointError::InUse { folder: folder.to_owned() });
                }
            }
        }
    }

    /// The file, to write the journal's header into it.
    pub(super) fn file(&self) -> Result<File, CheckpointError> {
        self.file.try_clone().map_err(|error| CheckpointError::of_io(Path::new(FILE_NAME), &error))
    }

    /// The journal's header as it is in the file; `None` if that is damaged or an earlier version's.
    pub(super) fn head(folder: &Path) -> Option<Head> {
        match Head::decode(&std::fs::read(folder.join(FILE_NAME)).ok()?) {
            HeadRead::Intact(head) => Some(head),
            HeadRead::Damaged | HeadRead::Version(_) => None,
        }
    }

    /// Keeps writers out for as long as what is returned lives; `None` if one is writing now. Changes nothing in the
    /// folder.
    pub(super) fn share(folder: &Path) -> Option<Vec<File>> {
        let mut shared = Vec::new();
        // The database's lock is all that earlier versions take.
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
