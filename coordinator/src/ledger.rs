//! The ledger: where every planned unit is.

use lumos_benchmarks::Scoring;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where the units of a configuration are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Units planned.
    pub planned: u64,
    /// Ended with a prediction.
    pub answered: u64,
    /// Ended without one, by the agent's own doing.
    pub gave_up: u64,
    /// The infrastructure failed at every attempt so far.
    pub faulted: u64,
    /// Nothing is recorded yet.
    pub outstanding: u64,
    /// How the answered units split, by scoring and metric.
    pub splits: Vec<Split>,
}

/// How answered units split under one metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The scoring.
    pub scoring: Scoring,
    /// The metric.
    pub metric: String,
    /// Units with the full score.
    pub correct: u64,
    /// Units with less.
    pub wrong: u64,
}

/// A ledger that does not balance: a mistake of the program, never of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// Units are missing, or there are too many.
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
        /// Of them correct.
        correct: u64,
        /// Of them wrong.
        wrong: u64,
        /// The scoring.
        scoring: Scoring,
        /// The metric.
        metric: String,
    },
}

impl Ledger {
    /// Whether the sums are right.
    ///
    /// # Errors
    /// The first sum that is not.
    pub fn check(&self) -> Result<(), LedgerError> {
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

    /// Whether every unit has its outcome.
    pub fn is_complete(&self) -> bool {
        self.faulted == 0 && self.outstanding == 0
    }

    /// Units that have their outcome.
    pub fn settled(&self) -> u64 {
        self.answered + self.gave_up
    }

    /// Adds another ledger's units; splits are dropped, since they belong to one benchmark.
    pub fn add(&mut self, other: &Self) {
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
