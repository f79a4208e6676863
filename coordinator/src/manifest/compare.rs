//! Describes the differences between two runs: settings by flag, models by role and name.

use std::collections::{BTreeMap, BTreeSet};

use lumos_tasks::{BackendChoice, Formulation, ModelIdentity, Role, Sampling, ToolBackend};

use super::{DataRecord, Manifest, ModelRecord};
use crate::spec::{ItemChoice, ResolvedSpec};

/// Describes how `asked` differs from `found`, one line per difference: `--limit 4 instead of 3`. Never
/// empty.
pub(crate) fn differences(found: &Manifest, asked: &Manifest) -> Vec<String> {
    let mut lines = Vec::new();
    let (before, now) = (settings(&found.spec, &asked.spec), settings(&asked.spec, &found.spec));
    let flags: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    for flag in flags {
        lines.extend(instead(flag, before.get(flag), now.get(flag)));
    }
    if found.spec.exclude != asked.spec.exclude {
        lines.push("`[[exclude]]`: other exclusions than those of the run".to_owned());
    }
    if found.spec.overriding() != asked.spec.overriding() {
        lines.push("`[[override]]`: other settings than those of the run".to_owned());
    }
    for data in &asked.data {
        let benchmark = data.benchmark.as_str();
        let other = found.data_of(benchmark).filter(|other| other.items != data.items);
        // A different choice of items is reported as a setting.
        let same_choice = found.spec.items.get(benchmark) == asked.spec.items.get(benchmark);
        lines.extend(
            other
                .filter(|other| same_choice || other.sha256 != data.sha256)
                .map(|other| data_line(other, data)),
        );
    }
    let (before, now) = (models(found), models(asked));
    for (key, model) in &now {
        let Some(other) = before.get(key) else { continue };
        let (_, role, name) = key;
        let line = if other.content != model.content {
            format!("{role} {name}: its content has changed ({})", changed_files(found, other, asked, model))
        } else if other.dtype != model.dtype
            && found.spec.dtype == asked.spec.dtype
            && found.spec.backend == asked.spec.backend
        {
            let dtype =
                |model: &ModelIdentity| model.dtype.clone().unwrap_or_else(|| "its original type".to_owned());
            format!("{role} {name}: computed in {} instead of {}", dtype(model), dtype(other))
        } else {
            continue;
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    for (benchmark, prompts) in &asked.prompts {
        if found.prompts.get(benchmark).is_some_and(|other| other != prompts) {
            let version = |spec: &ResolvedSpec| spec.added_benchmarks.get(benchmark).copied();
            lines.push(if asked.spec.task_files.contains_key(benchmark) {
                format!("task file of {benchmark}: family, fields or answer differ from those of the run")
            } else if let (Some(now), Some(before)) = (version(&asked.spec), version(&found.spec))
                && now != before
            {
                format!("benchmark {benchmark}: version {now} instead of {before}")
            } else {
                format!("prompts of {benchmark}: this program's differ from those of the run")
            });
        }
    }
    lines.extend(tools(found, asked));
    if lines.is_empty() {
        let (found, asked) = (found.identity.short(), asked.identity.short());
        lines.push(format!("configurations {asked} instead of {found}"));
    }
    lines
}

/// Formats `--limit 4 instead of 3`; nothing if both values are equal.
fn instead(flag: &str, before: Option<&String>, now: Option<&String>) -> Option<String> {
    match (before, now) {
        (before, now) if before == now => None,
        (Some(before), Some(now)) => Some(format!("{flag} {now} instead of {before}")),
        (None, Some(now)) => Some(format!("{flag} {now}, which the run does not have")),
        (Some(before), None) => Some(format!("no {flag}, the run has {flag} {before}")),
        (None, None) => None,
    }
}

/// Returns the settings that define a run, by flag. Settings for location, speed and scoring are excluded,
/// because they may change when a run is resumed.
pub fn settings(spec: &ResolvedSpec, other: &ResolvedSpec) -> BTreeMap<String, String> {
    fn list<T: ToString>(values: &[T]) -> String {
        values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
    let mut all = BTreeMap::new();
    let mut set = |flag: &str, value: Option<String>| {
        if let Some(value) = value {
            all.insert(format!("--{flag}"), value);
        }
    };
    set("tasks", Some(list(&spec.tasks)));
    set("formulation", Some(list(&spec.formulation)));
    set("behaviour", Some(list(&spec.behaviour)));
    set("seed", Some(list(&spec.seed)));
    set("partition", spec.partition.map(|partition| partition.to_string()));
    set("dtype", spec.dtype.clone());
    set("backend", (spec.backend != BackendChoice::Auto).then(|| spec.backend.to_string()));
    set("exemplars", spec.exemplars.as_ref().map(|path| path.display().to_string()));
    set("browser", spec.browser.clone());
    set("prompt-template", spec.prompt_template.clone());
    set("exemplars-per-prompt", spec.exemplars_per_prompt.map(|number| number.to_string()));
    set("max-new-tokens", Some(spec.generation.max_new_tokens.to_string()));
    if let Sampling::Random { temperature, top_p, top_k } = spec.generation.sampling {
        set("temperature", Some(temperature.to_string()));
        set("top-p", top_p.map(|top_p| top_p.to_string()));
        set("top-k", top_k.map(|top_k| top_k.to_string()));
    }
    let mut by_role: BTreeMap<Role, Vec<String>> = BTreeMap::new();
    for (role, name) in spec.models.iter().flatten() {
        let names = by_role.entry(*role).or_default();
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    match (only_model(spec), only_model(other)) {
        (Some(name), Some(_)) => set("model", Some(name.to_owned())),
        _ => {
            for (role, names) in by_role {
                set(role.name(), Some(names.join(" and ")));
            }
        }
    }
    // Items of tasks that only one of the runs has are reported with the tasks.
    let choices = spec.items.iter().filter(|(task, _)| other.items.contains_key(*task));
    let choices: Vec<(&String, &ItemChoice)> = choices.collect();
    let first = choices.first().map(|(_, choice)| *choice);
    match first {
        Some(choice) if choices.iter().all(|(_, other)| *other == choice) => match choice {
            ItemChoice::All => {}
            ItemChoice::First(count) => set("limit", Some(count.to_string())),
            ItemChoice::Chosen(chosen) => set("samples", Some(chosen.to_string())),
        },
        _ => {
            let each: Vec<_> = choices.iter().map(|(task, choice)| format!("{task}={choice}")).collect();
            set("samples", (!each.is_empty()).then(|| each.join(";")));
        }
    }
    all
}

/// Returns the model if all roles use the same one.
fn only_model(spec: &ResolvedSpec) -> Option<&str> {
    let mut names = spec.models.iter().flat_map(BTreeMap::values);
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
}

fn data_line(before: &DataRecord, now: &DataRecord) -> String {
    let benchmark = &now.benchmark;
    if before.sha256 == now.sha256 {
        return format!("items of {benchmark}: {} instead of {}", now.selected, before.selected);
    }
    let shown = |data: &DataRecord| format!("{} (sha256 {})", data.source, data.sha256.short());
    format!("data of {benchmark}: {} instead of {}", shown(now), shown(before))
}

/// Returns the models of a run. A name can mean several models: `builtin:tiny` depends on role and
/// formulation.
fn models(manifest: &Manifest) -> BTreeMap<(Formulation, Role, &str), &ModelIdentity> {
    let cells = manifest.configurations.iter().map(|planned| &planned.configuration);
    cells
        .flat_map(|cell| {
            let formulation = cell.formulation;
            cell.models.iter().map(move |(role, model)| ((formulation, *role, model.name.as_str()), model))
        })
        .collect()
}

/// Returns the names of the files in which two models differ.
fn changed_files(found: &Manifest, before: &ModelIdentity, asked: &Manifest, now: &ModelIdentity) -> String {
    fn files<'a>(manifest: &'a Manifest, model: &ModelIdentity) -> Option<&'a ModelRecord> {
        manifest.models.iter().find(|record| record.identity.content == model.content)
    }
    let known = files(found, before).map(|record| record.files.as_slice()).unwrap_or_default();
    let files = files(asked, now).map(|record| record.files.as_slice()).unwrap_or_default();
    let changed: Vec<&str> =
        files.iter().filter(|file| !known.contains(file)).map(|file| file.name.as_str()).collect();
    if changed.is_empty() { "files were removed".to_owned() } else { changed.join(", ") }
}

/// Describes the tools that differ.
fn tools(found: &Manifest, asked: &Manifest) -> Vec<String> {
    fn all(manifest: &Manifest) -> BTreeSet<&ToolBackend> {
        manifest.configurations.iter().flat_map(|one| &one.configuration.tools).collect()
    }
    let (before, now) = (all(found), all(asked));
    let differs = |tool: &&&ToolBackend| !before.contains(**tool);
    now.iter()
        .filter(differs)
        .filter_map(|tool| {
            let other = before.iter().find(|other| other.tool == tool.tool && !now.contains(**other))?;
            let name = &tool.tool;
            Some(if other.backend == tool.backend {
                format!("tool {name}: version {} instead of {}", tool.version, other.version)
            } else {
                format!("--tool {name}={} instead of {name}={}", tool.backend, other.backend)
            })
        })
        .collect()
}
