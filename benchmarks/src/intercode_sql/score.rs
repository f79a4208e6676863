//! Scores episodes on a database.

use lumos_tasks::outcome::SqlEvidence;
use lumos_tasks::{Evidence, Outcome};

use super::MAX_TURNS;
use crate::metrics::{MetricDefinition, MetricKind, Unit};
use crate::score::{ItemScore, Scoring, Share};

/// Fraction of items solved by at least one attempt.
pub(super) const SUCCESS_RATE: MetricDefinition = MetricDefinition::proportion(
    "success_rate",
    "share of items whose highest reward is 1 (corrected: whose rows are the gold query's)",
);

/// Mean over items of the highest reward.
pub(super) const REWARD: MetricDefinition = MetricDefinition {
    kind: MetricKind::BoundedMean { least: -1.0, most: 1.0 },
    ..MetricDefinition::unit_mean("reward", "mean of the items' highest rewards (corrected: not below 0)")
};

/// Number of turns.
pub(super) const TURNS: MetricDefinition = MetricDefinition {
    kind: MetricKind::BoundedMean { least: 0.0, most: MAX_TURNS as f64 },
    unit: Unit::Count("turns"),
    higher_is_better: false,
    ..MetricDefinition::unit_mean("turns", "mean of the turns an item took")
};

/// Fraction of graded items whose gold query returns no rows.
pub(super) const EMPTY_GOLD: MetricDefinition = MetricDefinition {
    higher_is_better: false,
    ..MetricDefinition::proportion(
        "empty_gold",
        "share of graded items whose gold query gives no rows, so that any empty result earns 1",
    )
};

/// Success rate without items that every empty result solves.
pub(super) const SUCCESS_WITH_ROWS: MetricDefinition = MetricDefinition::proportion(
    "success_rate_with_rows",
    "success rate of the items whose gold query gives rows",
);

/// Scores an outcome; `None` for a fault.
pub(super) fn score(outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
    if outcome.is_fault() {
        return None;
    }
    let nothing = SqlEvidence::default();
    let evidence = match &outcome.evidence {
        Some(Evidence::Sql(evidence)) => evidence,
        _ => &nothing,
    };
    let reward = evidence.best().map_or(0.0, |(_, reward)| reward);
    let (is_solved, reward) = match scoring {
        Scoring::Paper => (reward == 1.0, reward),
        Scoring::Corrected => {
            let is_same = evidence.tries.iter().any(|one| one.grade.is_some_and(|grade| grade.is_same));
            (is_same, if is_same { 1.0 } else { reward.clamp(0.0, 1.0) })
        }
    };
    let mut score = ItemScore::met(SUCCESS_RATE.name, is_solved)
        .with(REWARD.name, Share::once(reward))
        .with(TURNS.name, Share::once(f64::from(evidence.turns)));
    let empty_gold = evidence.tries.iter().find_map(|one| one.grade).map(|grade| grade.empty_gold);
    if let Some(empty) = empty_gold {
        score = score.with(EMPTY_GOLD.name, Share::once(f64::from(empty)));
    }
    // An item that was never graded has an unknown gold result, and was not solved in either case.
    if empty_gold != Some(true) {
        score = score.with(SUCCESS_WITH_ROWS.name, Share::once(f64::from(is_solved)));
    }
    Some(score)
}

#[cfg(test)]
mod tests {
    use lumos_tasks::outcome::SqlTry;
    use lumos_tasks::{Ending, SqlGrade};

    use super::*;

    fn outcome(rewards: &[(f64, bool, bool)]) -> Outcome {
        let tried = |(reward, is_same, empty_gold): &(f64, bool, bool)| SqlTry {
            action: String::new(),
            observation: String::new(),
            executed: true,
            reward: *reward,
            grade: Some(SqlGrade {
                reward: *reward,
                is_same: *is_same,
                corrupt_gold: false,
                empty_gold: *empty_gold,
            }),
        };
        let tries: Vec<_> = rewards.iter().map(tried).collect();
        let turns = u32::try_from(tries.len()).unwrap();
        let evidence = SqlEvidence { tries, turns, ..SqlEvidence::default() };
        Outcome { ending: Ending::Answered, evidence: Some(Evidence::Sql(evidence)), steps: Vec::new() }
    }

    fn value(outcome: &Outcome, scoring: Scoring, metric: &str) -> Option<f64> {
        score(outcome, scoring).unwrap().share(metric).map(|share| share.numerator)
    }

    #[test]
    fn the_highest_reward_counts() {
        let tried = outcome(&[(0.5, false, false), (0.99, true, false), (-1.0, false, false)]);
        let both = |metric| Scoring::ALL.map(|scoring| value(&tried, scoring, metric).unwrap());
        assert_eq!(both("success_rate"), [0.0, 1.0]);
        assert_eq!(both("reward"), [0.99, 1.0]);
        assert_eq!(both("turns"), [3.0, 3.0]);
    }

    #[test]
    fn items_with_an_empty_gold_result_are_told_apart() {
        let solved = outcome(&[(1.0, true, true)]);
        assert_eq!(value(&solved, Scoring::Paper, "empty_gold"), Some(1.0));
        assert_eq!(value(&solved, Scoring::Paper, "success_rate_with_rows"), None);
        let untried = outcome(&[]);
        assert_eq!(value(&untried, Scoring::Paper, "success_rate_with_rows"), Some(0.0));
        assert_eq!(value(&untried, Scoring::Paper, "empty_gold"), None);
    }
}
