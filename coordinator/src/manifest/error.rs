//! What can be wrong with a manifest.

use std::path::PathBuf;

use thiserror::Error;

/// Why a run's folder cannot be used.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// There is none.
    #[error("not a run folder: `{}` (manifest.json not found)", folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// It cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no manifest.
    #[error("invalid manifest `{}`: {detail}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        detail: String,
    },
    /// It was written by another version of the program.
    #[error("unsupported layout {found} of `{}`: expected {known}; use the version of lumos that wrote it", file.display())]
    Schema {
        /// The file.
        file: PathBuf,
        /// The layout found.
        found: u64,
        /// The layout this program writes.
        known: u32,
    },
    /// The folder holds a run of something else.
    #[error(
        "`{}` contains a run with different settings:\n{}",
        folder.display(), differences.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    )]
    Differs {
        /// The folder.
        folder: PathBuf,
        /// What differs, one line each.
        differences: Vec<String>,
    },
}
