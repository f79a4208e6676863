//! What coordinators and workers publish, as parts of a [`LiveRun`].
//!
//! Any client of a queue can write these values: numbers saturate, lists are bounded, and texts are shortened and
//! freed of control characters.

use std::collections::BTreeMap;

use lumos_benchmarks::Estimate;
use lumos_tasks::fleet::{ConfigurationStatus, RecentFault, RunState, RunStatus, WorkerNotice};

use crate::display::visible_text;
use crate::ledger::Ledger;

use super::model::{LiveConfiguration, LiveFault, LiveRun, LiveScore, LiveState, LiveUnit, LiveWorker, rate};

/// Maximum length of a name and of a message in characters.
pub(super) const NAME: usize = 200;
pub(super) const MESSAGE: usize = 300;
/// Maximum numbers of configurations and workers, of models and refusals of a worker, and of faults.
const CONFIGURATIONS: usize = 1000;
const WORKERS: usize = 1000;
const LISTED: usize = 20;
/// A coordinator without a status update for this long has ended or lost its connection. In milliseconds.
pub const SILENT_MS: i64 = 10_000;

/// When notices of other machines last changed, by the clock of this machine, which may differ from theirs.
#[derive(Debug, Default)]
pub struct Heartbeats {
    /// By name: the time written in the latest notice, and when it was first read.
    notices: BTreeMap<String, (i64, i64)>,
}

impl Heartbeats {
    /// Forgets all names except those for which `keep` is true.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.notices.retain(|name, _| keep(name));
    }

    /// Returns when the notice with this name last changed. The first notice counts from the time written in it, if
    /// that time has passed.
    fn seen(&mut self, name: &str, written_ms: i64, now_ms: i64) -> i64 {
        match self.notices.get_mut(name) {
            Some((written, seen)) => {
                if *written != written_ms {
                    (*written, *seen) = (written_ms, now_ms);
                }
                *seen
            }
            None => {
                let seen = written_ms.min(now_ms);
                self.notices.insert(name.to_owned(), (written_ms, seen));
                seen
            }
        }
    }
}

impl LiveRun {
    /// Returns the state of a run of which only the coordinator's status is known.
    pub fn of_status(status: &RunStatus, heartbeats: &mut Heartbeats, now_ms: i64) -> Self {
        let mut run = Self::new(status.run.as_str(), visible_text(&status.name, NAME));
        let configurations = status.configurations.iter().take(CONFIGURATIONS).map(configuration).collect();
        run.set_configurations(configurations);
        run.faults = status.faults.iter().map(|(kind, count)| (kind.to_string(), *count)).collect();
        run.add_status(status, heartbeats, now_ms);
        run
    }

    /// Adds a coordinator's status to what the run's folder shows.
    pub fn add_status(&mut self, status: &RunStatus, heartbeats: &mut Heartbeats, now_ms: i64) {
        let seen = heartbeats.seen(status.run.as_str(), status.written_ms, now_ms);
        if !self.is_complete() {
            self.state = match status.state {
                RunState::Active if now_ms.saturating_sub(seen) > SILENT_MS => LiveState::Silent,
                RunState::Active => LiveState::Running,
                RunState::Cancelled => LiveState::Cancelled,
                RunState::Ended => LiveState::Incomplete,
            };
        }
        self.set_rates(status.units_per_second, status.tokens_per_second);
        self.in_flight = if self.state == LiveState::Running { status.in_flight } else { 0 };
        self.duplicates = self.duplicates.max(status.duplicates);
        self.requeued = status.recovered;
        self.started_ms = Some(status.started_ms);
        if !status.recent_faults.is_empty() {
            self.recent_faults = status.recent_faults.iter().take(LISTED).map(fault).collect();
        }
    }

    /// Adds the workers, and the oldest unit of the run that one of them has in progress.
    pub fn add_workers(&mut self, notices: &[WorkerNotice], heartbeats: &mut Heartbeats, now_ms: i64) {
        self.workers = LiveWorker::of_notices(notices, heartbeats, now_ms);
        let of_run = notices.iter().flat_map(|notice| notice.oldest.iter().map(move |one| (notice, one)));
        let of_run = of_run.filter(|(_, oldest)| oldest.run.as_str() == self.key);
        self.oldest = of_run.min_by_key(|(_, oldest)| oldest.since_ms).map(|(notice, oldest)| LiveUnit {
            unit: visible_text(oldest.unit.as_str(), 12),
            since_ms: oldest.since_ms,
            worker: visible_text(&notice.name, NAME),
        });
    }
}

