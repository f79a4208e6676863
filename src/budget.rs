//! Cost limit for models (`--max-cost`).
//!
//! The session ends when the units in progress are expected to use up the rest of the limit, or when the cost of a
//! unit is unknown.

use std::fmt;

use lumos_models::Price;
use lumos_tasks::NanoDollars;

/// A limit in US dollars, and the amount spent.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: f64,
    /// Price of the model; `None` if it costs nothing.
    price: Option<Price>,
    /// Spent by earlier sessions.
    before: NanoDollars,
    /// Spent by this session.
    now: NanoDollars,
    /// Number of units of this session.
    units: u64,
    /// Whether a unit has neither a recorded cost nor token counts, although the model has a price.
    is_unknown: bool,
    reached: bool,
}

impl Budget {
    /// Creates a budget with a limit in US dollars.
    pub(crate) fn new(limit: f64, price: Option<Price>) -> Self {
        let nothing = NanoDollars::default();
        Self {
            limit,
            price: price.filter(|price| price.read > 0.0 || price.written > 0.0),
            before: nothing,
            now: nothing,
            units: 0,
            is_unknown: false,
            reached: limit <= 0.0,
        }
    }

    /// Adds a unit of an earlier session, with its recorded cost and its prompt and generated tokens.
    pub(crate) fn add_earlier(&mut self, cost: Option<NanoDollars>, tokens: (u64, u64)) {
        let cost = self.cost(cost, tokens);
        self.before += cost;
        self.reached |= self.is_unknown || self.before.dollars() >= self.limit;
    }

    /// Adds a unit, with its recorded cost and its prompt and generated tokens. Returns whether no more units may be
    /// given out, because its cost is unknown or the `at_hand` units in progress would use up the rest of the budget
    /// at the average cost so far.
    pub(crate) fn spend(&mut self, cost: Option<NanoDollars>, tokens: (u64, u64), at_hand: u64) -> bool {
        let cost = self.cost(cost, tokens);
        self.now += cost;
        self.units += 1;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let ahead = self.now.dollars() / self.units as f64 * at_hand as f64;
        self.reached |= self.is_unknown || (self.total() > 0.0 && self.total() + ahead >= self.limit);
        self.reached
    }

    /// Returns the cost of a unit. Workers without the price record none, so it is computed from the tokens.
    fn cost(&mut self, recorded: Option<NanoDollars>, (read, written): (u64, u64)) -> NanoDollars {
        let (None, Some(price)) = (recorded, self.price) else { return recorded.unwrap_or_default() };
        self.is_unknown |= (read, written) == (0, 0);
        let count = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        price.of(count(read), count(written))
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
        if self.is_unknown {
            return formatter.write_str(
                "a verdict has no token counts, so its cost is unknown: --max-cost needs a server that \
                 reports usage",
            );
        }
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
    const PRICE: Option<Price> = Some(Price { read: 10.0, written: 20.0 });
    /// Cost one cent at [`PRICE`].
    const TOKENS: (u64, u64) = (800, 100);

    #[test]
    fn what_is_at_hand_counts_as_spent() {
        let mut budget = Budget::new(0.05, PRICE);
        let stops: Vec<_> = (0..4).map(|_| budget.spend(CENT, TOKENS, 2)).collect();
        assert_eq!(stops, [false, false, true, true]);
        assert!(budget.to_string().starts_with("spent 0.0400 US dollars"));
    }

    #[test]
    fn the_number_of_units_in_progress_may_change() {
        // Workers join: five units in progress would cost more than what is left.
        let mut budget = Budget::new(0.065, PRICE);
        let stops = [0, 2, 5].map(|at_hand| budget.spend(CENT, TOKENS, at_hand));
        assert_eq!(stops, [false, false, true]);
        // The last units are in progress and fit.
        let mut budget = Budget::new(0.065, PRICE);
        assert_eq!([5, 4, 3, 2, 1, 0].map(|at_hand| budget.spend(CENT, TOKENS, at_hand)), [false; 6]);
    }

    #[test]
    fn earlier_sessions_count_and_what_costs_nothing_is_not_limited() {
        let mut budget = Budget::new(0.01, PRICE);
        assert!(!budget.is_reached());
        budget.add_earlier(CENT, TOKENS);
        assert!(budget.is_reached());
        for free in [None, Some(Price { read: 0.0, written: 0.0 })] {
            let mut budget = Budget::new(0.01, free);
            budget.add_earlier(None, (0, 0));
            assert!(!budget.spend(None, (0, 0), 100) && !budget.is_reached());
        }
        assert!(Budget::new(0.0, PRICE).is_reached());
    }

    #[test]
    fn costs_that_workers_do_not_record_are_computed_from_the_tokens() {
        let mut budget = Budget::new(0.05, PRICE);
        budget.add_earlier(None, TOKENS);
        assert_eq!([1, 2].map(|at_hand| budget.spend(None, TOKENS, at_hand)), [false, true]);
        assert!(budget.to_string().starts_with("spent 0.0300 US dollars"));
        // A recorded cost is at the price of the worker.
        let mut budget = Budget::new(0.05, PRICE);
        assert!(!budget.spend(Some(NanoDollars(1)), TOKENS, 4));
    }

    #[test]
    fn an_unknown_cost_reaches_the_limit() {
        let mut budget = Budget::new(1.0, PRICE);
        assert!(budget.spend(None, (0, 0), 0) && budget.is_reached());
        assert!(budget.to_string().contains("no token counts"));
        let mut budget = Budget::new(1.0, PRICE);
        budget.add_earlier(None, (0, 0));
        assert!(budget.is_reached());
    }
}
