//! Errors of the hub, with hints. Messages never contain a token.

use std::io;
use std::path::PathBuf;

use lumos_engine::LoadError;
use thiserror::Error;

use super::name::RepositoryKind;

/// Errors of loading a model or a data set from the hub.
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
        "{}the hub cannot be reached ({host}: {message}); hint: check the {}network, or set HF_ENDPOINT to a mirror",
        match kind {
            RepositoryKind::Model => format!("folder `{id}` not found, and "),
            RepositoryKind::DataSet => format!("data set `{id}` not found in the cache, and "),
        },
        match kind { RepositoryKind::Model => "folder name and the ", RepositoryKind::DataSet => "" }
    )]
    Unreachable {
        /// Model or data set.
        kind: RepositoryKind,
        /// The model or data set.
        id: String,
        /// Host of the hub.
        host: String,
        /// Cause of the failure.
        message: String,
    },
    /// `HF_HUB_OFFLINE` is set and the model, or a file of the data set, is not in the cache.
    #[error(
        "{} in {} found, and HF_HUB_OFFLINE is set; hint: unset HF_HUB_OFFLINE to download the {kind}",
        match kind {
            RepositoryKind::Model => format!("neither a folder `{id}` nor a model of that name"),
            RepositoryKind::DataSet => format!("no data set `{id}` with these files"),
        },
        cache.display()
    )]
    Offline {
        /// Model or data set.
        kind: RepositoryKind,
        /// The model or data set.
        id: String,
        /// Folder of the cache.
        cache: PathBuf,
    },
    /// The model or data set does not exist, or is private.
    #[error(
        "{} on {host}{}; hint: check the spelling, or set HF_TOKEN if the {kind} is private",
        match kind {
            RepositoryKind::Model => format!("neither a folder `{id}` nor a model of that name"),
            RepositoryKind::DataSet => format!("data set `{id}` not found"),
        },
        match kind { RepositoryKind::Model => " found", RepositoryKind::DataSet => "" }
    )]
    NotFound {
        /// Model or data set.
        kind: RepositoryKind,
        /// The model or data set.
        id: String,
        /// The hub.
        host: String,
    },
    /// The model or data set does not have this revision, or the revision does not have this file.
    #[error(
        "`{what}` not found in {id} on {host}{}",
        match known.as_slice() { [] => String::new(), known => format!("; it has {}", known.join(", ")) }
    )]
    Missing {
        /// The model or data set.
        id: String,
        /// The hub.
        host: String,
        /// The revision or file.
        what: String,
        /// Some of the files that exist.
        known: Vec<String>,
    },
    /// A file name is not supported.
    #[error(
        "invalid file name `{file}`: expected names of letters, digits, `-`, `_` and `.`, separated by `/`"
    )]
    FileName {
        /// The name.
        file: String,
    },
    /// The model or data set is gated: access must be requested.
    #[error(
        "{id} is a gated {kind} ({status}); hint: request access at {address} and set HF_TOKEN to a token of \
         an account with access"
    )]
    Gated {
        /// Model or data set.
        kind: RepositoryKind,
        /// The model or data set.
        id: String,
        /// Status of the hub's response.
        status: String,
        /// URL of its page.
        address: String,
    },
    /// The hub rejected the token.
    #[error("{host} rejected the token for {id} ({status}); hint: set HF_TOKEN to a valid token")]
    Refused {
        /// The model or data set.
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
    /// A file arrives too slowly.
    #[error(
        "download of {file} of {id} from {host} is too slow: less than {least} bytes/s for {seconds} s; hint: check the \
         network, or set HF_ENDPOINT to a faster mirror; the download resumes where it stopped"
    )]
    Slow {
        /// The model or data set.
        id: String,
        /// The file.
        file: String,
        /// The hub.
        host: String,
        /// Minimum rate in bytes per second.
        least: u64,
        /// Time over which the rate is measured, in seconds.
        seconds: u64,
    },
    /// A download was interrupted, and its retries failed as well.
    #[error(
        "download of {file} of {id} from {host} was interrupted: {message}; hint: check the network and try again; \
         the download resumes where it stopped"
    )]
    Interrupted {
        /// The model or data set.
        id: String,
        /// The file.
        file: String,
        /// The hub.
        host: String,
        /// Cause of the failure.
        message: String,
    },
    /// A file does not match the hash that the hub announced.
    #[error(
        "checksum mismatch: {file} of {id} was downloaded twice with the hash {found}, expected {expected}; \
         the file was not kept"
    )]
    Damaged {
        /// The model or data set.
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
    /// The index of the weights is invalid.
    #[error(transparent)]
    Index(Box<LoadError>),
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
