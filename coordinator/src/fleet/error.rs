//! Errors of a run on a fleet.

use lumos_queue::nats::{KeyValueError, NatsError};
use lumos_tasks::RunToken;
use thiserror::Error;

use crate::checkpoint::CheckpointError;
use crate::dispatch::DispatchError;

/// Error of a run on a fleet. Everything recorded before is safe.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// Another coordinator owns the run.
    #[error(
        "another coordinator owns this run: process {process} on {host}, last renewed {age:.0} s ago; \
         stop it first, or wait for it to end"
    )]
    Owned {
        /// Host of the other coordinator.
        host: String,
        /// Process id of the other coordinator.
        process: u32,
        /// Seconds since its claim was written.
        age: f64,
    },
    /// The session failed.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// The server returned an error.
    #[error(transparent)]
    Server(#[from] NatsError),
    /// A bucket on the server returned an error.
    #[error(transparent)]
    KeyValue(#[from] KeyValueError),
    /// The run is not on the server.
    #[error("run `{0}` not found on this queue")]
    NoRun(RunToken),
    /// Data on the server is not in lumos's format.
    #[error("{0}")]
    Malformed(String),
    /// A task that the session needs panicked.
    #[error(
        "a task of this coordinator panicked: {0}; hint: recorded outcomes are safe; run the same command \
         again"
    )]
    Panicked(String),
    /// The session was stopped while it waited for the server.
    #[error("interrupted before the run started; no units were published")]
    Interrupted,
}

impl From<serde_json::Error> for CoordinatorError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<CheckpointError> for CoordinatorError {
    fn from(error: CheckpointError) -> Self {
        Self::Dispatch(error.into())
    }
}

impl CoordinatorError {
    /// Returns the error of the server that it consists of, if it is one.
    fn of_server(&self) -> Option<&NatsError> {
        match self {
            Self::Server(error) | Self::KeyValue(KeyValueError::Server(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether the error is temporary: the server is unavailable, or something was deleted from it.
    pub(super) fn passes(&self) -> bool {
        matches!(self.of_server(), Some(NatsError::Unreachable(_) | NatsError::Missing(_)))
    }

    /// Whether something was deleted from the server and must be recreated first.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.of_server(), Some(NatsError::Missing(_)))
    }
}
