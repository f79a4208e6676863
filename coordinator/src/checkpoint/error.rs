//! What can go wrong with a checkpoint.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a checkpoint could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CheckpointError {
    /// There is no database.
    #[error("checkpoint not found in `{}`", folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process has it open.
    #[error(
        "checkpoint `{}` is in use by another process: wait for it, stop it, or choose another run name with --name",
        folder.display()
    )]
    InUse {
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
    /// The process may not use as much memory, or as many threads, as it needs.
    #[error(
        "not enough memory for checkpoint `{}`: {detail}\n\
         hint: recorded outcomes are safe; raise the memory limit (`ulimit -v unlimited`, or the container's) and \
         run the same command again",
        folder.display()
    )]
    Memory {
        /// The folder.
        folder: PathBuf,
        /// What could not be had.
        detail: String,
    },
    /// The disk or its file system failed.
    #[error("failed to read or write checkpoint `{}`: {detail}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        detail: String,
    },
    /// The content differs from what was written.
    #[error(
        "checkpoint `{}` is damaged: {detail}\n\
         hint: `lumos repair {}` restores everything that one of its two copies still has; samples_*.jsonl in the \
         same folder contain the exported samples",
        folder.display(), folder.parent().unwrap_or(folder).display()
    )]
    Corrupt {
        /// The folder.
        folder: PathBuf,
        /// What does not fit.
        detail: String,
    },
    /// It was written by another version of the program.
    #[error(
        "unsupported layout {found} of checkpoint `{}`: expected {known}; use the version of lumos that wrote it",
        folder.display()
    )]
    Schema {
        /// The folder.
        folder: PathBuf,
        /// The layout found, in hexadecimal.
        found: String,
        /// The layout this program writes.
        known: u32,
    },
    /// The writer has ended, after a failure or because the checkpoint was closed.
    #[error("the checkpoint is closed")]
    Ended,
}

impl CheckpointError {
    /// sled's words in ours.
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
            // Damaged settings read like those of another version.
            other => Self::Corrupt { folder: folder.to_owned(), detail: other.to_string() },
        }
    }

    /// The system's words in ours.
    pub(crate) fn of_io(path: &Path, error: &io::Error) -> Self {
        let folder = path.to_owned();
        let text = error.to_string();
        match error.kind() {
            // sled wraps what the lock said in an error of its own.
            _ if text.contains("WouldBlock") || text.contains("acquire lock") => Self::InUse { folder },
            // The system says the same of a thread that cannot be started; other locks are tried in [`super::lock`].
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
}
