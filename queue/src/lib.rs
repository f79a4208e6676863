//! Queues with leases: one trait, and one contract test suite that every implementation passes.
//!
//! A message is delivered at least once. Claiming a message gives a [`Lease`]. Acknowledging the lease removes the
//! message; dropping the lease (on purpose, in a panic, or when a task is cancelled) returns the message to the queue.
//!
//! [`MemoryQueue`] serves one process; [`nats`] serves many machines.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod lease;
mod memory;
pub mod nats;

/// Entry points of fuzz targets; not part of the public API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::nats::fuzz_decoded as decoded;
}

use async_trait::async_trait;
use thiserror::Error;

pub use lease::{Lease, LeaseControl};
pub use memory::MemoryQueue;

/// Errors of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The queue was closed and accepts no more messages.
    #[error("the queue is closed")]
    Closed,
    /// The lease is no longer held: it expired, or the message was settled by another holder.
    #[error("the lease of message `{0}` is no longer held")]
    LeaseLost(String),
    /// The server cannot be reached, or did not respond in time. A published message may have arrived.
    #[error("cannot reach the queue: {0}")]
    Unreachable(String),
    /// The queue is at its size limit; publishing the same message may succeed later.
    #[error("the queue is full")]
    Full,
    /// The message is larger than the queue accepts.
    #[error("message `{id}` is too large: {bytes} bytes, limit {limit} bytes")]
    TooLarge {
        /// Id of the message.
        id: String,
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The stream or consumer was deleted on the server. Claiming and publishing work again once it is recreated.
    #[error("{0}")]
    Gone(String),
    /// The task that receives messages ended unexpectedly, as in a panic. This end of the queue no longer claims.
    #[error("the task that receives messages from the queue ended unexpectedly")]
    Stopped,
    /// The server rejected the request: missing permissions, or an unsupported setting.
    #[error("the queue server rejected the request: {0}")]
    Refused(String),
}

/// A queue of messages of one type.
///
/// ```
/// use lumos_queue::{MemoryQueue, Queue};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), lumos_queue::QueueError> {
/// let queue = MemoryQueue::bounded(64);
/// queue.publish("unit-1", 42).await?;
/// for lease in queue.claim(8).await? {
///     assert_eq!((lease.id(), *lease.body()), ("unit-1", 42));
///     lease.acknowledge().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Queue<T>: Send + Sync {
    /// Publishes a message; waits while the queue is full. Has no effect if a message with the same id is queued or
    /// leased.
    ///
    /// # Errors
    /// If the queue is closed.
    async fn publish(&self, id: &str, body: T) -> Result<(), QueueError>;

    /// Publishes several messages, as pairs of id and body. If one fails, those before it are in the queue and those
    /// after it may be; publishing all of them again is safe.
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

    /// Claims up to `max` messages, oldest first; waits until there is at least one. Returns an empty list once the
    /// queue is closed and empty.
    ///
    /// # Errors
    /// If the queue cannot be reached. The in-memory queue never fails.
    async fn claim(&self, max: usize) -> Result<Vec<Lease<T>>, QueueError>;

    /// Closes the queue for publishing. Messages in it can still be claimed.
    fn close(&self);
}
