//! Errors of manifests.

use std::path::PathBuf;

use thiserror::Error;

/// Error of using a run's folder.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// The folder has no manifest.
    #[error("not a run folder: `{}` (manifest.json not found)", folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// The manifest cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The file is not a valid manifest.
    #[error("invalid manifest `{}`: {detail}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The error.
        detail: String,
    },
    /// Another version of lumos wrote it.
    #[error("unsupported layout {found} of `{}`: expected {known}; use the version of lumos that wrote it", file.display())]
    Schema {
        /// The file.
        file: PathBuf,
        /// The layout found.
        found: u64,
        /// The layout this program writes.
        known: u32,
    },
    /// The folder contains a different run.
    #[error(
        "`{}` contains a run with different settings:\n{}",
        folder.display(), differences.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    )]
    Differs {
        /// The folder.
        folder: PathBuf,
        /// The differences, one line each.
        differences: Vec<String>,
    },
}
