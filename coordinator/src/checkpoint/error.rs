//! Errors of checkpoints.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use lumos_tasks::shell::quoted_path;
use thiserror::Error;

/// Error of a checkpoint operation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CheckpointError {
    /// There is no checkpoint in the folder.
    #[error("checkpoint not found in `{}`", folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process has the checkpoint open.
    #[error(
        "checkpoint `{}` is in use by another process\n\
         hint: wait until that process has ended, or stop it, and run the same command again; `lumos run` also accepts \
         another run name with --name",
        folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The file system of the checkpoint does not support file locks.
    #[error(
        "the file system of checkpoint `{}` does not support file locks\n\
         hint: mount it with the option `flock`, or set --output-path to a folder on another file system",
        folder.display()
    )]
    NoLocks {
        /// The folder.
        folder: PathBuf,
    },
    /// The disk is full.
    #[error(
        "the disk of checkpoint `{}` is full: recorded outcomes are safe; free disk space and run the same \
         command again",
        folder.display()
    )]
    Full {
        /// The folder.
        folder: PathBuf,
    },
    /// The process has too little memory or may not start enough threads.
    #[error(
        "not enough memory for checkpoint `{}`: {detail}\n\
         hint: recorded outcomes are safe; raise the memory limit (`ulimit -v unlimited`, or the container's) and \
         run the same command again",
        folder.display()
    )]
    Memory {
        /// The folder.
        folder: PathBuf,
        /// The resource that could not be allocated.
        detail: String,
    },
    /// The disk or its file system failed.
    #[error("failed to read or write checkpoint `{}`: {detail}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// Error message of the operating system.
        detail: String,
    },
    /// The content differs from what was written.
    #[error(
        "checkpoint `{}` is damaged: {detail}\n\
         hint: `lumos repair {}` restores everything that one of its two copies still has; samples_*.jsonl in the \
         same folder contain the exported samples",
        folder.display(), run_in_shell(folder)
    )]
    Corrupt {
        /// The folder.
        folder: PathBuf,
        /// The inconsistency that was found.
        detail: String,
    },
    /// The checkpoint was written by another version of lumos.
    #[error(
        "unsupported layout {found} of checkpoint `{}`: expected {known}\n\
         hint: continue and read this run with the version of lumos that wrote it; its recorded outcomes are unchanged",
        folder.display()
    )]
    Schema {
        /// The folder.
        folder: PathBuf,
        /// The layout found.
        found: String,
        /// The layout this program writes.
        known: u32,
    },
    /// The writer has stopped, after a failure or because the checkpoint was closed.
    #[error("the checkpoint is closed")]
    Ended,
}

impl CheckpointError {
    /// Creates the error for content that differs from what was written.
    pub fn corrupt(folder: &Path, detail: impl Into<String>) -> Self {
        Self::Corrupt { folder: folder.to_owned(), detail: detail.into() }
    }

    /// Converts an error of sled.
    pub(crate) fn of_sled(folder: &Path, error: &sled::Error) -> Self {
        match error {
            sled::Error::Io(io)
                if !matches!(
                    io.kind(),
                    ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof
                ) =>
            {
                Self::of_io(folder, io)
            }
            // sled reports damaged settings and settings of another version with the same error.
            other => Self::corrupt(folder, other.to_string()),
        }
    }

    /// Converts an error of locking a file.
    pub(super) fn of_lock(folder: &Path, error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::NoLocks { folder: folder.to_owned() },
            _ => Self::of_io(folder, error),
        }
    }

    /// Converts an I/O error.
    pub fn of_io(path: &Path, error: &io::Error) -> Self {
        let folder = path.to_owned();
        let text = error.to_string();
        match error.kind() {
            // sled wraps the lock error in an error of its own. On Windows, a lock that is held has no kind.
            _ if text.contains("WouldBlock") => Self::InUse { folder },
            _ if cfg!(windows) && text.contains("acquire lock") => Self::InUse { folder },
            _ if text.contains("acquire lock") && text.contains("Unsupported") => Self::NoLocks { folder },
            // Starting a thread fails with the same error kind; lumos's own locks are handled in
            // [`super::lock`].
            ErrorKind::WouldBlock => {
                Self::Memory { folder, detail: format!("failed to start a thread: {text}") }
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full { folder },
            _ if text.contains("No space left") => Self::Full { folder },
            ErrorKind::OutOfMemory => Self::Memory { folder, detail: text },
            _ => Self::Io { folder, detail: text },
        }
    }
}

/// Returns the folder of a checkpoint's run as a word of a shell command.
pub(super) fn run_in_shell(checkpoint: &Path) -> String {
    quoted_path(checkpoint.parent().unwrap_or(checkpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_be_started_is_a_lack_of_memory_and_no_lock() {
        let path = Path::new("runs/x/checkpoint");
        let thread = CheckpointError::of_io(path, &io::Error::from(ErrorKind::WouldBlock));
        assert!(matches!(thread, CheckpointError::Memory { .. }), "{thread:?}");
        let lock = io::Error::other("could not acquire lock on \"db\": Os { code: 11, kind: WouldBlock }");
        assert!(matches!(CheckpointError::of_io(path, &lock), CheckpointError::InUse { .. }));
    }

    #[test]
    fn a_file_system_without_locks_is_not_in_use_by_another_process() {
        let path = Path::new("runs/x/checkpoint");
        let lock = CheckpointError::of_lock(path, &io::Error::from(ErrorKind::Unsupported));
        let text = "could not acquire lock on \"db\": Os { code: 38, kind: Unsupported }";
        for error in [lock, CheckpointError::of_io(path, &io::Error::other(text))] {
            assert!(error.to_string().contains("does not support file locks\nhint: "), "{error}");
        }
    }

    #[test]
    fn the_command_in_a_hint_is_quoted_for_a_shell() {
        let damaged = CheckpointError::corrupt(Path::new("my runs/x/checkpoint"), "cut").to_string();
        assert!(damaged.contains("hint: `lumos repair 'my runs/x'` restores"), "{damaged}");
    }
}
