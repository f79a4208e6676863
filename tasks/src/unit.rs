//! Units of work, as they travel to workers.

use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;
use crate::fleet::RunToken;
use crate::identity::{ContentHash, ItemId, UnitId};
use crate::item::{Setup, Task};
use crate::outcome::{Outcome, Telemetry};

/// What a worker is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum WorkUnit {
    /// Run one episode.
    Episode(EpisodeUnit),
}

impl WorkUnit {
    /// The unit's identity.
    pub fn id(&self) -> &UnitId {
        match self {
            Self::Episode(unit) => &unit.id,
        }
    }

    /// The lane the unit is queued in.
    pub fn lane(&self) -> ContentHash {
        match self {
            Self::Episode(unit) => unit.configuration.lane(),
        }
    }
}

/// One benchmark item under one configuration. It carries no gold answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpisodeUnit {
    /// Identity of item and configuration together.
    pub id: UnitId,
    /// The item's identity.
    pub item: ItemId,
    /// What the episode sees.
    pub task: Task,
    /// What its session sees beside.
    pub setup: Setup,
    /// What it runs under.
    pub configuration: std::sync::Arc<Configuration>,
}

impl EpisodeUnit {
    /// Builds the unit and its identity.
    pub fn new(item: ItemId, task: Task, setup: Setup, configuration: std::sync::Arc<Configuration>) -> Self {
        let identity = configuration.identity();
        Self::under(item, task, setup, configuration, &identity)
    }

    /// Builds the unit under a configuration whose identity is known already: for many units of one configuration.
    pub fn under(
        item: ItemId,
        task: Task,
        setup: Setup,
        configuration: std::sync::Arc<Configuration>,
        identity: &ContentHash,
    ) -> Self {
        let id = Self::identity_of(&item, identity);
        Self { id, item, task, setup, configuration }
    }

    /// The identity of an item's unit under the configuration of this identity.
    pub fn identity_of(item: &ItemId, configuration: &ContentHash) -> UnitId {
        UnitId::new(ContentHash::of_json(&("unit/1", item, configuration)))
    }
}

/// A unit on its way to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// What is to be done.
    pub unit: WorkUnit,
    /// Which attempt this is, counted from 1.
    pub attempt: u32,
    /// The run it belongs to, where a queue is shared by several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunToken>,
}

impl Assignment {
    /// Names the message: a unit that is tried again is another message.
    pub fn message_id(&self) -> String {
        format!("{}-{}", self.unit.id(), self.attempt)
    }
}

/// What came of an assignment, on its way back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The unit.
    pub unit: UnitId,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The episode's record.
    pub outcome: Outcome,
    /// What depends on schedule and machine.
    pub telemetry: Telemetry,
    /// The run it belongs to, where a queue is shared by several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunToken>,
}

/// One result, for who takes several at a time.
impl From<Finished> for Vec<Finished> {
    fn from(finished: Finished) -> Self {
        vec![finished]
    }
}

impl Finished {
    /// Names the message: every worker's outcome of an attempt is a message of its own, so that second ones are
    /// counted where they are recorded.
    pub fn message_id(&self) -> String {
        format!("{}-{}-{}", self.unit, self.attempt, self.telemetry.worker)
    }
}
