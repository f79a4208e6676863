//! Publishes each unit to the lane of its configuration.

use std::sync::Arc;

use async_trait::async_trait;
use lumos_queue::nats::NatsQueue;
use lumos_queue::{Lease, Queue, QueueError};
use lumos_tasks::fleet::{LaneId, WorkMessage};
use lumos_tasks::{Assignment, Configuration, ContentHash, RunToken, WorkUnit};

use super::error::CoordinatorError;
use super::retrying_client::RetryingClient;
use super::{Around, announce};
use crate::manifest::Manifest;

/// A configuration and the lane of its units.
struct Route {
    configuration: Arc<Configuration>,
    identity: ContentHash,
    lane: usize,
}

/// The lanes of a run, combined into one queue for publishing.
pub(super) struct Lanes {
    run: RunToken,
    lanes: Vec<NatsQueue<WorkMessage>>,
    names: Vec<String>,
    routes: Vec<Route>,
}

impl Lanes {
    /// Opens the lanes of a run and creates missing ones.
    pub(super) async fn open(
        manifest: &Manifest,
        around: &Around,
        client: &RetryingClient,
    ) -> Result<Self, CoordinatorError> {
        let mut names: Vec<LaneId> = Vec::new();
        let mut routes = Vec::new();
        let lanes = announce::lanes(manifest, around.settings.priority);
        for (planned, lane) in manifest.configurations.iter().zip(lanes) {
            let known = names.iter().position(|name| *name == lane);
            let lane = known.unwrap_or_else(|| {
                names.push(lane);
                names.len() - 1
            });
            let configuration = Arc::clone(&planned.configuration);
            routes.push(Route { configuration, identity: planned.identity.clone(), lane });
        }
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut lanes = Vec::with_capacity(names.len());
        for name in &names {
            let run = around.run.as_str();
            lanes.push(client.call(|| around.server.lane_publisher(name, run)).await?);
        }
        Ok(Self { run: around.run.clone(), lanes, names, routes })
    }

    /// Names of the lanes.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    fn route(&self, assignment: &Assignment) -> Result<&Route, QueueError> {
        let WorkUnit::Episode(unit) = &assignment.unit;
        // Units share their configuration with the manifest, so comparing pointers avoids hashing.
        self.routes
            .iter()
            .find(|route| Arc::ptr_eq(&route.configuration, &unit.configuration))
            .ok_or_else(|| QueueError::Refused(format!("unit {} belongs to no lane of this run", unit.id)))
    }
}

#[async_trait]
impl Queue<Assignment> for Lanes {
    async fn publish(&self, id: &str, body: Assignment) -> Result<(), QueueError> {
        self.publish_all(vec![(id.to_owned(), body)]).await
    }

    async fn publish_all(&self, messages: Vec<(String, Assignment)>) -> Result<(), QueueError> {
        let mut by_lane: Vec<Vec<(String, WorkMessage)>> = self.lanes.iter().map(|_| Vec::new()).collect();
        for (id, assignment) in messages {
            let Route { identity, lane, .. } = self.route(&assignment)?;
            let message = WorkMessage::pack(self.run.clone(), assignment, identity.clone());
            if let Some(lane) = by_lane.get_mut(*lane) {
                lane.push((id, message));
            }
        }
        for (lane, messages) in self.lanes.iter().zip(by_lane) {
            if !messages.is_empty() {
                lane.publish_all(messages).await?;
            }
        }
        Ok(())
    }

    async fn claim(&self, _max: usize) -> Result<Vec<Lease<Assignment>>, QueueError> {
        Err(QueueError::Refused("a coordinator cannot claim work".to_owned()))
    }

    fn close(&self) {
        for lane in &self.lanes {
            lane.close();
        }
    }
}
