//! [`NatsQueue`]: a queue on a NATS server.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use super::Rejected;
use super::publishing::Publisher;
use super::pulling::Puller;
use crate::{Lease, Queue, QueueError};

/// One end of a queue on a NATS server, either publishing or claiming. Cloning gives another handle to the
/// same end.
///
/// - Publishing returns once the server has stored the message. After ten seconds without a response it fails
///   with [`QueueError::Unreachable`]; the message may have been stored, and publishing it again is safe. A
///   stream at its size limit gives [`QueueError::Full`]. Ids are letters, digits, `_` and `-`.
/// - [`Queue::claim`] waits until a message is available, through disconnections and restarts of the server, and
///   fails with [`QueueError::Gone`] while the shard does not exist. Order is not guaranteed. Dropping a claim loses
///   no message. The decoded bodies of a claim have at most [`Layout::body_limit`](super::Layout::body_limit) bytes in total; what does not fit is
///   kept for the next claim.
/// - [`Lease::extend`] extends the lease by its full duration from now, and fails with [`QueueError::LeaseLost`] once
///   it has expired by this machine's clock, because the server does not report it.
/// - [`Lease::acknowledge`] is sent without a response. If it is lost, the message is redelivered, so the result must
///   be stored elsewhere first. An acknowledgement after the lease expired is accepted.
/// - [`Queue::close`] closes this end only: subsequent claims are empty, prefetched messages are returned,
///   and publishing fails.
pub struct NatsQueue<T> {
    end: Arc<End>,
    message: PhantomData<fn(T) -> T>,
}

struct End {
    direction: Direction,
    closed: AtomicBool,
}

/// What an end of a queue does.
pub(super) enum Direction {
    Publish(Publisher),
    Claim(Puller),
}

impl End {
    fn publisher(&self) -> Result<&Publisher, QueueError> {
        match &self.direction {
            _ if self.closed.load(Ordering::Relaxed) => Err(QueueError::Closed),
            Direction::Publish(publisher) => Ok(publisher),
            Direction::Claim(_) => {
                Err(QueueError::Refused("cannot publish: this end of the queue only claims".to_owned()))
            }
        }
    }
}

impl<T> Clone for NatsQueue<T> {
    fn clone(&self) -> Self {
        Self { end: Arc::clone(&self.end), message: PhantomData }
    }
}

impl<T> std::fmt::Debug for NatsQueue<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let direction =
            if matches!(self.end.direction, Direction::Publish(_)) { "publishing" } else { "claiming" };
        formatter.debug_struct("NatsQueue").field("end", &direction).finish_non_exhaustive()
    }
}

impl<T> NatsQueue<T> {
    pub(super) fn new(direction: Direction) -> Self {
        Self { end: Arc::new(End { direction, closed: AtomicBool::new(false) }), message: PhantomData }
    }

    fn puller(&self) -> Result<&Puller, QueueError> {
        match &self.end.direction {
            Direction::Claim(puller) => Ok(puller),
            Direction::Publish(_) => {
                Err(QueueError::Refused("cannot claim: this end of the queue only publishes".to_owned()))
            }
        }
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> NatsQueue<T> {
    /// Sends rejected messages to `outlet` instead of returning or dropping them: messages of another
    /// protocol and corrupt ones after some redeliveries, undecodable and oversized ones immediately. While
    /// `outlet` is full, they stay on the server.
    ///
    /// # Errors
    /// If this is a publishing end.
    pub fn reject_to(&self, outlet: tokio::sync::mpsc::Sender<Rejected>) -> Result<(), QueueError> {
        self.puller()?.reject_to(outlet);
        Ok(())
    }

    /// Claims up to `max` messages that are available now. Returns an empty list if there are none.
    ///
    /// # Errors
    /// If the server cannot be reached, or this is a publishing end.
    pub async fn try_claim(&self, max: usize) -> Result<Vec<Lease<T>>, QueueError> {
        self.puller()?.try_claim(max).await
    }
}

#[async_trait]
impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Queue<T> for NatsQueue<T> {
    async fn publish(&self, id: &str, body: T) -> Result<(), QueueError> {
        self.end.publisher()?.publish(id, body).await
    }

    async fn publish_all(&self, messages: Vec<(String, T)>) -> Result<(), QueueError>
    where
        T: Send + 'async_trait,
    {
        let tasks = self.end.publisher()?.tasks().clone();
        let end = Arc::clone(&self.end);
        // Runs in its own task: the server's responses arrive one by one, and the caller is woken only once.
        let publishing = tasks.spawn(async move { end.publisher()?.publish_all(messages).await });
        match AbortOnDropHandle::new(publishing).await {
            Ok(published) => published,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is being shut down.
                Err(_) => Err(QueueError::Closed),
            },
        }
    }

    async fn claim(&self, max: usize) -> Result<Vec<Lease<T>>, QueueError> {
        self.puller()?.claim(max).await
    }

    fn close(&self) {
        self.end.closed.store(true, Ordering::Relaxed);
        if let Direction::Claim(puller) = &self.end.direction {
            puller.close();
        }
    }
}
