//! Builds a report from a run's records.

use std::collections::{BTreeMap, BTreeSet};

use lumos_benchmarks::{Benchmark, GroupedTally, MetricDefinition, Scoring};
use lumos_coordinator::manifest::{Manifest, PlannedConfiguration};
use lumos_coordinator::spec::ResolvedSpec;
use lumos_coordinator::{CheckpointReader, Record, WorkerComputing, for_each_unit};
use lumos_tasks::{Ending, Item, Outcome, UnitId};

use crate::display::{prediction_text, shortened, task_text, thousands};
use crate::judge::Verdicts;
use crate::ledger::{Ledger, Split};
use crate::results::{Cause, Labels, ScoreError, TableBuilder, benchmark, group_figures, matrix};

use super::comparison::obstacles;
use super::model::{
    ConfigurationReport, Example, FaultMessage, GroupReport, MetricReport, PublishedComparison, Report,
    ScoringReport,
};
use super::usage::UsageSum;

/// Maximum number of examples per configuration.
const EXAMPLES: usize = 10;
/// Maximum length of a text in an example, in characters.
const EXAMPLE_TEXT: usize = 300;
/// Maximum length of a fault message in characters, and maximum numbers of distinct messages counted and
/// shown.
const FAULT_TEXT: usize = 240;
const FAULTS_COUNTED: usize = 1000;
const FAULTS_SHOWN: usize = 3;

/// Builds the report of a run from its checkpoint alone.
///
/// # Errors
/// If the checkpoint cannot be read or the benchmark is unknown.
pub fn report(
    manifest: &Manifest,
    checkpoint: &CheckpointReader,
    scorings: &[Scoring],
) -> Result<Report, ScoreError> {
    labelled_report(manifest, checkpoint, scorings, &Labels::default())
}

/// The same, with names for models in the table of models and benchmarks.
///
/// # Errors
/// If the checkpoint cannot be read or the benchmark is unknown.
pub fn labelled_report(
    manifest: &Manifest,
    checkpoint: &CheckpointReader,
    scorings: &[Scoring],
    labels: &Labels,
) -> Result<Report, ScoreError> {
    let mut builder = ReportBuilder::new(manifest, scorings)?;
    builder.verdicts = Verdicts::beside(checkpoint)?;
    // Figures over several configurations need the scores of single items.
    let benchmarks: BTreeSet<&str> =
        manifest.configurations.iter().map(|one| one.configuration.benchmark.as_str()).collect();
    let scoring = scorings.first().or(manifest.spec.scoring.first()).copied().unwrap_or(Scoring::Paper);
    let has_several = manifest.configurations.len() > benchmarks.len();
    let mut table =
        has_several.then(|| TableBuilder::new(manifest, scoring, builder.verdicts.clone())).transpose()?;
    for_each_unit(manifest, checkpoint, |view| {
        builder.add(view.position, view.item, &view.unit, view.record.as_ref());
        if let Some(table) = &mut table {
            table.add(view);
        }
        Ok::<_, ScoreError>(())
    })?;
    let mut report = builder.finish();
    if let Some(table) = table.map(|table| table.finish(manifest)) {
        report.matrix = matrix(&table, labels);
        report.groups = group_figures(&table);
    }
    report.duplicates = checkpoint.duplicates();
    report.seconds = checkpoint.seconds()?;
    report.computing = checkpoint.computing()?;
    report.workers = checkpoint.workers()?.iter().map(WorkerComputing::spent).collect();
    report.queue = checkpoint.queue()?;
    report.in_progress = checkpoint.is_in_use();
    Ok(report)
}

/// Accumulates units in any order. Only the examples depend on the order: the first ones are kept.
pub(super) struct ReportBuilder {
    manifest: Manifest,
    configurations: Vec<ConfigurationSum>,
    verdicts: Option<Verdicts>,
}

impl ReportBuilder {
    /// Creates a builder. If `scorings` is empty, uses those of the specification.
    ///
    /// # Errors
    /// If a benchmark is unknown.
    pub(super) fn new(manifest: &Manifest, scorings: &[Scoring]) -> Result<Self, ScoreError> {
        let scorings = if scorings.is_empty() { &manifest.spec.scoring } else { scorings };
        let configurations = manifest
            .configurations
            .iter()
            .map(|configuration| ConfigurationSum::new(&manifest.spec, configuration, scorings))
            .collect::<Result<_, _>>()?;
        Ok(Self { manifest: manifest.clone(), configurations, verdicts: None })
    }

    /// Adds a unit of the configuration at a position, with its last record. Ignores invalid positions.
    pub(super) fn add(&mut self, position: usize, item: &Item, unit: &UnitId, record: Option<&Record>) {
        if let (Some(sum), Some(record)) = (self.configurations.get_mut(position), record) {
            sum.add(item, unit, record, self.verdicts.as_ref());
        }
    }

