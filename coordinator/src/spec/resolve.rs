//! Resolves a specification: fills in defaults and validates it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lumos_benchmarks::Scoring;
use lumos_benchmarks::task_file::TaskFile;
use lumos_tasks::{BackendChoice, Behaviour, ContentHash, Formulation, GenerationSettings};

use super::file::SpecError;
use super::matrix::Axes;
use super::problems::{Known, LUMOS_LAYOUT, Problems};
use super::resolved::ResolvedSpec;
use super::run_spec::RunSpec;

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
    pub(super) fn resolve_against(self, known: Known<'_>) -> Result<ResolvedSpec, SpecError> {
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
        problems.overrides(&self, &kept, generation, &asked);
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

#[cfg(test)]
pub(super) mod tests {
    use lumos_benchmarks::Benchmark;
    use lumos_tasks::{Device, Role};

    use super::*;
    use crate::spec::{GenerationSpec, ItemChoice, LimitsSpec, ModelSet, Preset, Selection};

    pub(in crate::spec) fn known() -> [&'static dyn Benchmark; 4] {
        ["gsm8k", "hotpotqa", "webshop", "mind2web"].map(|name| lumos_benchmarks::find(name).unwrap())
    }

    fn spec(tasks: &[&str]) -> RunSpec {
        RunSpec {
            tasks: Some(tasks.iter().map(|&task| task.to_owned()).collect()),
            models: Some(vec![ModelSet::of("builtin:tiny")]),
            ..RunSpec::default()
        }
    }

    pub(in crate::spec) fn refused(spec: RunSpec) -> String {
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
