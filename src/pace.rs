//! How fast a recorded run settled its items, as the basis of estimates for longer runs. Performs no I/O.
//!
//! Episodes in progress share the models, so the time of one episode says little. By Little's law, a run settles
//! `in progress / mean seconds per episode` items per second, with everything included that takes part in its
//! time: models, tools, tokenizer, queue and checkpoint. At the start and at the end of a run, fewer episodes are in
//! progress. That time, the tail, does not grow with the number of items.

use std::collections::BTreeSet;

/// Times of one episode, and the worker that ran it.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// Start in milliseconds since 1970.
    pub(crate) started_ms: i64,
    pub(crate) seconds: f64,
    pub(crate) worker: String,
}

/// The pace of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Pace {
    /// Average number of episodes of one worker that were in progress together, in the middle half of the run.
    pub(crate) in_progress: f64,
    /// Seconds beyond those that the items would take if as many were in progress all the time.
    pub(crate) tail: f64,
}

impl Pace {
    /// Measures a run, or returns `None` without episodes. Times without an episode in progress, such as those
    /// between an interruption and its resumption, do not count.
    pub(crate) fn of(spans: &[Span]) -> Option<Self> {
        let workers = spans.iter().map(|span| &span.worker).collect::<BTreeSet<_>>().len();
        // Milliseconds at which an episode starts (1) or ends (-1), at least one later.
        let end =
            |span: &Span| span.started_ms.saturating_add((span.seconds * 1000.0).ceil().max(1.0) as i64);
        let mut changes: Vec<(i64, i32)> =
            spans.iter().flat_map(|span| [(span.started_ms, 1), (end(span), -1)]).collect();
        changes.sort_unstable();
        // Stretches of time with episodes in progress: milliseconds, and how many.
        let mut stretches = Vec::new();
        let (mut current, mut since) = (0_u32, 0);
        for (at, change) in changes {
            if current > 0 && at > since {
                stretches.push(((at - since) as f64, f64::from(current)));
            }
            since = at;
            current = current.checked_add_signed(change)?;
        }
        let active: f64 = stretches.iter().map(|(length, _)| length).sum();
        let (mut start, mut sum) = (0.0, 0.0);
        for (length, count) in stretches {
            let middle = f64::min(start + length, 0.75 * active) - f64::max(start, 0.25 * active);
            sum += middle.max(0.0) * count;
            start += length;
        }
        let in_progress = sum / (0.5 * active);
        if !in_progress.is_normal() {
            return None;
        }
        let all: f64 = spans.iter().map(|span| span.seconds).sum();
        let tail = active / 1000.0 - all / in_progress;
        Some(Self { in_progress: in_progress / workers as f64, tail: tail.max(0.0) })
    }

    /// Seconds of one worker per item whose episodes take `seconds` on average.
    pub(crate) fn per_item(self, seconds: f64) -> f64 {
        seconds / self.in_progress
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(started_ms: i64, seconds: f64, worker: &str) -> Span {
        Span { started_ms, seconds, worker: worker.to_owned() }
    }

    #[test]
    fn slots_in_use_set_the_pace() {
        // Two slots: 0 to 2 and 2 to 3, 0 to 1 and 1 to 2; then a pause, and one more second.
        let spans = [(0, 2.0), (2000, 1.0), (0, 1.0), (1000, 1.0), (60_000, 1.0)];
        let pace = Pace::of(&spans.map(|(at, seconds)| span(at, seconds, "a"))).unwrap();
        // One and a half in the second and third of four seconds.
        assert_eq!(pace, Pace { in_progress: 1.5, tail: 0.0 });
        assert_eq!(pace.per_item(6.0), 4.0);
        assert_eq!(Pace::of(&[]), None);
        assert!(Pace::of(&[span(5, 0.0, "a"), span(6, 0.0, "a")]).is_some());
    }

    #[test]
    fn slots_of_workers_are_counted_for_each() {
        let spans = [span(0, 4.0, "a"), span(0, 4.0, "b"), span(1000, 3.0, "b"), span(1000, 3.0, "a")];
        let pace = Pace::of(&spans).unwrap();
        assert_eq!(pace.in_progress, 2.0);
        assert_eq!(pace.tail, 0.5);
    }

    proptest! {
        /// A run of the same items takes the time that it took, or more if its middle was slower than its ends.
        #[test]
        fn the_run_itself_takes_its_time_at_least(
            times in prop::collection::vec((0_i64..100_000, 1_i64..50_000), 1..40)
        ) {
            let spans: Vec<Span> =
                times.iter().map(|(at, length)| span(*at, *length as f64 / 1000.0, "a")).collect();
            let pace = Pace::of(&spans).unwrap();
            let mean = spans.iter().map(|span| span.seconds).sum::<f64>() / spans.len() as f64;
            let estimated = pace.per_item(mean) * spans.len() as f64 + pace.tail;
            let mut busy = vec![false; 150_001];
            for (at, length) in times {
                busy[at as usize..(at + length) as usize].fill(true);
            }
            let active = busy.iter().filter(|busy| **busy).count() as f64 / 1000.0;
            prop_assert!(estimated > active - 0.1, "{estimated} {active}");
        }
    }
}