    /// Builds the report. Units that were not added are outstanding.
    pub(super) fn finish(self) -> Report {
        let configurations: Vec<ConfigurationReport> =
            self.configurations.into_iter().map(|sum| sum.finish(&self.manifest)).collect();
        let mut total = Ledger::default();
        for configuration in &configurations {
            total.add(&configuration.ledger);
        }
        let judge = self.verdicts.as_ref().map(Verdicts::report);
        Report {
            manifest: self.manifest,
            configurations,
            total,
            duplicates: 0,
            computing: Vec::new(),
            workers: Vec::new(),
            queue: None,
            in_progress: false,
            seconds: None,
            judge,
            matrix: None,
            groups: Vec::new(),
        }
    }
}

/// Whether a metric splits answered units into correct and wrong ones. If lower is better (number of turns) or without
/// bounds, values are neither correct nor wrong.
pub(super) fn is_split(metric: &MetricDefinition) -> bool {
    metric.higher_is_better && metric.kind.range().is_some() && !metric.judged
}

struct ScoringSum {
    scoring: Scoring,
    tally: GroupedTally,
    /// Number of answered units with the full score, by metric.
    full: Vec<u64>,
}

struct ConfigurationSum {
    planned: PlannedConfiguration,
    benchmark: &'static dyn Benchmark,
    /// The benchmark's metrics that are measured.
    metrics: Vec<MetricDefinition>,
    scorings: Vec<ScoringSum>,
    ledger: Ledger,
    attribution: BTreeMap<Cause, u64>,
    failed_turns: BTreeMap<(Cause, u32), u64>,
    faults: BTreeMap<String, u64>,
    fault_messages: BTreeMap<String, u64>,
    usage: UsageSum,
    examples: Vec<Example>,
}

impl ConfigurationSum {
    fn new(
        spec: &ResolvedSpec,
        planned: &PlannedConfiguration,
        scorings: &[Scoring],
    ) -> Result<Self, ScoreError> {
        let benchmark = benchmark(spec, &planned.configuration.benchmark)?;
        let metrics = benchmark.measured_metrics(&planned.configuration);
        let scorings = scorings
            .iter()
            .map(|&scoring| ScoringSum {
                scoring,
                tally: GroupedTally::default(),
                full: vec![0; metrics.len()],
            })
            .collect();
        Ok(Self {
            planned: planned.clone(),
            benchmark,
            metrics,
            scorings,
            ledger: Ledger { planned: planned.planned, ..Ledger::default() },
            attribution: BTreeMap::new(),
            failed_turns: BTreeMap::new(),
            faults: BTreeMap::new(),
            fault_messages: BTreeMap::new(),
            usage: UsageSum::default(),
            examples: Vec::new(),
        })
    }

    fn add(&mut self, item: &Item, unit: &UnitId, record: &Record, verdicts: Option<&Verdicts>) {
        let cause = match &record.outcome.ending {
            Ending::Faulted(fault) => {
                self.ledger.faulted += 1;
                *self.faults.entry(fault.kind.to_string()).or_default() += 1;
                let message = shortened(&fault.to_string(), FAULT_TEXT);
                if self.fault_messages.len() < FAULTS_COUNTED || self.fault_messages.contains_key(&message) {
                    *self.fault_messages.entry(message).or_default() += 1;
                }
                Cause::Faulted
            }
            Ending::Answered | Ending::GaveUp(_) => self.settle(item, unit, record, verdicts),
        };
        *self.attribution.entry(cause).or_default() += 1;
        let turn = cause.turn(&record.outcome);
        if turn > 0 {
            *self.failed_turns.entry((cause, turn)).or_default() += 1;
        }
        if !matches!(cause, Cause::Correct) && self.examples.len() < EXAMPLES {
            self.examples.push(example(item, unit.short(), &record.outcome, cause));
        }
    }

    fn settle(&mut self, item: &Item, unit: &UnitId, record: &Record, verdicts: Option<&Verdicts>) -> Cause {
        let outcome = &record.outcome;
        let answered = matches!(outcome.ending, Ending::Answered);
        if answered {
            self.ledger.answered += 1;
        } else {
            self.ledger.gave_up += 1;
        }
        self.usage.add(outcome, &record.telemetry);
        let metrics = &self.metrics;
        let verdict = verdicts.and_then(|verdicts| verdicts.of(metrics, unit, item, outcome));
        let mut correct = false;
        for (index, sum) in self.scorings.iter_mut().enumerate() {
            let Some(mut score) = self.benchmark.score(&item.target, outcome, sum.scoring) else { continue };
            if let Some(verdict) = &verdict {
                score = verdict.add_to(score, sum.scoring);
            }
            for (full, metric) in sum.full.iter_mut().zip(metrics) {
                *full += u64::from(answered && score.is_full(metric));
            }
            if index == 0 {
                correct = score.is_correct(metrics);
            }
            sum.tally.add(item.group.as_deref(), &score);
        }
        Cause::of(outcome, correct)
    }

