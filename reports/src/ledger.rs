//! Ledger: the balance of a configuration's planned units.
//!
//! [`Ledger::check`] verifies that planned = answered + gave up + faulted + outstanding, and that correct and
//! wrong units add up to the answered ones.

use lumos_benchmarks::Scoring;
use serde::Serialize;
use thiserror::Error;

/// Number of units of a configuration by state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Units planned.
    pub planned: u64,
    /// Units that ended with a prediction.
    pub answered: u64,
    /// Units that ended without a prediction, caused by the agent.
    pub gave_up: u64,
    /// Units of which every attempt so far ended with a fault.
    pub faulted: u64,
    /// Units without a record.
    pub outstanding: u64,
    /// Correct and wrong answered units, by scoring and metric.
    pub(crate) splits: Vec<Split>,
}

/// Correct and wrong answered units under one metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Split {
    /// The scoring.
    pub(crate) scoring: Scoring,
    /// The metric.
    pub(crate) metric: String,
    /// Units with the full score.
    pub(crate) correct: u64,
    /// Units with a lower score.
    pub(crate) wrong: u64,
}

/// A ledger that does not balance. This is a bug in lumos, not an error of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// The states do not add up to the number of planned units.
    #[error(
        "planned {planned} != answered {answered} + gave up {gave_up} + faulted {faulted} + outstanding {outstanding}",
        planned = .0.planned, answered = .0.answered, gave_up = .0.gave_up, faulted = .0.faulted,
        outstanding = .0.outstanding
    )]
    Units(Box<Ledger>),
    /// A split does not cover the answered units.
    #[error("answered {answered} != correct {correct} + wrong {wrong} under {scoring:?} {metric}")]
    Split {
        /// Units answered.
        answered: u64,
        /// Correct units among them.
        correct: u64,
        /// Wrong units among them.
        wrong: u64,
        /// The scoring.
        scoring: Scoring,
        /// The metric.
        metric: String,
    },
}

impl Ledger {
    /// Checks that the sums balance.
    ///
    /// # Errors
    /// The first sum that does not balance.
    pub(crate) fn check(&self) -> Result<(), LedgerError> {
        let found = [self.answered, self.gave_up, self.faulted, self.outstanding]
            .iter()
            .try_fold(0u64, |sum, part| sum.checked_add(*part));
        if found != Some(self.planned) {
            return Err(LedgerError::Units(Box::new(self.clone())));
        }
        for split in &self.splits {
            if split.correct.checked_add(split.wrong) != Some(self.answered) {
                return Err(LedgerError::Split {
                    answered: self.answered,
                    correct: split.correct,
                    wrong: split.wrong,
                    scoring: split.scoring,
                    metric: split.metric.clone(),
                });
            }
        }
        Ok(())
    }

    /// Whether every unit is settled.
    pub fn is_complete(&self) -> bool {
        self.faulted == 0 && self.outstanding == 0
    }

    /// Number of settled units.
    pub(crate) fn settled(&self) -> u64 {
        self.answered + self.gave_up
    }

    /// Adds the units of another ledger. Drops the splits, which belong to one benchmark.
    pub(crate) fn add(&mut self, other: &Self) {
        self.planned += other.planned;
        self.answered += other.answered;
        self.gave_up += other.gave_up;
        self.faulted += other.faulted;
        self.outstanding += other.outstanding;
        self.splits.clear();
    }
}

impl std::fmt::Display for Ledger {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { planned, answered, gave_up, faulted, outstanding, .. } = self;
        write!(
            formatter,
            "planned {planned} = answered {answered} + gave up {gave_up} + faulted {faulted} + outstanding {outstanding}"
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn only_a_balanced_ledger_passes(parts in any::<[u16; 4]>(), correct in any::<u16>(), off in 0u64..3) {
            let [answered, gave_up, faulted, outstanding] = parts.map(u64::from);
            let correct = u64::from(correct).min(answered);
            let split = |wrong| Split { scoring: Scoring::Paper, metric: "exact_match".to_owned(), correct, wrong };
            let planned = answered + gave_up + faulted + outstanding;
            let mut ledger =
                Ledger { planned: planned + off, answered, gave_up, faulted, outstanding, splits: Vec::new() };
            prop_assert_eq!(ledger.check().is_ok(), off == 0);
            ledger.planned = planned;
            ledger.splits = vec![split(answered - correct + off)];
            prop_assert_eq!(ledger.check().is_ok(), off == 0);
        }
    }

    #[test]
    fn sums_that_overflow_do_not_balance() {
        let ledger = Ledger { planned: 0, answered: u64::MAX, gave_up: 1, ..Ledger::default() };
        assert!(ledger.check().unwrap_err().to_string().starts_with("planned 0 != answered"));
    }
}
