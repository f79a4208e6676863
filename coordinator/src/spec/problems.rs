//! [`Problems`]: all errors of a specification, field by field.

use std::collections::{BTreeMap, BTreeSet};

use lumos_benchmarks::Benchmark;
use lumos_tasks::{Configuration, Formulation, GenerationSettings, PromptFormat, Role, Sampling};

use super::names::{expand_names, nearest};
use super::resolved::{ItemChoice, RunLimits};
use super::rules::generated;
use super::run_spec::{GenerationSpec, ModelSet, RunSpec};

/// The benchmarks that a specification may name.
pub(super) type Known<'a> = &'a [&'static dyn Benchmark];

/// Name of the default prompt template.
pub(super) const LUMOS_LAYOUT: &str = "tulu";

/// The errors found so far, each with its field. The methods check fields and return their values.
#[derive(Default)]
pub(super) struct Problems(pub(super) Vec<(&'static str, String)>);

impl Problems {
    pub(super) fn add(&mut self, field: &'static str, message: impl Into<String>) {
        self.0.push((field, message.into()));
    }

    pub(super) fn name(&mut self, name: &str) {
        let plain = |character: char| character.is_alphanumeric() || "-_.".contains(character);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            self.add(
                "name",
                format!(
                    "invalid folder name `{name}`: use letters, digits, `-`, `_` and `.`, not starting with `.`"
                ),
            );
        }
    }

    pub(super) fn tasks(&mut self, tasks: Option<&[String]>, known: Known<'_>) -> Vec<String> {
        let names: Vec<&str> = known.iter().map(|benchmark| benchmark.name()).collect();
        let tasks = expand_names(tasks.unwrap_or_default().iter().map(String::as_str), &names);
        if tasks.is_empty() {
            self.add(
                "tasks",
                format!(
                    "no benchmarks selected: expected any of {}, a pattern such as gsm*, or all",
                    names.join(", ")
                ),
            );
        }
        for task in tasks.iter().filter(|task| !names.contains(&task.as_str())) {
            let hint = match nearest(task, names.iter().copied()) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => String::new(),
            };
            self.add(
                "tasks",
                format!("unknown benchmark `{task}`: expected one of {}{hint}", names.join(", ")),
            );
        }
        tasks
    }

    pub(super) fn listed<T: PartialEq>(
        &mut self,
        field: &'static str,
        given: Option<Vec<T>>,
        default: T,
    ) -> Vec<T> {
        match given {
            None => vec![default],
            Some(values) if values.is_empty() => {
                self.add(field, "the list is empty; omit the key for the default");
                Vec::new()
            }
            Some(values) => unique(values),
        }
    }

    pub(super) fn models(
        &mut self,
        sets: Option<&[ModelSet]>,
        formulations: &[Formulation],
        tasks: Known<'_>,
    ) -> Vec<BTreeMap<Role, String>> {
        let sets = sets.unwrap_or_default();
        if sets.is_empty() {
            self.add(
                "models",
                "no model is set; pass `--model NAME`, or `--planner` and `--grounder` (builtin:tiny is built in)",
            );
        }
        let mut needed: BTreeSet<Role> = BTreeSet::new();
        for benchmark in tasks {
            let supported = benchmark.formulations();
            for &formulation in formulations.iter().filter(|one| supported.contains(one)) {
                needed.extend(benchmark.roles(formulation));
            }
        }
        let named = |set: &ModelSet| {
            let role = |&role: &Role| {
                let name = set.role(role).map(str::trim).filter(|name| !name.is_empty())?;
                Some((role, name.to_owned()))
            };
            needed.iter().filter_map(role).collect()
        };
        unique(sets.iter().map(named))
    }

    pub(super) fn items(&mut self, spec: &RunSpec, tasks: &[String]) -> BTreeMap<String, ItemChoice> {
        if spec.limit == Some(0) {
            self.add("limit", "expected a positive integer, found 0; omit the limit for all items");
        }
        if spec.limit.is_some() && spec.samples.is_some() {
            self.add("samples", "`limit` and `samples` exclude each other: pass one of them");
        }
        let none = BTreeMap::new();
        let samples = spec.samples.as_ref().unwrap_or(&none);
        for (task, selection) in samples {
            if !tasks.contains(task) {
                self.add("samples", format!("items of `{task}` are selected, but it is not among the tasks"));
            }
            if selection.is_empty() {
                self.add("samples", format!("no items of {task} selected"));
            }
        }
        let choice = |task: &String| {
            if let Some(selection) = samples.get(task) {
                return ItemChoice::Chosen(selection.clone());
            }
            let published = spec.preset.and_then(|preset| preset.first_items(task));
            match (spec.limit, published) {
                (Some(limit), Some(published)) => ItemChoice::First(limit.min(published)),
                (Some(count), None) | (None, Some(count)) => ItemChoice::First(count),
                (None, None) => ItemChoice::All,
            }
        };
        tasks.iter().map(|task| (task.clone(), choice(task))).collect()
    }

    /// Checks generation settings and merges them over others.
    pub(super) fn generation(
        &mut self,
        given: &GenerationSpec,
        base: GenerationSettings,
    ) -> GenerationSettings {
        if given.max_new_tokens == Some(0) {
            self.add("generation", "invalid max_new_tokens 0: expected a positive integer");
        }
        if given.top_p.is_some_and(|top_p| !(top_p > 0.0 && top_p <= 1.0)) {
            self.add("generation", "invalid top_p: expected a number above 0 and at most 1");
        }
        if given.top_k == Some(0) {
            self.add("generation", "invalid top_k 0: expected a positive integer; omit it for no limit");
        }
        if let Some(temperature) = given.temperature.filter(|one| !(one.is_finite() && *one >= 0.0)) {
            self.add(
                "generation",
                format!("invalid temperature {temperature}: expected a number of at least 0"),
            );
        }
        let settings = generated(base, given);
        if settings.sampling == Sampling::Greedy && (given.top_p.is_some() || given.top_k.is_some()) {
            self.add(
                "generation",
                "top_p and top_k need a temperature above 0; decoding is greedy otherwise",
            );
        }
        settings
    }

    /// Checks that every model can take the prompts.
    pub(super) fn prompts(&mut self, spec: &RunSpec, models: &[BTreeMap<Role, String>]) {
        let template = spec.prompt_template.as_deref().unwrap_or(LUMOS_LAYOUT);
        let is_module = |role: &Role| matches!(role, Role::Planner | Role::Grounder | Role::Answerer);
        let named = || models.iter().flatten().filter(|(role, _)| is_module(role));
        if template == "chat"
            && let Some((role, name)) = named().find(|(_, name)| name.starts_with("openai:"))
        {
            let chat = name.replacen("openai:", Configuration::CHAT, 1);
            self.add(
                "prompt_template",
                format!(
                    "`chat` needs the model's own template, which {name} does not give: pass --{role} {chat}"
                ),
            );
        }
        let Some(exemplars) = spec.exemplars_per_prompt else { return };
        let most = PromptFormat::USUAL_EXEMPLARS;
        if exemplars > most {
            self.add(
                "exemplars_per_prompt",
                format!("expected a number from 0 to {most}, found {exemplars}"),
            );
        }
        if template == LUMOS_LAYOUT && !named().any(|(_, name)| name.starts_with(Configuration::CHAT)) {
            self.add(
                "exemplars_per_prompt",
                "worked examples need messages: pass --prompt-template, or a model openai-chat:<model>@<base url>",
            );
        }
    }

    pub(super) fn limits(&mut self, spec: &RunSpec) -> RunLimits {
        let given = &spec.limits;
        if given.time_limit.is_some_and(|seconds| !(seconds > 0.0 && seconds.is_finite())) {
            self.add("limits", "invalid time_limit: expected a number of seconds above 0");
        }
        RunLimits {
            time_limit: given.time_limit,
            fail_on_error: given.fail_on_error.unwrap_or_default(),
            retry_on_error: given.retry_on_error.unwrap_or(2),
        }
    }
}

/// Removes duplicates and keeps the order of first occurrence.
fn unique<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}
