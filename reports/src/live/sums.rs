//! Sums over a run's records, to which records are added as they arrive.

use std::collections::{BTreeMap, HashMap, VecDeque};

use lumos_benchmarks::{Benchmark, MetricDefinition, Scoring, Tally, main_metric};
use lumos_coordinator::Record;
use lumos_coordinator::manifest::{Manifest, PlannedConfiguration};
use lumos_coordinator::spec::ResolvedSpec;
use lumos_tasks::{Ending, FaultKind, Item, Role, Telemetry, UnitId};

use crate::display::visible_text;
use crate::export::tokens_by_role;
use crate::ledger::Ledger;
use crate::results::{ScoreError, benchmark};

use super::model::{LiveConfiguration, LiveFault, LiveScore};
use super::notices::{MESSAGE, NAME};

/// Number of recent faults to keep.
const FAULTS: usize = 20;
/// Maximum number of workers that are counted separately.
const WORKERS: usize = 1000;
/// Upper limits of the histogram of durations, in seconds.
pub(crate) const DURATIONS: [f64; 12] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Sums for metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageSums {
    /// Prompt and generated tokens of settled units, by role.
    pub(crate) tokens: BTreeMap<Role, (u64, u64)>,
    /// Number of settled units by duration: one count per limit of [`DURATIONS`], and one for longer units.
    pub(crate) durations: [u64; DURATIONS.len() + 1],
    /// Total duration of settled units in seconds.
    pub(crate) seconds: f64,
}

/// What the records show about a worker.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WorkerSum {
    pub(super) finished: u64,
    pub(super) last_ms: i64,
}

/// Sums over the records of a run.
pub(super) struct RecordSums {
    configurations: Vec<ConfigurationSums>,
    /// Configurations of the units that have only faults so far.
    faulted: HashMap<UnitId, usize>,
    pub(super) faults: BTreeMap<FaultKind, u64>,
    pub(super) recent_faults: VecDeque<LiveFault>,
    pub(super) workers: BTreeMap<String, WorkerSum>,
    pub(super) usage: UsageSums,
    scoring: Scoring,
}

struct ConfigurationSums {
    configuration: PlannedConfiguration,
    answered: u64,
    gave_up: u64,
    faulted: u64,
    benchmark: &'static dyn Benchmark,
    metric: Option<MetricDefinition>,
    tally: Tally,
}

impl ConfigurationSums {
    fn new(spec: &ResolvedSpec, planned: &PlannedConfiguration) -> Result<Self, ScoreError> {
        let benchmark = benchmark(spec, &planned.configuration.benchmark)?;
        Ok(Self {
            configuration: planned.clone(),
            answered: 0,
            gave_up: 0,
            faulted: 0,
            benchmark,
            metric: main_metric(&benchmark.measured_metrics(&planned.configuration), |_| false).copied(),
            tally: Tally::default(),
        })
    }

    fn finish(&self) -> LiveConfiguration {
        let Self { answered, gave_up, faulted, .. } = *self;
        let planned = self.configuration.planned;
        let outstanding = planned.saturating_sub(answered + gave_up + faulted);
        let estimate = self.metric.as_ref().and_then(|metric| self.tally.finish(metric));
        let score = self.metric.as_ref().zip(estimate);
        LiveConfiguration {
            label: self.configuration.label.clone(),
            ledger: Ledger { planned, answered, gave_up, faulted, outstanding, splits: Vec::new() },
            score: score.map(|(metric, estimate)| LiveScore::of(metric.name, metric.unit.name(), &estimate)),
        }
    }
}

impl RecordSums {
    /// Creates the sums of a run without records.
    ///
    /// # Errors
    /// If a benchmark is unknown.
    pub(super) fn new(manifest: &Manifest) -> Result<Self, ScoreError> {
        Ok(Self {
            configurations: manifest
                .configurations
                .iter()
                .map(|planned| ConfigurationSums::new(&manifest.spec, planned))
                .collect::<Result<_, _>>()?,
            faulted: HashMap::new(),
            faults: BTreeMap::new(),
            recent_faults: VecDeque::new(),
            workers: BTreeMap::new(),
            usage: UsageSums::default(),
            scoring: manifest.spec.scoring.first().copied().unwrap_or(Scoring::Paper),
        })
    }

