//! One layer of a specification: a file, the environment or the flags.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use lumos_benchmarks::{PublishedItems, Scoring};
use lumos_tasks::{BackendChoice, Behaviour, Formulation, Placement, Role, Swap};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::computing::{MemorySize, placement};
use super::partition::Partition;
use super::rules::{ConfigurationFilter, DispatchOrder, OverrideRule};
use super::selection::Selection;
use super::values::{BatchSize, FailOnError, one_or_many, seeds};

/// One layer of a request, in which every field is optional. [`RunSpec::merge`] combines layers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// Name of the run, which is also its folder in the output path.
    pub name: Option<String>,
    /// A named set of defaults.
    pub preset: Option<Preset>,
    /// Benchmarks.
    #[serde(alias = "task", deserialize_with = "one_or_many")]
    pub tasks: Option<Vec<String>>,
    /// Formulations.
    #[serde(alias = "formulations", deserialize_with = "one_or_many")]
    pub formulation: Option<Vec<Formulation>>,
    /// Behaviours.
    #[serde(alias = "behaviours", deserialize_with = "one_or_many")]
    pub behaviour: Option<Vec<Behaviour>>,
    /// Scorings in the report; the first is the main one.
    #[serde(alias = "scorings", deserialize_with = "one_or_many")]
    pub scoring: Option<Vec<Scoring>>,
    /// Sets of models; each is one cell of the matrix.
    #[serde(alias = "model", deserialize_with = "one_or_many")]
    pub models: Option<Vec<ModelSet>>,
    /// Seeds, one repetition per seed.
    #[serde(alias = "seeds", deserialize_with = "seeds")]
    pub seed: Option<Vec<u64>>,
    /// Number of items of each benchmark, from the first.
    pub limit: Option<u64>,
    /// Selected items, by benchmark.
    pub samples: Option<BTreeMap<String, Selection>>,
    /// One part of the items: `hash:1/4`.
    pub partition: Option<Partition>,
    /// The data folder.
    pub data: Option<PathBuf>,
    /// The folder that contains run folders.
    #[serde(alias = "output-path")]
    pub output_path: Option<PathBuf>,
    /// Generation settings.
    pub generation: GenerationSpec,
    /// Backends by tool.
    #[serde(alias = "tool")]
    pub tools: Option<BTreeMap<String, String>>,
    /// Number of requests computed at a time.
    #[serde(alias = "batch-size")]
    pub batch_size: Option<BatchSize>,
    /// Devices of the models: `auto`, `cpu`, `cuda:0`, or one of these by role.
    #[serde(deserialize_with = "placement")]
    pub device: Option<Placement>,
    /// Memory limit for models on each device.
    pub memory: Option<MemorySize>,
    /// Whether models that do not fit in memory together take turns.
    pub swap: Option<Swap>,
    /// Number of episodes driven at the same time.
    #[serde(alias = "places")]
    pub concurrency: Option<u32>,
    /// Data type of the models: `f32`, `bf16`, `f16`.
    pub dtype: Option<String>,
    /// Which implementation computes the models of this process: `auto`, `native`, `candle-transformers`.
    pub backend: Option<BackendChoice>,
    /// Limits.
    pub limits: LimitsSpec,
    /// Whether malformed records are skipped.
    #[serde(alias = "skip-invalid")]
    pub skip_invalid: Option<bool>,
    /// File with worked examples for WebShop's prompts, instead of those included in the project.
    pub exemplars: Option<PathBuf>,
    /// Browser for the shop and web pages, if no backend is specified for them.
    pub browser: Option<String>,
    /// Template of conversations: `tulu`, `chatml`, `llama-3`, `chat`, or the path of a file.
    #[serde(alias = "prompt-template")]
    pub prompt_template: Option<String>,
    /// Number of worked examples before each conversation.
    #[serde(alias = "exemplars-per-prompt")]
    pub exemplars_per_prompt: Option<u8>,
    /// Configurations that are left out.
    pub exclude: Option<Vec<ConfigurationFilter>>,
    /// Other settings for some configurations.
    #[serde(rename = "override")]
    pub overrides: Option<Vec<OverrideRule>>,
    /// Order in which units are dispatched.
    pub order: Option<DispatchOrder>,
    /// Where the rules are in the file.
    #[serde(skip)]
    pub places: RulePlaces,
}

/// Positions of rules in a file, for messages: `sweep.toml:12`. Empty if the rules are not from a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulePlaces {
    /// The file's name.
    pub(super) file: String,
    /// The lines of `[[exclude]]`.
    pub(super) exclude: Vec<usize>,
    /// The lines of `[[override]]`.
    pub(super) overrides: Vec<usize>,
}

