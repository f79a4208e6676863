//! Why a run on a fleet could not go on.

use lumos_queue::QueueError;
use lumos_queue::nats::{KeyValueError, NatsError};
use lumos_tasks::RunToken;
use thiserror::Error;

use crate::checkpoint::CheckpointError;
use crate::dispatch::DispatchError;

/// Why a run on a fleet could not go on. What was recorded before is safe.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FleetError {
    /// Another coordinator has the run.
    #[error(
        "another coordinator owns this run: process {process} on {host}, last renewed {age:.0} s ago; \
         stop it first, or wait for it to end"
    )]
    Owned {
        /// Its host.
        host: String,
        /// Its process on that host.
        process: u32,
        /// Seconds since its claim was written.
        age: f64,
    },
    /// The session itself failed.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// The server refused.
    #[error(transparent)]
    Server(#[from] NatsError),
    /// A bucket on the server refused.
    #[error(transparent)]
    KeyValue(#[from] KeyValueError),
    /// There is no such run on the server.
    #[error("run `{0}` not found on this queue")]
    NoRun(RunToken),
    /// What stands on the server is none of ours.
    #[error("{0}")]
    Malformed(String),
    /// It was stopped while it waited for the server.
    #[error("interrupted before the run started; no units were published")]
    Interrupted,
}

impl From<CheckpointError> for FleetError {
    fn from(error: CheckpointError) -> Self {
        Self::Dispatch(error.into())
    }
}

/// Whether a failure is one that passes: the server is away, or full.
pub(super) trait Passing {
    fn passes(&self) -> bool;

    /// Whether something was deleted from the server, so that it has to be made anew first.
    fn is_missing(&self) -> bool {
        false
    }
}

impl Passing for NatsError {
    fn passes(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Missing(_))
    }

    fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

impl Passing for KeyValueError {
    fn passes(&self) -> bool {
        matches!(self, Self::Server(error) if error.passes())
    }

    fn is_missing(&self) -> bool {
        matches!(self, Self::Server(error) if error.is_missing())
    }
}

impl Passing for QueueError {
    fn passes(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Full | Self::Gone(_))
    }
}
