//! Rules of a sweep: which configurations are excluded, which have other settings, and in which order units are
//! dispatched.
//!
//! A [`ConfigurationFilter`] selects configurations by patterns. `[[exclude]]` is a list of filters; `[[override]]` is a
//! list of [`OverrideRule`]s. Rules decide about a [`Cell`], which is a configuration before its models are resolved.

use std::collections::BTreeMap;

use lumos_tasks::{Behaviour, Formulation, GenerationSettings, Sampling};
use serde::{Deserialize, Serialize};

use super::names::{matches, nearest};
use super::run_spec::GenerationSpec;
use super::stop::StopRule;
use super::values::{one_or_many, seeds};

/// Largest number of rules of one kind.
pub(super) const MOST_RULES: usize = 1000;

/// Selects configurations. A configuration is selected if it matches every given key; it matches a key if it matches any
/// of the key's patterns. `*` matches any characters and `?` one character.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigurationFilter {
    /// Names of benchmarks.
    #[serde(alias = "tasks", deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub task: Option<Vec<String>>,
    /// Names of models: whole names, or their last components. `step-*` matches `candle:checkpoints/step-100`.
    #[serde(alias = "models", deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub model: Option<Vec<String>>,
    /// Formulations.
    #[serde(
        alias = "formulations",
        deserialize_with = "one_or_many",
        skip_serializing_if = "Option::is_none"
    )]
    pub formulation: Option<Vec<String>>,
    /// Behaviours.
    #[serde(alias = "behaviours", deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub behaviour: Option<Vec<String>>,
    /// Seeds.
    #[serde(alias = "seeds", deserialize_with = "seeds", skip_serializing_if = "Option::is_none")]
    pub seed: Option<Vec<u64>>,
}

/// Other settings for some configurations. Later rules take precedence over earlier ones, and rules over the settings of
/// the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OverrideRule {
    /// The affected configurations.
    #[serde(rename = "match")]
    pub filter: ConfigurationFilter,
    /// Number of items, from the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Generation settings.
    #[serde(skip_serializing_if = "is_default")]
    pub generation: GenerationSpec,
    /// Backends by tool.
    #[serde(alias = "tool", skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, String>,
    /// Priority of the units; higher ones are dispatched first. The default is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// When the configuration ends before its last item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopRule>,
}

impl OverrideRule {
    /// Whether the rule sets anything.
    pub(super) fn has_settings(&self) -> bool {
        *self != Self { filter: self.filter.clone(), ..Self::default() }
    }
}

/// Order in which the units of a run are dispatched, within one priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DispatchOrder {
    /// One configuration after the other, in the order of reports.
    #[default]
    Listed,
    /// One configuration after the other, those with the fewest units first.
    #[serde(alias = "shortest_first")]
    ShortestFirst,
    /// One unit of each configuration in turn.
    #[serde(alias = "round_robin")]
    RoundRobin,
}

impl DispatchOrder {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::ShortestFirst => "shortest-first",
            Self::RoundRobin => "round-robin",
        }
    }
}

/// A configuration before its models are resolved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell<'a> {
    pub(crate) task: &'a str,
    pub(crate) formulation: Formulation,
    pub(crate) behaviour: Behaviour,
    pub(crate) seed: u64,
    /// Names of the set of models.
    pub(crate) models: Vec<&'a str>,
}

/// Settings of a configuration after its rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CellSettings {
    pub(crate) generation: GenerationSettings,
    /// Number of items, from the first, if a rule sets it.
    pub(crate) limit: Option<u64>,
    /// Backends that replace those of the run.
    pub(crate) tools: BTreeMap<String, String>,
    pub(crate) priority: i32,
    pub(crate) stop: Option<StopRule>,
}

impl CellSettings {
    /// Applies the rules that match a configuration.
    pub(crate) fn of(cell: &Cell<'_>, rules: &[OverrideRule], generation: GenerationSettings) -> Self {
        let mut settings = Self { generation, ..Self::default() };
        for rule in rules.iter().filter(|rule| rule.filter.selects(cell)) {
            settings.generation = generated(settings.generation, &rule.generation);
            settings.limit = rule.limit.or(settings.limit);
            settings.tools.extend(rule.tools.clone());
            settings.priority = rule.priority.unwrap_or(settings.priority);
            settings.stop = rule.stop.clone().or(settings.stop);
        }
        settings
    }
}

