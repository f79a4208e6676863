//! Cost limit for models (`--max-cost`).
//!
//! The session ends when the units in progress are expected to use up the rest of the limit.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lumos_tasks::NanoDollars;

/// A limit in US dollars, and the amount spent.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: f64,
    /// Number of units in progress at the same time.
    at_hand: u64,
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    before: NanoDollars,
    now: NanoDollars,
    units: u64,
    reached: bool,
}

impl Budget {
    /// Creates a budget with a limit in US dollars, the amount that earlier sessions spent and the number of units
    /// in progress at the same time.
    pub(crate) fn new(limit: f64, before: NanoDollars, at_hand: u64) -> Self {
        let reached = before.dollars() >= limit;
        Self { limit, at_hand, spent: Mutex::new(Spent { before, reached, ..Spent::default() }) }
    }

    /// Adds the cost of a unit. Returns whether no more units may be given out, because the units in progress
    /// would use up the rest of the budget at the average cost so far.
    pub(crate) fn spend(&self, cost: Option<NanoDollars>) -> bool {
        let mut spent = self.spent();
        spent.now += cost.unwrap_or_default();
        spent.units += 1;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let ahead = spent.now.dollars() / spent.units as f64 * self.at_hand as f64;
        spent.reached |= spent.total() > 0.0 && spent.total() + ahead >= self.limit;
        spent.reached
    }

    /// Whether the budget is used up.
    pub(crate) fn is_reached(&self) -> bool {
        self.spent().reached
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spent {
    fn total(&self) -> f64 {
        self.before.dollars() + self.now.dollars()
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "spent {:.4} US dollars; with questions in progress this reaches --max-cost {}",
            self.spent().total(),
            self.limit
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CENT: Option<NanoDollars> = Some(NanoDollars(10_000_000));

    #[test]
    fn what_is_at_hand_counts_as_spent() {
        let budget = Budget::new(0.05, NanoDollars(0), 2);
        let stops: Vec<_> = (0..4).map(|_| budget.spend(CENT)).collect();
        assert_eq!(stops, [false, false, true, true]);
        assert!(budget.to_string().starts_with("spent 0.0400 US dollars"));
    }

    #[test]
    fn earlier_sessions_count_and_what_costs_nothing_is_not_limited() {
        assert!(Budget::new(0.01, NanoDollars(10_000_000), 1).is_reached());
        let budget = Budget::new(0.01, NanoDollars(0), 100);
        assert!(!budget.spend(None) && !budget.is_reached());
        assert!(Budget::new(0.0, NanoDollars(0), 1).is_reached());
    }
}
