//! Leases: one delivery of a message, which its holder acknowledges, extends, returns or terminates.

use std::time::Duration;

use async_trait::async_trait;

use crate::QueueError;

/// Operations on a lease. Implemented by each queue.
#[async_trait]
pub trait LeaseControl: Send + Sync {
    /// Acknowledges the message: removes it as done.
    async fn acknowledge(&self) -> Result<(), QueueError>;
    /// Extends the lease.
    async fn extend(&self) -> Result<(), QueueError>;
    /// Returns the message for redelivery.
    fn release(&self);
    /// Returns the message for redelivery after `delay`; immediately if the queue does not support delays.
    fn release_after(&self, _delay: Duration) {
        self.release();
    }
    /// Terminates the message: removes it without an acknowledgement, because it can never succeed.
    async fn terminate(&self) -> Result<(), QueueError>;
    /// Token with which other processes can return the message if its holder disappeared.
    fn token(&self) -> Option<&str> {
        None
    }
    /// How long the lease lasts from the delivery and from each extension; `None` if it does not expire.
    fn duration(&self) -> Option<Duration> {
        None
    }
}

/// One delivery of a message. Dropping it returns the message to the queue.
#[must_use = "dropping a lease returns its message to the queue"]
pub struct Lease<T> {
    id: String,
    body: T,
    deliveries: u32,
    control: SettleOnDrop,
}

/// Controls an unsettled delivery. Returns the message if it is dropped unsettled.
struct SettleOnDrop(Option<Box<dyn LeaseControl>>);

impl Drop for SettleOnDrop {
    fn drop(&mut self) {
        if let Some(control) = self.0.take() {
            control.release();
        }
    }
}

impl<T> Lease<T> {
    /// Creates a lease. Called by implementations of queues.
    pub fn new(id: String, body: T, deliveries: u32, control: Box<dyn LeaseControl>) -> Self {
        Self { id, body, deliveries, control: SettleOnDrop(Some(control)) }
    }

    /// Returns the id of the message.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the message.
    pub fn body(&self) -> &T {
        &self.body
    }

    /// Returns the number of deliveries of the message, including this one.
    pub fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// Returns a token with which other processes can return the message if this holder disappeared, if the
    /// queue supports it.
    pub fn token(&self) -> Option<&str> {
        self.control.0.as_deref().and_then(LeaseControl::token)
    }

    /// Returns how long the lease lasts from the delivery and from each extension, as the queue sets it; `None` if
    /// it does not expire.
    pub fn duration(&self) -> Option<Duration> {
        self.control.0.as_deref().and_then(LeaseControl::duration)
    }

    /// Separates the message from its lease.
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
    /// If the lease is no longer held. The message may then be redelivered.
    pub async fn acknowledge(mut self) -> Result<(), QueueError> {
        self.settle()?.acknowledge().await
    }

    /// Returns the message to the queue immediately.
    pub fn release(self) {
        drop(self);
    }

    /// Returns the message to the queue, which redelivers it after `delay`; immediately if the queue does not support
    /// delays.
    pub fn release_after(mut self, delay: Duration) {
        if let Some(control) = self.control.0.take() {
            control.release_after(delay);
        }
    }

    /// Terminates the message: removes it from the queue without redelivery.
    ///
    /// # Errors
    /// If the lease is no longer held.
    pub async fn terminate(mut self) -> Result<(), QueueError> {
        self.settle()?.terminate().await
    }

    /// Takes the control of the delivery, so that dropping the lease does not return the message.
    fn settle(&mut self) -> Result<Box<dyn LeaseControl>, QueueError> {
        self.control.0.take().ok_or_else(|| QueueError::LeaseLost(self.id.clone()))
    }
}

impl<T> std::fmt::Debug for Lease<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Lease").field("id", &self.id).field("deliveries", &self.deliveries).finish()
    }
}
