//! Status figures of a session, computed from its events.

use std::collections::VecDeque;
use std::time::Instant;

use jiff::Timestamp;
use lumos_tasks::fleet::{ConfigurationStatus, RecentFault};
use lumos_tasks::{Fault, Throughput, UnitId};

use super::unit_tracker::Tally;
use crate::events::Event;

/// Number of recent faults to keep.
const FAULTS: usize = 20;

/// Status figures of a session.
#[derive(Debug)]
pub(crate) struct RunStats {
    pub(crate) configurations: Vec<ConfigurationStatus>,
    pub(crate) in_flight: u64,
    pub(crate) duplicates: u64,
    pub(crate) recovered: u64,
    pub(crate) recent_faults: VecDeque<RecentFault>,
    throughput: Throughput,
}

impl RunStats {
    pub(crate) fn new(labels: &[String], tallies: &[Tally]) -> Self {
        let configurations = labels
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
        Self {
            configurations,
            in_flight: 0,
            duplicates: 0,
            recovered: 0,
            recent_faults: VecDeque::new(),
            throughput: Throughput::since(Instant::now()),
        }
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
        self.recent_faults.truncate(FAULTS - 1);
        self.recent_faults.push_front(RecentFault {
            at_ms: Timestamp::now().as_millisecond(),
            unit: unit.clone(),
            worker: worker.to_owned(),
            attempt,
            fault: fault.clone(),
        });
    }

    /// Recent units and tokens per second.
    pub(crate) fn rates(&self) -> (f64, f64) {
        self.throughput.rates(Instant::now())
    }
}
