//! Status figures of a session, computed from its events.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use lumos_tasks::fleet::{ConfigurationStatus, RecentFault};
use lumos_tasks::{Fault, UnitId};

use super::unit_tracker::Tally;
use crate::events::Event;

/// Time over which rates are averaged.
const WINDOW: Duration = Duration::from_secs(20);
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
    began: Instant,
    /// Units and tokens per second of the session.
    recent: VecDeque<(u64, u64, u64)>,
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
            began: Instant::now(),
            recent: VecDeque::new(),
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
                self.count(prompt_tokens + completion_tokens);
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

    fn count(&mut self, tokens: u64) {
        let now = self.began.elapsed().as_secs();
        match self.recent.back_mut() {
            Some((second, units, so_far)) if *second == now => {
                *units += 1;
                *so_far += tokens;
            }
            _ => self.recent.push_back((now, 1, tokens)),
        }
        self.forget(now);
    }

    fn forget(&mut self, now: u64) {
        while self.recent.front().is_some_and(|(second, ..)| second + WINDOW.as_secs() < now) {
            self.recent.pop_front();
        }
    }

    /// Recent units and tokens per second.
    pub(crate) fn rates(&mut self) -> (f64, f64) {
        let elapsed = self.began.elapsed();
        self.forget(elapsed.as_secs());
        let seconds = elapsed.min(WINDOW).as_secs_f64().max(0.5);
        let (units, tokens) = self
            .recent
            .iter()
            .fold((0u64, 0u64), |(units, tokens), (_, more, further)| (units + more, tokens + further));
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let rate = |count: u64| count as f64 / seconds;
        (rate(units), rate(tokens))
    }
}
