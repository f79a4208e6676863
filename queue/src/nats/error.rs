//! Errors of operations on a NATS server.

use thiserror::Error;

/// Errors of a NATS server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The URL or the credentials are invalid.
    #[error("{0}")]
    Address(String),
    /// No server responded within the time limit.
    #[error("{0}")]
    Unreachable(String),
    /// The server rejected the credentials of this client.
    #[error("{0}")]
    Denied(String),
    /// The TLS connection failed: a certificate is missing, unknown or does not match.
    #[error("{0}")]
    Tls(String),
    /// TLS is required by the settings, and the server does not support it.
    #[error("{0}")]
    PlainText(String),
    /// The server is unsuitable: too old, without JetStream, or without enough space.
    #[error("{0}")]
    Unsuitable(String),
    /// Not found on the server: not created yet, or deleted.
    #[error("{0}")]
    Missing(String),
    /// The server rejected the request: permissions, limits, or different settings.
    #[error("the NATS server rejected the request: {0}")]
    Refused(String),
    /// Stored data is corrupt.
    #[error("{0}")]
    Damaged(String),
}

/// Errors of a key-value bucket.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyValueError {
    /// Another process wrote the key in the meantime, or the key exists already.
    #[error("`{0}` was changed by another process")]
    Conflict(String),
    /// The key has characters other than letters, digits, `-`, `_`, `=`, `/` and inner dots.
    #[error("invalid key `{0}`")]
    Key(String),
    /// Any other error of the server.
    #[error(transparent)]
    Server(#[from] NatsError),
}
