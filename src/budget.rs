//! Cost limit for models (`--max-cost`).
//!
//! The session ends when the units in progress are expected to use up the rest of the limit.

use std::fmt;

use lumos_tasks::NanoDollars;

/// A limit in US dollars, and the amount spent.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: f64,
    /// Spent by earlier sessions.
    before: NanoDollars,
    /// Spent by this session.
    now: NanoDollars,
    /// Number of units of this session.
    units: u64,
    reached: bool,
}

impl Budget {
    /// Creates a budget with a limit in US dollars and the amount that earlier sessions spent.
    pub(crate) fn new(limit: f64, before: NanoDollars) -> Self {
        let reached = before.dollars() >= limit;
        Self { limit, before, now: NanoDollars::default(), units: 0, reached }
    }

    /// Adds the cost of a unit. Returns whether no more units may be given out, because the `at_hand` units in
    /// progress would use up the rest of the budget at the average cost so far.
    pub(crate) fn spend(&mut self, cost: Option<NanoDollars>, at_hand: u64) -> bool {
        self.now += cost.unwrap_or_default();
        self.units += 1;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let ahead = self.now.dollars() / self.units as f64 * at_hand as f64;
        self.reached |= self.total() > 0.0 && self.total() + ahead >= self.limit;
        self.reached
    }

    /// Whether the budget is used up.
    pub(crate) fn is_reached(&self) -> bool {
        self.reached
    }

    fn total(&self) -> f64 {
        self.before.dollars() + self.now.dollars()
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "spent {:.4} US dollars; with questions in progress this reaches --max-cost {}",
            self.total(),
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
        let mut budget = Budget::new(0.05, NanoDollars(0));
        let stops: Vec<_> = (0..4).map(|_| budget.spend(CENT, 2)).collect();
        assert_eq!(stops, [false, false, true, true]);
        assert!(budget.to_string().starts_with("spent 0.0400 US dollars"));
    }

    #[test]
    fn the_number_of_units_in_progress_may_change() {
        // Workers join: five units in progress would cost more than what is left.
        let mut budget = Budget::new(0.065, NanoDollars(0));
        assert_eq!([0, 2, 5].map(|at_hand| budget.spend(CENT, at_hand)), [false, false, true]);
        // The last units are in progress and fit.
        let mut budget = Budget::new(0.065, NanoDollars(0));
        assert_eq!([5, 4, 3, 2, 1, 0].map(|at_hand| budget.spend(CENT, at_hand)), [false; 6]);
    }

    #[test]
    fn earlier_sessions_count_and_what_costs_nothing_is_not_limited() {
        assert!(Budget::new(0.01, NanoDollars(10_000_000)).is_reached());
        let mut budget = Budget::new(0.01, NanoDollars(0));
        assert!(!budget.spend(None, 100) && !budget.is_reached());
        assert!(Budget::new(0.0, NanoDollars(0)).is_reached());
    }
}
