//! Scores of outcomes.
//!
//! A [`Scoring`] decides how predictions are compared with gold answers. [`ItemScore`] is the score of one
//! item: a [`Share`] for every metric. The module `metrics` sums scores over items.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use lumos_tasks::UnknownName;
use serde::{Deserialize, Serialize};

use crate::metrics::{MetricDefinition, main_metric};

/// How a prediction is compared with the gold answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scoring {
    /// As in the original: maths answers are compared as strings, so `18.0` differs from `18`.
    Paper,
    /// By value: `18.0` equals `18`.
    Corrected,
}

impl Scoring {
    /// Both scorings.
    pub const ALL: [Self; 2] = [Self::Paper, Self::Corrected];

    /// Returns the name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Corrected => "corrected",
        }
    }
}

impl fmt::Display for Scoring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Scoring {
    type Err = UnknownName;

    fn from_str(word: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|scoring| scoring.name() == word).ok_or_else(|| UnknownName {
            what: "scoring",
            word: word.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}

/// Contribution of one item to a metric. Numerators and denominators of many items are summed separately.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// The achieved value.
    pub numerator: f64,
    /// The weight.
    pub denominator: f64,
}

impl Share {
    /// The value of an item that counts once.
    pub fn once(value: f64) -> Self {
        Self { numerator: value, denominator: 1.0 }
    }

    /// The achieved value per weight; NaN for weight 0.
    pub fn value(self) -> f64 {
        self.numerator / self.denominator
    }
}

/// Score of one item: a share for every metric.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ItemScore {
    shares: BTreeMap<String, Share>,
}

impl ItemScore {
    /// Creates a score with one metric that an item either meets or does not meet.
    pub fn met(metric: &str, met: bool) -> Self {
        Self::default().with(metric, Share::once(f64::from(met)))
    }

    /// Adds a metric.
    #[must_use]
    pub fn with(mut self, metric: &str, share: Share) -> Self {
        self.shares.insert(metric.to_owned(), share);
        self
    }

    /// Returns a metric's share.
    pub fn share(&self, metric: &str) -> Option<Share> {
        self.shares.get(metric).copied()
    }

    /// Returns all shares by metric.
    pub fn shares(&self) -> impl Iterator<Item = (&str, Share)> {
        self.shares.iter().map(|(metric, share)| (metric.as_str(), *share))
    }

    /// Whether the item reached the full score in a metric.
    pub fn is_full(&self, metric: &MetricDefinition) -> bool {
        self.share(metric.name).is_some_and(|share| metric.is_full(share))
    }

    /// Whether the item reached the full score in the main metric: the first one, except one of a judge that has not
    /// replied.
    pub fn is_correct<'a>(&self, metrics: impl IntoIterator<Item = &'a MetricDefinition>) -> bool {
        main_metric(metrics, |metric| self.share(metric.name).is_some())
            .is_some_and(|metric| self.is_full(metric))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{EXACT_MATCH, MetricKind};

    #[test]
    fn names_round_trip_and_agree_with_serde() {
        for scoring in Scoring::ALL {
            assert_eq!(scoring.name().parse(), Ok(scoring));
            assert_eq!(serde_json::to_value(scoring).unwrap(), scoring.name());
        }
        assert!("exact".parse::<Scoring>().unwrap_err().to_string().contains("paper, corrected"));
    }

    #[test]
    fn scores_are_written_by_metric() {
        let score = ItemScore::met("exact_match", true);
        let text = serde_json::to_string(&score).unwrap();
        assert_eq!(text, r#"{"exact_match":{"numerator":1.0,"denominator":1.0}}"#);
        assert!(score.is_full(&EXACT_MATCH));
        assert!(!score.is_full(&MetricDefinition::unit_mean("reward", "")));
    }

    #[test]
    fn the_main_metric_decides_by_its_bounds_and_direction() {
        let distance = MetricDefinition {
            kind: MetricKind::BoundedMean { least: 0.0, most: 100.0 },
            higher_is_better: false,
            ..MetricDefinition::proportion("distance", "")
        };
        let solved = MetricDefinition::proportion("solved", "");
        let score = |value: f64| ItemScore::met("solved", value == 0.0).with("distance", Share::once(value));
        let correct = [0.0, 1.0, 100.0].map(|value| score(value).is_correct(&[distance, solved]));
        assert_eq!(correct, [true, false, false]);
        let rating = MetricDefinition { higher_is_better: true, ..distance };
        let correct = [0.0, 1.0, 100.0].map(|value| score(value).is_correct(&[rating, solved]));
        assert_eq!(correct, [false, false, true]);
    }

    #[test]
    fn a_judged_metric_is_the_main_one_as_soon_as_it_has_a_value() {
        let judged = MetricDefinition { judged: true, ..MetricDefinition::proportion("llm_accuracy", "") };
        let metrics = [judged, MetricDefinition::proportion("exact_match", "")];
        let unjudged = ItemScore::met("exact_match", true);
        assert!(unjudged.is_correct(&metrics) && !unjudged.is_correct(&metrics[..1]));
        assert!(!unjudged.clone().with("llm_accuracy", Share::once(0.0)).is_correct(&metrics));
        let wrong = ItemScore::met("exact_match", false);
        assert!(
            !wrong.is_correct(&metrics) && wrong.with("llm_accuracy", Share::once(1.0)).is_correct(&metrics)
        );
        // Without a value of another main metric, an item is not correct.
        let lacking = ItemScore::met("f1", true);
        assert!(!lacking.is_correct(&[metrics[1], MetricDefinition::proportion("f1", "")]));
    }
}
