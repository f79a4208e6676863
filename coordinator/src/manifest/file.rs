//! Reads and writes the manifest in a run's folder. [`ManifestError`] lists what can fail.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

use crate::atomic_file::write_whole;

use super::compare::differences;
use super::{Manifest, SCHEMA};

/// Name of the file.
pub(crate) const FILE_NAME: &str = "manifest.json";

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

impl Manifest {
    /// Writes the manifest to a run's folder. The write is atomic, and the file is on disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ManifestError> {
        let file = folder.join(FILE_NAME);
        write_whole(&file, |out| {
            serde_json::to_writer_pretty(&mut *out, self)?;
            out.write_all(b"\n")
        })
        .map_err(|source| ManifestError::Io { file, source })
    }

    /// Reads the manifest of a run's folder.
    ///
    /// # Errors
    /// If the folder has no manifest, it cannot be read, or another version wrote it.
    pub fn read(folder: &Path) -> Result<Self, ManifestError> {
        let file = folder.join(FILE_NAME);
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(ManifestError::Missing { folder: folder.to_owned() });
            }
            Err(source) => return Err(ManifestError::Io { file, source }),
        };
        let malformed = |detail: String| ManifestError::Malformed { file: file.clone(), detail };
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        match value.get("schema").and_then(Value::as_u64) {
            Some(found) if found == u64::from(SCHEMA) => {}
            Some(found) => return Err(ManifestError::Schema { file, found, known: SCHEMA }),
            None => return Err(malformed("missing field `schema`".to_owned())),
        }
        let manifest: Self = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
        for (name, file) in &manifest.spec.task_files {
            if *name != file.definition.name {
                return Err(malformed(format!("task file `{name}` has the name `{}`", file.definition.name)));
            }
            if let Some((key, problem)) = file.definition.problems().first() {
                return Err(malformed(format!("task file `{name}`: `{key}`: {problem}")));
            }
        }
        for planned in &manifest.configurations {
            if planned.configuration.identity() != planned.identity {
                return Err(malformed(format!(
                    "configuration `{}` does not match its identity",
                    planned.label
                )));
            }
        }
        Ok(manifest)
    }

    /// Returns the folder's manifest if it contains the same run, or `None` if it contains no run.
    ///
    /// # Errors
    /// If the folder contains a different run, with the differences, or if it cannot be read.
    pub fn open(&self, folder: &Path) -> Result<Option<Self>, ManifestError> {
        match Self::read(folder) {
            Ok(found) if found.identity == self.identity => Ok(Some(found)),
            Ok(found) => Err(ManifestError::Differs {
                folder: folder.to_owned(),
                differences: differences(&found, self),
            }),
            Err(ManifestError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`open`](Self::open), and writes the manifest if the folder contains no run.
    ///
    /// # Errors
    /// Those of `open`, or if it cannot be written.
    pub fn open_or_create(&self, folder: &Path) -> Result<Option<Self>, ManifestError> {
        match self.open(folder)? {
            None => self.write(folder).map(|()| None),
            found => Ok(found),
        }
    }
}
