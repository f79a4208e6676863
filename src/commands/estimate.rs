//! `lumos estimate`: estimates time and memory of a run without running it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanDuration;
use lumos_coordinator::spec::{ResolvedSpec, RunSpec};
use lumos_coordinator::{PlannedCell, expand};
use lumos_engine::bench::{BenchCell, BenchReport};
use lumos_engine::{DeviceName, LoadOptions, Speculation};
use lumos_models::{EngineSettings, ModelName};
use lumos_tasks::{ContentHash, Device, Formulation, ModelIdentity, NanoDollars, Role, Step};
use serde::Serialize;
use serde_json::json;

use super::bench::measure_shape;
use super::results::open;
use crate::cli::EstimateArgs;
use crate::estimate::{
    Candidate, Fitting, MemoryOption, Prediction, TokensPerItem, Use, buffer_bytes, cycles, far_larger_batch,
    fit, nearest, predict, recorded,
};
use crate::exit::{CommandResult, Exit, Failure};
use crate::pace::{Pace, Span};
use crate::pipeline::item_positions;
use crate::settings;

/// Kind of an episode: benchmark and formulation.
pub(super) type Kind = (String, Formulation);

/// Estimate for one kind of episode.
#[derive(Debug, Serialize)]
struct Row {
    benchmark: String,
    formulation: Formulation,
    units: u64,
    tokens: TokensPerItem,
    /// Seconds of one worker.
    seconds: f64,
    /// From measured rates of the engine only.
    #[serde(skip_serializing_if = "Option::is_none")]
    prediction: Option<Prediction>,
}

/// What a recorded run says about others.
#[derive(Debug, Default)]
pub(super) struct Pilot {
    pub(super) kinds: BTreeMap<Kind, TokensPerItem>,
    /// Seconds at the start and end of the run, when fewer episodes were in progress.
    tail: f64,
    /// Number of its episodes.
    units: usize,
    /// Names of its models.
    models: BTreeSet<String>,
}

/// An engine that a run needs: the model's name, and its role if a name means several models.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Engine {
    name: String,
    part: Option<(Role, String)>,
    device: Device,
}

impl Engine {
    /// Returns the engine for a role's model, or `None` if no engine computes it.
    fn of(role: Role, formulation: Formulation, name: &str, device: Device) -> Option<Self> {
        let part = match name.parse() {
            Ok(ModelName::Script(_) | ModelName::OpenAi(_) | ModelName::Added(_)) => return None,
            // There is one planner per formulation, and one grounder.
            Ok(ModelName::BuiltinTiny | ModelName::Lumos(_)) if role == Role::Planner => {
                Some((role, formulation.to_string()))
            }
            Ok(ModelName::BuiltinTiny | ModelName::Lumos(_)) => Some((role, String::new())),
            _ => None,
        };
        Some(Self { name: name.to_owned(), part, device })
    }
}

