//! `lumos ls`: runs and benchmarks.

use std::io::{self, Write};
use std::path::Path;

use comfy_table::{ContentArrangement, Table, presets};
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::{Checkpoint, CheckpointError};
use serde_json::json;

use crate::cli::{Listing, LsArgs};
use crate::exit::{Exit, Failure, Outcome};

pub(crate) fn run(arguments: &LsArgs) -> Outcome {
    match arguments.what {
        Listing::Runs => runs(arguments),
        Listing::Tasks => {
            tasks(arguments.json)?;
            Ok(Exit::Complete)
        }
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    table
}

/// How far a run is, in words.
fn state(folder: &Path, planned: u64) -> (Option<u64>, String) {
    match Checkpoint::open(&folder.join("checkpoint")) {
        Ok(checkpoint) => {
            let settled = checkpoint.settled();
            let state = if settled >= planned { "complete" } else { "outstanding" };
            (Some(settled), state.to_owned())
        }
        Err(CheckpointError::InUse { .. }) => (None, "running".to_owned()),
        Err(CheckpointError::Missing { .. }) => (Some(0), "planned".to_owned()),
        Err(error) => (None, error.to_string()),
    }
}

fn runs(arguments: &LsArgs) -> Outcome {
    let mut out = io::stdout().lock();
    let path = &arguments.output_path;
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("there are no runs below {}; `lumos run` makes one", path.display());
            return Ok(Exit::Complete);
        }
        Err(error) => return Err(Failure::input(format!("cannot read {}: {error}", path.display()))),
    };
    let mut found = Vec::new();
    for entry in entries {
        let folder = entry?.path();
        // What is no run is passed over.
        if let Ok(manifest) = Manifest::read(&folder) {
            found.push((manifest.created, folder, manifest));
        }
    }
    found.sort_by(|left, right| (left.0, &left.1).cmp(&(right.0, &right.1)));
    let mut table = table(&["run", "created", "tasks", "formulations", "models", "settled", "state"]);
    for (created, folder, manifest) in &found {
        let (settled, state) = state(folder, manifest.planned());
        let spec = &manifest.spec;
        let formulations = spec.formulation.iter().map(|one| one.name()).collect::<Vec<_>>();
        let mut models: Vec<_> = manifest.models.iter().map(|model| model.identity.name.as_str()).collect();
        models.dedup();
        if arguments.json {
            writeln!(
                out,
                "{}",
                json!({
                    "run": folder, "created": created, "tasks": spec.tasks, "formulations": formulations,
                    "models": models, "planned": manifest.planned(), "settled": settled, "state": state,
                })
            )?;
            continue;
        }
        let settled = settled.map_or_else(|| "?".to_owned(), |settled| settled.to_string());
        table.add_row([
            folder.display().to_string(),
            created.strftime("%Y-%m-%d %H:%M").to_string(),
            spec.tasks.join(", "),
            formulations.join(", "),
            models.join(", "),
            format!("{settled}/{}", manifest.planned()),
            state,
        ]);
    }
    if !arguments.json {
        writeln!(out, "{table}")?;
    }
    Ok(Exit::Complete)
}

fn tasks(json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut table = table(&["task", "title", "data file", "formulations", "published"]);
    for benchmark in lumos_benchmarks::all() {
        let formulations: Vec<_> = benchmark.formulations().iter().map(|one| one.name()).collect();
        let main = benchmark.metrics().first().map_or("", |metric| metric.name);
        let published: Vec<_> = benchmark
            .published()
            .iter()
            .map(|figure| match figure.metric {
                metric if metric == main => format!("{} {}", figure.system, figure.percent),
                metric => format!("{} {} ({metric})", figure.system, figure.percent),
            })
            .collect();
        if json {
            writeln!(
                out,
                "{}",
                json!({
                    "task": benchmark.name(), "title": benchmark.title(), "data_file": benchmark.data_file(),
                    "formulations": formulations, "published": published,
                })
            )?;
        } else {
            table.add_row([
                benchmark.name().to_owned(),
                benchmark.title().to_owned(),
                benchmark.data_file().to_owned(),
                formulations.join(", "),
                published.join("\n"),
            ]);
        }
    }
    if !json {
        writeln!(out, "{table}")?;
    }
    Ok(())
}