impl LiveWorker {
    /// Returns the workers that published these notices.
    pub fn of_notices(notices: &[WorkerNotice], heartbeats: &mut Heartbeats, now_ms: i64) -> Vec<Self> {
        notices.iter().take(WORKERS).map(|one| worker(one, heartbeats, now_ms)).collect()
    }
}

fn configuration(status: &ConfigurationStatus) -> LiveConfiguration {
    let ConfigurationStatus { planned, answered, gave_up, faulted, .. } = *status;
    let ended = answered.saturating_add(gave_up).saturating_add(faulted);
    // Counts that contradict each other are shown as far as they fit.
    let outstanding = planned.saturating_sub(ended);
    let fits = |count: u64| count.min(planned);
    let ledger = Ledger {
        planned,
        answered: fits(answered),
        gave_up: fits(gave_up),
        faulted: fits(faulted),
        outstanding,
        splits: Vec::new(),
    };
    let estimate = status.correct.and_then(|(correct, scored)| Estimate::of_share(correct, scored));
    LiveConfiguration {
        label: visible_text(&status.label, NAME),
        ledger,
        score: estimate.map(|estimate| LiveScore::of("accuracy", "percent", &estimate)),
    }
}

fn fault(recent: &RecentFault) -> LiveFault {
    LiveFault {
        at_ms: recent.at_ms,
        unit: visible_text(recent.unit.as_str(), 12),
        attempt: recent.attempt,
        worker: visible_text(&recent.worker, NAME),
        message: visible_text(&recent.fault.to_string(), MESSAGE),
    }
}

