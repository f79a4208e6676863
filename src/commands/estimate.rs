//! `lumos estimate`: time and memory of a run, before it is run.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanDuration;
use lumos_coordinator::plan::expand;
use lumos_coordinator::spec::{BatchSize, RunSpec};
use lumos_coordinator::walk::{UnitState, walk};
use lumos_engine::bench::BenchReport;
use lumos_tasks::{ContentHash, Formulation, ModelIdentity, Step};
use serde::Serialize;
use serde_json::json;

use super::bench::measure_shape;
use super::report::open;
use crate::cli::EstimateArgs;
use crate::estimate::{Prediction, TokensPerItem, nearest, predict, recorded};
use crate::exit::{Exit, Failure, Outcome};
use crate::planning;

/// What episodes are of one kind: their benchmark and formulation.
type Kind = (String, Formulation);

/// One kind of episode of the run.
#[derive(Debug, Serialize)]
struct Row {
    benchmark: String,
    formulation: Formulation,
    units: u64,
    tokens: TokensPerItem,
    prediction: Prediction,
}

pub(crate) async fn run(arguments: &EstimateArgs) -> Outcome {
    let spec =
        RunSpec::from_file(&arguments.spec).map_err(Failure::usage)?.resolve().map_err(Failure::usage)?;
    // Only their names count: the models need not be here.
    let configurations = expand(
        &spec,
        |name, _, _| {
            let content = ContentHash::of_bytes(name.as_bytes());
            Ok::<_, Infallible>(ModelIdentity { name: name.to_owned(), content, dtype: None })
        },
        |_| Vec::new(),
    )
    .map_err(Failure::usage)?;
    let mut units: BTreeMap<Kind, u64> = BTreeMap::new();
    for task in &spec.tasks {
        let items = planning::count(&spec, task)?;
        for configuration in configurations.iter().filter(|one| one.benchmark == *task) {
            *units.entry((task.clone(), configuration.formulation)).or_default() += items;
        }
    }
    let models: BTreeSet<&str> =
        configurations.iter().flat_map(|one| one.models.values()).map(|model| model.name.as_str()).collect();
    let known = arguments.like.as_deref().map(tokens_of).transpose()?.unwrap_or_default();
    let report = match (&arguments.bench, arguments.random_weights) {
        (Some(path), _) => read(path)?,
        (None, Some(shape)) => measure_shape(shape, arguments.dtype).await?,
        (None, None) => return Err(Failure::input("give --bench FILE or --random-weights SHAPE")),
    };
    let batch_size = match spec.batch_size {
        BatchSize::Auto => None,
        BatchSize::Fixed(size) => usize::try_from(size).ok(),
    };
    let cell =
        nearest(&report, batch_size).ok_or_else(|| Failure::input("the measurements hold no batch size"))?;
    let mut rows = Vec::new();
    for ((benchmark, formulation), units) in units {
        let found = known.get(&(benchmark.clone(), formulation)).copied();
        let tokens = found.or_else(|| recorded(&benchmark, formulation)).ok_or_else(|| {
            Failure::input(format!("nothing is known of the tokens of {benchmark}, {formulation}"))
                .hint("name a run that had such items with --like RUN")
        })?;
        let prediction = predict(&report, cell, tokens, units, models.len() as u64);
        rows.push(Row { benchmark, formulation, units, tokens, prediction });
    }
    show(arguments, &rows, &report, cell.batch_size, models.len())?;
    Ok(Exit::Complete)
}

fn show(
    arguments: &EstimateArgs,
    rows: &[Row],
    report: &BenchReport,
    batch_size: usize,
    models: usize,
) -> io::Result<()> {
    let seconds: f64 = rows.iter().map(|row| row.prediction.seconds).sum();
    let wall = seconds / f64::from(arguments.workers);
    let weight_bytes = rows.first().map_or(0, |row| row.prediction.weight_bytes);
    let cache_bytes = rows.iter().map(|row| row.prediction.cache_bytes).max().unwrap_or(0);
    let mut out = io::stdout().lock();
    if arguments.json {
        let object = json!({
            "rows": rows, "worker_seconds": seconds, "workers": arguments.workers, "wall_seconds": wall,
            "weight_bytes": weight_bytes, "cache_bytes": cache_bytes, "batch_size": batch_size,
        });
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
            duration(row.prediction.seconds),
        ]);
    }
    writeln!(
        out,
        "{table}\n\n\
         {} for one worker at batch size {batch_size}; {} with {}\n\
         memory of a worker: {} of weights ({models} models of {:.1} M parameters, {}) and up to {} of keys and values\n\
         tools and loading are left out",
        duration(seconds),
        duration(wall),
        arguments.workers,
        ByteSize(weight_bytes),
        report.model.parameters as f64 / 1e6,
        report.model.dtype,
        ByteSize(cache_bytes),
    )
}

fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} seconds");
    }
    Duration::try_from_secs_f64(seconds)
        .map_or_else(|_| "for ever".to_owned(), |duration| HumanDuration(duration).to_string())
}

fn read(path: &Path) -> Result<BenchReport, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::input(format!("{}: {error}", path.display()))
            .hint("`lumos bench engine --output FILE` writes such a file")
    };
    let bytes = std::fs::read(path).map_err(|error| wrong(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(&error))
}

/// Tokens per item as a run recorded them, by kind.
fn tokens_of(folder: &Path) -> Result<BTreeMap<Kind, TokensPerItem>, Failure> {
    let (manifest, checkpoint) = open(folder)?;
    let mut sums: BTreeMap<Kind, (u64, TokensPerItem)> = BTreeMap::new();
    walk(&manifest, &checkpoint, |visit| {
        let UnitState::Settled(record) = &visit.state else { return Ok::<_, Failure>(()) };
        let configuration = &visit.configuration.configuration;
        let kind = (configuration.benchmark.clone(), configuration.formulation);
        let none = TokensPerItem { computed: 0.0, written: 0.0, longest: 0 };
        let (units, sum) = sums.entry(kind).or_insert((0, none));
        let (read, written) = record.outcome.tokens();
        *units += 1;
        sum.computed += read.saturating_sub(record.telemetry.cached_tokens) as f64;
        sum.written += written as f64;
        let lengths = record.outcome.steps.iter().filter_map(|step| match step {
            Step::Generate { prompt_tokens, completion_tokens, .. } => {
                Some(prompt_tokens.unwrap_or(0) + completion_tokens.unwrap_or(0))
            }
            _ => None,
        });
        sum.longest = lengths.fold(sum.longest, u32::max);
        Ok(())
    })?;
    Ok(sums
        .into_iter()
        .map(|(kind, (units, sum))| {
            let mean = |sum: f64| sum / units as f64;
            (kind, TokensPerItem { computed: mean(sum.computed), written: mean(sum.written), ..sum })
        })
        .collect())
}
