//! The protocol between coordinators and workers: the messages and notices that the queue carries, as plain
//! values. Each side validates what it receives.
//!
//! A [`WorkMessage`] carries the item and names its configuration by hash; configurations, and other inputs
//! that many units share, are sent once per run as [`SharedInputs`]. A [`ResultMessage`] carries the outcome
//! back. [`RunNotice`] and [`WorkerNotice`] announce runs and workers.

mod messages;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::configuration::{Configuration, ModelIdentity};
use crate::engine_use::EngineUse;
use crate::identity::{ContentHash, UnitId};
use crate::outcome::{Fault, FaultKind};
use crate::server_use::ServerUse;

pub use messages::{MessageError, ResultBatch, ResultMessage, UnitMessage, WorkMessage};

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
    /// Priority, from 0 (served first) to [`LAST_PRIORITY`](Self::LAST_PRIORITY).
    pub priority: u8,
}

impl ShardId {
    /// The priority that is served last. The first one is 0.
    pub const LAST_PRIORITY: u8 = 9;

    /// The shard of a configuration.
    pub fn of(configuration: &Configuration, priority: u8) -> Self {
        Self { needs: RunToken::of(&configuration.shard()), priority: priority.min(Self::LAST_PRIORITY) }
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

impl WorkerNotice {
    /// Whether a text is valid as a worker's name, which is part of keys and subjects on the queue: 1 to 200 letters,
    /// digits, `-` and `_`.
    pub fn is_valid_name(text: &str) -> bool {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=200).contains(&text.len()) && text.bytes().all(is_allowed)
    }
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
