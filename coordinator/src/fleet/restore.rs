//! Recreates server data that a run needs when it is deleted: streams, buckets, consumers, the run's notice
//! and the data that its units share. [`super::reconcile`] finds units and results that were lost with it.

use std::sync::Arc;
use std::time::Instant;

use lumos_queue::nats::NatsError;

use super::announce::Announced;
use super::{Around, CoordinatorError};

/// Recreates deleted server data of a run.
pub(super) struct Restorer {
    announced: Arc<Announced>,
    /// The run's shards.
    shards: Vec<String>,
    /// The last warning about data that cannot be recreated.
    said: Option<String>,
}

impl Restorer {
    pub(super) fn new(announced: Arc<Announced>) -> Self {
        Self { shards: announced.shard_names(), announced, said: None }
    }

    /// Recreates missing data. Returns whether anything was missing.
    pub(super) async fn restore(&mut self, around: &Around) -> bool {
        let restored = match self.restore_all(around).await {
            Ok(restored) => {
                self.said = None;
                restored
            }
            Err(CoordinatorError::Server(NatsError::Unreachable(_) | NatsError::Missing(_))) => return false,
            Err(error) => {
                let said = error.to_string();
                if self.said.as_ref() != Some(&said) {
                    tracing::warn!("failed to recreate what the run needs on the NATS server: {said}");
                    self.said = Some(said);
                }
                return false;
            }
        };
        if restored.is_empty() {
            return false;
        }
        // Workers could not send notices meanwhile.
        around.registry().forgive(Instant::now());
        tracing::warn!(
            "recreated what was deleted from the NATS server: {}; lost units are published again",
            restored.join(", ")
        );
        true
    }

    async fn restore_all(&self, around: &Around) -> Result<Vec<String>, CoordinatorError> {
        let mut restored: Vec<String> = around.server.restore(around.run.as_str(), &self.shards).await?;
        let draining = around.drain.is_cancelled();
        restored.extend(self.announced.restore(draining).await?.into_iter().map(str::to_owned));
        Ok(restored)
    }

    /// The run's shards.
    pub(super) fn shards(&self) -> &[String] {
        &self.shards
    }
}
