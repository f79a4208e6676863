//! The manifest in a run's folder.

use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value;

use crate::atomic_file::write_whole;

use super::compare::differences;
use super::{Manifest, ManifestError, SCHEMA};

/// The file's name.
pub const FILE_NAME: &str = "manifest.json";

/// What [`Manifest::open_or_create`] found.
#[derive(Debug, Clone, PartialEq)]
pub enum Opened {
    /// No run; this one's manifest is written now.
    Created,
    /// The same run, planned before: its manifest.
    Continued(Box<Manifest>),
}

impl Manifest {
    /// Writes the manifest into a run's folder: whole or not at all, and on the disk when this returns.
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
    /// If the folder has no checkpoint, it cannot be read, or it was written by another version.
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

    /// Takes a run's folder for this manifest: writes it where there is none, continues where it is of the same run.
    ///
    /// # Errors
    /// If the folder holds another run: what differs, and what to do.
    pub fn open_or_create(&self, folder: &Path) -> Result<Opened, ManifestError> {
        match Self::read(folder) {
            Ok(found) if found.identity == self.identity => Ok(Opened::Continued(Box::new(found))),
            Ok(found) => Err(ManifestError::Differs {
                folder: folder.to_owned(),
                differences: differences(&found, self),
            }),
            Err(ManifestError::Missing { .. }) => self.write(folder).map(|()| Opened::Created),
            Err(error) => Err(error),
        }
    }
}
