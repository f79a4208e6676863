//! The protocol between coordinators and workers: the messages and notices that the queue carries, as plain
//! values. Each side validates what it receives.
//!
//! A [`WorkMessage`] carries the item and names its configuration by hash; configurations, and other inputs
//! that many units share, are sent once per run as [`SharedInputs`]. A [`ResultMessage`] carries the outcome
//! back. [`RunNotice`] and [`WorkerNotice`] announce runs and workers.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::configuration::{Configuration, ModelIdentity};
use crate::engine_use::EngineUse;
use crate::identity::{ContentHash, ItemId, UnitId};
use crate::item::{Setup, Task};
use crate::outcome::{Fault, FaultKind, Outcome, Telemetry};
use crate::server_use::ServerUse;
use crate::unit::{Assignment, EpisodeUnit, Finished, WorkUnit};

/// The version of everything in this module. Incremented when a message changes its meaning. It is part of
/// every name on the queue, so that processes with different versions never take each other's messages.
pub const PROTOCOL: u32 = 2;

/// The version in the notices of runs that need more than [`PROTOCOL`]: prompts in other layouts than Lumos's own, or
/// models with a chat interface. Their messages have the same form, so they use the same names on the queue; a worker of
/// an earlier version refuses such a run by its name, and takes all others.
pub const PROMPT_FORMATS: u32 = 3;

/// The same for runs with an agent of a task file, or with a tool that is not built in.
pub const AGENTS: u32 = 4;

/// The newest version in notices of runs.
pub const NEWEST: u32 = AGENTS;

/// The version that a run's notice states.
pub fn protocol_of<'a>(configurations: impl IntoIterator<Item = &'a Configuration>) -> u32 {
    let needed = |one: &Configuration| match () {
        () if one.is_extended() => AGENTS,
        () if !one.is_plain() => PROMPT_FORMATS,
        () => PROTOCOL,
    };
    configurations.into_iter().map(needed).max().unwrap_or(PROTOCOL)
}

/// Identifies a run on a shared queue: sixteen hexadecimal digits, so that it can be part of a subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunToken(String);

/// A text that is not a valid token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid run token `{0}`: expected sixteen hexadecimal digits")]
pub struct TokenError(String);

impl RunToken {
    /// The token of some content: the first digits of its hash.
    pub fn of(content: &ContentHash) -> Self {
        Self(content.as_str().chars().take(16).collect())
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let digits = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if digits { Ok(Self(text.to_owned())) } else { Err(TokenError(text.to_owned())) }
    }
}

impl TryFrom<String> for RunToken {
    type Error = TokenError;

    fn try_from(text: String) -> Result<Self, TokenError> {
        text.parse()
    }
}

impl From<RunToken> for String {
    fn from(token: RunToken) -> Self {
        token.0
    }
}

impl fmt::Display for RunToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A queue shard: the units that need the same models and tools, at one priority.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId {
    /// The first digits of [`Configuration::shard`].
    pub needs: RunToken,
    /// Priority; 0 is served first, 9 last.
    pub priority: u8,
}

impl ShardId {
    /// The shard of a configuration.
    pub fn of(configuration: &Configuration, priority: u8) -> Self {
        Self { needs: RunToken::of(&configuration.shard()), priority: priority.min(9) }
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.needs, self.priority)
    }
}

/// Inputs shared by many units of a run; stored once, under the hash of their bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedInputs {
    /// The configurations of the run.
    pub configurations: Vec<Arc<Configuration>>,
}

impl SharedInputs {
    /// The configurations by identity.
    pub fn by_identity(&self) -> BTreeMap<ContentHash, Arc<Configuration>> {
        self.configurations.iter().map(|one| (one.identity(), Arc::clone(one))).collect()
    }
}

/// Whether workers take a run's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Workers take units.
    Active,
    /// Workers take no units and drop those they have.
    Cancelled,
    /// Workers take no units: the coordinator ended normally.
    Ended,
}

/// A run's announcement to workers, stored in a bucket under the run's token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunNotice {
    /// The version that the run needs: see [`protocol_of`].
    pub protocol: u32,
    /// The run's token.
    pub run: RunToken,
    /// The run's name, for display.
    pub name: String,
    /// Whether workers take its units.
    pub state: RunState,
    /// The hash under which the [`SharedInputs`] are stored.
    pub shared: ContentHash,
    /// The run's shards.
    #[serde(rename = "lanes")]
    pub shards: Vec<ShardId>,
    /// Time limit per item in seconds.
    pub time_limit: Option<f64>,
    /// When this was written, in milliseconds since 1970.
    pub written_ms: i64,
}

/// A unit sent to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkMessage {
    /// The run.
    pub run: RunToken,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The unit.
    pub work: UnitMessage,
}