pub(crate) async fn run(arguments: &EstimateArgs) -> CommandResult {
    let spec = RunSpec::from_file(&arguments.spec).map_err(Failure::usage)?;
    let (spec, files) = settings::with_task_files(spec)?;
    // As in manifests, with which they are compared.
    let spec = settings::with_model_names(spec).resolve_with(&files).map_err(Failure::usage)?;
    // Only the models' names are needed; their files may be missing.
    let cells = expand(
        &spec,
        |_, name, _, _| {
            let content = ContentHash::of_bytes(name.as_bytes());
            Ok::<_, Infallible>(ModelIdentity { name: name.to_owned(), content, dtype: None })
        },
        |_, _| Vec::new(),
    )
    .map_err(Failure::usage)?;
    let mut units: BTreeMap<Kind, u64> = BTreeMap::new();
    for task in &spec.tasks {
        let items = item_positions(&spec, task)?;
        for PlannedCell { configuration, limit, .. } in &cells {
            if configuration.benchmark == *task {
                let end = limit.map_or(items.len(), |limit| items.partition_point(|at| *at < limit));
                *units.entry((task.clone(), configuration.formulation)).or_default() += end as u64;
            }
        }
    }
    let models: BTreeSet<Engine> = cells
        .iter()
        .map(|cell| &cell.configuration)
        .flat_map(|one| one.models.iter().map(|(role, model)| (*role, one.formulation, &model.name)))
        .filter_map(|(role, formulation, name)| Engine::of(role, formulation, name, spec.device.of(role)))
        .collect();
    let like = arguments.like.as_deref().map(|run| arguments.runs.folder(run)).transpose()?;
    let pilot = like.as_deref().map(Pilot::read).transpose()?.unwrap_or_default();
    let report = match (&arguments.bench, arguments.random_weights) {
        (Some(path), _) => Some(read(path)?),
        (None, Some(shape)) => Some(measure_shape(shape, arguments.dtype).await?),
        (None, None) => None,
    };
    let measured = match &report {
        Some(report) => {
            let cell = nearest(report, settings::fixed(spec.batch_size))
                .ok_or_else(|| Failure::input("the measurements contain no batch size"))?;
            Some((report, cell))
        }
        None => {
            let names = cells.iter().flat_map(|cell| cell.configuration.models.values());
            if let Some(other) = names.map(|model| &model.name).find(|name| !pilot.models.contains(*name)) {
                return Err(Failure::input(format!("the run of --like did not use the model `{other}`"))
                    .hint("run a few items with it, or pass the rates of its shape: --bench PATH"));
            }
            let concurrency = settings::concurrency(&spec, false);
            if pilot.units < 2 * concurrency {
                tracing::warn!(
                    "the run of --like has {} units, fewer than twice the concurrency ({concurrency}): its pace may \
                     not be that of a long run; hint: repeat it with a higher --limit",
                    pilot.units
                );
            }
            if arguments.memory.is_some() {
                return Err(Failure::input("--memory needs the shape of the models")
                    .hint("pass --bench PATH or --random-weights SHAPE"));
            }
            None
        }
    };
    let mut rows = Vec::new();
    for ((benchmark, formulation), units) in units {
        let found = pilot.kinds.get(&(benchmark.clone(), formulation)).copied();
        let tokens = found.or_else(|| recorded(&benchmark, formulation)).ok_or_else(|| {
            Failure::input(format!("tokens per item of {benchmark}, {formulation} are unknown"))
                .hint("pass a run with such items: --like RUN")
        })?;
        let prediction =
            measured.map(|(report, cell)| predict(report, cell, tokens, units, models.len() as u64));
        let seconds = match (prediction, tokens.seconds) {
            (Some(prediction), _) => prediction.seconds,
            (None, Some(seconds)) => units as f64 * seconds,
            (None, None) => {
                return Err(Failure::input(format!(
                    "seconds per item of {benchmark}, {formulation} are unknown"
                ))
                .hint("pass a run with such items, --like RUN, or rates of the engine, --bench PATH"));
            }
        };
        rows.push(Row { benchmark, formulation, units, tokens, seconds, prediction });
    }
    let fitting = measured.and_then(|measured| fit_models(arguments, &spec, &models, &rows, measured));
    show(arguments, &rows, measured, (pilot.tail, models.len()), fitting.as_ref())?;
    Ok(Exit::Complete)
}

/// Returns how the models fit into the device with the most to load; `None` without a limit of its memory. Warns if rates or
/// buffers are missing from the measurements.
fn fit_models(
    arguments: &EstimateArgs,
    spec: &ResolvedSpec,
    models: &BTreeSet<Engine>,
    rows: &[Row],
    (report, cell): (&BenchReport, &BenchCell),
) -> Option<Fitting> {
    let memory = arguments.memory.or(spec.memory).map(|memory| memory.0);
    let on = |device: Device| models.iter().filter(|model| model.device == device).count() as u64;
    let load_options = |device: Device| {
        let engine = EngineSettings {
            batch_size: settings::fixed(spec.batch_size),
            speculation: arguments.speculate.unwrap_or(Speculation::Auto),
            device,
            ..EngineSettings::default()
        };
        let options = engine.options();
        LoadOptions { device: options.device.resolved(), ..options }
    };
    let buffers = |device: Device| buffer_bytes(report, &load_options(device));
    // A GPU whose buffers are unknown counts as the fullest of those with as many models.
    let load = |model: &Engine| (on(model.device), buffers(model.device).unwrap_or(u64::MAX), model.device);
    let fullest = models.iter().map(load).max();
    let (number, _, device) = fullest.unwrap_or_default();
    let buffer_bytes = buffers(device).unwrap_or(0);
    let concurrency = settings::concurrency(spec, false).min(load_options(device).most_sequences());
    let longest = rows.iter().map(|row| row.tokens.longest).max().unwrap_or(0);
    if let Some(batch_size) = far_larger_batch(report, cell, concurrency, memory, buffer_bytes, longest) {
        let measured = cell.batch_size;
        tracing::warn!(
            "the rates are those of batch size {measured}, but the run may compute {batch_size} sequences \
             together and take less time; hint: repeat `lumos bench engine` with --batch-sizes \
             {measured},{batch_size}"
        );
    }
    let memory = memory?;
    if models.iter().any(|model| buffers(model.device).is_none()) {
        tracing::warn!(
            "memory for the buffers of a GPU is not counted, because the measurements do not contain their size; \
             hint: repeat `lumos bench engine`"
        );
    }
    let rounds = rows.iter().map(|row| row.tokens.rounds * row.units as f64).sum();
    let most_rounds = rows.iter().map(|row| row.tokens.most_rounds).max().unwrap_or(0);
    let case = Use {
        models: number,
        buffer_bytes,
        on_gpu: matches!(load_options(device).device, DeviceName::Cuda(_)),
        memory,
        cycles: cycles(rounds, most_rounds, settings::concurrency(spec, true)),
        load_rate: arguments.load_rate.0,
        seconds: rows.iter().map(|row| row.seconds).sum(),
    };
    Some(fit(report, case))
}

