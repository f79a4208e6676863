//! What an engine has done so far.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

/// An engine's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Steps computed.
    pub steps: u64,
    /// Tokens computed, those computed again after a preemption included.
    pub computed_tokens: u64,
    /// Tokens taken from the cache instead.
    pub reused_tokens: u64,
    /// Sequences that had to give their memory to older ones and were resumed later.
    pub preemptions: u64,
    /// Cached pages given up for others.
    pub evictions: u64,
    /// Sequences in work.
    pub running: usize,
    /// Sequences that wait for a place.
    pub waiting: usize,
    /// Pages held by sequences.
    pub held_pages: usize,
    /// Pages kept in case a sequence begins with what they hold.
    pub cached_pages: usize,
    /// Pages in memory: held, cached or free.
    pub allocated_pages: usize,
    /// Most pages that the budget allows.
    pub page_limit: usize,
    /// Bytes of one page.
    pub page_bytes: usize,
}

/// The counters as the scheduler writes and everybody reads them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) steps: AtomicU64,
    pub(crate) computed_tokens: AtomicU64,
    pub(crate) reused_tokens: AtomicU64,
    pub(crate) preemptions: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) running: AtomicUsize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) held_pages: AtomicUsize,
    pub(crate) cached_pages: AtomicUsize,
    pub(crate) allocated_pages: AtomicUsize,
}

impl Counters {
    /// Adds to one of the counters.
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The values now, for an engine with so many pages of so many bytes.
    pub(crate) fn snapshot(&self, page_limit: usize, page_bytes: usize) -> Statistics {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let now = |gauge: &AtomicUsize| gauge.load(Ordering::Relaxed);
        Statistics {
            steps: total(&self.steps),
            computed_tokens: total(&self.computed_tokens),
            reused_tokens: total(&self.reused_tokens),
            preemptions: total(&self.preemptions),
            evictions: total(&self.evictions),
            running: now(&self.running),
            waiting: now(&self.waiting),
            held_pages: now(&self.held_pages),
            cached_pages: now(&self.cached_pages),
            allocated_pages: now(&self.allocated_pages),
            page_limit,
            page_bytes,
        }
    }
}