/// A unit that names its configuration by hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum UnitMessage {
    /// An episode.
    Episode {
        /// The unit's identity.
        id: UnitId,
        /// The item's identity.
        item: ItemId,
        /// The input of the episode.
        task: Task,
        /// The additional input of its session.
        setup: Setup,
        /// The configuration's identity.
        configuration: ContentHash,
    },
}

/// An invalid work message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Its configuration is not one of the run's.
    #[error("configuration {0} not found in the run")]
    UnknownConfiguration(ContentHash),
    /// Its id does not match its content.
    #[error("unit id mismatch: claimed {claimed}, computed {found}")]
    WrongIdentity {
        /// The id in the message.
        claimed: UnitId,
        /// The id computed from the content.
        found: UnitId,
    },
}

impl WorkMessage {
    /// Packs an assignment with the identity of its configuration.
    pub fn pack(run: RunToken, assignment: Assignment, configuration: ContentHash) -> Self {
        let WorkUnit::Episode(EpisodeUnit { id, item, task, setup, .. }) = assignment.unit;
        let work = UnitMessage::Episode { id, item, task, setup, configuration };
        Self { run, attempt: assignment.attempt, work }
    }

    /// The message's id on the queue. Each attempt of a unit has its own.
    pub fn message_id(&self) -> String {
        let UnitMessage::Episode { id, .. } = &self.work;
        format!("{id}-{}", self.attempt)
    }

    /// Returns the assignment with its configuration filled in, after verifying its identity.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub fn unpack(
        self,
        configuration: impl FnOnce(&ContentHash) -> Option<Arc<Configuration>>,
    ) -> Result<Assignment, MessageError> {
        let UnitMessage::Episode { id, item, task, setup, configuration: identity } = self.work;
        let Some(configuration) = configuration(&identity) else {
            return Err(MessageError::UnknownConfiguration(identity));
        };
        let unit = EpisodeUnit::under(item, task, setup, configuration, &identity);
        if unit.id != id {
            return Err(MessageError::WrongIdentity { claimed: id, found: unit.id });
        }
        Ok(Assignment { unit: WorkUnit::Episode(unit), attempt: self.attempt, run: Some(self.run) })
    }
}

/// The result of a unit, sent back to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultMessage {
    /// The run.
    pub run: RunToken,
    /// The unit.
    pub unit: UnitId,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The episode's record.
    pub outcome: Outcome,
    /// Data that depends on schedule and machine.
    pub telemetry: Telemetry,
}

impl ResultMessage {
    /// Packs a result; `None` if it does not belong to a run on a shared queue.
    pub fn pack(finished: Finished) -> Option<Self> {
        let Finished { unit, attempt, outcome, telemetry, run } = finished;
        Some(Self { run: run?, unit, attempt, outcome, telemetry })
    }
}

/// Results of one run that a worker sends together: those that finished while an earlier message was in
/// flight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResultBatch {
    /// The results, in the order in which they finished.
    pub results: Vec<Arc<ResultMessage>>,
}

impl ResultBatch {
    /// Maximum number of results in a batch; their unit ids have to fit into the message's name.
    pub const MOST: usize = 16;

    /// Names the message after its units, so that a message on a server can be identified without reading it:
    /// `<unit>-<attempt>-<worker>`, and `_<unit>-<attempt>` for each further one.
    pub fn message_id(&self) -> String {
        let mut id = String::new();
        for (index, one) in self.results.iter().enumerate() {
            let ResultMessage { unit, attempt, telemetry, .. } = one.as_ref();
            // Writing to a string cannot fail.
            let _ = match index {
                0 => write!(id, "{unit}-{attempt}-{}", telemetry.worker),
                _ => write!(id, "_{unit}-{attempt}"),
            };
        }
        id
    }
}

impl From<Arc<ResultMessage>> for ResultBatch {
    fn from(message: Arc<ResultMessage>) -> Self {
        Self { results: vec![message] }
    }
}

impl From<ResultBatch> for Vec<Finished> {
    fn from(batch: ResultBatch) -> Self {
        batch.results.into_iter().map(|message| Arc::unwrap_or_clone(message).into()).collect()
    }
}

impl From<ResultMessage> for Finished {
    fn from(message: ResultMessage) -> Self {
        let ResultMessage { run, unit, attempt, outcome, telemetry } = message;
        Self { unit, attempt, outcome, telemetry, run: Some(run) }
    }
}

/// A lease that a worker holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLease {
    /// The run.
    pub run: RunToken,
    /// The work message's id.
    pub message: String,
    /// The token for returning the message to the queue.
    pub token: String,
}

/// The unit of a run that a worker has executed for the longest time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldestUnit {
    /// The run.
    pub run: RunToken,
    /// The unit.
    pub unit: UnitId,
    /// When the worker started it, in milliseconds since 1970.
    pub since_ms: i64,
}

