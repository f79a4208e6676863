//! The state of runs as OpenMetrics text, for Prometheus.
//!
//! Labels have few values: runs, configurations, roles, kinds and workers, never units or items.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::model::{LiveConfiguration, LiveRun, LiveWorker};
use super::sums::DURATIONS;

/// The content type of [`openmetrics`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Maximum number of runs, of configurations of a run, and of workers. Further workers are summed as `other`.
const RUNS: usize = 200;
const CONFIGURATIONS: usize = 200;
const WORKERS: usize = 200;
/// Name of the sum of further workers.
const OTHER: &str = "other";

/// Labels of a value, by name.
type Labels = Vec<(&'static str, String)>;

/// Returns the state of runs, and of workers besides theirs, as OpenMetrics text. `version` and `revision` are those of
/// the program.
pub fn openmetrics(runs: &[LiveRun], workers: &[LiveWorker], version: &str, revision: &str) -> String {
    let mut registry = Registry::default();
    let build = vec![("version", version.to_owned()), ("revision", revision.to_owned())];
    registry.register_collector(Box::new(Snapshot { runs: runs.to_vec(), workers: workers.to_vec(), build }));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Snapshot {
    runs: Vec<LiveRun>,
    workers: Vec<LiveWorker>,
    build: Labels,
}

/// Sum over workers that share a label.
#[derive(Debug, Default)]
struct WorkerSlots {
    last_seen_ms: i64,
    in_use: u64,
    free: u64,
}

impl WorkerSlots {
    fn add(&mut self, worker: &LiveWorker) {
        self.last_seen_ms = self.last_seen_ms.max(worker.last_seen_ms);
        self.in_use += u64::from(worker.in_use);
        self.free += u64::from(worker.concurrency.saturating_sub(worker.in_use));
    }
}

impl Snapshot {
    /// The runs by a label that is unique among them.
    fn runs(&self) -> Vec<(String, &LiveRun)> {
        let mut names: BTreeMap<&str, u32> = BTreeMap::new();
        for run in &self.runs {
            *names.entry(&run.name).or_default() += 1;
        }
        let label = |run: &LiveRun| match names[run.name.as_str()] {
            1 => run.name.clone(),
            _ => format!("{} {}", run.name, run.key),
        };
        let mut seen = BTreeSet::new();
        let labelled = self.runs.iter().map(|run| (label(run), run));
        labelled.filter(|(label, _)| seen.insert(label.clone())).take(RUNS).collect()
    }

    fn configurations(&self) -> Vec<(Labels, &LiveConfiguration)> {
        let mut rows = Vec::new();
        for (label, run) in self.runs() {
            let mut seen = BTreeSet::new();
            for one in run.configurations.iter().take(CONFIGURATIONS) {
                if seen.insert(&one.label) {
                    rows.push((vec![("run", label.clone()), ("configuration", one.label.clone())], one));
                }
            }
        }
        rows
    }

    fn workers(&self) -> BTreeMap<&str, WorkerSlots> {
        let mut named: BTreeMap<&str, &LiveWorker> = BTreeMap::new();
        for worker in self.runs.iter().flat_map(|run| &run.workers).chain(&self.workers) {
            let known = named.entry(&worker.name).or_insert(worker);
            if worker.last_seen_ms > known.last_seen_ms {
                *known = worker;
            }
        }
        let mut slots: BTreeMap<&str, WorkerSlots> = BTreeMap::new();
        for (number, (name, worker)) in named.into_iter().enumerate() {
            slots.entry(if number < WORKERS { name } else { OTHER }).or_default().add(worker);
        }
        slots
    }
}

/// Writes gauges with their labels.
fn gauges<T: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<&Unit>),
    rows: impl IntoIterator<Item = (Labels, T)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    rows.into_iter().try_for_each(|(labels, value)| metric.encode_family(&labels)?.encode_gauge(&value))
}

