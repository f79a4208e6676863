//! What can go wrong with a checkpoint.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a checkpoint could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CheckpointError {
    /// There is no database.
    #[error("there is no checkpoint in {}", folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process has it open.
    #[error(
        "the checkpoint {} is in use by another process: wait for it, stop it, or give this run another name with --name",
        folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The disk is full.
    #[error(
        "the disk that holds the checkpoint {} is full: what was recorded so far is safe; free some space and \
         start the same command again",
        folder.display()
    )]
    Full {
        /// The folder.
        folder: PathBuf,
    },
    /// The disk or its file system failed.
    #[error("the checkpoint {} cannot be read or written: {detail}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        detail: String,
    },
    /// What is there is not what was written.
    #[error(
        "the checkpoint {} is damaged: {detail}. The files samples_*.jsonl beside it hold what was exported; \
         delete the folder to start over",
        folder.display()
    )]
    Corrupt {
        /// The folder.
        folder: PathBuf,
        /// What does not fit.
        detail: String,
    },
    /// It was written by another version of the program.
    #[error(
        "the checkpoint {} has layout {found}, this program knows {known}: use the version that wrote it",
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
    #[error("the checkpoint no longer takes records")]
    Ended,
}

impl CheckpointError {
    /// sled's words in ours.
    pub(crate) fn of_sled(folder: &Path, error: &sled::Error) -> Self {
        let folder = folder.to_owned();
        match error {
            sled::Error::Io(io) => Self::of_io(folder, io.kind(), io),
            sled::Error::Corruption { .. } => Self::Corrupt { folder, detail: error.to_string() },
            other => Self::Io { folder, detail: other.to_string() },
        }
    }

    fn of_io(folder: PathBuf, kind: ErrorKind, error: &std::io::Error) -> Self {
        let text = error.to_string();
        // sled wraps what the lock said in an error of its own.
        if kind == ErrorKind::WouldBlock || text.contains("WouldBlock") || text.contains("acquire lock") {
            Self::InUse { folder }
        } else if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            || text.contains("No space left")
        {
            Self::Full { folder }
        } else {
            Self::Io { folder, detail: text }
        }
    }
}
