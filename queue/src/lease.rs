//! The right to work on one message.

use async_trait::async_trait;

use crate::QueueError;

/// What a queue does when a lease ends. Implemented by each queue.
#[async_trait]
pub trait LeaseControl: Send + Sync {
    /// Ends the message.
    async fn acknowledge(&self) -> Result<(), QueueError>;
    /// Asks for more time.
    async fn extend(&self) -> Result<(), QueueError>;
    /// Gives the message back for another delivery.
    fn release(&self);
    /// Takes the message out without its having been worked on: it can never succeed.
    async fn bury(&self) -> Result<(), QueueError>;
    /// What others can give the message back by when its holder is gone.
    fn token(&self) -> Option<&str> {
        None
    }
}

/// One delivery of a message. Dropping it gives the message back.
#[must_use = "dropping a lease gives its message back to the queue"]
pub struct Lease<T> {
    id: String,
    body: T,
    deliveries: u32,
    control: Duty,
}

/// The duty to answer a delivery. Gives the message back when it is dropped unanswered.
struct Duty(Option<Box<dyn LeaseControl>>);

impl Drop for Duty {
    fn drop(&mut self) {
        if let Some(control) = self.0.take() {
            control.release();
        }
    }
}

impl<T> Lease<T> {
    /// Builds a lease; for queues.
    pub fn new(id: String, body: T, deliveries: u32, control: Box<dyn LeaseControl>) -> Self {
        Self { id, body, deliveries, control: Duty(Some(control)) }
    }

    /// The message's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The message.
    pub fn body(&self) -> &T {
        &self.body
    }

    /// How often the message has been delivered, this time included.
    pub fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// What others can give the message back by when this holder is gone, where the queue knows such a thing.
    pub fn token(&self) -> Option<&str> {
        self.control.0.as_deref().and_then(LeaseControl::token)
    }

    /// The same lease of another view of the message.
    ///
    /// # Errors
    /// What `view` fails with; the lease comes back with it, so that its holder decides what becomes of it.
    pub fn try_map<U, E>(self, view: impl FnOnce(&T) -> Result<U, E>) -> Result<Lease<U>, (Self, E)> {
        match view(&self.body) {
            Ok(body) => Ok(Lease { id: self.id, body, deliveries: self.deliveries, control: self.control }),
            Err(error) => Err((self, error)),
        }
    }

    /// The message, and the lease without it.
    pub fn split(self) -> (T, Lease<()>) {
        let Self { id, body, deliveries, control } = self;
        (body, Lease { id, body: (), deliveries, control })
    }

    /// Asks for more time.
    ///
    /// # Errors
    /// If the lease is no longer held.
    pub async fn extend(&self) -> Result<(), QueueError> {
        match &self.control.0 {
            Some(control) => control.extend().await,
            None => Err(QueueError::LeaseLost(self.id.clone())),
        }
    }

    /// Ends the message: it was worked on, and what came of it is safe.
    ///
    /// # Errors
    /// If the lease is no longer held; the message may be delivered again then.
    pub async fn acknowledge(mut self) -> Result<(), QueueError> {
        match self.control.0.take() {
            Some(control) => control.acknowledge().await,
            None => Err(QueueError::LeaseLost(self.id.clone())),
        }
    }

    /// Gives the message back at once.
    pub fn release(self) {
        drop(self);
    }

    /// Takes the message out for good.
    ///
    /// # Errors
    /// If the lease is no longer held.
    pub async fn bury(mut self) -> Result<(), QueueError> {
        match self.control.0.take() {
            Some(control) => control.bury().await,
            None => Err(QueueError::LeaseLost(self.id.clone())),
        }
    }
}

impl<T> std::fmt::Debug for Lease<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Lease").field("id", &self.id).field("deliveries", &self.deliveries).finish()
    }
}
