//! [`LiveRun`]: the state of a run at one moment, as pages receive it, and its [`delta`] to an earlier one.

use std::collections::BTreeMap;

use lumos_benchmarks::Estimate;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::ledger::Ledger;

use super::sums::UsageSums;

/// Remaining times above this many seconds are not shown: the rate is too low for an estimate.
const LONGEST_LEFT: f64 = 1e9;

/// The state of a run at one moment. All texts are bounded and safe to display.
#[derive(Debug, Clone, Serialize)]
pub struct LiveRun {
    /// Identifies the run in addresses: sixteen hexadecimal digits.
    pub key: String,
    /// The run's name.
    pub name: String,
    /// Whether it is in progress.
    pub state: LiveState,
    /// A problem of reading its state, if there is one.
    pub problem: Option<String>,
    /// Units of all configurations.
    pub ledger: Ledger,
    /// The configurations, in the order of reports.
    pub configurations: Vec<LiveConfiguration>,
    /// Units assigned and not settled.
    pub in_flight: u64,
    /// Recently settled units per second.
    pub units_per_second: f64,
    /// Recent prompt and generated tokens per second.
    pub tokens_per_second: f64,
    /// Estimated seconds until all units are settled; `None` without a rate.
    pub seconds_left: Option<f64>,
    /// The unit that has been in progress for the longest time.
    pub oldest: Option<LiveUnit>,
    /// Faulted attempts by what failed.
    pub faults: BTreeMap<String, u64>,
    /// The latest faults, newest first.
    pub recent_faults: Vec<LiveFault>,
    /// The workers of the run or of its queue.
    pub workers: Vec<LiveWorker>,
    /// Messages on the queue; `None` without a queue.
    pub queue: Option<QueueDepth>,
    /// Duplicate outcomes that were dropped.
    pub duplicates: u64,
    /// Units published again because their message was missing or their worker was lost.
    pub requeued: u64,
    /// When the session started, in milliseconds since 1970.
    pub started_ms: Option<i64>,
    /// Whether its folder has a report.
    pub report: bool,
    /// Whether a process writes its checkpoint. The process of a session does so until it has written the report.
    #[serde(skip)]
    pub in_use: bool,
    /// Sums over the recorded units, for metrics.
    #[serde(skip)]
    pub(crate) usage: UsageSums,
}

/// Whether a run is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveState {
    /// A process executes it.
    Running,
    /// Its coordinator has stopped publishing its status.
    Silent,
    /// Every unit is settled.
    Complete,
    /// It was cancelled.
    Cancelled,
    /// No process executes it, and units are outstanding or faulted.
    Incomplete,
}

/// A configuration of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveConfiguration {
    /// Its label.
    pub label: String,
    /// Its units.
    pub ledger: Ledger,
    /// The score so far; `None` before the first scored unit.
    pub score: Option<LiveScore>,
}

/// The score of a configuration over the units settled so far. Quick units finish first, so it does not predict the
/// result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveScore {
    /// The benchmark's main metric.
    pub metric: String,
    /// `percent`, or what the metric counts.
    pub unit: String,
    /// The value: between 0 and 1 for percent.
    pub value: f64,
    /// The 95 % interval by the metric's kind.
    pub interval: Option<(f64, f64)>,
    /// Number of scored units.
    pub items: u64,
}

impl LiveScore {
    pub(super) fn of(metric: &str, unit: &str, estimate: &Estimate) -> Self {
        let Estimate { value, interval, items, .. } = *estimate;
        Self { metric: metric.to_owned(), unit: unit.to_owned(), value, interval, items }
    }
}

/// A unit in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveUnit {
    /// The first twelve digits of its id.
    pub unit: String,
    /// When its worker started it, in milliseconds since 1970.
    pub since_ms: i64,
    /// The worker.
    pub worker: String,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveFault {
    /// When it was recorded, in milliseconds since 1970.
    pub at_ms: i64,
    /// The first twelve digits of the unit's id.
    pub unit: String,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The worker.
    pub worker: String,
    /// What failed.
    pub message: String,
}