/// Merges generation settings over others. With temperature 0, `top_p` and `top_k` have no effect.
pub(super) fn generated(base: GenerationSettings, over: &GenerationSpec) -> GenerationSettings {
    let (temperature, top_p, top_k) = match base.sampling {
        Sampling::Greedy => (0.0, None, None),
        Sampling::Random { temperature, top_p, top_k } => (temperature, top_p, top_k),
    };
    let temperature = over.temperature.unwrap_or(temperature);
    GenerationSettings {
        sampling: if temperature > 0.0 {
            Sampling::Random { temperature, top_p: over.top_p.or(top_p), top_k: over.top_k.or(top_k) }
        } else {
            Sampling::Greedy
        },
        max_new_tokens: over.max_new_tokens.unwrap_or(base.max_new_tokens),
    }
}

impl ConfigurationFilter {
    /// Whether a configuration is selected.
    pub(crate) fn selects(&self, cell: &Cell<'_>) -> bool {
        let any = |patterns: &Option<Vec<String>>, name: &str| {
            patterns.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| is_match(pattern, name)))
        };
        any(&self.task, cell.task)
            && any(&self.formulation, cell.formulation.name())
            && any(&self.behaviour, cell.behaviour.name())
            && self.seed.as_ref().is_none_or(|seeds| seeds.contains(&cell.seed))
            && self.model.as_ref().is_none_or(|patterns| {
                let named = |pattern: &String| cell.models.iter().any(|name| is_model(pattern, name));
                patterns.iter().any(named)
            })
    }

    /// Creates a filter with one key of one pattern.
    fn only(key: &str, pattern: &str) -> Self {
        let patterns = Some(vec![pattern.to_owned()]);
        match key {
            "task" => Self { task: patterns, ..Self::default() },
            "model" => Self { model: patterns, ..Self::default() },
            "formulation" => Self { formulation: patterns, ..Self::default() },
            "behaviour" => Self { behaviour: patterns, ..Self::default() },
            _ => Self { seed: Some(pattern.parse().into_iter().collect()), ..Self::default() },
        }
    }

    /// Whether every configuration is selected.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// States why nothing of `cells` is selected: the first pattern that matches no configuration, or the combination.
    pub(super) fn unmatched(&self, cells: &[Cell<'_>]) -> String {
        let words = |patterns: &Option<Vec<String>>| patterns.clone().unwrap_or_default();
        let keys = [
            ("task", words(&self.task)),
            ("model", words(&self.model)),
            ("formulation", words(&self.formulation)),
            ("behaviour", words(&self.behaviour)),
            ("seed", self.seed.iter().flatten().map(ToString::to_string).collect()),
        ];
        for (key, words) in keys {
            for word in words {
                let filter = Self::only(key, &word);
                if cells.iter().any(|cell| filter.selects(cell)) {
                    continue;
                }
                let mut known: Vec<String> = Vec::new();
                for name in cells.iter().flat_map(|cell| names_of(cell, key)) {
                    if !known.contains(&name) {
                        known.push(name);
                    }
                }
                let near = nearest(&word, known.iter().map(String::as_str)).filter(|_| key != "seed");
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => {
                        let more = if known.len() > 8 { ", …" } else { "" };
                        known.truncate(8);
                        format!("the sweep has {}{more}", known.join(", "))
                    }
                };
                return format!("no configuration has {key} `{word}`; {hint}");
            }
        }
        "no configuration has this combination".to_owned()
    }
}

/// Returns a configuration's values of a key.
fn names_of(cell: &Cell<'_>, key: &str) -> Vec<String> {
    match key {
        "task" => vec![cell.task.to_owned()],
        "model" => cell.models.iter().map(|&name| name.to_owned()).collect(),
        "formulation" => vec![cell.formulation.name().to_owned()],
        "behaviour" => vec![cell.behaviour.name().to_owned()],
        _ => vec![cell.seed.to_string()],
    }
}

fn is_match(pattern: &str, name: &str) -> bool {
    matches(pattern.as_bytes(), name.as_bytes())
}

/// Whether a pattern matches a model's name, or its last components.
fn is_model(pattern: &str, name: &str) -> bool {
    let starts = name.char_indices().filter(|(_, character)| matches!(character, ':' | '/' | '+'));
    std::iter::once(0)
        .chain(starts.map(|(at, _)| at + 1))
        .any(|start| name.get(start..).is_some_and(|name| is_match(pattern, name)))
}

