//! Errors of operations on a NATS server.

use thiserror::Error;

/// Why something on a NATS server failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The URL is none, or the credentials do not fit together.
    #[error("{0}")]
    Address(String),
    /// No server answered within the time allowed.
    #[error("{0}")]
    Unreachable(String),
    /// The server does not let this client in.
    #[error("{0}")]
    Denied(String),
    /// No secure connection came about: a certificate is missing, unknown or does not fit.
    #[error("{0}")]
    Tls(String),
    /// TLS was asked for, and the server does not offer it.
    #[error("{0}")]
    PlainText(String),
    /// The server cannot do what is needed: too old, or without JetStream.
    #[error("{0}")]
    Unsuitable(String),
    /// What was asked for is not on the server: nobody has set it up (yet), or it was deleted.
    #[error("{0}")]
    Missing(String),
    /// The server refused: permissions, limits, or settings that differ.
    #[error("the NATS server rejected the request: {0}")]
    Refused(String),
    /// What came back is not what was stored.
    #[error("{0}")]
    Damaged(String),
}

/// Why a key-value bucket refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyValueError {
    /// Somebody else wrote the key in the meantime, or it is there already.
    #[error("`{0}` was changed by another process")]
    Conflict(String),
    /// The key holds something else than letters, digits, `-`, `_`, `=`, `/` and inner dots.
    #[error("invalid key `{0}`")]
    Key(String),
    /// Anything else.
    #[error(transparent)]
    Server(#[from] NatsError),
}
