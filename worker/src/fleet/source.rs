//! The interface of a fleet worker to a server, as small traits, so that its parts can be tested without one.

use std::sync::Arc;

use async_trait::async_trait;
use lumos_queue::nats::{NatsError, NatsQueue, Server};
use lumos_queue::{Lease, Queue, QueueError};
use lumos_tasks::fleet::{ResultBatch, ShardId, WorkMessage};
use lumos_tasks::{ContentHash, RunToken};

/// The claiming end of one shard. Dropping a pending claim loses no messages.
#[async_trait]
pub(crate) trait ShardQueue: Queue<WorkMessage> {
    /// Claims up to `max` messages that are available now.
    ///
    /// # Errors
    /// If the queue cannot be reached or does not exist.
    async fn try_claim(&self, max: usize) -> Result<Vec<Lease<WorkMessage>>, QueueError>;
}

/// Opens shards.
#[async_trait]
pub(crate) trait ShardSource: Send + Sync {
    /// Opens a shard. Returns `None` if it does not exist yet.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    async fn open(&self, shard: &ShardId) -> Result<Option<Arc<dyn ShardQueue>>, QueueError>;
}

/// Opens the results queues of runs.
#[async_trait]
pub(crate) trait ResultsSink: Send + Sync {
    /// Returns the publishing end of a run's results.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    async fn open(&self, run: &RunToken) -> Result<Arc<dyn Queue<ResultBatch>>, QueueError>;
}

/// Stores the inputs that the units of a run share.
#[async_trait]
pub(crate) trait SharedStore: Send + Sync {
    /// Returns the bytes with a hash, verified.
    ///
    /// # Errors
    /// If they are missing or do not match the hash.
    async fn get(&self, hash: &ContentHash) -> Result<Vec<u8>, NatsError>;
}

#[async_trait]
impl ShardQueue for NatsQueue<WorkMessage> {
    async fn try_claim(&self, max: usize) -> Result<Vec<Lease<WorkMessage>>, QueueError> {
        NatsQueue::try_claim(self, max).await
    }
}

#[async_trait]
impl ShardSource for Server {
    async fn open(&self, shard: &ShardId) -> Result<Option<Arc<dyn ShardQueue>>, QueueError> {
        match self.shard_consumer::<WorkMessage>(&shard.to_string()).await {
            Ok(queue) => Ok(Some(Arc::new(queue))),
            Err(NatsError::Missing(_)) => Ok(None),
            Err(error) => Err(as_queue_error(&error)),
        }
    }
}

#[async_trait]
impl ResultsSink for Server {
    async fn open(&self, run: &RunToken) -> Result<Arc<dyn Queue<ResultBatch>>, QueueError> {
        match self.results_publisher::<ResultBatch>(run.as_str()).await {
            Ok(queue) => Ok(Arc::new(queue)),
            Err(error) => Err(as_queue_error(&error)),
        }
    }
}

#[async_trait]
impl SharedStore for Server {
    async fn get(&self, hash: &ContentHash) -> Result<Vec<u8>, NatsError> {
        self.shared().await?.get(hash.as_str()).await
    }
}

fn as_queue_error(error: &NatsError) -> QueueError {
    match error {
        NatsError::Unreachable(why) => QueueError::Unreachable(why.clone()),
        error => QueueError::Refused(error.to_string()),
    }
}
