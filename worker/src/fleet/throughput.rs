//! The throughput of a worker: totals, and the current rate.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Time window of the rates.
const WINDOW: Duration = Duration::from_secs(20);

/// Counts finished units and their tokens.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    units: AtomicU64,
    tokens: AtomicU64,
}

impl Throughput {
    /// Counts a unit whose result the server has stored.
    pub(crate) fn count(&self, tokens: u64) {
        self.units.fetch_add(1, Ordering::Relaxed);
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Returns the number of finished units.
    pub(crate) fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }
}

/// Current rates, from readings of a meter.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    readings: VecDeque<(Instant, u64, u64)>,
}

impl Rates {
    /// Reads the meter. Returns units and tokens per second since the oldest reading in the window.
    pub(crate) fn read(&mut self, meter: &Throughput, now: Instant) -> (f64, f64) {
        let reading = (now, meter.units(), meter.tokens.load(Ordering::Relaxed));
        while self.readings.front().is_some_and(|(at, ..)| now.duration_since(*at) > WINDOW) {
            self.readings.pop_front();
        }
        let (since, units, tokens) = *self.readings.front().unwrap_or(&reading);
        // Notices may follow each other closely; a reading every quarter of a second is enough.
        if self.readings.back().is_none_or(|(at, ..)| now.duration_since(*at) >= WINDOW / 80) {
            self.readings.push_back(reading);
        }
        let seconds = now.duration_since(since).as_secs_f64();
        if seconds < 0.001 {
            return (0.0, 0.0);
        }
        let per_second = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
        (per_second(units, reading.1), per_second(tokens, reading.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_late() {
        let (meter, mut rates) = (Throughput::default(), Rates::default());
        let start = Instant::now();
        assert_eq!(rates.read(&meter, start), (0.0, 0.0));
        for second in 1..=60 {
            for _ in 0..(if second <= 30 { 100 } else { 2 }) {
                meter.count(5);
            }
            rates.read(&meter, start + Duration::from_secs(second));
        }
        let (units, tokens) = rates.read(&meter, start + Duration::from_secs(60));
        assert!((units - 2.0).abs() < 0.01 && (tokens - 10.0).abs() < 0.05, "{units} {tokens}");
    }
}
