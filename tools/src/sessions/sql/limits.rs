//! Limits of a statement and of an episode.
//!
//! The cost of a statement on SQLite is limited by a [`Budget`], counted in instructions of SQLite's virtual machine.
//! SQLite checks the budget only between instructions. A function is one instruction however long it takes,
//! so functions and comparisons of long values charge by the size of their arguments ([`super::functions`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lumos_environments::sql::{Cell, Row};

/// Time limit of a statement, as set on the server.
pub(super) const STATEMENT_TIME: Duration = Duration::from_secs(5);
/// Message for a statement that exceeds its time or budget.
pub(super) const TOO_LONG: &str = "Query execution was interrupted (it takes too long)";
/// Start of the message of a statement that was stopped, also by MySQL and MariaDB.
pub(super) const INTERRUPTED: &str = "Query execution was interrupted";
/// Message for a statement that exceeds the memory of all SQLite databases together.
pub(super) const OUT_OF_MEMORY: &str = "out of memory";
/// Starts of the messages for statements that exceed a limit other than time and memory. Limits of SQLite and
/// of servers are set lower than their defaults.
const LIMITS: [&str; 15] = [
    "The result has more than ",
    "The result is larger than ",
    "A value of the result is longer than ",
    "Statements with more than ",
    "The episode has written more than ",
    "string or blob too big",
    "statement too long",
    "database or disk is full",
    "Expression tree is too large",
    "LIKE or GLOB pattern too complex",
    "not authorized",
    "too many arguments on ",
    "too many columns ",
    "too many terms in compound SELECT",
    "The SELECT would examine more than MAX_JOIN_SIZE rows",
];
/// Maximum number of rows in a result.
pub(super) const ROWS: usize = 20_000;
/// Maximum size of a cell, in bytes.
pub(super) const CELL_BYTES: usize = 256 << 10;
/// Maximum size of a result, in bytes of its cells. Each counts at least [`LEAST_BYTES`].
pub(super) const RESULT_BYTES: usize = 4 << 20;
/// Size that a short or empty cell counts in a result, in bytes.
const LEAST_BYTES: usize = 8;
/// Maximum number of instructions of a statement, reached in one to two seconds. The time limit is only a
/// second check, so that refusals do not depend on the machine's speed.
const INSTRUCTIONS: u64 = 60_000_000;
/// Time limit of a statement, whatever its cost.
pub(super) const LONGEST: Duration = STATEMENT_TIME.saturating_mul(4);

/// Whether the message of a failed statement is about a limit, so that the statement may be valid.
pub(super) fn is_limit(message: &str) -> bool {
    LIMITS.iter().any(|start| message.starts_with(start))
}

/// Counts the rows and bytes of a result.
#[derive(Debug, Default)]
pub(super) struct Meter {
    rows: usize,
    bytes: usize,
}

impl Meter {
    /// Counts a row.
    ///
    /// # Errors
    /// A message for the model if a limit is exceeded.
    pub(super) fn take(&mut self, row: &Row) -> Result<(), String> {
        self.rows += 1;
        if self.rows > ROWS {
            return Err(format!("The result has more than {ROWS} rows"));
        }
        for cell in row {
            let bytes = match cell {
                Cell::Text(text) | Cell::Decimal(text) => text.len(),
                Cell::Bytes(bytes) => bytes.len(),
                _ => LEAST_BYTES,
            };
            if bytes > CELL_BYTES {
                return Err(format!("A value of the result is longer than {CELL_BYTES} bytes"));
            }
            self.bytes += bytes.max(LEAST_BYTES);
        }
        if self.bytes > RESULT_BYTES {
            return Err(format!("The result is larger than {RESULT_BYTES} bytes"));
        }
        Ok(())
    }
}

/// Counts the cost of a statement.
#[derive(Debug)]
pub(super) struct Budget {
    spent: AtomicU64,
    /// Milliseconds from `origin` until the statement is stopped.
    deadline: AtomicU64,
    longest: Duration,
    origin: Instant,
    is_stopped: AtomicBool,
    /// Statement numbers: the running one, the latest one, and the latest one that was cancelled.
    running: AtomicU64,
    latest: AtomicU64,
    cancelled: AtomicU64,
}

/// Number of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StatementNumber(u64);

impl Budget {
    /// Creates a budget. Statements are stopped after `longest`, whatever their cost.
    pub(super) fn new(longest: Duration) -> Self {
        let (spent, is_stopped, running, latest, cancelled) = Default::default();
        let (deadline, origin) = (AtomicU64::new(u64::MAX), Instant::now());
        Self { spent, deadline, longest, origin, is_stopped, running, latest, cancelled }
    }

    /// Assigns a number to a new statement.
    pub(super) fn announce(&self) -> StatementNumber {
        StatementNumber(self.latest.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Starts a statement.
    pub(super) fn start(&self, statement: StatementNumber) {
        self.running.store(statement.0, Ordering::Relaxed);
        self.deadline.store(self.now().saturating_add(milliseconds(self.longest)), Ordering::Relaxed);
        self.start_again();
    }

    /// Restarts the running statement with the same deadline.
    pub(super) fn start_again(&self) {
        self.spent.store(0, Ordering::Relaxed);
        self.is_stopped.store(false, Ordering::Relaxed);
    }

    /// Charges a number of instructions. Returns whether the statement must stop.
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

    /// Whether the statement was stopped. Its result is then invalid.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Cancels a statement, which may not have started yet. It stops at its next charge.
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
    fn empty_cells_count_in_a_result() {
        let row: Row = vec![Cell::Text(String::new()); 100];
        let mut meter = Meter::default();
        let most = RESULT_BYTES / (100 * LEAST_BYTES);
        assert!((0..most).all(|_| meter.take(&row).is_ok()));
        assert_eq!(meter.take(&row), Err("The result is larger than 4194304 bytes".to_owned()));
    }

    #[test]
    fn a_statement_stops_when_its_budget_is_spent_or_it_is_cancelled() {
        let budget = Budget::new(LONGEST);
        let (first, second) = (budget.announce(), budget.announce());
        budget.start(first);
        assert!(!budget.charge(INSTRUCTIONS));
        assert!(budget.charge(1) && budget.is_stopped());
        budget.start(first);
        assert!(!budget.charge(1));
        budget.cancel(first);
        assert!(budget.charge(0), "the cancelled statement stops");
        budget.start(second);
        assert!(!budget.charge(0), "the next statement does not stop");
        let late = Budget::new(Duration::ZERO);
        late.start(late.announce());
        std::thread::sleep(Duration::from_millis(5));
        late.start_again();
        assert!(late.charge(0), "a restart keeps the deadline");
        let third = budget.announce();
        budget.cancel(third);
        budget.start(third);
        assert!(budget.charge(0), "a statement cancelled before its start stops immediately");
    }
}
