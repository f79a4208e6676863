//! Queues with leases: one trait, and one contract test suite that every implementation passes.
//!
//! A message is delivered at least once. Claiming a message gives a [`Lease`]. Acknowledging the lease removes the
//! message; dropping the lease (on purpose, in a panic, or when a task is cancelled) returns the message to the queue.
//!
//! [`MemoryQueue`] serves one process; [`nats`] serves many machines.

mod lease;
mod memory;
pub mod nats;

/// Entry points of fuzz targets; not part of the interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::nats::fuzz_decoded as decoded;
}

use async_trait::async_trait;
use thiserror::Error;

pub use lease::{Lease, LeaseControl};
pub use memory::MemoryQueue;

/// Why a queue refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The queue takes no more messages.
    #[error("the queue is closed")]
    Closed,
    /// The lease is no longer held: it ran out, or the message was settled by someone else.
    #[error("the lease of message `{0}` is no longer held")]
    LeaseLost(String),
    /// The server cannot be reached, or did not answer in time: whether a message arrived is not known.
    #[error("cannot reach the queue: {0}")]
    Unreachable(String),
    /// The queue holds as much as it may; the same message may find room later.
    #[error("the queue is full")]
    Full,
    /// The message is larger than any the queue takes.
    #[error("message `{id}` is too large: {bytes} bytes, limit {limit} bytes")]
    TooLarge {
        /// The message.
        id: String,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// What is claimed from was deleted on the server. It may be made anew; claiming then goes on.
    #[error("{0}")]
    Gone(String),
    /// The server refused: permissions, a setting it does not know.
    #[error("the queue server rejected the request: {0}")]
    Refused(String),
}

/// A queue of messages of one type.
#[async_trait]
pub trait Queue<T>: Send + Sync {
    /// Puts a message into the queue; waits while it is full. A message whose id is queued or leased already is
    /// dropped silently: publishing twice is harmless.
    ///
    /// # Errors
    /// If the queue is closed.
    async fn publish(&self, id: &str, body: T) -> Result<(), QueueError>;

    /// Publishes several messages, ids first. Where one fails, those before it are in the queue and those behind it
    /// may be; publishing all of them again is harmless.
    ///
    /// # Errors
    /// The first failure.
    async fn publish_all(&self, messages: Vec<(String, T)>) -> Result<(), QueueError>
    where
        T: Send + 'async_trait,
    {
        for (id, body) in messages {
            self.publish(&id, body).await?;
        }
        Ok(())
    }

    /// Claims up to `max` messages, oldest first; waits until there is one. Empty once the queue is closed and
    /// holds no more.
    ///
    /// # Errors
    /// If the queue cannot be reached; the in-memory one always can.
    async fn claim(&self, max: usize) -> Result<Vec<Lease<T>>, QueueError>;

    /// Takes no more messages. Those it holds can still be claimed.
    fn close(&self);
}
