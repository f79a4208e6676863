//! Counters of an engine: [`Statistics`] is a snapshot of what the scheduler has done and of the KV cache's
//! use.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

/// An engine's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Steps computed.
    pub steps: u64,
    /// Tokens computed, including those computed again after a preemption.
    pub computed_tokens: u64,
    /// Tokens taken from the prefix cache instead of being computed.
    pub reused_tokens: u64,
    /// Sequences preempted in favour of older ones and resumed later.
    pub preemptions: u64,
    /// Cached pages evicted.
    pub evictions: u64,
    /// Running sequences.
    pub running: usize,
    /// Waiting sequences.
    pub waiting: usize,
    /// Pages held by sequences.
    pub held_pages: usize,
    /// Published pages without holders, kept for prefix reuse.
    pub cached_pages: usize,
    /// Pages in memory: held, cached or free.
    pub allocated_pages: usize,
    /// Maximum number of pages in the budget.
    pub page_limit: usize,
    /// Size of a page in bytes.
    pub page_bytes: usize,
}

/// The counters, written by the scheduler and read by any thread.
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

    /// The current values, for an engine with `page_limit` pages of `page_bytes` bytes.
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
