//! The right to work on one message.

use async_trait::async_trait;

use crate::QueueError;

/// What a queue does when a lease ends. Implemented by each queue.
#[async_trait]
pub trait LeaseControl: Send + Sync {
    /// Removes the message as done.
    async fn acknowledge(&self) -> Result<(), QueueError>;
    /// Extends the lease.
    async fn extend(&self) -> Result<(), QueueError>;
    /// Returns the message for redelivery.
    fn release(&self);
    /// Removes the message without an acknowledgement: it can never succeed.
    async fn bury(&self) -> Result<(), QueueError>;
    /// A token with which other processes can return the message when its holder is gone.
    fn token(&self) -> Option<&str> {
        None
    }
}

/// One delivery of a message. Dropping it returns the message to the queue.
#[must_use = "dropping a lease returns its message to the queue"]
pub struct Lease<T> {
    id: String,
    body: T,
    deliveries: u32,
    control: Duty,
}

/// The obligation to settle a delivery. Returns the message when it is dropped unsettled.
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

    /// A token with which other processes can return the message when this holder is gone, if the queue supports it.
    pub fn token(&self) -> Option<&str> {
        self.control.0.as_deref().and_then(LeaseControl::token)
    }

    /// The same lease of another view of the message.
    ///
    /// # Errors
    /// The error of `view`, together with the lease.
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

    /// Extends the lease.
    ///
    /// # Errors
    /// If the lease is no longer held.
    pub async fn extend(&self) -> Result<(), QueueError> {
        match &self.control.0 {
            Some(control) => control.extend().await,
            None => Err(QueueError::LeaseLost(self.id.clone())),
        }
    }

    /// Acknowledges the message: it was executed, and its result is stored.
    ///
    /// # Errors
    /// If the lease is no longer held; the message may be delivered again then.
    pub async fn acknowledge(mut self) -> Result<(), QueueError> {
        match self.control.0.take() {
            Some(control) => control.acknowledge().await,
            None => Err(QueueError::LeaseLost(self.id.clone())),
        }
    }

    /// Returns the message at once.
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
