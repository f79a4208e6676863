//! Schedules messages about long waits: after a limit, and then each time the wait has doubled. The functions
//! are pure: the caller passes the time and the reason for the wait.

use std::fmt::Display;
use std::time::Duration;

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
