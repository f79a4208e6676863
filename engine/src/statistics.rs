//! Counters of an engine: [`Statistics`] is a snapshot of what the scheduler has done and of the KV cache's
//! use.

use std::sync::{Mutex, MutexGuard, PoisonError};

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
pub(crate) struct Counters(Mutex<Statistics>);

impl Counters {
    /// The counters of an engine with `page_limit` pages of `page_bytes` bytes.
    pub(crate) fn new(page_limit: usize, page_bytes: usize) -> Self {
        Self(Mutex::new(Statistics { page_limit, page_bytes, ..Statistics::default() }))
    }

    /// The current values, to read or to change.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Statistics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
