//! Status figures of a session, computed from its events. [`RunProgress`] shares those of a session in this process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use lumos_tasks::fleet::{ConfigurationStatus, PROTOCOL, RecentFault, RunState, RunStatus};
use lumos_tasks::{Fault, FaultKind, RunToken, Throughput, UnitId};
use tokio::sync::mpsc;

use super::control::EventSink;
use super::unit_tracker::Tally;
use crate::events::Event;
use crate::fleet::{host, run_token};
use crate::manifest::Manifest;

/// Number of recent faults to keep.
const FAULTS: usize = 20;
/// Maximum length of the message and of the worker's name of a recent fault in bytes. The checkpoint has the complete
/// fault; the status must fit into a message.
const LONGEST_TEXT: usize = 1024;

/// Status figures of a session.
#[derive(Debug)]
pub(crate) struct RunStats {
    pub(crate) configurations: Vec<ConfigurationStatus>,
    pub(crate) in_flight: u64,
    pub(crate) duplicates: u64,
    pub(crate) recovered: u64,
    pub(crate) recent_faults: VecDeque<RecentFault>,
    faults: BTreeMap<FaultKind, u64>,
    throughput: Throughput,
}

/// The run and the start of a session, for its status.
#[derive(Debug, Clone)]
pub(crate) struct SessionName {
    pub(crate) run: RunToken,
    pub(crate) name: String,
    pub(crate) started_ms: i64,
}

impl SessionName {
    /// Returns the name of a session that starts now.
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self {
            run: run_token(manifest),
            name: manifest.spec.name.clone(),
            started_ms: Timestamp::now().as_millisecond(),
        }
    }
}

/// The progress of a session in this process. Clones share the same figures.
#[derive(Debug, Clone)]
pub struct RunProgress {
    name: SessionName,
    stats: Arc<Mutex<RunStats>>,
}

impl RunProgress {
    /// Creates the progress of a session that starts now.
    pub fn new(manifest: &Manifest) -> Self {
        Self { name: SessionName::of(manifest), stats: Arc::new(Mutex::new(RunStats::default())) }
    }

    /// Returns the receiver of a session's events, which updates these figures and forwards the events.
    pub fn sink(&self, events: &mpsc::Sender<Event>) -> EventSink {
        EventSink::from(events).with_stats(Arc::clone(&self.stats))
    }

    /// Returns the number of units that the session has settled.
    pub fn finished(&self) -> u64 {
        self.stats().throughput.units()
    }

    /// Returns the status of the active session.
    pub fn status(&self) -> RunStatus {
        self.stats().status(&self.name, RunState::Active)
    }

    fn stats(&self) -> MutexGuard<'_, RunStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for RunStats {
    /// Figures of a session that has not counted its units yet.
    fn default() -> Self {
        Self {
            configurations: Vec::new(),
            in_flight: 0,
            duplicates: 0,
            recovered: 0,
            recent_faults: VecDeque::new(),
            faults: BTreeMap::new(),
            throughput: Throughput::since(Instant::now()),
        }
    }
}

impl RunStats {
    /// Sets the units of the configurations at the start of the session.
    pub(crate) fn begin(&mut self, labels: &[String], tallies: &[Tally]) {
        self.configurations = labels
            .iter()
            .zip(tallies)
            .map(|(label, tally)| ConfigurationStatus {
                label: label.clone(),
                planned: tally.planned,
                answered: tally.answered,
                gave_up: tally.gave_up,
                faulted: tally.faulted,
                correct: None,
            })
            .collect();
    }

    /// Adds an event.
    pub(crate) fn record(&mut self, event: &Event) {
        match event {
            Event::Settled { configuration, status, correct, prompt_tokens, completion_tokens, .. } => {
                if let Some(one) = self.configurations.get_mut(*configuration) {
                    if *status == "answered" {
                        one.answered += 1;
                    } else {
                        one.gave_up += 1;
                    }
                    if let Some(correct) = correct {
                        let (so_far, scored) = one.correct.unwrap_or((0, 0));
                        one.correct = Some((so_far + u64::from(*correct), scored + 1));
                    }
                }
                self.throughput.count(Instant::now(), prompt_tokens + completion_tokens);
            }
            Event::Stopped { configuration, units, .. } => {
                if let Some(one) = self.configurations.get_mut(*configuration) {
                    one.planned = one.planned.saturating_sub(*units);
                }
            }
            Event::Duplicate { .. } => self.duplicates += 1,
            Event::Recovered { units } | Event::WorkerLost { recalled: units, .. } => self.recovered += units,
            _ => {}
        }
    }

    /// Takes the number of faulted units from the unit tracker: a late outcome can reduce it.
    pub(crate) fn set_faulted(&mut self, tallies: &[Tally]) {
        for (one, tally) in self.configurations.iter_mut().zip(tallies) {
            one.faulted = tally.faulted;
        }
    }

    pub(crate) fn fault(&mut self, unit: &UnitId, worker: &str, attempt: u32, fault: &Fault) {
        *self.faults.entry(fault.kind).or_default() += 1;
        self.recent_faults.truncate(FAULTS - 1);
        self.recent_faults.push_front(RecentFault {
            at_ms: Timestamp::now().as_millisecond(),
            unit: unit.clone(),
            worker: cut(worker),
            attempt,
            fault: Fault { kind: fault.kind, message: cut(&fault.message) },
        });
    }

    /// Returns the status of the run, at the present time.
    pub(crate) fn status(&self, session: &SessionName, state: RunState) -> RunStatus {
        let (units_per_second, tokens_per_second) = self.rates();
        RunStatus {
            protocol: PROTOCOL,
            run: session.run.clone(),
            name: session.name.clone(),
            state,
            host: host(),
            configurations: self.configurations.clone(),
            in_flight: self.in_flight,
            duplicates: self.duplicates,
            recovered: self.recovered,
            units_per_second,
            tokens_per_second,
            recent_faults: self.recent_faults.iter().cloned().collect(),
            faults: self.faults.clone(),
            started_ms: session.started_ms,
            written_ms: Timestamp::now().as_millisecond(),
        }
    }

    /// Recent units and tokens per second.
    pub(crate) fn rates(&self) -> (f64, f64) {
        self.throughput.rates(Instant::now())
    }
}

/// Returns the first [`LONGEST_TEXT`] bytes of a text from a worker, up to a character boundary.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST_TEXT)].to_owned()
}

#[cfg(test)]
mod tests {
    use lumos_tasks::ContentHash;

    use super::*;

    #[test]
    fn texts_of_recent_faults_are_cut() {
        let mut stats = RunStats::default();
        let unit = UnitId::new(ContentHash::of_bytes(b"unit"));
        let fault = |message: String| Fault { kind: FaultKind::Worker, message };
        stats.fault(&unit, "worker", 1, &fault("short".to_owned()));
        for _ in 0..FAULTS {
            // No character ends at the limit.
            let long = format!("a{}", "\u{e9}".repeat(1 << 20));
            stats.fault(&unit, &long, 1, &fault(long.clone()));
        }
        assert_eq!((stats.recent_faults.len(), stats.faults[&FaultKind::Worker]), (FAULTS, 21));
        let expected = format!("a{}", "\u{e9}".repeat(511));
        for recent in &stats.recent_faults {
            assert_eq!((&recent.worker, &recent.fault.message), (&expected, &expected));
        }
        stats.fault(&unit, "worker", 1, &fault("short".to_owned()));
        assert_eq!(stats.recent_faults[0].worker, "worker");
        assert_eq!(stats.recent_faults[0].fault.message, "short");
    }
}
