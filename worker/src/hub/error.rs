//! Why a model of the hub is not to be had, and what to do about it. Messages hold no token.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a model of the hub is not to be had.
#[derive(Debug, Error)]
pub enum HubError {
    /// A variable of the environment is wrong.
    #[error("{message}")]
    Settings {
        /// Which, and what it must be.
        message: String,
    },
    /// The hub cannot be reached.
    #[error(
        "no folder `{id}` is here, and the hub cannot be reached ({host}: {message}); check the folder's name or the \
         network, or name a mirror in HF_ENDPOINT"
    )]
    Unreachable {
        /// The model.
        id: String,
        /// Its host.
        host: String,
        /// What went wrong.
        message: String,
    },
    /// Only the cache may be used, and the model is not in it.
    #[error("no folder `{id}` is here nor a model of that name in {}, and HF_HUB_OFFLINE is set; unset it to download", cache.display())]
    Offline {
        /// The model.
        id: String,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// There is no such model, or not for everybody.
    #[error(
        "neither a folder `{id}` is here nor a model of that name on {host}; check the spelling, or set HF_TOKEN if the \
         model is private"
    )]
    NoSuchModel {
        /// The model.
        id: String,
        /// The hub.
        host: String,
    },
    /// The model has no such revision, or the revision no such file.
    #[error("{id} on {host} has no {what}")]
    Missing {
        /// The model.
        id: String,
        /// The hub.
        host: String,
        /// The revision or file.
        what: String,
    },
    /// The model is given to those only who agreed to something.
    #[error(
        "{id} is not given to everybody ({status}); ask for it at {address} and set HF_TOKEN to a token of the account \
         that may have it"
    )]
    Gated {
        /// The model.
        id: String,
        /// What the hub answered.
        status: String,
        /// Its page.
        address: String,
    },
    /// The hub does not take the token.
    #[error("{host} refuses the token for {id} ({status}); set HF_TOKEN to one that is valid")]
    Refused {
        /// The model.
        id: String,
        /// The hub.
        host: String,
        /// What the hub answered.
        status: String,
    },
    /// The hub answers something else than it should.
    #[error("{host}: {message}; try again later, or name a mirror in HF_ENDPOINT")]
    Answer {
        /// The hub.
        host: String,
        /// What it answered.
        message: String,
    },
    /// A file is not what the hub says it is.
    #[error(
        "{file} of {id} was downloaded twice and is not what the hub announces (sha256 {found}, announced {expected}); it \
         was not kept"
    )]
    Damaged {
        /// The model.
        id: String,
        /// The file.
        file: String,
        /// Its hash.
        found: String,
        /// What the hub announces.
        expected: String,
    },
    /// There is no space left.
    #[error(
        "no space is left for {} ({bytes} bytes); free some, or set HF_HOME to a folder on another disk. What is there is \
         kept and goes on from there",
        path.display()
    )]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// Bytes of the whole file.
        bytes: u64,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There are no weights that the engine reads.
    #[error(
        "{id} has no weights as safetensors, pytorch_model*.bin or GGUF, nor a LoRA adapter: it is none that the engine \
         computes"
    )]
    NoWeights {
        /// The model.
        id: String,
    },
    /// It is not clear which file is meant.
    #[error("{id} has several GGUF files ({}); name one: candle:{id}/{}", files.join(", "), files.first().map_or("", String::as_str))]
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
