//! Units of work ([`WorkUnit`]), their assignment to workers ([`Assignment`]) and their results
//! ([`Finished`]).
//!
//! These are values within a process. [`crate::fleet`] has the messages in which they are sent to others.

use std::sync::Arc;

use crate::configuration::Configuration;
use crate::fleet::RunToken;
use crate::identity::{ContentHash, ItemId, UnitId};
use crate::item::{Setup, Task};
use crate::outcome::{Outcome, Telemetry};

/// One benchmark item under one configuration: the input of an episode. It does not contain the gold answer.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkUnit {
    /// Identity of item and configuration together.
    pub id: UnitId,
    /// The item's identity.
    pub item: ItemId,
    /// The task, visible to the episode.
    pub task: Task,
    /// The session's additional input.
    pub setup: Setup,
    /// The configuration that it runs under.
    pub configuration: Arc<Configuration>,
}

impl WorkUnit {
    /// Builds the unit and its identity.
    pub fn new(item: ItemId, task: Task, setup: Setup, configuration: Arc<Configuration>) -> Self {
        let identity = configuration.identity();
        Self::under(item, task, setup, configuration, &identity)
    }

    /// Builds the unit under a configuration whose identity is already known; cheaper for many units of one
    /// configuration.
    pub fn under(
        item: ItemId,
        task: Task,
        setup: Setup,
        configuration: Arc<Configuration>,
        identity: &ContentHash,
    ) -> Self {
        let id = Self::identity_of(&item, identity);
        Self { id, item, task, setup, configuration }
    }

    /// The identity of an item's unit under the configuration with this identity.
    pub fn identity_of(item: &ItemId, configuration: &ContentHash) -> UnitId {
        UnitId::new(ContentHash::of_json(&("unit/1", item, configuration)))
    }
}

/// A unit that is given to a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The unit.
    pub unit: WorkUnit,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The run, if several share a queue.
    pub run: Option<RunToken>,
}

impl Assignment {
    /// The message's id on the queue. Each attempt of a unit has its own.
    pub fn message_id(&self) -> String {
        format!("{}-{}", self.unit.id, self.attempt)
    }
}

/// The result of an assignment.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The unit.
    pub unit: UnitId,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The episode's record.
    pub outcome: Outcome,
    /// Data that depends on schedule and machine.
    pub telemetry: Telemetry,
    /// The run, if several share a queue.
    pub run: Option<RunToken>,
}

/// One result, for receivers that take several at a time.
impl From<Finished> for Vec<Finished> {
    fn from(finished: Finished) -> Self {
        vec![finished]
    }
}

impl Finished {
    /// The message's id. Each worker's outcome of an attempt has its own, so that duplicates are counted
    /// where they are recorded.
    pub fn message_id(&self) -> String {
        format!("{}-{}-{}", self.unit, self.attempt, self.telemetry.worker)
    }
}
