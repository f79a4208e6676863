//! `lumos run --dry-run` and `lumos validate`: check everything that a run needs, and print its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use lumos_coordinator::manifest::{Manifest, PlannedConfiguration};
use lumos_coordinator::spec::StopRule;
use lumos_engine::bench::BenchReport;
use lumos_reports::thousands;
use lumos_tasks::{Configuration, GenerationSettings, Role, Sampling};
use serde::Serialize;

use super::estimate::{Kind, Pilot, duration, read};
use crate::cli::{RunArgs, RunsArgs, Verbosity};
use crate::estimate::{TokensPerItem, nearest, predict, recorded};
use crate::exit::{CommandResult, Exit, Failure};
use crate::pipeline::{Plan, Spec, check_vacant, manifest_failure};
use crate::settings::{self, Computes};
use crate::table::{Column, render, width};

/// One configuration of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct PlanRow<'a> {
    label: &'a str,
    benchmark: &'a str,
    formulation: &'a str,
    behaviour: &'a str,
    seed: u64,
    models: BTreeMap<Role, &'a str>,
    tools: BTreeMap<&'a str, &'a str>,
    generation: GenerationSettings,
    units: u64,
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<&'a StopRule>,
    /// Estimated number of tokens that models compute for prompts and write, if known.
    tokens: Option<u64>,
    /// Estimated cost in US dollars, if the run of `--like` used models with a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    dollars: Option<f64>,
    /// Estimated seconds of one worker, if known.
    seconds: Option<f64>,
}

/// The plan as a JSON object.
#[derive(Debug, Serialize)]
struct PlanDocument<'a> {
    run: &'a str,
    folder: &'a Path,
    /// Whether the run's folder exists, so that `lumos run` continues it.
    exists: bool,
    order: &'static str,
    configurations: &'a [PlanRow<'a>],
    units: u64,
    /// `null` if that of a configuration is unknown.
    tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dollars: Option<f64>,
    seconds: Option<f64>,
}

/// Sources of estimates.
#[derive(Debug, Default)]
struct Estimates {
    /// Tokens per item of another run.
    known: BTreeMap<Kind, TokensPerItem>,
    bench: Option<BenchReport>,
    batch_size: Option<usize>,
}

impl Estimates {
    fn of(arguments: &RunArgs, manifest: &Manifest) -> Result<Self, Failure> {
        let runs = RunsArgs { output_path: manifest.spec.output_path.clone() };
        let like = arguments.like.as_deref().map(|run| runs.folder(run)).transpose()?;
        Ok(Self {
            known: like.as_deref().map(Pilot::read).transpose()?.unwrap_or_default().kinds,
            bench: arguments.bench.as_deref().map(read).transpose()?,
            batch_size: settings::fixed(manifest.spec.batch_size),
        })
    }

    /// Estimates tokens, dollars and seconds of a configuration.
    fn predict(&self, configuration: &Configuration, units: u64) -> (Option<u64>, Option<f64>, Option<f64>) {
        let kind = (configuration.benchmark.clone(), configuration.formulation);
        let known = self.known.get(&kind).copied();
        let Some(per_item) = known.or_else(|| recorded(&configuration.benchmark, configuration.formulation))
        else {
            return (None, None, None);
        };
        // Numbers of tokens are far below 2^53.
        let tokens = (units as f64 * (per_item.computed + per_item.written)).round() as u64;
        let seconds = match &self.bench {
            Some(bench) => {
                nearest(bench, self.batch_size).map(|cell| predict(bench, cell, per_item, units, 1).seconds)
            }
            None => per_item.seconds.map(|seconds| units as f64 * seconds),
        };
        let dollars = Some(units as f64 * per_item.dollars).filter(|dollars| *dollars > 0.0);
        (Some(tokens), dollars, seconds)
    }

    fn row<'a>(&self, planned: &'a PlannedConfiguration) -> PlanRow<'a> {
        let configuration = &*planned.configuration;
        let (tokens, dollars, seconds) = self.predict(configuration, planned.planned);
        let names = configuration.models.iter().map(|(role, model)| (*role, model.name.as_str()));
        let backends = configuration.tools.iter().map(|tool| (tool.tool.as_str(), tool.backend.as_str()));
        PlanRow {
            label: &planned.label,
            benchmark: &configuration.benchmark,
            formulation: configuration.formulation.name(),
            behaviour: configuration.behaviour.name(),
            seed: configuration.seed,
            models: names.collect(),
            tools: backends.collect(),
            generation: configuration.generation,
            units: planned.planned,
            priority: planned.priority,
            stop: planned.stop.as_ref(),
            tokens,
            dollars,
            seconds,
        }
    }
}