/// Whether a value equals the default.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cell<'a>(task: &'a str, model: &'a str, seed: u64) -> Cell<'a> {
        Cell {
            task,
            formulation: Formulation::Iterative,
            behaviour: Behaviour::Paper,
            seed,
            models: vec![model, "candle:ground"],
        }
    }

    fn filter(text: &str) -> ConfigurationFilter {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn every_key_has_to_match_and_any_of_its_patterns() {
        let cell = cell("gsm8k", "candle:exp/checkpoints/step-100", 3);
        for text in [
            "",
            "task = 'gsm*'",
            "task = ['svamp', 'gsm8k']",
            "model = 'step-1*'",
            "model = 'checkpoints/step-???'",
            "model = 'candle:exp/checkpoints/step-100'",
            "model = 'exp/*'",
            "model = 'ground'",
            "seed = '0-4'",
            "formulation = 'iter*'\nbehaviour = 'paper'\nseed = [3, 9]",
        ] {
            assert!(filter(text).selects(&cell), "{text}");
        }
        for text in [
            "task = 'svamp'",
            "model = 'tep-100'",
            "model = 'step-2*'",
            "seed = [0, 1]",
            "task = 'gsm8k'\nformulation = 'cot'",
            "task = []",
        ] {
            assert!(!filter(text).selects(&cell), "{text}");
        }
    }

    #[test]
    fn what_matches_nothing_is_named() {
        let cells = [cell("gsm8k", "builtin:tiny", 0), cell("svamp", "candle:a", 1)];
        let said = |text: &str| filter(text).unmatched(&cells);
        assert_eq!(said("task = 'svmp'"), "no configuration has task `svmp`; did you mean `svamp`?");
        assert_eq!(said("seed = [0, 7]"), "no configuration has seed `7`; the sweep has 0, 1");
        assert_eq!(said("task = 'gsm8k'\nmodel = 'a'"), "no configuration has this combination");
    }

    #[test]
    fn later_rules_take_precedence() {
        let rules: Vec<OverrideRule> = [
            "limit = 5\nmatch.task = 'gsm*'\ngeneration.temperature = 0.7\ngeneration.top_p = 0.9",
            "priority = 3\nmatch.model = 'tiny'\nlimit = 9\ngeneration.max_new_tokens = 7\ntools.maths = 'x'",
            "match.task = 'svamp'\nlimit = 1",
            "match.seed = 1\ngeneration.temperature = 0",
        ]
        .iter()
        .map(|text| toml::from_str(text).unwrap())
        .collect();
        let base = GenerationSettings::default();
        let sampled = Sampling::Random { temperature: 0.7, top_p: Some(0.9), top_k: None };
        let settings = CellSettings::of(&cell("gsm8k", "builtin:tiny", 0), &rules, base);
        assert_eq!(settings.generation, GenerationSettings { sampling: sampled, max_new_tokens: 7 });
        assert_eq!((settings.limit, settings.priority), (Some(9), 3));
        assert_eq!(settings.tools, BTreeMap::from([("maths".to_owned(), "x".to_owned())]));
        let cold = CellSettings::of(&cell("gsm8k", "candle:b", 1), &rules, base);
        assert_eq!((cold.generation.sampling, cold.limit, cold.priority), (Sampling::Greedy, Some(5), 0));
        let other = CellSettings::of(&cell("webshop", "candle:b", 0), &rules, base);
        assert_eq!(other, CellSettings { generation: base, ..CellSettings::default() });
    }

    #[test]
    fn rules_are_the_same_after_the_manifest() {
        let text = "match = { task = 'a', seed = '0-2' }\nlimit = 3\ngeneration = { temperature = 0.5 }";
        let rule: OverrideRule = toml::from_str(text).unwrap();
        let json = serde_json::to_string(&rule).unwrap();
        assert_eq!(
            json,
            r#"{"match":{"task":["a"],"seed":[0,1,2]},"limit":3,"generation":{"temperature":0.5}}"#
        );
        assert_eq!(serde_json::from_str::<OverrideRule>(&json).unwrap(), rule);
    }

    proptest! {
        #[test]
        fn more_keys_never_select_more(
            task in "[ab*?]{0,3}", model in "[ab*?/]{0,4}", name in "[ab]{1,3}", models in "candle:[ab/]{1,4}",
        ) {
            let cell = cell(&name, &models, 0);
            let one = ConfigurationFilter { task: Some(vec![task.clone()]), ..ConfigurationFilter::default() };
            let two = ConfigurationFilter { model: Some(vec![model]), ..one.clone() };
            prop_assert!(!two.selects(&cell) || one.selects(&cell));
            let more = ConfigurationFilter { task: Some(vec![task, name.clone()]), ..ConfigurationFilter::default() };
            prop_assert!(more.selects(&cell));
        }
    }
}
