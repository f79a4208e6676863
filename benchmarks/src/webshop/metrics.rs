//! Scores shopping episodes.

use lumos_tasks::families::shop::{End, Purchase, ShopEvidence};
use lumos_tasks::{Evidence, Outcome};

use crate::metrics::MetricDefinition;
use crate::score::{ItemScore, Scoring, Share};

/// The reward. Paper scoring divides by the number of items that ended, corrected scoring by all items.
pub(super) const REWARD: MetricDefinition = MetricDefinition::unit_mean(
    "reward",
    "reward of what was bought: attributes, options, price and kind of product",
);

/// Items with the full reward.
const SUCCESS: MetricDefinition = MetricDefinition::proportion("success", "items with the full reward");

/// The lowest reward that any nouns in titles could yield; the original finds the nouns with a tagger.
const LOWEST: MetricDefinition = MetricDefinition::unit_mean(
    "reward_lowest",
    "the reward if another part-of-speech tagger judged titles as strictly as possible",
);

/// The highest reward that any nouns in titles could yield.
const HIGHEST: MetricDefinition = MetricDefinition::unit_mean(
    "reward_highest",
    "the reward if another part-of-speech tagger judged titles as mildly as possible",
);

pub(super) const ALL: [MetricDefinition; 4] = [REWARD, SUCCESS, LOWEST, HIGHEST];

/// Scores an outcome; `None` for a fault.
///
/// In paper scoring an item that never ended contributes to no metric. In corrected scoring the first
/// purchase counts even if the original would ignore it, and an option counts only in its own group.
pub(super) fn score(outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
    if outcome.is_fault() {
        return None;
    }
    let Some(Evidence::Shop(evidence)) = &outcome.evidence else { return Some(ItemScore::default()) };
    let [reward, lowest, highest] = match (scoring, evidence.end) {
        (Scoring::Paper, End::Unfinished) => return Some(ItemScore::default()),
        (Scoring::Paper, _) => as_published(evidence),
        (Scoring::Corrected, _) => evidence.first.as_ref().map_or([0.0; 3], |first| first.by_group),
    };
    Some(
        ItemScore::default()
            .with(REWARD.name, Share::once(reward))
            .with(SUCCESS.name, Share::once(f64::from(reward >= 1.0)))
            .with(LOWEST.name, Share::once(lowest))
            .with(HIGHEST.name, Share::once(highest)),
    )
}

fn as_published(evidence: &ShopEvidence) -> [f64; 3] {
    let rewards = |bought: &Purchase| [bought.reward, bought.lowest, bought.highest];
    evidence.credited.as_ref().map_or([0.0; 3], rewards)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lumos_tasks::Ending;

    use super::*;

    fn outcome(end: End, reward: Option<f64>) -> Outcome {
        let bought = reward.map(|reward| Purchase {
            asin: "B".to_owned(),
            reward,
            lowest: 0.0,
            highest: 1.0,
            by_group: [reward / 2.0, 0.0, 0.5],
            r_type: 1.0,
        });
        let evidence = ShopEvidence {
            end,
            credited: bought.clone().filter(|_| end == End::Credited),
            first: bought,
            subgoals: Vec::new(),
            actions: Vec::new(),
            results: BTreeMap::new(),
        };
        Outcome { ending: Ending::Answered, evidence: Some(Evidence::Shop(evidence)), steps: Vec::new() }
    }

    #[test]
    fn the_mean_is_over_what_ended_or_over_all() {
        let reward = |outcome: &Outcome, scoring| {
            score(outcome, scoring).unwrap().share("reward").map(|share| share.numerator)
        };
        for (end, bought, paper, corrected) in [
            (End::Credited, Some(1.0), Some(1.0), 0.5),
            (End::Dropped, None, Some(0.0), 0.0),
            (End::Dropped, Some(0.8), Some(0.0), 0.4),
            (End::Unfinished, Some(0.8), None, 0.4),
            (End::Unfinished, None, None, 0.0),
        ] {
            let outcome = outcome(end, bought);
            assert_eq!(reward(&outcome, Scoring::Paper), paper, "{end:?}");
            assert_eq!(reward(&outcome, Scoring::Corrected), Some(corrected), "{end:?}");
        }
    }
}
