//! Resolves a specification: fills in defaults and validates it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use lumos_benchmarks::task_file::TaskFile;
use lumos_benchmarks::{Benchmark, Scoring};
use lumos_tasks::{
    BackendChoice, Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, PromptFormat,
    Role, Sampling,
};

use super::file::SpecError;
use super::matrix::{Axes, MOST_CONFIGURATIONS};
use super::names::{expand_names, nearest};
use super::resolved::{ItemChoice, ResolvedSpec, RunLimits};
use super::rules::{Cell, CellSettings, ConfigurationFilter, MOST_RULES, generated};
use super::run_spec::{GenerationSpec, ModelSet, RunSpec};

/// The benchmarks that a specification may name.
type Known<'a> = &'a [&'static dyn Benchmark];

/// Name of the default prompt template.
const LUMOS_LAYOUT: &str = "tulu";

/// Longest list of tasks in the name of a run, in bytes.
const MOST_NAME: usize = 120;

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
        let models = problems.models(self.models.as_deref(), &formulation, &asked);
        let axes = Axes {
            tasks: &tasks,
            formulations: &formulation,
            models: &models,
            behaviours: &behaviour,
            seeds: &seed,
        };
        let kept = problems.matrix(&self, axes);
        problems.formulations(&kept, &formulation, &asked);
        problems.roles(&kept, &models, &asked);
        let own = asked.iter().filter_map(|one| one.task_file());
        let task_files: BTreeMap<_, _> =
            own.map(|file| (file.definition.name.clone(), file.clone())).collect();
        let added_benchmarks: BTreeMap<_, _> =
            asked.iter().filter_map(|one| Some((one.name().to_owned(), one.version()?))).collect();
        if self.preset.is_some() && asked.iter().any(|one| one.definition().is_some()) {
            problems.add("preset", "presets are for the published benchmarks; omit it with your own");
        }
        let items = problems.items(&self, &tasks);
        let generation = problems.generation(&self.generation, GenerationSettings::default());
        problems.overrides(&self, generation);
        problems.repetitions(&kept, &self, generation, &seed, &asked);
        let tasks: Vec<String> =
            tasks.iter().filter(|task| kept.iter().any(|(_, cell)| cell.task == *task)).cloned().collect();
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
            exclude: self.exclude.unwrap_or_default(),
            overrides: self.overrides.unwrap_or_default(),
            order: self.order.unwrap_or_default(),
        };
        resolved.items.retain(|task, _| resolved.tasks.contains(task));
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
    let asked = match (&spec.exclude, spec.overriding()) {
        (exclude, overrides) if exclude.is_empty() && overrides.is_empty() => asked,
        (exclude, overrides) => ContentHash::of_json(&(asked, "rules", exclude, overrides)),
    };
    let formulations = spec.formulation.iter().map(|one| one.name()).collect::<Vec<_>>().join("-");
    let tasks = spec.tasks.join("-");
    let tasks = match spec.tasks.as_slice() {
        // Folder names have a limited length.
        [first, .., last] if tasks.len() > MOST_NAME => {
            format!("{first}-to-{last}-{}-tasks", spec.tasks.len())
        }
        _ => tasks,
    };
    let part = spec.partition.map(|one| format!("-part-{}-of-{}", one.part(), one.of())).unwrap_or_default();
    format!("{tasks}-{formulations}-{}{part}", &asked.as_str()[..6])
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

    /// Applies the exclusions and checks that every rule matches. Returns the configurations that are kept, each with the
    /// index of its set of models.
    fn matrix<'a>(&mut self, spec: &RunSpec, axes: Axes<'a>) -> Vec<(usize, Cell<'a>)> {
        let exclude = spec.exclude.as_deref().unwrap_or_default();
        let overrides = spec.overrides.as_deref().unwrap_or_default();
        if axes.product() > MOST_CONFIGURATIONS {
            let Axes { tasks, formulations, models, behaviours, seeds } = axes;
            self.add(
                "tasks",
                format!(
                    "{} tasks × {} formulations × {} sets of models × {} behaviours × {} seeds are {} configurations, \
                     more than {MOST_CONFIGURATIONS}: split them into several runs",
                    tasks.len(),
                    formulations.len(),
                    models.len(),
                    behaviours.len(),
                    seeds.len(),
                    axes.product()
                ),
            );
            return Vec::new();
        }
        if exclude.len() > MOST_RULES || overrides.len() > MOST_RULES {
            self.add("exclude", format!("more than {MOST_RULES} rules of one kind"));
            return Vec::new();
        }
        let cells: Vec<_> = axes.cells().collect();
        let mut kept = cells.clone();
        // Without a matrix, which has an error of its own, no rule can match.
        if cells.is_empty() {
            return kept;
        }
        let everything: Vec<Cell<'_>> = cells.into_iter().map(|(_, cell)| cell).collect();
        let unmatched = |rule: &ConfigurationFilter, cells: &[Cell<'_>]| {
            let why = rule.unmatched(cells);
            format!(
                "matches no configuration: {why}; correct or remove the rule (a flag replaces the list of the file)"
            )
        };
        for (index, rule) in exclude.iter().enumerate() {
            if rule.is_empty() {
                self.rule(
                    spec,
                    "exclude",
                    index,
                    "excludes everything: set task, model, formulation, behaviour or seed",
                );
            } else if !everything.iter().any(|cell| rule.selects(cell)) {
                self.rule(spec, "exclude", index, unmatched(rule, &everything));
            }
        }
        kept.retain(|(_, cell)| !exclude.iter().any(|rule| !rule.is_empty() && rule.selects(cell)));
        if kept.is_empty() {
            self.rule(spec, "exclude", exclude.len() - 1, "all configurations are excluded");
            return kept;
        }
        for (index, rule) in overrides.iter().enumerate() {
            if rule.filter.is_empty() {
                self.rule(
                    spec,
                    "override",
                    index,
                    "missing `match`: set the value for all configurations outside the rule",
                );
            } else if !kept.iter().any(|(_, cell)| rule.filter.selects(cell)) {
                let cells: Vec<_> = kept.iter().map(|(_, cell)| cell.clone()).collect();
                let excluded = everything.iter().any(|cell| rule.filter.selects(cell));
                let why = if excluded {
                    "matches only excluded configurations".to_owned()
                } else {
                    unmatched(&rule.filter, &cells)
                };
                self.rule(spec, "override", index, why);
            }
        }
        kept
    }

    /// Adds the error of a rule, with its place in the file.
    fn rule(&mut self, spec: &RunSpec, key: &'static str, index: usize, message: impl Into<String>) {
        let lines = if key == "exclude" { &spec.places.exclude } else { &spec.places.overrides };
        let message = message.into();
        match lines.get(index) {
            Some(line) => self.add("", format!("{}:{line}: `{key}`: {message}", spec.places.file)),
            None => self.add(key, message),
        }
    }

    /// Checks that benchmarks support the formulations of their configurations.
    fn formulations(&mut self, kept: &[(usize, Cell<'_>)], formulations: &[Formulation], tasks: Known<'_>) {
        for benchmark in tasks {
            let supported = benchmark.formulations();
            let name = benchmark.name();
            for &formulation in formulations.iter().filter(|one| !supported.contains(one)) {
                if !kept.iter().any(|(_, cell)| cell.task == name && cell.formulation == formulation) {
                    continue;
                }
                let names = supported.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
                let mut message = format!("{name} does not support {formulation}; supported are {names}");
                if formulations.iter().any(|one| supported.contains(one)) {
                    message.push_str(&format!(
                        " (or add [[exclude]] with task = \"{name}\" and formulation = \"{formulation}\")"
                    ));
                }
                self.add("formulation", message);
            }
        }
    }

    /// Checks that every set of models has the roles of its configurations.
    fn roles(&mut self, kept: &[(usize, Cell<'_>)], models: &[BTreeMap<Role, String>], tasks: Known<'_>) {
        let mut missing: BTreeSet<(usize, Role)> = BTreeSet::new();
        for (set, cell) in kept {
            let benchmark = tasks.iter().find(|one| one.name() == cell.task);
            let supported = benchmark.filter(|one| one.formulations().contains(&cell.formulation));
            for &role in supported.map_or(&[][..], |one| one.roles(cell.formulation)) {
                let has = models.get(*set).is_some_and(|set| set.contains_key(&role));
                if !has && missing.insert((*set, role)) {
                    let formulation = cell.formulation;
                    self.add(
                        "models",
                        format!(
                            "formulation {formulation} needs a model for the {role}: pass `--{role}` or `--model`"
                        ),
                    );
                }
            }
        }
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

    /// Checks the settings of rules.
    fn overrides(&mut self, spec: &RunSpec, generation: GenerationSettings) {
        for (index, rule) in spec.overrides.iter().flatten().enumerate() {
            if !rule.has_settings() {
                self.rule(
                    spec,
                    "override",
                    index,
                    "sets nothing: expected limit, generation, tools or priority",
                );
            }
            if rule.limit == Some(0) {
                self.rule(spec, "override", index, "`limit`: expected a positive integer, found 0");
            }
            if rule.limit.is_some() && spec.samples.is_some() {
                let message = "`limit` and `samples` exclude each other: remove one of them";
                self.rule(spec, "override", index, message);
            }
            let mut of_rule = Self::default();
            of_rule.generation(&rule.generation, generation);
            for (_, message) in of_rule.0 {
                self.rule(spec, "override", index, message);
            }
        }
    }

    /// With greedy decoding, every seed yields the same episode.
    fn repetitions(
        &mut self,
        kept: &[(usize, Cell<'_>)],
        spec: &RunSpec,
        generation: GenerationSettings,
        seeds: &[u64],
        tasks: Known<'_>,
    ) {
        let rules = spec.overrides.as_deref().unwrap_or_default();
        let mut seen = HashSet::new();
        let mut repeated: BTreeSet<&str> = BTreeSet::new();
        for (set, cell) in kept.iter().filter(|_| seeds.len() > 1) {
            let is_greedy = CellSettings::of(cell, rules, generation).generation.sampling == Sampling::Greedy;
            if is_greedy && !seen.insert((cell.task, cell.formulation, set, cell.behaviour)) {
                repeated.insert(cell.task);
            }
        }
        let is_same = |one: &&&'static dyn Benchmark| !one.draws() && repeated.contains(one.name());
        let same: Vec<&str> = tasks.iter().filter(is_same).map(|one| one.name()).collect();
        if !same.is_empty() {
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

    /// Checks generation settings and merges them over others.
    fn generation(&mut self, given: &GenerationSpec, base: GenerationSettings) -> GenerationSettings {
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

    /// Reads a sweep of two benchmarks and two models.
    fn sweep(rules: &str) -> RunSpec {
        let lists = "tasks = ['gsm8k', 'hotpotqa']\nformulation = ['iterative', 'cot']\nseed = '0-1'";
        let models = "models = ['candle:m/a', 'candle:m/b']\n[generation]\ntemperature = 0.5";
        RunSpec::from_toml(&format!("{lists}\n{models}\n{rules}"), "sweep.toml").unwrap()
    }

    fn cells_of(spec: &ResolvedSpec) -> Vec<String> {
        let text = |cell: Cell<'_>| {
            format!("{} {} {} {}", cell.task, cell.formulation, cell.models.join("+"), cell.seed)
        };
        spec.cells().map(|(_, cell)| text(cell)).collect()
    }

    #[test]
    fn exclusions_leave_out_configurations_and_what_only_they_need() {
        let whole = sweep("").resolve_against(&known()).unwrap();
        assert_eq!((cells_of(&whole).len(), whole.exclude.len()), (16, 0));
        let rules = "[[exclude]]\ntask = 'hotpot*'\n[[exclude]]\nmodel = 'b'\nformulation = 'cot'\nseed = 1";
        let less = sweep(rules).resolve_against(&known()).unwrap();
        assert_eq!(less.tasks, ["gsm8k"]);
        assert_eq!(less.items.keys().collect::<Vec<_>>(), ["gsm8k"]);
        let cells = cells_of(&less);
        assert_eq!(cells.len(), 7, "{cells:?}");
        assert!(!cells.iter().any(|cell| cell.contains("cot") && cell.ends_with("m/b 1")), "{cells:?}");
        assert_ne!(less.name, sweep("[[exclude]]\ntask = 'hotpot*'").resolve_against(&known()).unwrap().name);
        let text = serde_json::to_string(&less).unwrap();
        assert_eq!(cells_of(&serde_json::from_str(&text).unwrap()), cells);

        // A benchmark without the formulation, and a model without the roles, are fine if the cells are excluded.
        let text = "tasks = ['gsm8k', 'webshop']\nformulation = ['iterative', 'cot']\n\
                    models = [{ model = 'candle:a' }, { answerer = 'candle:chat' }]\n";
        let read = |rules: &str| RunSpec::from_toml(&format!("{text}{rules}"), "sweep.toml").unwrap();
        let message = refused(read("[[exclude]]\ntask = 'webshop'\nmodel = 'chat'"));
        assert!(
            message.contains("webshop does not support cot; supported are iterative (or add [[exclude]]"),
            "{message}"
        );
        assert!(message.contains("formulation iterative needs a model for the planner"), "{message}");
        let rules = "exclude = [{ task = 'webshop', formulation = 'cot' }, { model = 'chat', formulation = 'iterative' }]";
        let spec = read(rules).resolve_against(&known()).unwrap();
        let expected = [
            "gsm8k iterative candle:a+candle:a+candle:a 0",
            "gsm8k cot candle:a+candle:a+candle:a 0",
            "gsm8k cot candle:chat 0",
            "webshop iterative candle:a+candle:a+candle:a 0",
        ];
        assert_eq!(cells_of(&spec), expected);
    }

    #[test]
    fn rules_that_have_no_effect_are_refused_with_their_line() {
        let said = |rules: &str| refused(sweep(rules));
        let line = sweep("").places;
        assert_eq!(line, crate::spec::RulePlaces::default());
        let message = said("[[exclude]]\ntask = 'gsm8k'\n\n[[exclude]]\ntask = 'hotpot'");
        assert!(
            message.starts_with(
                "sweep.toml:10: `exclude`: matches no configuration: no configuration has task `hotpot`; \
                 did you mean `hotpotqa`?"
            ),
            "{message}"
        );
        let pair = said("[[override]]\nmatch = { task = 'gsm8k', seed = 5 }\nlimit = 3");
        assert!(
            pair.starts_with(
                "sweep.toml:7: `override`: matches no configuration: no configuration has seed `5`"
            ),
            "{pair}"
        );
        let cases = [
            ("[[exclude]]", "`exclude`: excludes everything"),
            ("[[exclude]]\nseed = '0-1'", "`exclude`: all configurations are excluded"),
            ("[[override]]\nlimit = 3", "`override`: missing `match`"),
            ("[[override]]\nmatch.task = 'gsm8k'", "`override`: sets nothing"),
            ("[[override]]\nmatch.task = 'gsm8k'\nlimit = 0", "`limit`: expected a positive integer"),
            ("[[override]]\nmatch.seed = 0\ngeneration.top_p = 2", "invalid top_p"),
            ("[[override]]\nmatch.seed = 0\ngeneration.temperature = 0\ngeneration.top_k = 2", "above 0"),
            ("[[override]]\nmatch.seed = 0\ngeneration.temperature = -1", "invalid temperature -1"),
            (
                "[[override]]\nmatch.task = 'gsm8k'\ngeneration.temperature = 0",
                "greedy decoding gives the same",
            ),
            (
                "[[exclude]]\nseed = 1\n[[override]]\nmatch.seed = 1\nlimit = 2",
                "sweep.toml:9: `override`: matches only excluded configurations",
            ),
        ];
        for (rules, expected) in cases {
            let message = said(rules);
            assert!(message.contains(expected), "{rules}:\n{message}");
        }
        let chosen = RunSpec {
            samples: Some(BTreeMap::from([("gsm8k".to_owned(), Selection::of([1]))])),
            ..sweep("[[override]]\nmatch.task = 'gsm8k'\nlimit = 3")
        };
        assert!(refused(chosen).contains("`limit` and `samples` exclude each other"));
        // One seed remains where decoding is greedy.
        let rules = "[[override]]\nmatch.task = 'gsm8k'\ngeneration.temperature = 0\n[[exclude]]\ntask = 'gsm8k'\nseed = 1";
        assert_eq!(cells_of(&sweep(rules).resolve_against(&known()).unwrap()).len(), 12);
    }

    #[test]
    fn the_size_of_the_matrix_is_bounded() {
        let seeds = |count: u64| RunSpec { seed: Some((0..count).collect()), ..sweep("") };
        assert!(seeds(1250).resolve_against(&known()).is_ok());
        let message = refused(seeds(1251));
        assert!(
            message.contains("2 tasks × 2 formulations × 2 sets of models × 1 behaviours × 1251 seeds"),
            "{message}"
        );
        assert!(message.contains("are 10008 configurations, more than 10000"), "{message}");
    }

    #[test]
    fn limits_of_rules_decide_how_much_data_is_needed() {
        let needed = |limit: Option<u64>, rules: &str| {
            let spec = RunSpec { limit, ..sweep(rules) }.resolve_against(&known()).unwrap();
            ["gsm8k", "hotpotqa"].map(|task| spec.needed_items(task))
        };
        let rule = |filter: &str, limit: u64| format!("[[override]]\nmatch.{filter}\nlimit = {limit}\n");
        let first = ItemChoice::First;
        assert_eq!(needed(None, ""), [ItemChoice::All, ItemChoice::All]);
        assert_eq!(needed(None, &rule("task = 'gsm8k'", 5)), [first(5), ItemChoice::All]);
        assert_eq!(needed(None, &rule("model = 'a'", 5)), [ItemChoice::All, ItemChoice::All]);
        assert_eq!(needed(Some(3), &rule("model = 'a'", 5)), [first(5), first(5)]);
        assert_eq!(needed(Some(9), &rule("model = 'a'", 5)), [first(9), first(9)]);
        let two = rule("task = '*'", 5) + &rule("model = 'a'", 7);
        assert_eq!(needed(Some(90), &two), [first(7), first(7)]);
    }

    #[test]
    fn only_rules_that_affect_results_change_the_name() {
        let name = |rules: &str| sweep(rules).resolve_against(&known()).unwrap().name;
        let rule = |setting: &str| format!("[[override]]\nmatch.task = 'gsm8k'\n{setting}");
        assert_eq!(name(&rule("priority = 3")), name(""));
        assert_ne!(name(&rule("limit = 3")), name(""));
        assert_ne!(name(&rule("limit = 3")), name(&rule("limit = 4")));
        let order = RunSpec { order: Some(crate::spec::DispatchOrder::RoundRobin), ..sweep("") };
        assert_eq!(order.resolve_against(&known()).unwrap().name, name(""));
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
