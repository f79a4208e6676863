//! The queue over NATS.

use std::marker::PhantomData;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Lease, Queue, QueueError};

/// One end of a queue on a NATS server. Cloning gives another handle to the same end.
pub struct NatsQueue<T> {
    message: PhantomData<fn(T) -> T>,
}

impl<T> Clone for NatsQueue<T> {
    fn clone(&self) -> Self {
        Self { message: PhantomData }
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> NatsQueue<T> {
    /// Claims what is there now, at most `max`; empty when nothing is.
    ///
    /// # Errors
    /// If the server cannot be reached, or this is a publishing end.
    pub async fn try_claim(&self, _max: usize) -> Result<Vec<Lease<T>>, QueueError> {
        Err(QueueError::Closed)
    }
}

#[async_trait]
impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Queue<T> for NatsQueue<T> {
    async fn publish(&self, _id: &str, _body: T) -> Result<(), QueueError> {
        Err(QueueError::Closed)
    }

    async fn claim(&self, _max: usize) -> Result<Vec<Lease<T>>, QueueError> {
        Err(QueueError::Closed)
    }

    fn close(&self) {}
}