    fn finish(mut self, manifest: &Manifest) -> ConfigurationReport {
        let Ledger { planned, answered, gave_up, faulted, .. } = self.ledger;
        self.ledger.outstanding = planned.saturating_sub(answered + gave_up + faulted);
        if self.ledger.outstanding > 0 {
            self.attribution.insert(Cause::Outstanding, self.ledger.outstanding);
        }
        let metrics = &self.metrics;
        let splits = self.scorings.iter().flat_map(|sum| {
            let counted = sum.full.iter().zip(metrics).filter(|(_, metric)| is_split(metric));
            counted.map(move |(&correct, metric)| Split {
                scoring: sum.scoring,
                metric: metric.name.to_owned(),
                correct,
                wrong: answered - correct,
            })
        });
        let ledger = Ledger { splits: splits.collect(), ..self.ledger.clone() };
        let scores = self
            .scorings
            .iter()
            .map(|sum| ScoringReport {
                scoring: sum.scoring,
                // A judged metric has no estimate before the run is judged.
                metrics: metrics
                    .iter()
                    .filter(|metric| !metric.judged || sum.tally.overall.finish(metric).is_some())
                    .map(|metric| {
                        let configuration = &self.planned.configuration;
                        let mut not_compared =
                            obstacles(manifest, configuration, self.benchmark, sum.scoring, &ledger);
                        let estimate = sum.tally.overall.finish(metric);
                        if let Some(judged) =
                            estimate.filter(|one| metric.judged && one.items != ledger.settled())
                        {
                            not_compared.push(format!("{} items judged", thousands(judged.items)));
                        }
                        self.metric(metric, &sum.tally, &not_compared)
                    })
                    .collect(),
            })
            .collect();
        let fault_messages = most_frequent(self.fault_messages).into_iter().take(FAULTS_SHOWN);
        ConfigurationReport {
            label: self.planned.label,
            benchmark: self.benchmark.name().to_owned(),
            ledger,
            scores,
            attribution: self.attribution,
            failed_turns: self.failed_turns,
            faults: most_frequent(self.faults),
            fault_messages: fault_messages.map(|(message, count)| FaultMessage { message, count }).collect(),
            usage: self.usage.finish(),
            examples: self.examples,
        }
    }

    fn metric(
        &self,
        metric: &MetricDefinition,
        tally: &GroupedTally,
        not_compared: &[String],
    ) -> MetricReport {
        let estimate = tally.overall.finish(metric);
        #[expect(clippy::cast_precision_loss, reason = "counts of items are far below 2^52")]
        let faulted = self.ledger.faulted as f64;
        // A faulted unit gets the average weight of a settled unit.
        let bounds = estimate.filter(|_| self.ledger.faulted > 0).zip(metric.kind.range()).map(
            |(estimate, (least, most))| {
                #[expect(clippy::cast_precision_loss, reason = "counts of items are far below 2^52")]
                let missing = faulted * estimate.denominator / estimate.items as f64;
                let all = estimate.denominator + missing;
                ((estimate.numerator + missing * least) / all, (estimate.numerator + missing * most) / all)
            },
        );
        let formulation = self.planned.configuration.formulation;
        let compared = estimate.filter(|_| not_compared.is_empty());
        let published = self
            .benchmark
            .published()
            .iter()
            .filter(|figure| figure.metric == metric.name && figure.formulation == formulation)
            .map(|figure| PublishedComparison {
                system: figure.system.to_owned(),
                source: figure.source.to_owned(),
                percent: figure.percent,
                points: compared.map(|estimate| estimate.value * 100.0 - figure.percent),
                inside: compared
                    .and_then(|estimate| estimate.interval)
                    .map(|(low, high)| (low * 100.0..=high * 100.0).contains(&figure.percent)),
                not_compared: not_compared.to_vec(),
            })
            .collect();
        let groups = tally
            .groups
            .iter()
            .filter_map(|(group, tally)| {
                Some(GroupReport { group: group.clone(), estimate: tally.finish(metric)? })
            })
            .collect();
        MetricReport {
            metric: metric.name.to_owned(),
            kind: metric.kind,
            unit: metric.unit,
            higher_is_better: metric.higher_is_better,
            estimate,
            bounds,
            published,
            groups,
        }
    }
}

/// Sorts counts in descending order, and equal counts by name.
fn most_frequent(counts: BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    counts
}

fn example(item: &Item, unit: &str, outcome: &Outcome, cause: Cause) -> Example {
    let detail = match &outcome.ending {
        Ending::Answered => None,
        Ending::GaveUp(reason) => Some(format!("turn {}: {}", reason.turn, reason.detail)),
        Ending::Faulted(fault) => Some(fault.to_string()),
    };
    Example {
        item: item.index,
        name: item.name.clone(),
        unit: unit.to_owned(),
        task: shortened(task_text(&item.task), EXAMPLE_TEXT),
        prediction: prediction_text(outcome).map(|text| shortened(&text, EXAMPLE_TEXT)),
        gold: shortened(item.target.text(), EXAMPLE_TEXT),
        cause: cause.name().to_owned(),
        detail: detail.map(|text| shortened(&text, EXAMPLE_TEXT)),
    }
}