/// A worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LiveWorker {
    /// Its name.
    pub name: String,
    /// Its device; empty if it is unknown, because only its records are.
    pub device: String,
    /// Names of its models.
    pub models: Vec<String>,
    /// Episodes in progress.
    pub in_use: u32,
    /// Maximum number of episodes in progress.
    pub concurrency: u32,
    /// Units that it has finished.
    pub finished: u64,
    /// Recent units per second.
    pub units_per_second: f64,
    /// Recent tokens per second.
    pub tokens_per_second: f64,
    /// When its latest notice or record arrived, in milliseconds since 1970 by the clock of this machine.
    pub last_seen_ms: i64,
    /// Whether it takes no more work.
    pub draining: bool,
    /// Outcomes that it could not send yet.
    pub unsent: u64,
    /// Why it cannot take available units.
    pub refusals: Vec<String>,
}

/// Messages of a run's shards on a queue. Runs that need the same models and tools share a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct QueueDepth {
    /// Units that wait for a worker.
    pub pending: u64,
    /// Units that workers hold.
    pub unacknowledged: u64,
}

impl LiveRun {
    /// Returns a run without units.
    pub(super) fn new(key: &str, name: String) -> Self {
        Self {
            key: key.to_owned(),
            name,
            state: LiveState::Incomplete,
            problem: None,
            ledger: Ledger::default(),
            configurations: Vec::new(),
            in_flight: 0,
            units_per_second: 0.0,
            tokens_per_second: 0.0,
            seconds_left: None,
            oldest: None,
            faults: BTreeMap::new(),
            recent_faults: Vec::new(),
            workers: Vec::new(),
            queue: None,
            duplicates: 0,
            requeued: 0,
            started_ms: None,
            report: false,
            in_use: false,
            usage: UsageSums::default(),
        }
    }

    /// Sets the configurations and their sum.
    pub(super) fn set_configurations(&mut self, configurations: Vec<LiveConfiguration>) {
        let mut ledger = Ledger::default();
        configurations.iter().for_each(|one| ledger.add(&one.ledger));
        (self.ledger, self.configurations) = (ledger, configurations);
        if self.ledger.is_complete() {
            self.state = LiveState::Complete;
        }
    }

    /// Sets the rates, and the remaining time that follows from them.
    pub(super) fn set_rates(&mut self, units_per_second: f64, tokens_per_second: f64) {
        (self.units_per_second, self.tokens_per_second) = (rate(units_per_second), rate(tokens_per_second));
        let left = self.ledger.outstanding as f64 / self.units_per_second;
        let is_running = self.state == LiveState::Running;
        self.seconds_left = Some(left).filter(|left| is_running && *left < LONGEST_LEFT);
    }

    /// Whether every unit is settled.
    pub fn is_complete(&self) -> bool {
        self.state == LiveState::Complete
    }

    /// Whether nothing more happens, unless somebody resumes the run: it is complete, and its session has ended.
    pub fn has_ended(&self) -> bool {
        self.is_complete() && !self.in_use
    }
}

/// Replaces a rate that is negative or not finite by 0.
pub(super) fn rate(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

/// Returns the top-level fields of `after` that are new or differ from `before`. A client that assigns them to its
/// copy of `before` has `after`: fields are never removed.
pub fn delta(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let changed = after.iter().filter(|(name, value)| before.get(*name) != Some(*value));
    changed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn states() -> impl Strategy<Value = Map<String, Value>> {
        let value = prop_oneof![
            Just(Value::Null),
            any::<u8>().prop_map(Value::from),
            prop::collection::vec(any::<u8>(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", any::<bool>(), 0..3).prop_map(|map| json!(map)),
        ];
        prop::collection::vec(value, 6).prop_map(|values| {
            let names = ["name", "state", "ledger", "workers", "faults", "queue"];
            names.into_iter().map(str::to_owned).zip(values).collect()
        })
    }

    proptest! {
        #[test]
        fn a_client_that_assigns_the_fields_has_the_new_state(before in states(), after in states()) {
            let changed = delta(&before, &after);
            for (name, value) in &changed {
                prop_assert_ne!(before.get(name), Some(value), "only what differs is sent");
            }
            let mut client = before;
            client.extend(changed);
            prop_assert_eq!(&client, &after);
            prop_assert!(delta(&client, &after).is_empty());
        }
    }
}
