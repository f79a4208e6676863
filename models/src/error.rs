//! Errors of finding and loading a model.

use std::io;
use std::path::PathBuf;

use lumos_http::AccessRefusal;
use thiserror::Error;

use super::located::LocateError;
use super::name::NameError;

/// Errors of identifying a model by its name.
#[derive(Debug, Error)]
pub enum IdentifyError {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The operator of this worker does not allow it.
    #[error("model {name}: {refusal}")]
    NotAllowed {
        /// The model's name.
        name: String,
        /// The refused path or host.
        refusal: AccessRefusal,
    },
    /// A file cannot be read.
    #[error(
        "model {name}: failed to read {}: {source}; hint: check that it exists and that its permissions \
         allow reading",
        path.display()
    )]
    Unreadable {
        /// The model's name.
        name: String,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Its files were found neither locally nor on the hub.
    #[error("model {name}: {source}")]
    Located {
        /// The model's name.
        name: String,
        /// Cause and hint.
        source: Box<LocateError>,
    },
    /// It cannot be used for the role, the settings of its server are invalid, or its folder has no weights. The message
    /// names the model.
    #[error("{0}")]
    Unusable(String),
}

impl IdentifyError {
    pub(crate) fn unusable(name: impl std::fmt::Display, message: impl std::fmt::Display) -> Self {
        Self::Unusable(format!("model {name}: {message}"))
    }
}

/// A model could not be loaded.
#[derive(Debug, Clone, Error)]
#[error("model {name}: {message}")]
pub struct LoadModelError {
    /// The model's name.
    pub name: String,
    /// Cause and hint.
    pub message: String,
    /// Whether the machine is out of memory or threads. The model itself is valid.
    pub is_exhaustion: bool,
}

impl LoadModelError {
    /// Creates an error caused by the model or its files.
    pub fn new(name: &str, message: impl Into<String>) -> Self {
        Self { name: name.to_owned(), message: message.into(), is_exhaustion: false }
    }
}