fn show(
    arguments: &EstimateArgs,
    rows: &[Row],
    measured: Option<(&BenchReport, &BenchCell)>,
    (tail, models): (f64, usize),
    fitting: Option<&Fitting>,
) -> io::Result<()> {
    let seconds: f64 = rows.iter().map(|row| row.seconds).sum();
    let tail = if measured.is_some() { 0.0 } else { tail };
    let wall = seconds / f64::from(arguments.workers) + tail;
    let predictions = || rows.iter().filter_map(|row| row.prediction);
    let weight_bytes = predictions().next().map_or(0, |one| one.weight_bytes);
    let cache_bytes = predictions().map(|one| one.cache_bytes).max().unwrap_or(0);
    let mut out = io::stdout().lock();
    if arguments.json {
        let mut object = json!({
            "rows": rows, "worker_seconds": seconds, "workers": arguments.workers, "wall_seconds": wall,
        });
        if let Some((_, cell)) = measured {
            object["weight_bytes"] = json!(weight_bytes);
            object["cache_bytes"] = json!(cache_bytes);
            object["batch_size"] = json!(cell.batch_size);
        }
        if let Some(fitting) = fitting {
            object["memory"] = json!(fitting);
        }
        return writeln!(out, "{object}");
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "benchmark",
        "formulation",
        "units",
        "computed tok/unit",
        "written tok/unit",
        "time",
    ]);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in rows {
        table.add_row([
            row.benchmark.clone(),
            row.formulation.to_string(),
            row.units.to_string(),
            format!("{:.0}", row.tokens.computed),
            format!("{:.0}", row.tokens.written),
            duration(row.seconds),
        ]);
    }
    let Some((report, cell)) = measured else {
        return writeln!(
            out,
            "{table}\n\n\
             {} for one worker; {} with {}, of which {} at its start and end\n\
             harness and tools included, loading of models not",
            duration(seconds + tail),
            duration(wall),
            arguments.workers,
            duration(tail),
        );
    };
    writeln!(
        out,
        "{table}\n\n\
         {} for one worker at batch size {}; {} with {}\n\
         memory of a worker: {} of weights ({models} models of {:.1} M parameters, {}) and up to {} of keys and values\n\
         time of harness, tools and loading not included; to include harness and tools, run a few items with these\n\
         models and pass that run with --like instead of these rates",
        duration(seconds),
        cell.batch_size,
        duration(wall),
        arguments.workers,
        ByteSize(weight_bytes),
        report.model.parameters as f64 / 1e6,
        report.model.dtype,
        ByteSize(cache_bytes),
    )?;
    fitting.map_or(Ok(()), |fitting| show_fitting(fitting, seconds, &mut out))
}

