//! Stop rules: when a configuration ends before its last item.
//!
//! A rule looks at a configuration once, after its first items. What it decides depends on their results only, so it is
//! the same after an interruption and with any number of workers.

use std::fmt;

use lumos_benchmarks::{Benchmark, Estimate, ItemScore, MetricDefinition, Tally, Unit, main_metric};
use serde::{Deserialize, Serialize};

/// Ends a configuration after its first items if their figure of a metric is clearly below or above a bound: if the whole
/// 95 % interval is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopRule {
    /// Number of items, from the first, after which the rule decides.
    pub after: u64,
    /// The metric; `None` for the main one. It is computed under the first scoring of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// The configuration ends if the metric is below: in percent for a metric that is shown in percent, otherwise in
    /// its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
    /// The configuration ends if the metric is above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
}

/// Why and where a configuration ended before its last item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stopped {
    /// Position after the last item of the configuration.
    pub end: u64,
    /// Number of first items.
    pub after: u64,
    /// Number of items that were planned without the rule.
    pub units: u64,
    /// The metric.
    pub metric: String,
    /// 95 % interval of the metric over the first items, in the unit of the bounds.
    pub interval: (f64, f64),
    /// The bound that the interval is beyond, as in the rule: `below 5`.
    pub bound: String,
}

impl fmt::Display for StopRule {
    /// `100 if below 20 or above 60`, for the column `stop after`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} if", self.after)?;
        if let Some(metric) = &self.metric {
            write!(formatter, " {metric}")?;
        }
        let below = self.below.map(|below| format!("below {below}"));
        let above = self.above.map(|above| format!("above {above}"));
        let bounds: Vec<String> = below.into_iter().chain(above).collect();
        write!(formatter, " {}", bounds.join(" or "))
    }
}

impl StopRule {
    /// Returns what is wrong with the rule, apart from its metric.
    pub(super) fn problem(&self) -> Option<String> {
        let is_finite = [self.below, self.above].iter().flatten().all(|bound| bound.is_finite());
        match (self.after, self.below, self.above) {
            (0, ..) => Some("`stop.after`: expected a positive integer".to_owned()),
            (_, None, None) => Some("`stop`: expected `below`, `above` or both".to_owned()),
            _ if !is_finite => Some("`stop`: expected a finite number".to_owned()),
            (_, Some(below), Some(above)) if below > above => {
                Some(format!("`stop`: `below` ({below}) is larger than `above` ({above})"))
            }
            _ => None,
        }
    }

    /// Returns what is wrong with the rule's metric for a benchmark.
    pub(super) fn unknown(&self, benchmark: &dyn Benchmark) -> Option<String> {
        let name = benchmark.name();
        match self.metric(benchmark) {
            Some(metric) if metric.judged => Some(format!(
                "`stop.metric`: {} of {name} needs a judge, which runs after the run",
                metric.name
            )),
            Some(_) => None,
            None => {
                let wanted = self.metric.as_deref().unwrap_or_default();
                let metrics = benchmark.metrics().iter().filter(|metric| !metric.judged);
                let known: Vec<&str> = metrics.map(|metric| metric.name).collect();
                let known = known.join(", ");
                Some(format!(
                    "`stop.metric`: {name} does not have the metric `{wanted}`: expected one of {known}"
                ))
            }
        }
    }

    /// Returns the rule's metric of a benchmark; `None` if the benchmark does not have it.
    pub(super) fn metric<'a>(&self, benchmark: &'a dyn Benchmark) -> Option<&'a MetricDefinition> {
        let metrics = benchmark.metrics();
        match &self.metric {
            Some(name) => metrics.iter().find(|metric| metric.name == *name),
            // A rule decides before a judge replies.
            None => main_metric(metrics, |_| false).or(metrics.first()),
        }
    }

    /// Decides after the first items: returns the interval, in the unit of the bounds, and the bound that it is beyond.
    /// `None` if the configuration continues.
    fn decide(&self, metric: &MetricDefinition, estimate: &Estimate) -> Option<((f64, f64), String)> {
        let scale = match metric.unit {
            Unit::Percent => 100.0,
            Unit::Count(_) => 1.0,
        };
        let (low, high) = estimate.interval?;
        let (low, high) = (low * scale, high * scale);
        let below = self.below.filter(|bound| high < *bound).map(|bound| format!("below {bound}"));
        let above = self.above.filter(|bound| low > *bound).map(|bound| format!("above {bound}"));
        Some(((low, high), below.or(above)?))
    }
}

/// The scores of the first items of a configuration with a stop rule.
pub(crate) struct StopWatch {
    rule: StopRule,
    benchmark: &'static dyn Benchmark,
    tally: Tally,
    /// Number of settled items, with or without a value of the metric.
    settled: u64,
}

impl StopWatch {
    /// Creates the watch of a configuration.
    pub(crate) fn new(rule: StopRule, benchmark: &'static dyn Benchmark) -> Self {
        Self { rule, benchmark, tally: Tally::default(), settled: 0 }
    }

    /// Adds the score of one of the first items.
    pub(crate) fn add(&mut self, score: &ItemScore) {
        self.tally.add(score);
        self.settled += 1;
    }

