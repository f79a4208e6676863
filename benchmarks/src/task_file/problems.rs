//! Checks the values of a definition.

use std::borrow::Cow;
use std::path::Component;

use regex::Regex;

use super::benchmark::known_metrics;
use super::{AnswerKind, DataFormat, TaskAnswer, TaskDefinition, TaskFamily, TaskFields};
use crate::metrics::MetricDefinition;
use crate::registry;

/// Maximum length of a name in characters, because names are parts of file names.
const LONGEST_NAME: usize = 64;

/// Returns what is wrong with the values, each with its key. `scored` are the metrics of a function that scores
/// outcomes; `None` if answers are compared.
pub(crate) fn problems(
    definition: &TaskDefinition,
    scored: Option<&[MetricDefinition]>,
) -> Vec<(Cow<'static, str>, String)> {
    let mut found: Vec<(Cow<'static, str>, String)> = Vec::new();
    let mut add = |key: &'static str, message: String| found.push((key.into(), message));
    let name = &definition.name;
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let starts_well = name.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if !starts_well || !name.chars().all(is_plain) || name.len() > LONGEST_NAME {
        add(
            "name",
            format!(
                "invalid name `{name}`: use at most {LONGEST_NAME} letters, digits, `-` and `_`, starting with a \
                 letter or a digit"
            ),
        );
    } else if registry::find(name).is_some() || name == "all" {
        add("name", format!("`{name}` is the name of a benchmark of this program; choose another name"));
    }
    if definition.format().is_none() {
        let file = definition.data.file.display();
        add(
            "data.file",
            format!(
                "unknown format of `{file}`: expected a name that ends in .jsonl, .json, .csv or .parquet, or set \
                 data.format"
            ),
        );
    }
    if definition.data.file.components().all(|part| part == Component::CurDir) {
        add("data.file", "expected the path of a file".to_owned());
    }
    let data = &definition.data;
    if let Some(id) = &data.hub {
        if id.split('/').count() != 2 || id.split('/').any(str::is_empty) {
            add("data.hub", format!("invalid data set `{id}`: expected owner/name"));
        }
        if !data.file.components().all(|part| matches!(part, Component::Normal(_))) {
            add("data.file", "expected the path of a file in the data set".to_owned());
        }
    } else if data.revision.is_some() {
        add("data.revision", "only data sets of the hub have revisions: set data.hub".to_owned());
    }
    let of_base = definition.family.base().formulations();
    let supported = definition.added_family.map_or(of_base, |family| family.formulations);
    for formulation in definition.formulations.iter().filter(|one| !supported.contains(one)) {
        let names = supported.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
        add("formulations", format!("the family does not support {formulation}; supported are {names}"));
    }
    if definition.max_rounds.is_some_and(|rounds| !(1..=1000).contains(&rounds)) {
        add("max_rounds", "expected a number from 1 to 1000".to_owned());
    }
    let kind = definition.answer_kind();
    let metrics = scored.unwrap_or_else(|| known_metrics(definition));
    let metrics: Vec<_> = metrics.iter().map(|metric| metric.name).collect();
    let known = metrics.join(", ");
    if scored.is_some() && !definition.metrics.is_empty() {
        add("metrics", "`score` already sets the metrics; remove them from the definition".to_owned());
    } else {
        for metric in definition.metrics.iter().filter(|metric| !metrics.contains(&metric.as_str())) {
            add("metrics", format!("unknown metric `{metric}` for answers of this kind: expected {known}"));
        }
    }
    let called = definition.called_tools();
    for tool in definition.tools.keys().filter(|tool| !called.contains(&tool.as_str())) {
        add("tools", format!("the agent does not call `{tool}`; its tools are {}", called.join(", ")));
    }
    if !definition.family.has_answers() && definition.answer != TaskAnswer::default() {
        add("answer", "only the families maths, qa and custom compare answers".to_owned());
    }
    let is_table = matches!(definition.format(), Some(DataFormat::Csv | DataFormat::Parquet));
    if definition.family == TaskFamily::Web && is_table {
        add("data.file", "records of the family web are in JSON files".to_owned());
    }
    if definition.family == TaskFamily::Web && definition.fields != TaskFields::default() {
        add("fields", "records of the family web have the format of Mind2Web".to_owned());
    }
    if definition.family != TaskFamily::Sql && definition.fields.database.is_some() {
        add("fields.database", "only the family sql has databases".to_owned());
    }
    if definition.family == TaskFamily::Sql && definition.max_rounds.is_some_and(|rounds| rounds > 10) {
        add("max_rounds", "expected at most 10 for the family sql".to_owned());
    }
    for (key, field) in fields(definition) {
        if field.is_empty() {
            add(key, "expected the name of a field".to_owned());
        }
    }
    if let Some(pattern) = &definition.answer.pattern {
        match Regex::new(pattern) {
            Ok(regex) if regex.captures_len() == 2 => {}
            Ok(regex) => add(
                "answer.pattern",
                format!("expected one group, which is the answer; found {}", regex.captures_len() - 1),
            ),
            Err(error) => {
                add("answer.pattern", error.to_string().lines().last().unwrap_or_default().to_owned());
            }
        }
    }
    if let Some(tolerance) = definition.answer.tolerance {
        if !matches!(kind, AnswerKind::Number | AnswerKind::Value) {
            add(
                "answer.tolerance",
                "only numbers have a tolerance: set answer.kind to number or value".to_owned(),
            );
        } else if !(0.0..1.0).contains(&tolerance) {
            add("answer.tolerance", "expected a number of at least 0 and below 1".to_owned());
        }
    }
    for figure in &definition.published {
        if let Some(metric) = figure.metric.as_deref().filter(|metric| !metrics.contains(metric)) {
            add("published.metric", format!("unknown metric `{metric}`: expected {known}"));
        }
        if !(0.0..=100.0).contains(&figure.percent) {
            add("published.percent", "expected a number from 0 to 100".to_owned());
        }
    }
    if !definition.published.is_empty() && definition.data.items.is_none() {
        add(
            "data.items",
            "published figures need the number of items on which they were measured".to_owned(),
        );
    }
    if definition.added_family.is_some()
        && (definition.agent.is_some() || definition.family != TaskFamily::Custom)
    {
        add("family", "a family in Rust replaces the agent of the family custom".to_owned());
    }
    match (&definition.agent, definition.family) {
        (None, TaskFamily::Custom) if definition.added_family.is_none() => {
            add("family", "the family custom needs a table `agent` with its actions".to_owned());
        }
        (Some(agent), TaskFamily::Custom) => {
            found.extend(agent.problems().into_iter().map(|(key, message)| (key.into(), message)));
        }
        (Some(_), _) => {
            add("agent", "only the family custom has an agent of its own".to_owned());
        }
        (None, _) => {}
    }
    found
}

/// The names of fields, with their keys.
fn fields(definition: &TaskDefinition) -> impl Iterator<Item = (&'static str, &String)> {
    let fields = &definition.fields;
    let required = [("fields.question", &fields.question), ("fields.answer", &fields.answer)];
    let optional = [
        ("fields.id", &fields.id),
        ("fields.group", &fields.group),
        ("fields.context", &fields.context),
        ("fields.cluster", &fields.cluster),
        ("fields.database", &fields.database),
    ];
    let optional = optional.into_iter().filter_map(|(key, field)| Some((key, field.as_ref()?)));
    required.into_iter().chain(optional)
}