pub(crate) async fn run(arguments: &RunArgs) -> CommandResult {
    let Plan { manifest, executor, .. } = Plan::of(Spec::of(arguments, Verbosity::default())?).await?;
    let computes = Computes::of(&arguments.fleet);
    let in_phases = match computes {
        Computes::Here => executor.prepare(&manifest).await?,
        // This machine need not have the memory or the devices for the models.
        Computes::OnWorkers => false,
    };
    let estimates = Estimates::of(arguments, &manifest)?;
    let rows: Vec<PlanRow<'_>> =
        manifest.configurations.iter().map(|planned| estimates.row(planned)).collect();
    let folder = manifest.spec.folder();
    let exists = exists(&manifest, &folder)?;
    let out = io::stdout().lock();
    if arguments.output.json {
        let document = PlanDocument {
            run: &manifest.spec.name,
            folder: &folder,
            exists,
            order: manifest.spec.order.name(),
            units: manifest.planned(),
            tokens: rows.iter().map(|row| row.tokens).sum(),
            dollars: dollars(&rows),
            seconds: rows.iter().map(|row| row.seconds).sum(),
            configurations: &rows,
        };
        write_document(&document, out)?;
    } else {
        write_plan(&manifest, &rows, computes, in_phases, exists, out)?;
    }
    Ok(Exit::Complete)
}

/// Whether the folder contains the run, so that `lumos run` continues it.
///
/// # Errors
/// If `lumos run` would refuse the folder.
fn exists(manifest: &Manifest, folder: &Path) -> Result<bool, Failure> {
    match manifest.open(folder).map_err(manifest_failure)? {
        Some(_) => Ok(true),
        None => check_vacant(folder).map(|()| false),
    }
}

fn write_document(document: &PlanDocument<'_>, mut out: impl Write) -> Result<(), Failure> {
    serde_json::to_writer(&mut out, document)?;
    Ok(writeln!(out)?)
}

