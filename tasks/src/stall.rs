//! How a process without progress says what it waits for: after a limit, and then whenever the wait has become twice as
//! long. Pure: time is handed in, and whoever waits knows what for.

use std::fmt::Display;
use std::time::Duration;

/// When a long wait is to be said. A limit of zero is never reached.
#[derive(Debug, Clone, Copy)]
pub struct Reminder {
    limit: Duration,
    next: Duration,
}

impl Reminder {
    /// A reminder that is due once nothing has happened for `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { limit, next: limit }
    }

    /// Whether it is to be said now that nothing has happened for so long. A shorter time than the limit means that
    /// there was progress, and the count begins again.
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

/// What is said of a wait: what for, for how long and since when (a time of day), and what to do about it.
pub fn stall_message(wait: impl Display, hint: &str, silence: Duration, since: impl Display) -> String {
    format!("no progress for {} s (since {since}): waiting for {wait}\nhint: {hint}", silence.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

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