/// A worker's device, memory, tools, models and capacity.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Holdings {
    /// The device: `cpu`, `cuda:0`.
    pub device: String,
    /// Memory limit for models in bytes; `None` for no limit.
    pub memory: Option<u64>,
    /// Optional tools that this worker has: `chromium`, `mariadb`.
    pub tools: Vec<String>,
    /// Loaded models.
    pub models: Vec<ModelIdentity>,
    /// Concurrency: episodes driven at the same time.
    #[serde(rename = "places")]
    pub concurrency: u32,
}

/// A worker's announcement, stored in a bucket under the worker's name. It expires if the worker stops
/// renewing it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerNotice {
    /// [`PROTOCOL`] of the worker.
    pub protocol: u32,
    /// The worker's name: host, process and a random part.
    pub name: String,
    /// The host name.
    pub host: String,
    /// The process id on that host.
    pub process: u32,
    /// The program's version.
    pub version: String,
    /// Its capacity and loaded models.
    pub holdings: Holdings,
    /// Episodes in progress.
    pub in_use: u32,
    /// Leases it holds.
    pub held: Vec<HeldLease>,
    /// Units finished since it started.
    pub finished: u64,
    /// Outcomes waiting to be sent.
    pub spooled: u64,
    /// Recent units per second.
    pub units_per_second: f64,
    /// Recent prompt and generated tokens per second.
    pub tokens_per_second: f64,
    /// Whether it is draining and takes no more work.
    pub draining: bool,
    /// Why it cannot take available shards, for display.
    pub refusals: Vec<String>,
    /// Its engines and their load times: telemetry, which older versions neither write nor read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineUse>,
    /// Its oldest unit in progress, by run: telemetry, which older versions neither write nor read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub oldest: Vec<OldestUnit>,
    /// The model servers that it uses: telemetry, as above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerUse>,
    /// When the worker started, in milliseconds since 1970.
    pub started_ms: i64,
    /// When this was written, in milliseconds since 1970.
    pub written_ms: i64,
}

/// The leases that a worker has just claimed, published between two [`WorkerNotice`]s so that a coordinator
/// can requeue their units if the worker is killed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimNotice {
    /// [`PROTOCOL`] of the worker.
    pub protocol: u32,
    /// The claimed leases.
    pub held: Vec<HeldLease>,
    /// When this was written, in milliseconds since 1970, by the clock of [`WorkerNotice::written_ms`].
    pub written_ms: i64,
}

/// The progress of one configuration of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationStatus {
    /// The configuration's label.
    pub label: String,
    /// Planned units.
    pub planned: u64,
    /// Units that ended with a prediction.
    pub answered: u64,
    /// Units that ended without a prediction, caused by the agent.
    pub gave_up: u64,
    /// Units whose attempts are used up.
    pub faulted: u64,
    /// Correct units so far under the first scoring, and the number of scored units.
    pub correct: Option<(u64, u64)>,
}

/// A fault, as shown in the status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecentFault {
    /// When it was recorded, in milliseconds since 1970.
    pub at_ms: i64,
    /// The unit.
    pub unit: UnitId,
    /// The worker.
    pub worker: String,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// What failed.
    pub fault: Fault,
}

/// The status of a run, published by its coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStatus {
    /// [`PROTOCOL`] of the coordinator.
    pub protocol: u32,
    /// The run's token.
    pub run: RunToken,
    /// The run's name.
    pub name: String,
    /// Its state.
    pub state: RunState,
    /// The coordinator's host.
    pub host: String,
    /// Progress by configuration, in the order of reports.
    pub configurations: Vec<ConfigurationStatus>,
    /// Units assigned and not settled.
    pub in_flight: u64,
    /// Duplicate outcomes that were dropped.
    pub duplicates: u64,
    /// Units published again because their message was missing or their worker was lost.
    pub recovered: u64,
    /// Recent settled units per second.
    pub units_per_second: f64,
    /// Recent tokens per second.
    pub tokens_per_second: f64,
    /// The latest faults, newest first, at most twenty.
    pub recent_faults: Vec<RecentFault>,
    /// Faulted attempts of the session, by what failed. Older versions do not write it.
    #[serde(default)]
    pub faults: BTreeMap<FaultKind, u64>,
    /// When the session started, in milliseconds since 1970.
    pub started_ms: i64,
    /// When this was written, in milliseconds since 1970.
    pub written_ms: i64,
}

impl RunStatus {
    /// Planned units of all configurations.
    pub fn planned(&self) -> u64 {
        self.sum(|one| one.planned)
    }

    /// Answered and given-up units of all configurations.
    pub fn settled(&self) -> u64 {
        self.sum(|one| one.answered.saturating_add(one.gave_up))
    }

    /// Units of all configurations whose attempts are used up.
    pub fn faulted(&self) -> u64 {
        self.sum(|one| one.faulted)
    }

    /// Saturating, because the counts come from another machine and may be any number.
    fn sum(&self, count: fn(&ConfigurationStatus) -> u64) -> u64 {
        self.configurations.iter().map(count).fold(0, u64::saturating_add)
    }
}
