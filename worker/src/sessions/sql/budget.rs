//! What one statement on SQLite may use up, counted in instructions of its machine.
//!
//! The machine asks between instructions only. A function on long values is one instruction however long it takes, so
//! that functions and comparisons charge by the size of what they work on ([`super::functions`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::limits::STATEMENT_TIME;

/// Instructions that one statement may take: reached in one to two seconds. Time itself is looked at only beside it, so
/// that what is refused does not depend on the machine.
const INSTRUCTIONS: u64 = 60_000_000;
/// The longest time of one statement, whatever it is charged.
pub(super) const LONGEST: Duration = STATEMENT_TIME.saturating_mul(4);

/// Counts what a statement takes.
#[derive(Debug)]
pub(super) struct Budget {
    spent: AtomicU64,
    /// Milliseconds from `origin` until the statement is stopped.
    deadline: AtomicU64,
    longest: Duration,
    origin: Instant,
    is_stopped: AtomicBool,
    /// Numbers of statements: the one that runs, the latest, and the latest that nobody waits for any more.
    running: AtomicU64,
    latest: AtomicU64,
    cancelled: AtomicU64,
}

/// A statement's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StatementNumber(u64);

impl Default for Budget {
    fn default() -> Self {
        Self::new(LONGEST)
    }
}

impl Budget {
    /// A budget whose statements may take `longest`, whatever they are charged.
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            spent: AtomicU64::new(0),
            deadline: AtomicU64::new(u64::MAX),
            longest,
            origin: Instant::now(),
            is_stopped: AtomicBool::new(false),
            running: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
        }
    }

    /// Announces a statement.
    pub(super) fn announce(&self) -> StatementNumber {
        StatementNumber(self.latest.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// A statement begins.
    pub(super) fn start(&self, statement: StatementNumber) {
        self.running.store(statement.0, Ordering::Relaxed);
        self.deadline.store(self.now().saturating_add(milliseconds(self.longest)), Ordering::Relaxed);
        self.start_again();
    }

    /// The statement that runs begins again, within the time that it has left.
    pub(super) fn start_again(&self) {
        self.spent.store(0, Ordering::Relaxed);
        self.is_stopped.store(false, Ordering::Relaxed);
    }

    /// Counts so many instructions; whether the statement must stop.
    pub(super) fn charge(&self, instructions: u64) -> bool {
        let spent = self.spent.fetch_add(instructions, Ordering::Relaxed).saturating_add(instructions);
        if spent > INSTRUCTIONS
            || self.cancelled.load(Ordering::Relaxed) >= self.running.load(Ordering::Relaxed)
            || self.now() > self.deadline.load(Ordering::Relaxed)
        {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        self.is_stopped()
    }

    /// Whether the statement was stopped: what it gave since then means nothing.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Stops a statement at its next charge, whether it has begun or not: nobody waits for it any more.
    pub(super) fn cancel(&self, statement: StatementNumber) {
        self.cancelled.fetch_max(statement.0, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        milliseconds(self.origin.elapsed())
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_stops_when_its_budget_is_spent_or_it_is_cancelled() {
        let budget = Budget::default();
        let (first, second) = (budget.announce(), budget.announce());
        budget.start(first);
        assert!(!budget.charge(INSTRUCTIONS));
        assert!(budget.charge(1) && budget.is_stopped());
        budget.start(first);
        assert!(!budget.charge(1));
        budget.cancel(first);
        assert!(budget.charge(0), "a cancelled statement stops");
        budget.start(second);
        assert!(!budget.charge(0), "the next one does not");
        let late = Budget::new(Duration::ZERO);
        late.start(late.announce());
        std::thread::sleep(Duration::from_millis(5));
        late.start_again();
        assert!(late.charge(0), "its time is not that of another statement");
        let third = budget.announce();
        budget.cancel(third);
        budget.start(third);
        assert!(budget.charge(0), "one that was cancelled before it began stops at once");
    }
}
