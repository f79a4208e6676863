//! Rules of a gate, and how they are written on the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use lumos_benchmarks::{MetricDefinition, Unit};
use thiserror::Error;

use crate::results::SettingsAxis;

/// Margin without a rule, in percentage points or the metric's unit.
const MARGIN: f64 = 2.0;

/// What a gate checks.
#[derive(Debug, Clone, Default)]
pub struct GateRules {
    /// Allowed losses by benchmark, `None` for all others; in percentage points or the metric's unit.
    pub margins: BTreeMap<Option<String>, f64>,
    /// Items that must be correct.
    pub must_pass: Vec<ItemRef>,
    /// Values that metrics must reach.
    pub thresholds: Vec<MetricThreshold>,
    /// The metric to compare; `None` for the main metric of every benchmark.
    pub metric: Option<String>,
    /// Number of paired items below which nothing is decided.
    pub min_items: u64,
    /// Differences that are accepted.
    pub allow: BTreeSet<AllowedDifference>,
    /// Only configurations with these values, of the candidate and of a baseline that is a run.
    pub only: Vec<(SettingsAxis, String)>,
}

impl GateRules {
    /// Returns the margin of a metric as a fraction or count.
    pub(super) fn margin(&self, benchmark: &str, metric: &MetricDefinition) -> f64 {
        let margin = self.margins.get(&Some(benchmark.to_owned())).or_else(|| self.margins.get(&None));
        in_unit(margin.copied().unwrap_or(MARGIN), metric.unit)
    }

    /// Sets the margins from texts such as `2` and `svamp=1.5`.
    ///
    /// # Errors
    /// The first one that is not a number from 0 on.
    pub fn with_margins<S: AsRef<str>>(self, given: &[S]) -> Result<Self, InvalidRule> {
        let margin = |text: &S| {
            let text = text.as_ref();
            let invalid = || {
                InvalidRule::new(
                    text,
                    "the allowed loss as a number from 0 on, or <TASK>=<POINTS>, such as 2 or svamp=0.5",
                )
            };
            let (task, value) = match text.split_once('=') {
                Some((task, value)) => (Some(task.trim().to_owned()), value),
                None => (None, text),
            };
            let value: f64 = value.trim().parse().map_err(|_| invalid())?;
            if !value.is_finite() || value < 0.0 || task.as_ref().is_some_and(String::is_empty) {
                return Err(invalid());
            }
            Ok((task, value))
        };
        Ok(Self { margins: given.iter().map(margin).collect::<Result<_, _>>()?, ..self })
    }
}

/// Converts percent to a fraction.
pub(super) fn in_unit(value: f64, unit: Unit) -> f64 {
    match unit {
        Unit::Percent => value / 100.0,
        Unit::Count(_) => value,
    }
}

/// A difference between run and baseline that is refused unless it is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AllowedDifference {
    /// Prompts of the same formulation and behaviour.
    Prompts,
    /// Data files.
    Data,
}

/// A rule that cannot be parsed.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("invalid value `{value}`: expected {expected}")]
pub struct InvalidRule {
    value: String,
    expected: &'static str,
}

impl InvalidRule {
    fn new(value: &str, expected: &'static str) -> Self {
        Self { value: value.to_owned(), expected }
    }
}

impl FromStr for AllowedDifference {
    type Err = InvalidRule;

    fn from_str(word: &str) -> Result<Self, InvalidRule> {
        match word {
            "prompts" => Ok(Self::Prompts),
            "data" => Ok(Self::Data),
            _ => Err(InvalidRule::new(word, "prompts or data")),
        }
    }
}

/// An item that must be correct: its position or its name, of one benchmark or of the only one that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemRef {
    /// Position or name, after `<task>:` if a benchmark is given. Names may contain colons.
    text: String,
}

impl ItemRef {
    /// Returns the benchmark, if the text starts with one of the run's, and the item's position or name.
    pub(super) fn parts(&self, is_task: impl Fn(&str) -> bool) -> (Option<&str>, &str) {
        match self.text.split_once(':') {
            Some((task, item)) if is_task(task) => (Some(task), item.trim()),
            _ => (None, &self.text),
        }
    }
}

impl FromStr for ItemRef {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let text = text.trim();
        if text.is_empty() || text.ends_with(':') {
            return Err(InvalidRule::new(text, "an item's index or name, such as svamp:17"));
        }
        Ok(Self { text: text.to_owned() })
    }
}

/// A value that a metric must reach, in percent or the metric's unit.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricThreshold {
    /// The benchmark; `None` for all that have the metric.
    pub task: Option<String>,
    /// The metric.
    pub metric: String,
    /// At least this value, or at most if lower is better.
    pub value: f64,
}

impl FromStr for MetricThreshold {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let invalid =
            || InvalidRule::new(text, "<METRIC>=<N> or <TASK>:<METRIC>=<N>, such as svamp:exact_match=60");
        let (name, value) = text.split_once('=').ok_or_else(invalid)?;
        let value: f64 =
            value.trim().parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(invalid)?;
        let (task, metric) = match name.split_once(':') {
            Some((task, metric)) => (Some(task.trim().to_owned()), metric.trim()),
            None => (None, name.trim()),
        };
        if metric.is_empty() {
            return Err(invalid());
        }
        Ok(Self { task, metric: metric.to_owned(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let rules = GateRules::default().with_margins(&["1", "svamp=0.5"]).unwrap();
        assert_eq!((rules.margins[&None], rules.margins[&Some("svamp".to_owned())]), (1.0, 0.5));
        for wrong in ["-1", "two", "svamp=", "=1", "NaN"] {
            let told = GateRules::default().with_margins(&[wrong]).unwrap_err().to_string();
            assert!(told.contains(&format!("`{wrong}`")), "{told}");
        }
        let item: ItemRef = "svamp:chal-7".parse().unwrap();
        assert_eq!(item.parts(|task| task == "svamp"), (Some("svamp"), "chal-7"));
        let item: ItemRef = "a:b".parse().unwrap();
        assert_eq!(item.parts(|task| task == "svamp"), (None, "a:b"), "names may contain colons");
        let threshold: MetricThreshold = "svamp:exact_match=60".parse().unwrap();
        assert_eq!(
            (threshold.task.as_deref(), threshold.metric.as_str(), threshold.value),
            (Some("svamp"), "exact_match", 60.0)
        );
        for wrong in ["exact_match", "=5", "x=inf", "x=y"] {
            assert!(wrong.parse::<MetricThreshold>().is_err(), "{wrong}");
        }
        assert!("scoring".parse::<AllowedDifference>().is_err());
    }
}
