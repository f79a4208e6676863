//! Publishes each unit to the shard of its configuration.

use std::sync::Arc;

use async_trait::async_trait;
use lumos_queue::nats::NatsQueue;
use lumos_queue::{Lease, Queue, QueueError};
use lumos_tasks::fleet::{ShardId, WorkMessage};
use lumos_tasks::{Assignment, Configuration, ContentHash, RunToken};

use super::error::CoordinatorError;
use super::retrying_client::RetryingClient;
use super::{Around, announce};
use crate::manifest::Manifest;

/// A configuration and the shard of its units.
struct Route {
    configuration: Arc<Configuration>,
    identity: ContentHash,
    shard: usize,
}

/// The shards of a run, combined into one queue for publishing.
pub(super) struct Shards {
    run: RunToken,
    shards: Vec<NatsQueue<WorkMessage>>,
    routes: Vec<Route>,
}

impl Shards {
    /// Opens the shards of a run and creates missing ones.
    pub(super) async fn open(
        manifest: &Manifest,
        around: &Around,
        client: &RetryingClient,
    ) -> Result<Self, CoordinatorError> {
        let mut names: Vec<ShardId> = Vec::new();
        let mut routes = Vec::new();
        let shards = announce::shards(manifest, around.settings.priority);
        for (planned, shard) in manifest.configurations.iter().zip(shards) {
            let known = names.iter().position(|name| *name == shard);
            let shard = known.unwrap_or_else(|| {
                names.push(shard);
                names.len() - 1
            });
            let configuration = Arc::clone(&planned.configuration);
            routes.push(Route { configuration, identity: planned.identity.clone(), shard });
        }
        let mut shards = Vec::with_capacity(names.len());
        for name in names.iter().map(ToString::to_string) {
            let run = around.run.as_str();
            shards.push(client.call(|| around.server.shard_publisher(&name, run)).await?);
        }
        Ok(Self { run: around.run.clone(), shards, routes })
    }

    fn route(&self, assignment: &Assignment) -> Result<&Route, QueueError> {
        let unit = &assignment.unit;
        // Units share their configuration with the manifest, so comparing pointers avoids hashing.
        self.routes
            .iter()
            .find(|route| Arc::ptr_eq(&route.configuration, &unit.configuration))
            .ok_or_else(|| QueueError::Refused(format!("unit {} belongs to no shard of this run", unit.id)))
    }
}

#[async_trait]
impl Queue<Assignment> for Shards {
    async fn publish(&self, id: &str, body: Assignment) -> Result<(), QueueError> {
        self.publish_all(vec![(id.to_owned(), body)]).await
    }

    async fn publish_all(&self, messages: Vec<(String, Assignment)>) -> Result<(), QueueError> {
        let mut by_shard: Vec<Vec<(String, WorkMessage)>> = self.shards.iter().map(|_| Vec::new()).collect();
        for (id, assignment) in messages {
            let Route { identity, shard, .. } = self.route(&assignment)?;
            let message = WorkMessage::pack(self.run.clone(), assignment, identity.clone());
            if let Some(shard) = by_shard.get_mut(*shard) {
                shard.push((id, message));
            }
        }
        for (shard, messages) in self.shards.iter().zip(by_shard) {
            if !messages.is_empty() {
                shard.publish_all(messages).await?;
            }
        }
        Ok(())
    }

    async fn claim(&self, _max: usize) -> Result<Vec<Lease<Assignment>>, QueueError> {
        Err(QueueError::Refused("a coordinator cannot claim work".to_owned()))
    }

    fn close(&self) {
        for shard in &self.shards {
            shard.close();
        }
    }
}
