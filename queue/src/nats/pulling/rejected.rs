//! Messages that are not delivered to claimers, sent to an outlet that stores them.

use std::time::Duration;

use async_nats::HeaderMap;

use super::Delivery;
use crate::{LeaseControl, QueueError};

/// A message that this queue cannot deliver: of another protocol, corrupt, or undecodable. It stays on the
/// server until it is [removed](Rejected::take_out); dropping it returns it to the queue.
pub struct Rejected {
    delivery: Delivery,
    why: String,
    headers: Vec<(String, String)>,
}

impl Rejected {
    pub(super) fn new(delivery: Delivery, why: String) -> Self {
        let headers = delivery.headers.iter().flat_map(HeaderMap::iter).flat_map(|(name, values)| {
            values.iter().map(|value| (name.to_string(), value.as_str().to_owned()))
        });
        let headers = headers.collect();
        Self { delivery, why, headers }
    }

    /// The message's id: the last part of its subject.
    pub fn id(&self) -> &str {
        &self.delivery.id
    }

    /// Why it was rejected.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Its headers: name and value.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Its body, as received.
    pub fn body(&self) -> &[u8] {
        &self.delivery.body
    }

    /// Terminates the message: removes it from the server.
    ///
    /// # Errors
    /// [`QueueError::LeaseLost`] if its lease has expired, in which case it is redelivered. Also if the
    /// server cannot be reached.
    pub async fn take_out(mut self) -> Result<(), QueueError> {
        match self.delivery.lease.take() {
            Some(lease) => lease.terminate().await,
            None => Ok(()),
        }
    }

    /// Returns the message for redelivery after `delay`.
    pub fn leave(self, delay: Duration) {
        self.delivery.give_back_after(delay);
    }
}

impl std::fmt::Debug for Rejected {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Rejected")
            .field("id", &self.id())
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}