fn write_plan(
    manifest: &Manifest,
    rows: &[PlanRow<'_>],
    computes: Computes,
    in_phases: bool,
    exists: bool,
    mut out: impl Write,
) -> io::Result<()> {
    let folder = manifest.spec.folder();
    writeln!(out, "run {}, folder {}", manifest.spec.name, folder.display())?;
    for data in &manifest.data {
        let (selected, records, source) = (data.selected, data.records, &data.source);
        let sum = data.sha256.short();
        writeln!(out, "{}: {selected} of {records} records from {source} (sha256 {sum})", data.benchmark)?;
    }
    for model in &manifest.models {
        writeln!(out, "{} (content {})", model.identity.name, model.identity.content.short())?;
    }
    if in_phases {
        writeln!(out, "models are loaded in turns: each fits into memory, but not all together")?;
    }
    writeln!(out, "\n{}", table(rows, manifest.spec.generation, width()))?;
    let units = manifest.planned();
    let count = rows.len();
    let noun = if count == 1 { "configuration" } else { "configurations" };
    writeln!(out, "{count} {noun}, {units} units, order {}", manifest.spec.order.name())?;
    if let Some(tokens) = rows.iter().map(|row| row.tokens).sum::<Option<u64>>() {
        writeln!(out, "about {} tokens", thousands(tokens))?;
    }
    if let Some(dollars) = dollars(rows) {
        writeln!(out, "about {dollars:.4} US dollars for models with a price")?;
    }
    if let Some(seconds) = rows.iter().map(|row| row.seconds).sum::<Option<f64>>() {
        writeln!(out, "about {} for one worker; time of tools and loading not included", duration(seconds))?;
    }
    match computes {
        Computes::Here => {
            if manifest.models.iter().any(|model| model.identity.name.starts_with("openai")) {
                writeln!(out, "models of servers were looked up on the servers that can be reached")?;
            }
            writeln!(out, "settings, data and models are valid")?;
        }
        Computes::OnWorkers => {
            writeln!(out, "settings and data are valid; the workers of the queue verify models and tools")?;
        }
    }
    if exists {
        writeln!(out, "the run exists: `lumos run` continues it")?;
    }
    Ok(())
}

/// Sums the costs that are known; `None` if none is.
fn dollars(rows: &[PlanRow<'_>]) -> Option<f64> {
    rows.iter().filter_map(|row| row.dollars).reduce(|sum, one| sum + one)
}

/// Formats the configurations as a table of at most `width` columns. Columns without values, and those that are the same
/// everywhere except benchmark and formulation, are left out.
fn table(rows: &[PlanRow<'_>], generation: GenerationSettings, width: u16) -> String {
    let values = |value: &dyn Fn(&PlanRow<'_>) -> String| rows.iter().map(value).collect::<Vec<String>>();
    let unknown = || "-".to_owned();
    let settings = |row: &PlanRow<'_>| changed(generation, row.generation);
    let varies =
        |value: &dyn Fn(&PlanRow<'_>) -> String| values(value).iter().collect::<BTreeSet<_>>().len() > 1;
    let mut columns = vec![
        (Column::new("benchmark"), values(&|row| row.benchmark.to_owned())),
        (Column::new("formulation"), values(&|row| row.formulation.to_owned())),
    ];
    if varies(&|row| row.behaviour.to_owned()) {
        columns.push((Column::new("behaviour"), values(&|row| row.behaviour.to_owned())));
    }
    if varies(&|row| row.seed.to_string()) {
        columns.push((Column::new("seed").right(), values(&|row| row.seed.to_string())));
    }
    let roles = varying_roles(rows);
    if !roles.is_empty() {
        columns.push((Column::new("models"), values(&|row| models(row, &roles))));
    }
    columns.push((Column::new("units").right(), values(&|row| thousands(row.units))));
    if rows.iter().any(|row| row.generation != generation) {
        columns.push((Column::new("settings").rank(4), values(&settings)));
    }
    if rows.iter().any(|row| row.tokens.is_some()) {
        columns.push((
            Column::new("tokens").right().rank(3),
            values(&|row| row.tokens.map_or_else(unknown, thousands)),
        ));
    }
    if rows.iter().any(|row| row.dollars.is_some()) {
        let cost = |row: &PlanRow<'_>| row.dollars.map_or_else(unknown, |dollars| format!("{dollars:.4}"));
        columns.push((Column::new("US dollars").right().rank(1), values(&cost)));
    }
    if rows.iter().any(|row| row.seconds.is_some()) {
        columns.push((
            Column::new("time").right().rank(2),
            values(&|row| row.seconds.map_or_else(unknown, duration)),
        ));
    }
    let priorities: BTreeSet<i32> = rows.iter().map(|row| row.priority).collect();
    if priorities.len() > 1 {
        columns.push((Column::new("priority").right().rank(1), values(&|row| row.priority.to_string())));
    }
    if rows.iter().any(|row| row.stop.is_some()) {
        let stop = |row: &PlanRow<'_>| row.stop.map_or_else(unknown, ToString::to_string);
        columns.push((Column::new("stop after"), values(&stop)));
    }
    let (headers, cells): (Vec<Column>, Vec<Vec<String>>) = columns.into_iter().unzip();
    let line = |row: usize| cells.iter().map(|column| column[row].clone()).collect();
    let lines: Vec<Vec<String>> = (0..rows.len()).map(line).collect();
    render(&headers, &lines, width, "--json")
}

/// Returns the roles that do not have the same model everywhere.
fn varying_roles(rows: &[PlanRow<'_>]) -> BTreeSet<Role> {
    let mut names: BTreeMap<Role, BTreeSet<&str>> = BTreeMap::new();
    for (role, name) in rows.iter().flat_map(|row| &row.models) {
        names.entry(*role).or_default().insert(name);
    }
    names.into_iter().filter(|(_, names)| names.len() > 1).map(|(role, _)| role).collect()
}

/// Returns the distinct models of some roles. Folders and files need no backend in their names.
fn models(row: &PlanRow<'_>, roles: &BTreeSet<Role>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (_, name) in row.models.iter().filter(|(role, _)| roles.contains(role)) {
        let name = name.strip_prefix("candle:").unwrap_or(name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" + ")
}

/// Describes the generation settings in which a configuration differs from the run.
fn changed(of_run: GenerationSettings, own: GenerationSettings) -> String {
    let mut words = Vec::new();
    if own.sampling != of_run.sampling {
        match own.sampling {
            Sampling::Greedy => words.push("temperature 0".to_owned()),
            Sampling::Random { temperature, top_p, top_k } => {
                words.push(format!("temperature {temperature}"));
                words.extend(top_p.map(|top_p| format!("top_p {top_p}")));
                words.extend(top_k.map(|top_k| format!("top_k {top_k}")));
            }
        }
    }
    if own.max_new_tokens != of_run.max_new_tokens {
        words.push(format!("max_new_tokens {}", own.max_new_tokens));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use lumos_coordinator::samples::{configuration, item, manifest_of};

    use super::*;

    fn row(seed: u64, units: u64, priority: i32) -> PlanRow<'static> {
        PlanRow {
            label: "",
            benchmark: "gsm8k",
            formulation: "iterative",
            behaviour: "paper",
            seed,
            models: BTreeMap::new(),
            tools: BTreeMap::new(),
            generation: GenerationSettings::default(),
            units,
            priority,
            stop: None,
            tokens: Some(575 * units),
            dollars: None,
            seconds: Some(units as f64),
        }
    }

    const MODELS: [&str; 2] = ["candle:checkpoints/step-100000", "candle:checkpoints/step-200000"];

    #[test]
    fn plans_fit_into_80_columns_and_show_what_differs() {
        let base = GenerationSettings::default();
        let sampling = Sampling::Random { temperature: 0.7, top_p: Some(0.9), top_k: None };
        let own = GenerationSettings { sampling, max_new_tokens: 64 };
        let with = |row: PlanRow<'static>, planner| {
            let models = BTreeMap::from([(Role::Planner, planner), (Role::Grounder, "candle:ground")]);
            PlanRow { models, ..row }
        };
        let rows = [
            with(row(0, 1319, 5), MODELS[0]),
            with(PlanRow { generation: own, behaviour: "corrected", ..row(12, 1_000_000, 0) }, MODELS[1]),
        ];
        let text = table(&rows, base, 80);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}\n{text}");
        }
        for part in
            [" 1,319", " 1,000,000", " checkpoints/step-100000 ", "omitted: settings, tokens, time, priority"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let wide = table(&rows, base, 200);
        let headers: Vec<&str> = wide.lines().next().unwrap().split_whitespace().collect();
        let expected = [
            "benchmark",
            "formulation",
            "behaviour",
            "seed",
            "models",
            "units",
            "settings",
            "tokens",
            "time",
            "priority",
        ];
        assert_eq!(headers, expected);
        assert!(wide.contains("temperature 0.7, top_p 0.9, max_new_tokens 64"), "{wide}");
        assert!(
            wide.contains("758,425") && wide.contains("22 minutes") && wide.contains("575,000,000"),
            "{wide}"
        );
        assert!(wide.contains("  checkpoints/step-100000") && !wide.contains("ground"), "{wide}");
    }

    #[test]
    fn a_folder_that_a_run_refuses_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let manifest = manifest_of(&[configuration(0)], &[item(0)]);
        assert!(!exists(&manifest, path).unwrap());
        manifest.write(path).unwrap();
        assert!(exists(&manifest, path).unwrap());
        let refused = |expected: &str| {
            let failure = exists(&manifest, path).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.error.to_string().contains(expected), "{failure:?}");
        };
        manifest_of(&[configuration(0)], &[item(0), item(1)]).write(path).unwrap();
        refused("contains a run with different settings");
        let file = path.join("manifest.json");
        std::fs::write(&file, "{\"schema\": 99}").unwrap();
        refused("unsupported layout 99");
        std::fs::write(&file, "{").unwrap();
        refused("invalid manifest");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        refused("manifest.json");
    }

    #[test]
    fn columns_without_values_are_left_out() {
        let plain = PlanRow { tokens: None, seconds: None, ..row(0, 3, 0) };
        let text = table(&[plain.clone(), plain.clone()], plain.generation, 120);
        let headers: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(headers, ["benchmark", "formulation", "units"]);
        let known = table(&[row(0, 3, 0), plain.clone()], plain.generation, 120);
        assert!(known.lines().last().unwrap().trim_end().ends_with('-'), "{known}");
    }
}