/// Generation settings of a layer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GenerationSpec {
    /// Temperature; 0 means greedy decoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling: cumulative probability of the considered tokens.
    #[serde(alias = "top-p", skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Number of most likely tokens that are considered.
    #[serde(alias = "top-k", skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Maximum number of tokens in a reply.
    #[serde(alias = "max-new-tokens", skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<u32>,
}

/// Limits of a layer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsSpec {
    /// Time limit per item in seconds.
    #[serde(alias = "time-limit")]
    pub time_limit: Option<f64>,
    /// Number of faulted items that are tolerated.
    #[serde(alias = "fail-on-error")]
    pub fail_on_error: Option<FailOnError>,
    /// Number of retries of a faulted item.
    #[serde(alias = "retry-on-error")]
    pub retry_on_error: Option<u32>,
}

/// Models of one cell of the matrix: one for all roles, or one per role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelSet {
    /// Model of every role without its own model.
    pub model: Option<String>,
    /// The planner.
    pub planner: Option<String>,
    /// The grounder.
    pub grounder: Option<String>,
    /// Model of the formulations with a single model.
    pub answerer: Option<String>,
    /// The chat model of the QA tool.
    pub qa: Option<String>,
}

impl ModelSet {
    /// Creates a set with one model for all roles.
    pub fn of(model: impl Into<String>) -> Self {
        Self { model: Some(model.into()), ..Self::default() }
    }

    /// Returns the model of a role.
    pub(crate) fn role(&self, role: Role) -> Option<&str> {
        let own = match role {
            Role::Planner => &self.planner,
            Role::Grounder => &self.grounder,
            Role::Answerer => &self.answerer,
            Role::Qa => &self.qa,
            // The judge is specified when a run is judged, not in a run's specification.
            Role::Judge => return None,
        };
        own.as_deref().or(self.model.as_deref())
    }

    /// Applies a function to every model name.
    #[must_use]
    pub fn map_names(self, change: impl Fn(String) -> String) -> Self {
        Self {
            model: self.model.map(&change),
            planner: self.planner.map(&change),
            grounder: self.grounder.map(&change),
            answerer: self.answerer.map(&change),
            qa: self.qa.map(&change),
        }
    }

    fn merge(self, over: Self) -> Self {
        Self {
            model: over.model.or(self.model),
            planner: over.planner.or(self.planner),
            grounder: over.grounder.or(self.grounder),
            answerer: over.answerer.or(self.answerer),
            qa: over.qa.or(self.qa),
        }
    }
}

impl<'de> Deserialize<'de> for ModelSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Roles {
            model: Option<String>,
            planner: Option<String>,
            grounder: Option<String>,
            answerer: Option<String>,
            qa: Option<String>,
        }
        struct NameOrRoles;
        impl<'de> Visitor<'de> for NameOrRoles {
            type Value = ModelSet;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a model's name, or a table with planner and grounder")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<ModelSet, E> {
                Ok(ModelSet::of(name))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelSet, A::Error> {
                let Roles { model, planner, grounder, answerer, qa } =
                    Roles::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ModelSet { model, planner, grounder, answerer, qa })
            }
        }
        deserializer.deserialize_any(NameOrRoles)
    }
}

/// A named set of defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// As published: behaviour `paper`, the published item sets, half precision on a GPU.
    Paper,
}

impl Preset {
    /// Number of items, from the first, in the published evaluation; `None` for all.
    pub(crate) fn first_items(self, benchmark: &str) -> Option<u64> {
        let Self::Paper = self;
        match lumos_benchmarks::find(benchmark)?.published_items()? {
            PublishedItems::First(count) => Some(count),
            PublishedItems::All(_) => None,
        }
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "paper" => Ok(Self::Paper),
            _ => Err(format!("unknown preset `{word}`: expected paper")),
        }
    }
}

