//! Errors of finding and loading a model.

use std::io;
use std::path::PathBuf;

use lumos_tasks::Role;
use thiserror::Error;

use super::located::LocateError;
use super::name::NameError;
use crate::access::AccessRefusal;

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
        /// What is not allowed.
        refusal: AccessRefusal,
    },
    /// The model does not support this role.
    #[error(
        "model {name} cannot be used as {role}; hint: use it as planner and grounder (formulations \
         iterative, onetime, integrated)"
    )]
    NoSuchRole {
        /// The model's name.
        name: String,
        /// The role asked for.
        role: Role,
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
        /// What the system said.
        source: io::Error,
    },
    /// The settings of the model's server are invalid.
    #[error("model {name}: {message}")]
    Settings {
        /// The model's name.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// Its files were not found, neither locally nor on the hub.
    #[error("model {name}: {source}")]
    Located {
        /// The model's name.
        name: String,
        /// Why not, and what to do.
        source: Box<LocateError>,
    },
    /// The folder is not a model folder.
    #[error(
        "model {name}: no weights in {}; hint: copy *.safetensors, pytorch_model*.bin or a *.gguf into it",
        path.display()
    )]
    NoWeights {
        /// The model's name.
        name: String,
        /// The folder.
        path: PathBuf,
    },
}

/// Why a model could not be loaded.
#[derive(Debug, Clone, Error)]
#[error("model {name}: {message}")]
pub struct LoadModelError {
    /// The model's name.
    pub name: String,
    /// What went wrong, and a remedy.
    pub message: String,
    /// Whether the machine lacks memory or threads at present: the model itself is in order.
    pub is_exhaustion: bool,
}

impl LoadModelError {
    /// A failure that is the model's or its files'.
    pub(crate) fn new(name: &str, message: impl Into<String>) -> Self {
        Self { name: name.to_owned(), message: message.into(), is_exhaustion: false }
    }
}