fn worker(notice: &WorkerNotice, heartbeats: &mut Heartbeats, now_ms: i64) -> LiveWorker {
    let mut models: Vec<String> =
        notice.holdings.models.iter().take(LISTED).map(|model| visible_text(&model.name, NAME)).collect();
    models.dedup();
    LiveWorker {
        name: visible_text(&notice.name, NAME),
        device: visible_text(&notice.holdings.device, NAME),
        models,
        in_use: notice.in_use,
        concurrency: notice.holdings.concurrency,
        finished: notice.finished,
        units_per_second: rate(notice.units_per_second),
        tokens_per_second: rate(notice.tokens_per_second),
        last_seen_ms: heartbeats.seen(&notice.name, notice.written_ms, now_ms),
        draining: notice.draining,
        unsent: notice.spooled,
        refusals: notice.refusals.iter().take(LISTED).map(|text| visible_text(text, MESSAGE)).collect(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use lumos_tasks::fleet::{Holdings, OldestUnit, PROTOCOL};
    use lumos_tasks::{ContentHash, Fault, FaultKind, ModelIdentity, RunToken, UnitId};

    use super::*;

    pub(in crate::live) const NOW: i64 = 1_000_000_000;

    pub(in crate::live) fn status() -> RunStatus {
        let one = |label: &str, answered| ConfigurationStatus {
            label: label.to_owned(),
            planned: 100,
            answered,
            gave_up: 4,
            faulted: 1,
            correct: Some((answered / 2, answered)),
        };
        RunStatus {
            protocol: PROTOCOL,
            run: RunToken::of(&ContentHash::of_bytes(b"run")),
            name: "sweep".to_owned(),
            state: RunState::Active,
            host: "head".to_owned(),
            configurations: vec![one("gsm8k iterative", 40), one("gsm8k onetime", 0)],
            in_flight: 12,
            duplicates: 2,
            recovered: 16,
            units_per_second: 5.0,
            tokens_per_second: 1500.0,
            recent_faults: vec![RecentFault {
                at_ms: NOW - 61_000,
                unit: UnitId::new(ContentHash::of_bytes(b"unit")),
                worker: "node-1".to_owned(),
                attempt: 2,
                fault: Fault { kind: FaultKind::Tool, message: "quota is used up".to_owned() },
            }],
            faults: BTreeMap::from([(FaultKind::Tool, 3)]),
            started_ms: NOW - 90_000,
            written_ms: NOW - 500,
        }
    }

    pub(in crate::live) fn notice(name: &str, since_ms: i64) -> WorkerNotice {
        let run = status().run;
        let unit = UnitId::new(ContentHash::of_bytes(name.as_bytes()));
        WorkerNotice {
            protocol: PROTOCOL,
            name: name.to_owned(),
            holdings: Holdings {
                device: "cpu".to_owned(),
                models: vec![ModelIdentity {
                    name: "builtin:tiny".to_owned(),
                    content: ContentHash::of_bytes(b"model"),
                    dtype: None,
                }],
                concurrency: 8,
                ..Holdings::default()
            },
            in_use: 6,
            oldest: vec![OldestUnit { run, unit, since_ms }],
            written_ms: NOW - 1200,
            ..WorkerNotice::default()
        }
    }

    #[test]
    fn a_status_and_notices_make_a_run() {
        let mut heartbeats = Heartbeats::default();
        let mut run = LiveRun::of_status(&status(), &mut heartbeats, NOW);
        run.add_workers(&[notice("a", NOW - 7000), notice("b", NOW - 9000)], &mut heartbeats, NOW);
        assert_eq!((run.state, run.ledger.outstanding, run.in_flight), (LiveState::Running, 150, 12));
        assert_eq!(run.seconds_left, Some(30.0));
        let score = run.configurations[0].score.as_ref().unwrap();
        assert_eq!((score.value, score.items, run.configurations[1].score.as_ref()), (0.5, 40, None));
        let (low, high) = score.interval.unwrap();
        assert!(low > 0.35 && low < 0.4 && high > 0.6 && high < 0.65, "{low} {high}");
        assert_eq!(
            run.oldest.as_ref().map(|one| (one.worker.as_str(), one.since_ms)),
            Some(("b", NOW - 9000))
        );
        assert_eq!(run.faults, BTreeMap::from([("tool".to_owned(), 3)]));
        assert!(run.recent_faults[0].message.contains("quota"));
    }

    #[test]
    fn heartbeats_are_measured_by_the_clock_of_this_machine() {
        let mut heartbeats = Heartbeats::default();
        // The clock of this worker is an hour ahead.
        let ahead = |written: i64| WorkerNotice { written_ms: NOW + 3_600_000 + written, ..notice("a", 0) };
        let seen =
            |heartbeats: &mut Heartbeats, written, now| worker(&ahead(written), heartbeats, now).last_seen_ms;
        assert_eq!(seen(&mut heartbeats, 0, NOW), NOW);
        assert_eq!(seen(&mut heartbeats, 0, NOW + 5000), NOW, "the notice has not changed");
        assert_eq!(seen(&mut heartbeats, 2000, NOW + 6000), NOW + 6000);
        heartbeats.retain(|name| name != "a");
        assert!(heartbeats.notices.is_empty());
    }

    #[test]
    fn a_coordinator_that_stops_writing_is_silent_and_a_complete_run_is_not() {
        let mut heartbeats = Heartbeats::default();
        let state = |heartbeats: &mut Heartbeats, status: &RunStatus, now| {
            LiveRun::of_status(status, heartbeats, now).state
        };
        assert_eq!(state(&mut heartbeats, &status(), NOW), LiveState::Running);
        assert_eq!(state(&mut heartbeats, &status(), NOW + 20_000), LiveState::Silent);
        for (ended, expected) in
            [(RunState::Cancelled, LiveState::Cancelled), (RunState::Ended, LiveState::Incomplete)]
        {
            let status = RunStatus { state: ended, ..status() };
            assert_eq!(state(&mut heartbeats, &status, NOW), expected);
        }
        let mut complete = status();
        for one in &mut complete.configurations {
            (one.answered, one.gave_up, one.faulted) = (one.planned, 0, 0);
        }
        assert_eq!(state(&mut heartbeats, &complete, NOW + 90_000), LiveState::Complete);
    }

    /// Any client of the queue may write these values.
    #[test]
    fn hostile_notices_are_bounded_and_visible() {
        let mut hostile = status();
        hostile.name = "\u{1b}[2J\u{202e}".repeat(1000);
        hostile.units_per_second = f64::NAN;
        hostile.written_ms = i64::MIN;
        hostile.started_ms = i64::MIN;
        hostile.configurations[0].correct = Some((u64::MAX, u64::MAX));
        hostile.configurations[0].answered = u64::MAX;
        hostile.configurations = vec![hostile.configurations[0].clone(); 2000];
        hostile.recent_faults = vec![hostile.recent_faults[0].clone(); 200];
        let mut noisy = notice("w\u{9b}31m", i64::MIN);
        noisy.refusals = vec!["\u{7}".repeat(5000); 50];
        noisy.units_per_second = f64::INFINITY;
        let mut heartbeats = Heartbeats::default();
        let mut run = LiveRun::of_status(&hostile, &mut heartbeats, NOW);
        run.add_workers(&vec![noisy; 1001], &mut heartbeats, NOW);
        let text = serde_json::to_string(&run).unwrap();
        assert!(!text.chars().any(|character| character.is_control() || character == '\u{202e}'));
        assert!(!text.contains("\\u001b") && !text.contains("\\u0007"));
        assert!(text.len() < 20 << 20, "{}", text.len());
        assert_eq!((run.workers.len(), run.configurations.len(), run.recent_faults.len()), (1000, 1000, 20));
        assert_eq!((run.units_per_second, run.seconds_left, run.name.chars().count()), (0.0, None, NAME));
    }
}
