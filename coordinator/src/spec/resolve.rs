//! Resolves a specification: fills in defaults and validates it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lumos_benchmarks::task_file::TaskFile;
use lumos_benchmarks::{Benchmark, Scoring};
use lumos_tasks::{
    BackendChoice, Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, PromptFormat,
    Role, Sampling,
};

use super::file::SpecError;
use super::names::{expand_names, nearest};
use super::resolved::{ItemChoice, ResolvedSpec, RunLimits};
use super::run_spec::{ModelSet, RunSpec};

/// The benchmarks that a specification may name.
type Known<'a> = &'a [&'static dyn Benchmark];

/// Name of the default prompt template.
const LUMOS_LAYOUT: &str = "tulu";

const DTYPES: [&str; 3] = ["f32", "bf16", "f16"];

impl RunSpec {
    /// Fills in the defaults and validates the specification against the benchmarks of this program.
    ///
    /// # Errors
    /// All errors in the specification.
    pub fn resolve(self) -> Result<ResolvedSpec, SpecError> {
        self.resolve_with(&[])
    }

    /// As [`resolve`](Self::resolve), with the benchmarks of task files in addition. The tasks name them by their names,
    /// not by paths.
    ///
    /// # Errors
    /// All errors in the specification.
    pub fn resolve_with(self, files: &[TaskFile]) -> Result<ResolvedSpec, SpecError> {
        let own = files.iter().map(TaskFile::benchmark);
        let known: Vec<_> = lumos_benchmarks::all().iter().copied().chain(own).collect();
        self.resolve_against(&known)
    }

    /// Fills in the defaults and validates the specification against the given benchmarks.
    fn resolve_against(self, known: Known<'_>) -> Result<ResolvedSpec, SpecError> {
        let mut problems = Problems::default();
        let tasks = problems.tasks(self.tasks.as_deref(), known);
        let formulation = problems.listed("formulation", self.formulation.clone(), Formulation::Iterative);
        let behaviour = problems.listed("behaviour", self.behaviour.clone(), Behaviour::Paper);
        let scoring = match self.scoring.clone() {
            None => vec![Scoring::Paper, Scoring::Corrected],
            given => problems.listed("scoring", given, Scoring::Paper),
        };
        let seed = problems.listed("seed", self.seed.clone(), 0);
        let asked: Vec<_> =
            known.iter().copied().filter(|one| tasks.iter().any(|task| task == one.name())).collect();
        for benchmark in &asked {
            let supported = benchmark.formulations();
            for formulation in formulation.iter().filter(|one| !supported.contains(one)) {
                let supported = supported.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
                let name = benchmark.name();
                problems.add(
                    "formulation",
                    format!("{name} does not support {formulation}; supported are {supported}"),
                );
            }
        }
        let own = asked.iter().filter_map(|one| one.task_file());
        let task_files: BTreeMap<_, _> =
            own.map(|file| (file.definition.name.clone(), file.clone())).collect();
        let added_benchmarks: BTreeMap<_, _> =
            asked.iter().filter_map(|one| Some((one.name().to_owned(), one.version()?))).collect();
        if self.preset.is_some() && asked.iter().any(|one| one.definition().is_some()) {
            problems.add("preset", "presets are for the published benchmarks; omit it with your own");
        }
        let models = problems.models(self.models.as_deref(), &formulation, &asked);
        let items = problems.items(&self, &tasks);
        let generation = problems.generation(&self);
        if generation.sampling == Sampling::Greedy {
            problems.repetitions(&seed, &asked);
        }
        let limits = problems.limits(&self);
        problems.prompts(&self, &models);
        if let Some(dtype) = self.dtype.as_deref().filter(|dtype| !DTYPES.contains(dtype)) {
            problems.add("dtype", format!("unknown type `{dtype}`: expected one of {}", DTYPES.join(", ")));
        }
        if self.concurrency == Some(0) {
            problems.add("concurrency", "expected a positive integer, found 0; omit it for the default");
        }
        if let Some(name) = &self.name {
            problems.name(name);
        }
        if !problems.0.is_empty() {
            return Err(SpecError::Invalid { problems: problems.0 });
        }
        let mut resolved = ResolvedSpec {
            name: self.name.clone().unwrap_or_default(),
            preset: self.preset,
            tasks,
            task_files,
            added_benchmarks,
            formulation,
            behaviour,
            scoring,
            models,
            seed,
            items,
            partition: self.partition,
            data: self.data,
            output_path: self.output_path.unwrap_or_else(|| PathBuf::from("runs")),
            generation,
            tools: self.tools.unwrap_or_default(),
            batch_size: self.batch_size.unwrap_or_default(),
            device: self.device.unwrap_or_default(),
            memory: self.memory,
            swap: self.swap.unwrap_or_default(),
            concurrency: self.concurrency,
            dtype: self.dtype,
            backend: self.backend.unwrap_or_default(),
            limits,
            skip_invalid: self.skip_invalid.unwrap_or(false),
            exemplars: self.exemplars,
            browser: self.browser,
            prompt_template: self.prompt_template.filter(|name| name != LUMOS_LAYOUT),
            exemplars_per_prompt: self.exemplars_per_prompt,
        };
        if self.name.is_none() {
            resolved.name = default_name(&resolved);
        }
        Ok(resolved)
    }
}

/// Derives a name from the settings, so that the same command resumes its own run and another command does
/// not.
fn default_name(spec: &ResolvedSpec) -> String {
    let asked = ContentHash::of_json(&(
        (&spec.tasks, &spec.formulation, &spec.behaviour, &spec.models, &spec.seed, &spec.items),
        (&spec.generation, &spec.tools, &spec.dtype, spec.preset, spec.skip_invalid, &spec.data),
    ));
    // Added only if set, so that other runs keep the names of earlier versions.
    let asked = match &spec.exemplars {
        Some(exemplars) => ContentHash::of_json(&(asked, exemplars)),
        None => asked,
    };
    let asked = match &spec.browser {
        Some(browser) => ContentHash::of_json(&(asked, "browser", browser)),
        None => asked,
    };
    let asked = match (&spec.prompt_template, spec.exemplars_per_prompt) {
        (None, None) => asked,
        prompts => ContentHash::of_json(&(asked, "prompts", prompts)),
    };
    let asked = match spec.backend {
        BackendChoice::Auto => asked,
        backend => ContentHash::of_json(&(asked, "backend", backend)),
    };
    let asked = if spec.task_files.is_empty() {
        asked
    } else {
        ContentHash::of_json(&(asked, "task files", &spec.task_files))
    };
    let asked = if spec.added_benchmarks.is_empty() {
        asked
    } else {
        ContentHash::of_json(&(asked, "added benchmarks", &spec.added_benchmarks))
    };
    let formulations = spec.formulation.iter().map(|one| one.name()).collect::<Vec<_>>().join("-");
    let part = spec.partition.map(|one| format!("-part-{}-of-{}", one.part(), one.of())).unwrap_or_default();
    format!("{}-{formulations}-{}{part}", spec.tasks.join("-"), &asked.as_str()[..6])
}

#[derive(Default)]
struct Problems(Vec<(&'static str, String)>);

impl Problems {
    fn add(&mut self, field: &'static str, message: impl Into<String>) {
        self.0.push((field, message.into()));
    }

    fn name(&mut self, name: &str) {
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

    fn tasks(&mut self, tasks: Option<&[String]>, known: Known<'_>) -> Vec<String> {
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

    fn listed<T: PartialEq>(&mut self, field: &'static str, given: Option<Vec<T>>, default: T) -> Vec<T> {
        match given {
            None => vec![default],
            Some(values) if values.is_empty() => {
                self.add(field, "the list is empty; omit the key for the default");
                Vec::new()
            }
            Some(values) => unique(values),
        }
    }

    fn models(
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
        let mut needed: BTreeMap<Role, Formulation> = BTreeMap::new();
        for benchmark in tasks {
            let supported = benchmark.formulations();
            for &formulation in formulations.iter().filter(|one| supported.contains(one)) {
                for &role in benchmark.roles(formulation) {
                    needed.entry(role).or_insert(formulation);
                }
            }
        }
        let mut resolved = Vec::new();
        for set in sets {
            let mut models = BTreeMap::new();
            for (&role, formulation) in &needed {
                match set.role(role).map(str::trim).filter(|name| !name.is_empty()) {
                    Some(name) => {
                        models.insert(role, name.to_owned());
                    }
                    None => self.add(
                        "models",
                        format!(
                            "formulation {formulation} needs a model for the {role}: pass `--{role}` or `--model`"
                        ),
                    ),
                }
            }
            resolved.push(models);
        }
        unique(resolved)
    }

    fn items(&mut self, spec: &RunSpec, tasks: &[String]) -> BTreeMap<String, ItemChoice> {
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

    /// With greedy decoding, every seed yields the same episode.
    fn repetitions(&mut self, seeds: &[u64], tasks: Known<'_>) {
        let same: Vec<&str> = tasks.iter().filter(|one| !one.draws()).map(|one| one.name()).collect();
        if seeds.len() > 1 && !same.is_empty() {
            let given = seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            self.add(
                "seed",
                format!(
                    "greedy decoding gives the same episodes of {} for all seeds {given}: pass \
                     `--temperature 0.7` to sample, or one seed",
                    same.join(", ")
                ),
            );
        }
    }

    fn generation(&mut self, spec: &RunSpec) -> GenerationSettings {
        let given = &spec.generation;
        let default = GenerationSettings::default();
        if given.max_new_tokens == Some(0) {
            self.add("generation", "invalid max_new_tokens 0: expected a positive integer");
        }
        if given.top_p.is_some_and(|top_p| !(top_p > 0.0 && top_p <= 1.0)) {
            self.add("generation", "invalid top_p: expected a number above 0 and at most 1");
        }
        if given.top_k == Some(0) {
            self.add("generation", "invalid top_k 0: expected a positive integer; omit it for no limit");
        }
        let temperature = given.temperature.unwrap_or(0.0);
        if !(temperature.is_finite() && temperature >= 0.0) {
            self.add(
                "generation",
                format!("invalid temperature {temperature}: expected a number of at least 0"),
            );
        }
        let sampling = if temperature > 0.0 {
            Sampling::Random { temperature, top_p: given.top_p, top_k: given.top_k }
        } else {
            if given.top_p.is_some() || given.top_k.is_some() {
                self.add(
                    "generation",
                    "top_p and top_k need a temperature above 0; decoding is greedy otherwise",
                );
            }
            Sampling::Greedy
        };
        GenerationSettings {
            sampling,
            max_new_tokens: given.max_new_tokens.unwrap_or(default.max_new_tokens),
        }
    }

    /// Checks that every model can take the prompts.
    fn prompts(&mut self, spec: &RunSpec, models: &[BTreeMap<Role, String>]) {
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

    fn limits(&mut self, spec: &RunSpec) -> RunLimits {
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

#[cfg(test)]
mod tests {
    use lumos_tasks::Device;

    use super::*;
    use crate::spec::{GenerationSpec, LimitsSpec, Preset, Selection};

    fn known() -> [&'static dyn Benchmark; 4] {
        ["gsm8k", "hotpotqa", "webshop", "mind2web"].map(|name| lumos_benchmarks::find(name).unwrap())
    }

    fn spec(tasks: &[&str]) -> RunSpec {
        RunSpec {
            tasks: Some(tasks.iter().map(|&task| task.to_owned()).collect()),
            models: Some(vec![ModelSet::of("builtin:tiny")]),
            ..RunSpec::default()
        }
    }

    fn refused(spec: RunSpec) -> String {
        spec.resolve_against(&known()).unwrap_err().to_string()
    }

    #[test]
    fn prompts_are_checked_and_lumos_s_layout_is_the_default() {
        let with = |template: &str, exemplars: Option<u8>, model: &str| RunSpec {
            prompt_template: Some(template.to_owned()),
            exemplars_per_prompt: exemplars,
            models: Some(vec![ModelSet::of(model)]),
            ..spec(&["gsm8k"])
        };
        let plain = spec(&["gsm8k"]).resolve_against(&known()).unwrap();
        let tulu = with("tulu", None, "builtin:tiny").resolve_against(&known()).unwrap();
        assert_eq!(tulu, plain);
        let chatml = with("chatml", Some(2), "builtin:tiny").resolve_against(&known()).unwrap();
        assert_ne!(chatml.name, plain.name);
        assert_eq!(chatml.prompt_template.as_deref(), Some("chatml"));
        assert!(with("tulu", Some(0), "openai-chat:m@http://h/v1").resolve_against(&known()).is_ok());
        for (spec, message) in [
            (with("chat", None, "openai:m@http://h/v1"), "pass --planner openai-chat:m@http://h/v1"),
            (with("chatml", Some(3), "builtin:tiny"), "expected a number from 0 to 2, found 3"),
            (with("tulu", Some(1), "builtin:tiny"), "worked examples need messages"),
        ] {
            let refused = refused(spec);
            assert!(refused.contains(message), "{refused}");
        }
    }

    #[test]
    fn a_short_specification_becomes_complete() {
        let resolved = spec(&["gsm8k", "gsm8k"]).resolve_against(&known()).unwrap();
        assert_eq!(resolved.tasks, ["gsm8k"]);
        assert_eq!(resolved.formulation, [Formulation::Iterative]);
        assert_eq!(resolved.scoring, [Scoring::Paper, Scoring::Corrected]);
        assert_eq!(resolved.generation, GenerationSettings::default());
        assert_eq!(resolved.items["gsm8k"], ItemChoice::All);
        assert_eq!(resolved.models[0].len(), 2);
        assert!(resolved.name.starts_with("gsm8k-iterative-"), "{}", resolved.name);
        let again = spec(&["gsm8k"]).resolve_against(&known()).unwrap();
        assert_eq!(resolved, again);
        let other = RunSpec { limit: Some(3), ..spec(&["gsm8k"]) }.resolve_against(&known()).unwrap();
        assert_ne!(resolved.name, other.name);
        let with = |backend| RunSpec { backend: Some(backend), ..spec(&["gsm8k"]) };
        let automatic = with(BackendChoice::Auto).resolve_against(&known()).unwrap();
        assert_eq!(automatic.name, resolved.name);
        let native = with(BackendChoice::Native).resolve_against(&known()).unwrap();
        assert_ne!(native.name, resolved.name);
        let text = serde_json::to_string(&resolved).unwrap();
        assert_eq!(serde_json::from_str::<ResolvedSpec>(&text).unwrap(), resolved);
    }

    #[test]
    fn the_paper_preset_has_the_published_items() {
        let paper = RunSpec { preset: Some(Preset::Paper), ..spec(&["gsm8k", "hotpotqa", "webshop"]) };
        let resolved = paper.clone().resolve_against(&known()).unwrap();
        assert_eq!(resolved.items["gsm8k"], ItemChoice::All);
        assert_eq!(resolved.items["hotpotqa"], ItemChoice::First(1000));
        assert_eq!(resolved.items["webshop"], ItemChoice::First(500));
        assert_eq!(resolved.behaviour, [Behaviour::Paper]);
        assert_eq!(resolved.dtype_on(Device::Cuda(0)), Some("f16"));
        assert_eq!((resolved.dtype_on(Device::Cpu), resolved.dtype_on(Device::Auto)), (None, None));
        let limited = RunSpec { limit: Some(10), ..paper }.resolve_against(&known()).unwrap();
        assert_eq!(limited.items["hotpotqa"], ItemChoice::First(10));
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let message = refused(RunSpec {
            tasks: Some(vec!["gsm9k".to_owned()]),
            limit: Some(0),
            dtype: Some("float16".to_owned()),
            name: Some("../up".to_owned()),
            ..RunSpec::default()
        });
        assert!(message.contains(
            "unknown benchmark `gsm9k`: expected one of gsm8k, hotpotqa, webshop, mind2web; did you mean `gsm8k`?"
        ));
        assert!(message.contains("limit: expected a positive integer, found 0"), "{message}");
        assert!(message.contains("dtype: unknown type"), "{message}");
        assert!(message.contains("models: no model is set"), "{message}");
        assert!(message.contains("name: invalid folder name `../up`"), "{message}");
    }

    #[test]
    fn unsupported_combinations_are_refused() {
        let cot = RunSpec { formulation: Some(vec![Formulation::Cot]), ..spec(&["webshop"]) };
        assert_eq!(refused(cot), "formulation: webshop does not support cot; supported are iterative");
        let planner = ModelSet { planner: Some("p".to_owned()), ..ModelSet::default() };
        let alone = RunSpec { models: Some(vec![planner]), ..spec(&["gsm8k"]) };
        assert!(refused(alone).contains("needs a model for the grounder: pass `--grounder`"));
        let cold = GenerationSpec { top_k: Some(5), ..GenerationSpec::default() };
        assert!(refused(RunSpec { generation: cold, ..spec(&["gsm8k"]) }).contains("temperature above 0"));
        let both = RunSpec {
            limit: Some(1),
            samples: Some(BTreeMap::from([("webshop".to_owned(), Selection::of([1]))])),
            ..spec(&["gsm8k"])
        };
        let message = refused(both);
        assert!(
            message.contains("exclude each other") && message.contains("not among the tasks"),
            "{message}"
        );
        let late = LimitsSpec { time_limit: Some(-1.0), ..LimitsSpec::default() };
        assert!(refused(RunSpec { limits: late, ..spec(&["gsm8k"]) }).contains("above 0"));
        let empty = RunSpec { seed: Some(Vec::new()), ..spec(&["gsm8k"]) };
        assert!(refused(empty).contains("seed: the list is empty"));
    }

    #[test]
    fn repetitions_need_sampling() {
        let seeded = |task: &str, temperature| RunSpec {
            seed: Some(vec![0, 1, 2]),
            generation: GenerationSpec { temperature, ..GenerationSpec::default() },
            ..spec(&[task])
        };
        let message = refused(seeded("gsm8k", None));
        assert!(message.starts_with("seed: greedy decoding gives the same episodes of gsm8k"), "{message}");
        assert!(message.contains("seeds 0,1,2: pass `--temperature 0.7`"), "{message}");
        assert!(refused(seeded("gsm8k", Some(0.0))).contains("one seed"));
        let sampled = seeded("gsm8k", Some(0.7)).resolve_against(&known()).unwrap();
        assert_eq!(sampled.seed, [0, 1, 2]);
        // A repeated seed is one repetition; a benchmark that draws at random accepts several.
        let twice = RunSpec { seed: Some(vec![3, 3]), ..spec(&["gsm8k"]) };
        assert_eq!(twice.resolve_against(&known()).unwrap().seed, [3]);
        assert_eq!(seeded("mind2web", None).resolve_against(&known()).unwrap().seed.len(), 3);
        let drawing = lumos_benchmarks::all().iter().filter(|one| one.draws());
        assert_eq!(drawing.map(|one| one.name()).collect::<Vec<_>>(), ["mind2web"]);
    }

    #[test]
    fn formulations_get_the_roles_they_ask() {
        let both = RunSpec {
            formulation: Some(vec![Formulation::OneTime, Formulation::Direct]),
            ..spec(&["gsm8k"])
        };
        let resolved = both.resolve_against(&known()).unwrap();
        assert_eq!(
            resolved.models[0].keys().copied().collect::<Vec<_>>(),
            [Role::Planner, Role::Grounder, Role::Answerer]
        );
        let roles = |spec: RunSpec| -> Vec<Role> {
            spec.resolve_against(&known()).unwrap().models[0].keys().copied().collect()
        };
        assert_eq!(roles(spec(&["hotpotqa"])), [Role::Planner, Role::Grounder, Role::Qa]);
        let modules =
            ModelSet { planner: Some("p".to_owned()), grounder: Some("g".to_owned()), ..ModelSet::default() };
        let without = RunSpec { models: Some(vec![modules]), ..spec(&["hotpotqa"]) };
        assert!(refused(without).contains("needs a model for the qa: pass `--qa`"));
    }
}