    /// Decides when every one of the first items has ended. A configuration continues if one of them faulted: without
    /// its score, the others could decide differently.
    pub(crate) fn decide(&self, end: u64, units: u64) -> Option<Stopped> {
        if self.settled < self.rule.after {
            return None;
        }
        let metric = self.rule.metric(self.benchmark)?;
        let estimate = self.tally.finish(metric)?;
        let (interval, bound) = self.rule.decide(metric, &estimate)?;
        let after = self.rule.after;
        Some(Stopped { end, after, units, metric: metric.name.to_owned(), interval, bound })
    }
}

impl Stopped {
    /// Describes the stop: `stopped after 50 of 1,319 items: exact_match 0.0 to 7.1 is below 10`.
    pub fn describe(&self) -> String {
        let (low, high) = self.interval;
        format!(
            "stopped after {} of {} items: {} {low:.1} to {high:.1} is {}",
            self.after, self.units, self.metric, self.bound
        )
    }
}

#[cfg(test)]
mod tests {
    use lumos_benchmarks::{MetricKind, Share};
    use proptest::prelude::*;

    use super::*;

    fn metric(unit: Unit) -> MetricDefinition {
        MetricDefinition { unit, ..MetricDefinition::proportion("metric", "") }
    }

    fn bound(rule: &StopRule, right: u64, items: u64) -> Option<String> {
        let estimate = Estimate::of_share(right, items).unwrap();
        rule.decide(&metric(Unit::Percent), &estimate).map(|(_, bound)| bound)
    }

    #[test]
    fn the_whole_interval_has_to_be_beyond_a_bound() {
        let rule = StopRule { after: 50, below: Some(10.0), above: Some(60.0), ..StopRule::default() };
        // 0 of 50: 0.0 to 7.1 %. 1 of 50: 0.4 to 10.5 %.
        assert_eq!(bound(&rule, 0, 50).as_deref(), Some("below 10"));
        assert_eq!(bound(&rule, 1, 50), None);
        // 37 of 50: 60.4 to 84.1 %.
        assert_eq!(bound(&rule, 37, 50).as_deref(), Some("above 60"));
        assert_eq!(bound(&rule, 36, 50), None);
    }

    #[test]
    fn bounds_are_in_the_unit_of_the_metric() {
        let rule = StopRule { after: 2, below: Some(3.0), ..StopRule::default() };
        let estimate =
            Estimate { value: 1.0, interval: Some((0.5, 2.5)), ..Estimate::of_share(1, 1).unwrap() };
        assert!(rule.decide(&metric(Unit::Count("turns")), &estimate).is_some());
        assert!(rule.decide(&metric(Unit::Percent), &estimate).is_none());
        // A percentage may also be that of a value from −1 to 1.
        let reward = MetricDefinition {
            kind: MetricKind::BoundedMean { least: -1.0, most: 1.0 },
            ..metric(Unit::Percent)
        };
        let half = Estimate { value: 0.5, interval: Some((0.4, 0.6)), ..estimate };
        let below = |below: f64| StopRule { below: Some(below), ..rule.clone() }.decide(&reward, &half);
        assert_eq!(below(20.0), None);
        assert_eq!(below(70.0), Some(((40.0, 60.0), "below 70".to_owned())));
    }

    #[test]
    fn items_without_a_value_count_as_settled() {
        let webshop = lumos_benchmarks::get("webshop").unwrap();
        let rule = StopRule { after: 20, below: Some(50.0), ..StopRule::default() };
        let decided = |settled: u64| {
            let mut watch = StopWatch::new(rule.clone(), webshop);
            for item in 0..settled {
                // Paper scoring has no value of an episode that never ended.
                let score = match item {
                    0..10 => ItemScore::default().with("reward", Share { numerator: 0.0, denominator: 1.0 }),
                    _ => ItemScore::default(),
                };
                watch.add(&score);
            }
            watch.decide(20, 100)
        };
        assert_eq!(decided(20).map(|stopped| stopped.bound).as_deref(), Some("below 50"));
        assert_eq!(decided(19), None, "one of the first items faulted");
    }

    #[test]
    fn rules_without_effect_are_problems() {
        let problem = |text: &str| toml::from_str::<StopRule>(text).unwrap().problem();
        assert_eq!(problem("after = 5\nbelow = 3"), None);
        for (text, part) in [
            ("below = 3", "`stop.after`"),
            ("after = 3", "`below`, `above` or both"),
            ("after = 3\nbelow = nan", "finite"),
            ("after = 3\nbelow = 9\nabove = 2", "larger than"),
        ] {
            assert!(problem(text).unwrap().contains(part), "{text}");
        }
    }

    proptest! {
        #[test]
        fn better_results_never_stop_a_configuration_as_too_weak(
            right in 0u64..60, more in 0u64..60, below in 0.0f64..100.0,
        ) {
            let rule = StopRule { after: 60, below: Some(below), ..StopRule::default() };
            let (right, better) = (right, (right + more).min(60));
            prop_assert!(bound(&rule, right, 60).is_some() || bound(&rule, better, 60).is_none());
        }
    }
}