impl RunSpec {
    /// Merges another layer over this one. Values of `over` take precedence.
    ///
    /// Lists are replaced as a whole. `limit` and `samples` exclude each other, so a layer with one of them
    /// removes the other. A single set of models overrides the roles that it names in a single set below.
    #[must_use]
    pub fn merge(self, over: Self) -> Self {
        let (limit, samples) = match (over.limit, over.samples) {
            (None, None) => (self.limit, self.samples),
            chosen => chosen,
        };
        let models = match (self.models, over.models) {
            (Some(mut below), Some(mut above)) if below.len() == 1 && above.len() == 1 => {
                let (below, above) = (below.remove(0), above.remove(0));
                // A model for all roles replaces every role of the lower layer.
                Some(vec![if above.model.is_some() { above } else { below.merge(above) }])
            }
            (below, above) => above.or(below),
        };
        let tools = match (self.tools, over.tools) {
            (Some(mut below), Some(above)) => {
                below.extend(above);
                Some(below)
            }
            (below, above) => above.or(below),
        };
        Self {
            name: over.name.or(self.name),
            preset: over.preset.or(self.preset),
            tasks: over.tasks.or(self.tasks),
            formulation: over.formulation.or(self.formulation),
            behaviour: over.behaviour.or(self.behaviour),
            scoring: over.scoring.or(self.scoring),
            models,
            seed: over.seed.or(self.seed),
            limit,
            samples,
            partition: over.partition.or(self.partition),
            data: over.data.or(self.data),
            output_path: over.output_path.or(self.output_path),
            generation: GenerationSpec {
                temperature: over.generation.temperature.or(self.generation.temperature),
                top_p: over.generation.top_p.or(self.generation.top_p),
                top_k: over.generation.top_k.or(self.generation.top_k),
                max_new_tokens: over.generation.max_new_tokens.or(self.generation.max_new_tokens),
            },
            tools,
            batch_size: over.batch_size.or(self.batch_size),
            device: over.device.or(self.device),
            memory: over.memory.or(self.memory),
            swap: over.swap.or(self.swap),
            concurrency: over.concurrency.or(self.concurrency),
            dtype: over.dtype.or(self.dtype),
            backend: over.backend.or(self.backend),
            limits: LimitsSpec {
                time_limit: over.limits.time_limit.or(self.limits.time_limit),
                fail_on_error: over.limits.fail_on_error.or(self.limits.fail_on_error),
                retry_on_error: over.limits.retry_on_error.or(self.limits.retry_on_error),
            },
            skip_invalid: over.skip_invalid.or(self.skip_invalid),
            exemplars: over.exemplars.or(self.exemplars),
            browser: over.browser.or(self.browser),
            prompt_template: over.prompt_template.or(self.prompt_template),
            exemplars_per_prompt: over.exemplars_per_prompt.or(self.exemplars_per_prompt),
            places: if over.exclude.is_some() || over.overrides.is_some() {
                over.places
            } else {
                self.places
            },
            exclude: over.exclude.or(self.exclude),
            overrides: over.overrides.or(self.overrides),
            order: over.order.or(self.order),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_above_wins_and_the_one_below_fills_in() {
        let file = RunSpec {
            tasks: Some(vec!["gsm8k".to_owned()]),
            limit: Some(10),
            tools: Some(BTreeMap::from([("maths".to_owned(), "native".to_owned())])),
            models: Some(vec![ModelSet::of("builtin:tiny")]),
            generation: GenerationSpec { temperature: Some(0.5), ..GenerationSpec::default() },
            ..RunSpec::default()
        };
        let flags = RunSpec {
            samples: Some(BTreeMap::from([("gsm8k".to_owned(), Selection::of([3]))])),
            models: Some(vec![ModelSet { grounder: Some("script:g".to_owned()), ..ModelSet::default() }]),
            generation: GenerationSpec { max_new_tokens: Some(64), ..GenerationSpec::default() },
            ..RunSpec::default()
        };
        let merged = file.clone().merge(flags.clone());
        assert_eq!(merged.tasks, file.tasks);
        assert_eq!((merged.limit, &merged.samples), (None, &flags.samples));
        assert_eq!(merged.generation.temperature, Some(0.5));
        assert_eq!(merged.generation.max_new_tokens, Some(64));
        let models = &merged.models.as_ref().unwrap()[0];
        assert_eq!(models.role(Role::Planner), Some("builtin:tiny"));
        assert_eq!(models.role(Role::Grounder), Some("script:g"));
        assert_eq!(RunSpec::default().merge(merged.clone()), merged.clone().merge(RunSpec::default()));
        assert_eq!(RunSpec::default().merge(merged.clone()), merged);
    }

    #[test]
    fn one_model_for_all_replaces_the_roles_below() {
        let below =
            ModelSet { planner: Some("a".to_owned()), grounder: Some("b".to_owned()), ..ModelSet::default() };
        let below = RunSpec { models: Some(vec![below]), ..RunSpec::default() };
        let above = RunSpec { models: Some(vec![ModelSet::of("c")]), ..RunSpec::default() };
        assert_eq!(below.merge(above.clone()), above);
    }
}