    /// Name of the benchmark of a record.
    pub(super) fn benchmark_of(&self, record: &Record) -> Option<&'static str> {
        Some(self.configurations.get(record.configuration as usize)?.benchmark.name())
    }

    /// Adds a record that is not a duplicate, with its item. Ignores units after the end of a stopped configuration.
    pub(super) fn add(&mut self, record: &Record, item: Option<&Item>) {
        let position = record.configuration as usize;
        let sums = self.configurations.get_mut(position);
        let Some(sums) = sums.filter(|sums| sums.configuration.has_item(record.item)) else { return };
        let ended_ms = ended_ms(&record.telemetry);
        match &record.outcome.ending {
            Ending::Faulted(fault) => {
                if self.faulted.insert(record.unit.clone(), position).is_none() {
                    sums.faulted += 1;
                }
                *self.faults.entry(fault.kind).or_default() += 1;
                self.recent_faults.truncate(FAULTS - 1);
                self.recent_faults.push_front(LiveFault {
                    at_ms: ended_ms,
                    unit: visible_text(record.unit.as_str(), 12),
                    attempt: record.attempt,
                    worker: visible_text(&record.telemetry.worker, NAME),
                    message: visible_text(&fault.to_string(), MESSAGE),
                });
                return;
            }
            Ending::Answered => sums.answered += 1,
            Ending::GaveUp(_) => sums.gave_up += 1,
        }
        if self.faulted.remove(&record.unit).is_some() {
            sums.faulted -= 1;
        }
        let score = item.and_then(|item| sums.benchmark.score(&item.target, &record.outcome, self.scoring));
        if let Some(score) = score {
            sums.tally.add(&score);
        }
        self.usage.add(record);
        let name = visible_text(&record.telemetry.worker, NAME);
        if self.workers.len() < WORKERS || self.workers.contains_key(&name) {
            let worker = self.workers.entry(name).or_default();
            worker.finished += 1;
            worker.last_ms = worker.last_ms.max(ended_ms);
        }
    }

    /// Returns the configurations.
    pub(super) fn configurations(&self) -> Vec<LiveConfiguration> {
        self.configurations.iter().map(ConfigurationSums::finish).collect()
    }
}

impl UsageSums {
    fn add(&mut self, record: &Record) {
        for (role, (read, written)) in tokens_by_role(&record.outcome) {
            let (prompt, completion) = self.tokens.entry(role).or_default();
            *prompt += read;
            *completion += written;
        }
        let seconds = record.telemetry.seconds;
        if seconds.is_finite() && seconds >= 0.0 {
            self.durations[DURATIONS.partition_point(|limit| *limit < seconds)] += 1;
            self.seconds += seconds;
        }
    }
}

/// When an episode ended, in milliseconds since 1970.
fn ended_ms(telemetry: &Telemetry) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    let milliseconds = (telemetry.seconds * 1000.0) as i64;
    telemetry.started_ms.saturating_add(milliseconds)
}

#[cfg(test)]
mod tests {
    use lumos_coordinator::samples::{configuration, item, manifest_of, state};
    use lumos_coordinator::unit_of;
    use lumos_tasks::{ChatReply, Step, ToolCall, ToolReply};

    use super::*;

    #[test]
    fn calls_of_chat_models_count() {
        let items = [item(0)];
        let manifest = manifest_of(&[configuration(0)], &items);
        let mut record = state(0, &unit_of(&manifest.configurations[0], &items[0])).unwrap();
        let call = ToolCall::Chat { role: Role::Qa, messages: Vec::new(), max_new_tokens: 100 };
        let reply =
            ChatReply { prompt_tokens: Some(90), completion_tokens: Some(2), ..ChatReply::recorded("yes") };
        record.outcome.steps.push(Step::Call { turn: 1, call, reply: ToolReply::Chat(reply) });
        let mut usage = UsageSums::default();
        usage.add(&record);
        assert_eq!(usage.tokens[&Role::Qa], (90, 2));
        let sum = usage.tokens.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert_eq!(sum, record.outcome.tokens());
    }
}