/// Writes counters with their labels. Their values are totals, which fall if a run is started again.
fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    rows: impl IntoIterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    rows.into_iter().try_for_each(|(labels, value)| {
        metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
    })
}

/// Adds a label.
fn with(labels: &Labels, name: &'static str, value: impl Into<String>) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.into()));
    labels
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        out.encode_descriptor("lumos_build", "Version of the program", None, MetricType::Info)?
            .encode_info(&self.build)?;
        let configurations = self.configurations();
        let units = |count: fn(&LiveConfiguration) -> u64| {
            configurations.iter().map(move |(labels, one)| (labels.clone(), count(one)))
        };
        let planned = units(|one| one.ledger.planned);
        gauges(out, ("lumos_units_planned", "Planned units", None), planned)?;
        let settled = configurations.iter().flat_map(|(labels, one)| {
            let statuses = [("answered", one.ledger.answered), ("gave_up", one.ledger.gave_up)];
            statuses.map(|(status, count)| (with(labels, "status", status), count))
        });
        counters(out, ("lumos_units_settled", "Settled units"), settled)?;
        let faulted = units(|one| one.ledger.faulted);
        gauges(out, ("lumos_units_faulted", "Units with faults and no outcome", None), faulted)?;
        let outstanding = units(|one| one.ledger.outstanding);
        gauges(out, ("lumos_units_outstanding", "Units without a record", None), outstanding)?;
        self.scores(out)?;
        self.of_runs(out)?;
        self.durations(out)?;
        self.of_workers(out)
    }
}

impl Snapshot {
    fn scores(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut rows: [Vec<(Labels, f64)>; 3] = Default::default();
        for (labels, one) in self.configurations() {
            let Some(score) = one.score.as_ref().filter(|score| score.unit == "percent") else { continue };
            let labels = with(&labels, "metric", &score.metric);
            let limits = score.interval.unwrap_or((f64::NAN, f64::NAN));
            for (rows, value) in rows.iter_mut().zip([score.value, limits.0, limits.1]) {
                rows.push((labels.clone(), value));
            }
        }
        let [values, lower, upper] = rows;
        let ratio = Unit::Other("ratio".to_owned());
        gauges(out, ("lumos_score", "Score over the units settled so far", Some(&ratio)), values)?;
        gauges(out, ("lumos_score_lower", "Lower limit of the 95 % interval", Some(&ratio)), lower)?;
        gauges(out, ("lumos_score_upper", "Upper limit of the 95 % interval", Some(&ratio)), upper)
    }

    fn of_runs(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let runs: Vec<(Labels, &LiveRun)> =
            self.runs().into_iter().map(|(label, run)| (vec![("run", label)], run)).collect();
        let in_flight = runs.iter().map(|(labels, run)| (labels.clone(), run.in_flight));
        gauges(out, ("lumos_units_in_flight", "Units assigned and not settled", None), in_flight)?;
        let tokens = runs.iter().flat_map(|(labels, run)| {
            run.usage.tokens.iter().flat_map(move |(role, (prompt, completion))| {
                let labels = with(labels, "role", role.to_string());
                let directions = [("prompt", *prompt), ("completion", *completion)];
                directions.map(|(direction, count)| (with(&labels, "direction", direction), count))
            })
        });
        counters(out, ("lumos_tokens", "Tokens of settled units"), tokens)?;
        let faults = runs.iter().flat_map(|(labels, run)| {
            run.faults.iter().map(|(kind, count)| (with(labels, "kind", kind), *count))
        });
        counters(out, ("lumos_faults", "Faulted attempts by what failed"), faults)?;
        let depth = || runs.iter().filter_map(|(labels, run)| Some((labels.clone(), run.queue?)));
        let pending = depth().map(|(labels, depth)| (labels, depth.pending));
        gauges(out, ("lumos_queue_pending", "Units that wait for a worker", None), pending)?;
        let held = depth().map(|(labels, depth)| (labels, depth.unacknowledged));
        gauges(out, ("lumos_queue_unacknowledged", "Units that workers hold", None), held)
    }