/// Writes how the models fit in memory and which option is recommended.
fn show_fitting(fitting: &Fitting, seconds: f64, out: &mut impl Write) -> io::Result<()> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["models", "memory", "", "cost"]);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let cost = |one: &Candidate| match (one.load_seconds, one.option.bits()) {
        (Some(loading), _) => format!(
            "about {} loads, {}, {:.0} % of the computing time; same results",
            one.loads.unwrap_or(0),
            duration(loading),
            100.0 * loading / seconds.max(f64::MIN_POSITIVE)
        ),
        (None, Some(bits)) => format!("weights of {bits} bits: different results"),
        (None, None) => "none".to_owned(),
    };
    for one in &fitting.candidates {
        let fits = if one.fits { "fits" } else { "does not fit" };
        table.add_row([
            one.option.name().to_owned(),
            ByteSize(one.bytes).to_string(),
            fits.to_owned(),
            cost(one),
        ]);
    }
    let advice = match fitting.recommended {
        Some(MemoryOption::Together) => "together: no change needed".to_owned(),
        Some(MemoryOption::InPhases) => {
            format!("in phases: `lumos run --memory {}B` does this automatically", fitting.memory)
        }
        Some(option) => {
            format!("quantized: pass planner and grounder as GGUF files of type {}", option.name())
        }
        None => "none of these: use more memory, smaller models or one device per role".to_owned(),
    };
    writeln!(
        out,
        "\nmemory {}, keys and values of one sequence of {} tokens per model, loading {} of weights per \
         second (--load-rate):\n{table}\nrecommended: {advice}",
        ByteSize(fitting.memory),
        fitting.context_length,
        ByteSize(fitting.load_rate),
    )
}

pub(super) fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} seconds");
    }
    Duration::try_from_secs_f64(seconds)
        .map_or_else(|_| "unlimited".to_owned(), |duration| HumanDuration(duration).to_string())
}

/// Reads the figures of `lumos bench engine`.
pub(super) fn read(path: &Path) -> Result<BenchReport, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::input(format!("{}: {error}", path.display()))
            .hint("create the file with `lumos bench engine --output PATH`")
    };
    let bytes = std::fs::read(path).map_err(|error| wrong(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(&error))
}

impl Pilot {
    /// Reads the records of a run.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let (manifest, checkpoint) = open(folder)?;
        let mut spans = Vec::new();
        let mut sums: BTreeMap<Kind, (u64, TokensPerItem)> = BTreeMap::new();
        checkpoint.for_each_settled(&manifest, |planned, _, record| {
            let configuration = &planned.configuration;
            let kind = (configuration.benchmark.clone(), configuration.formulation);
            let (units, sum) = sums.entry(kind).or_default();
            let telemetry = &record.telemetry;
            spans.push(Span {
                started_ms: telemetry.started_ms,
                seconds: telemetry.seconds,
                worker: telemetry.worker.clone(),
            });
            sum.seconds = Some(sum.seconds.unwrap_or(0.0) + telemetry.seconds);
            let (read, written) = record.outcome.tokens();
            *units += 1;
            sum.computed += read.saturating_sub(record.telemetry.cached_tokens) as f64;
            sum.written += written as f64;
            sum.dollars += record.telemetry.cost.map_or(0.0, NanoDollars::dollars);
            let lengths = record.outcome.steps.iter().filter_map(|step| match step {
                Step::Generate { prompt_tokens, completion_tokens, .. } => {
                    Some(prompt_tokens.unwrap_or(0) + completion_tokens.unwrap_or(0))
                }
                _ => None,
            });
            sum.longest = lengths.fold(sum.longest, u32::max);
            let rounds = rounds(&record.outcome.steps);
            sum.rounds += f64::from(rounds);
            sum.most_rounds = sum.most_rounds.max(rounds);
            Ok::<_, Failure>(())
        })?;
        let pace = Pace::of(&spans);
        let kinds = sums
            .into_iter()
            .map(|(kind, (units, sum))| {
                let mean = |sum: f64| sum / units as f64;
                let tokens = TokensPerItem {
                    computed: mean(sum.computed),
                    written: mean(sum.written),
                    rounds: mean(sum.rounds),
                    dollars: mean(sum.dollars),
                    seconds: pace.zip(sum.seconds).map(|(pace, seconds)| pace.per_item(mean(seconds))),
                    ..sum
                };
                (kind, tokens)
            })
            .collect();
        let models = manifest.configurations.iter().flat_map(|planned| planned.configuration.models.values());
        Ok(Self {
            kinds,
            tail: pace.map_or(0.0, |pace| pace.tail),
            units: spans.len(),
            models: models.map(|model| model.name.clone()).collect(),
        })
    }
}

/// Number of rounds of an episode: turns of the model with the most turns.
fn rounds(steps: &[Step]) -> u32 {
    let mut turns: BTreeMap<Role, u32> = BTreeMap::new();
    for step in steps {
        if let Step::Generate { role, .. } = step {
            *turns.entry(*role).or_default() += 1;
        }
    }
    turns.into_values().max().unwrap_or(0)
}
