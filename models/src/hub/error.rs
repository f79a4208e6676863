//! Errors of the hub, with hints. Messages never contain a token.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Errors of loading a model from the hub.
#[derive(Debug, Error)]
pub enum HubError {
    /// An environment variable is invalid.
    #[error("{message}")]
    Settings {
        /// Name of the variable and its expected value.
        message: String,
    },
    /// The hub cannot be reached.
    #[error(
        "folder `{id}` not found, and the hub cannot be reached ({host}: {message}); hint: check the folder \
         name and the network, or set HF_ENDPOINT to a mirror"
    )]
    Unreachable {
        /// The model.
        id: String,
        /// Host of the hub.
        host: String,
        /// Cause of the failure.
        message: String,
    },
    /// `HF_HUB_OFFLINE` is set and the model is not in the cache.
    #[error(
        "neither a folder `{id}` nor a model of that name in {} found, and HF_HUB_OFFLINE is set; hint: \
         unset HF_HUB_OFFLINE to download the model",
        cache.display()
    )]
    Offline {
        /// The model.
        id: String,
        /// Folder of the cache.
        cache: PathBuf,
    },
    /// The model does not exist, or is private.
    #[error(
        "neither a folder `{id}` nor a model of that name on {host} found; hint: check the spelling, or set \
         HF_TOKEN if the model is private"
    )]
    NoSuchModel {
        /// The model.
        id: String,
        /// The hub.
        host: String,
    },
    /// The model does not have this revision, or the revision does not have this file.
    #[error("`{what}` not found in {id} on {host}")]
    Missing {
        /// The model.
        id: String,
        /// The hub.
        host: String,
        /// The revision or file.
        what: String,
    },
    /// The model is gated: access must be requested.
    #[error(
        "{id} is a gated model ({status}); hint: request access at {address} and set HF_TOKEN to a token of \
         an account with access"
    )]
    Gated {
        /// The model.
        id: String,
        /// Status of the hub's response.
        status: String,
        /// URL of the model's page.
        address: String,
    },
    /// The hub rejected the token.
    #[error("{host} rejected the token for {id} ({status}); hint: set HF_TOKEN to a valid token")]
    Refused {
        /// The model.
        id: String,
        /// The hub.
        host: String,
        /// Status of the hub's response.
        status: String,
    },
    /// The hub sent an unexpected response.
    #[error("{host}: {message}; hint: try again later, or set HF_ENDPOINT to a mirror")]
    Answer {
        /// The hub.
        host: String,
        /// What is wrong with the response.
        message: String,
    },
    /// A file does not match the hash that the hub announced.
    #[error(
        "checksum mismatch: {file} of {id} was downloaded twice with sha256 {found}, expected {expected}; \
         the file was not kept"
    )]
    Damaged {
        /// The model.
        id: String,
        /// The file.
        file: String,
        /// Hash of the downloaded file.
        found: String,
        /// Hash announced by the hub.
        expected: String,
    },
    /// The disk is full.
    #[error(
        "no space left for {} ({bytes} bytes); hint: free disk space, or set HF_HOME to a folder on another \
         disk; the download resumes where it stopped",
        path.display()
    )]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// Size of the whole file in bytes.
        bytes: u64,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The model has no weights that the engine supports.
    #[error(
        "unsupported model {id}: no weights as safetensors, pytorch_model*.bin or GGUF, and no LoRA adapter"
    )]
    NoWeights {
        /// The model.
        id: String,
    },
    /// The name is ambiguous, because the model has several GGUF files.
    #[error(
        "{id} has several GGUF files ({}); hint: name one: candle:{id}/{}",
        files.join(", "), files.first().map_or("", String::as_str)
    )]
    SeveralModels {
        /// The model.
        id: String,
        /// The files.
        files: Vec<String>,
    },
}

impl HubError {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        |source| Self::File { path: path.into(), source }
    }
}
