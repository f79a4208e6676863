//! The progress of a run or a worker. The caller passes the time.
//!
//! [`Throughput`] measures units and tokens per second over the latest 20 seconds, which progress lines, the status of
//! runs and the notices of workers show. [`Reminder`] schedules messages about waits without progress: after a limit,
//! and then each time the wait has doubled.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Units that finish in the same step are counted together. In milliseconds.
const STEP: u64 = 250;
/// Number of steps over which rates are averaged.
const STEPS: u64 = 80;
/// Shortest time over which rates are averaged: the first units of a run are no basis for a rate. In milliseconds.
const SHORTEST: u64 = 500;

/// Counts finished units and their tokens. Several threads may share it.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use lumos_tasks::Throughput;
///
/// let began = Instant::now();
/// let throughput = Throughput::since(began);
/// throughput.count(began + Duration::from_secs(1), 500);
/// throughput.count(began + Duration::from_secs(2), 700);
/// assert_eq!(throughput.rates(began + Duration::from_secs(4)), (0.5, 300.0));
/// ```
#[derive(Debug)]
pub struct Throughput {
    began: Instant,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    units: u64,
    recent: VecDeque<Step>,
}

/// Units and tokens that were counted in one step.
#[derive(Debug)]
struct Step {
    number: u64,
    units: u64,
    tokens: u64,
}

impl Throughput {
    /// Creates a measurement that begins at `began`.
    pub fn since(began: Instant) -> Self {
        Self { began, counts: Mutex::default() }
    }

    /// Counts a unit that finished at `now`, and its tokens.
    pub fn count(&self, now: Instant, tokens: u64) {
        let number = self.milliseconds(now) / STEP;
        let mut counts = self.counts();
        counts.units += 1;
        match counts.recent.back_mut() {
            Some(last) if last.number == number => {
                last.units += 1;
                last.tokens += tokens;
            }
            _ => counts.recent.push_back(Step { number, units: 1, tokens }),
        }
        while counts.recent.front().is_some_and(|first| first.number + STEPS <= number) {
            counts.recent.pop_front();
        }
    }

    /// Returns the number of units counted so far.
    pub fn units(&self) -> u64 {
        self.counts().units
    }

    /// Returns the recent units and tokens per second.
    pub fn rates(&self, now: Instant) -> (f64, f64) {
        let elapsed = self.milliseconds(now);
        let first = (elapsed / STEP).saturating_sub(STEPS - 1);
        let counts = self.counts();
        let recent = counts.recent.iter().filter(|step| step.number >= first);
        let (units, tokens) =
            recent.fold((0, 0), |(units, tokens), step| (units + step.units, tokens + step.tokens));
        let seconds = (elapsed - first * STEP).max(SHORTEST) as f64 / 1000.0;
        (units as f64 / seconds, tokens as f64 / seconds)
    }

    /// Returns the time since the measurement began.
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        u64::try_from(self.elapsed(now).as_millis()).unwrap_or(u64::MAX)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides when a message about a long wait is due. A limit of zero means never.
#[derive(Debug, Clone, Copy)]
pub struct Reminder {
    limit: Duration,
    next: Duration,
}

impl Reminder {
    /// A reminder that is due after `limit` without progress.
    pub fn new(limit: Duration) -> Self {
        Self { limit, next: limit }
    }

    /// Whether a message is due after `silence` without progress. A duration shorter than the limit means
    /// that there was progress, and restarts the schedule.
    pub fn is_due(&mut self, silence: Duration) -> bool {
        if silence < self.limit {
            self.next = self.limit;
        }
        let due = silence >= self.next && !self.limit.is_zero();
        if due {
            self.next = silence * 2;
        }
        due
    }
}

/// The message: what the process waits for, for how long and since when (a time of day), with a hint.
pub fn stall_message(wait: impl Display, hint: &str, silence: Duration, since: impl Display) -> String {
    format!("no progress for {} s (since {since}): waiting for {wait}\nhint: {hint}", silence.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(began: Instant, milliseconds: u64) -> Instant {
        began + Duration::from_millis(milliseconds)
    }

    #[test]
    fn rates_are_those_of_the_latest_twenty_seconds() {
        let began = Instant::now();
        let throughput = Throughput::since(began);
        assert_eq!(throughput.rates(began), (0.0, 0.0));
        for second in 0..60 {
            for _ in 0..(if second < 30 { 100 } else { 2 }) {
                throughput.count(at(began, second * 1000 + 500), 5);
            }
        }
        let (units, tokens) = throughput.rates(at(began, 60_000));
        assert!((units - 2.0).abs() < 0.03 && (tokens - 10.0).abs() < 0.15, "{units} {tokens}");
        assert_eq!(throughput.units(), 3060);
        assert!(throughput.counts().recent.len() <= STEPS as usize);
        // Rates decline without units, down to zero.
        assert_eq!(throughput.rates(at(began, 79_000)).0, 2.0 / 19.75);
        assert_eq!(throughput.rates(at(began, 90_000)), (0.0, 0.0));
    }

    #[test]
    fn a_constant_rate_is_exact_at_every_time() {
        let began = Instant::now();
        let throughput = Throughput::since(began);
        for count in 0..10_000 {
            throughput.count(at(began, count * 5), 40);
            if count % 50 == 49 {
                assert_eq!(
                    throughput.rates(at(began, (count + 1) * 5)),
                    match count {
                        // The rate of the first half second counts as much as that of a whole one.
                        49 => (100.0, 4000.0),
                        _ => (200.0, 8000.0),
                    }
                );
            }
        }
    }

    #[test]
    fn times_before_the_begin_and_out_of_order_are_accepted() {
        let began = at(Instant::now(), 1000);
        let throughput = Throughput::since(began);
        for milliseconds in [1500, 0, 700] {
            throughput.count(began - Duration::from_millis(milliseconds), 1);
        }
        throughput.count(at(began, 900), 1);
        throughput.count(at(began, 300), 1);
        assert_eq!(throughput.rates(at(began, 1000)), (5.0, 5.0));
        assert_eq!(throughput.elapsed(began - Duration::from_millis(1)), Duration::ZERO);
    }

    #[test]
    fn a_long_wait_is_said_now_and_then_and_anew_after_progress() {
        let mut reminder = Reminder::new(Duration::from_secs(10));
        let said: Vec<u64> =
            (0..100).filter(|second| reminder.is_due(Duration::from_secs(*second))).collect();
        assert_eq!(said, [10, 20, 40, 80]);
        assert!(!reminder.is_due(Duration::from_secs(1)));
        assert!(reminder.is_due(Duration::from_secs(10)));
        let mut never = Reminder::new(Duration::ZERO);
        assert!(!never.is_due(Duration::from_secs(1000)));
    }
}