    fn durations(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = ("lumos_episode_duration", "Duration of settled units");
        let mut metric = out.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (label, run) in self.runs() {
            let limits = DURATIONS.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = limits.zip(run.usage.durations).collect();
            let units = run.usage.durations.iter().sum();
            metric.encode_family(&[("run", label)])?.encode_histogram::<NoLabelSet>(
                run.usage.seconds,
                units,
                &buckets,
                None,
            )?;
        }
        Ok(())
    }

    fn of_workers(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let workers = self.workers();
        let label = |name: &str| vec![("worker", name.to_owned())];
        #[expect(clippy::cast_precision_loss, reason = "times are below 2^52 milliseconds")]
        let seen = workers.iter().map(|(name, sum)| (label(name), sum.last_seen_ms as f64 / 1000.0));
        let (name, help) =
            ("lumos_worker_last_seen_timestamp", "When a worker's latest notice or record arrived");
        gauges(out, (name, help, Some(&Unit::Seconds)), seen)?;
        let slots = workers.iter().flat_map(|(name, sum)| {
            [("in_use", sum.in_use), ("free", sum.free)]
                .map(|(state, count)| (with(&label(name), "state", state), count))
        });
        gauges(out, ("lumos_worker_slots", "Episodes that a worker can drive at the same time", None), slots)
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::QueueDepth;
    use super::super::notices::Heartbeats;
    use super::super::notices::tests::{NOW, notice, status};
    use super::*;

    fn run() -> LiveRun {
        let mut heartbeats = Heartbeats::default();
        let mut run = LiveRun::of_status(&status(), &mut heartbeats, NOW);
        run.add_workers(&[notice("node-1", NOW), notice("node-2", NOW)], &mut heartbeats, NOW);
        run.queue = Some(QueueDepth { pending: 120, unacknowledged: 12 });
        run.usage.tokens.insert(lumos_tasks::Role::Planner, (100, 10));
        run.usage.durations[3] = 2;
        run.usage.seconds = 1.5;
        run
    }

    #[test]
    fn a_run_as_text() {
        insta::assert_snapshot!(openmetrics(&[run()], &[], "1.2.3", "abc"));
    }

    #[test]
    fn labels_are_escaped_unique_and_few() {
        let mut odd = run();
        odd.name = "a\"b\\c\nd".to_owned();
        odd.configurations.push(odd.configurations[0].clone());
        odd.workers = (0..500)
            .map(|number| LiveWorker { name: format!("w{number:03}"), ..odd.workers[0].clone() })
            .collect();
        let twin = LiveRun { key: "0123456789abcdef".to_owned(), ..odd.clone() };
        let text = openmetrics(&[odd, twin], &run().workers, "1", "r");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let mut seen = BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(seen.insert(series.to_owned()), "twice: {line}");
        }
        assert_eq!(text.matches("lumos_worker_slots{").count(), 2 * (WORKERS + 1));
        assert!(text.contains(r#"a\"b\\c\nd 0123456789abcdef"#), "{text}");
        assert!(text.contains(r#"lumos_worker_slots{worker="other",state="in_use"} 1812"#), "{text}");
    }

    /// The dashboard asks for metrics that exist.
    #[test]
    fn the_dashboard_uses_these_metrics() {
        let dashboard = include_str!("../../../deploy/grafana/lumos.json");
        let text = openmetrics(&[run()], &[], "1", "r");
        let mut names = BTreeSet::new();
        for part in dashboard.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
            if part.starts_with("lumos_") {
                names.insert(part);
            }
        }
        assert!(names.len() > 8, "{names:?}");
        for name in names {
            let is_series = |line: &str| line.split(['{', ' ']).next() == Some(name);
            assert!(text.lines().any(is_series), "unknown metric {name}");
        }
    }
}
