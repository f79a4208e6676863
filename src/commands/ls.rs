//! `lumos ls`: lists runs, benchmarks and models.

use std::fs::ReadDir;
use std::io::{self, Write};
use std::path::Path;

use bytesize::ByteSize;
use lumos_benchmarks::main_metric;
use lumos_coordinator::manifest::{Manifest, ManifestError};
use lumos_coordinator::{CheckpointError, CheckpointReader};
use lumos_models::hub::{CachedModel, HubSettings, cached};
use lumos_models::{BuiltinPair, LumosName, builtin_bytes, builtin_pairs};
use lumos_tasks::{Formulation, Role};
use serde_json::json;

use crate::cli::{Listing, LsArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::progress::write_line;
use crate::table::{self, Column};

pub(crate) fn run(arguments: &LsArgs) -> CommandResult {
    match arguments.what {
        Listing::Runs => runs(arguments)?,
        Listing::Tasks => tasks(arguments.json)?,
        Listing::Models => models(arguments.json)?,
    }
    Ok(Exit::Complete)
}

/// Writes rows as a table, or as one JSON object per line.
fn write(
    columns: &[Column],
    rows: &[Vec<String>],
    objects: &[serde_json::Value],
    json: bool,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return objects.iter().try_for_each(|object| writeln!(out, "{object}"));
    }
    out.write_all(table::render(columns, rows, table::width(), "--json").as_bytes())
}

/// Returns the number of settled units and describes the state of a run.
fn state(folder: &Path, planned: u64) -> (Option<u64>, String) {
    match CheckpointReader::count_settled(&folder.join("checkpoint")) {
        Ok((settled, is_in_use)) => {
            let state = match settled >= planned {
                _ if is_in_use => "running",
                true => "complete",
                false => "outstanding",
            };
            (Some(settled), state.to_owned())
        }
        Err(CheckpointError::InUse { .. }) => (None, "running".to_owned()),
        Err(CheckpointError::Missing { .. }) => (Some(0), "planned".to_owned()),
        Err(error) => (None, error.to_string()),
    }
}

const RUNS: [Column; 7] = [
    Column::new("run"),
    Column::new("created").rank(1),
    Column::new("tasks").rank(2),
    Column::new("formulations").rank(4),
    Column::new("models").rank(3),
    Column::new("settled").right(),
    Column::new("state"),
];

fn runs(arguments: &LsArgs) -> Result<(), Failure> {
    let path = &arguments.runs.output_path;
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            write_line(format_args!("no runs found below {}; `lumos run` creates one", path.display()));
            return Ok(());
        }
        Err(error) => return Err(Failure::input(format!("cannot read {}: {error}", path.display()))),
    };
    let (rows, objects): (Vec<_>, Vec<_>) = run_lines(entries)?.into_iter().unzip();
    Ok(write(&RUNS, &rows, &objects, arguments.json)?)
}

/// Returns the table row and the JSON object of each run in a folder, by time of planning. Runs whose manifest cannot
/// be read come first.
fn run_lines(entries: ReadDir) -> io::Result<Vec<(Vec<String>, serde_json::Value)>> {
    let mut found = Vec::new();
    for entry in entries {
        let folder = entry?.path();
        match Manifest::read(&folder) {
            // Skip folders that are not runs, and files.
            Err(ManifestError::Missing { .. }) => {}
            Err(_) if !folder.is_dir() => {}
            read => found.push((read.as_ref().ok().map(|manifest| manifest.created), folder, read)),
        }
    }
    found.sort_by(|left, right| (left.0, &left.1).cmp(&(right.0, &right.1)));
    let lines = found.iter().map(|(_, folder, read)| match read {
        Ok(manifest) => run_line(folder, manifest),
        Err(error) => unreadable_line(folder, error),
    });
    Ok(lines.collect())
}

/// Returns the name of a run that other commands accept. Bytes that are not UTF-8 are replaced.
fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the table row and the JSON object of a run whose manifest cannot be read.
fn unreadable_line(folder: &Path, error: &ManifestError) -> (Vec<String>, serde_json::Value) {
    // Short: other commands print the whole error.
    let state = match error {
        ManifestError::Schema { found, known, .. } => format!("unsupported layout {found}: expected {known}"),
        ManifestError::Malformed { .. } => "invalid manifest".to_owned(),
        ManifestError::Io { source, .. } => format!("failed to read manifest.json: {source}"),
        _ => error.to_string(),
    };
    let name = name_of(folder);
    let object = json!({
        "run": folder.to_string_lossy(), "name": name, "created": null, "tasks": null, "formulations": null,
        "models": null, "planned": null, "settled": null, "state": state,
    });
    let unknown = || "?".to_owned();
    (vec![name, unknown(), unknown(), unknown(), unknown(), unknown(), state], object)
}

/// Returns the table row and the JSON object of a run. Names that are not UTF-8 have replacement characters.
fn run_line(folder: &Path, manifest: &Manifest) -> (Vec<String>, serde_json::Value) {
    let (settled, state) = state(folder, manifest.planned());
    let (spec, created) = (&manifest.spec, manifest.created);
    let formulations = spec.formulation.iter().map(|one| one.name()).collect::<Vec<_>>();
    let mut models: Vec<_> = manifest.models.iter().map(|model| model.identity.name.as_str()).collect();
    models.dedup();
    let name = name_of(folder);
    let object = json!({
        "run": folder.to_string_lossy(), "name": name, "created": created, "tasks": spec.tasks,
        "formulations": formulations, "models": models, "planned": manifest.planned(), "settled": settled,
        "state": state,
    });
    let settled = settled.map_or_else(|| "?".to_owned(), |settled| settled.to_string());
    let row = vec![
        name,
        created.strftime("%Y-%m-%d %H:%M").to_string(),
        spec.tasks.join(", "),
        formulations.join(", "),
        models.join(", "),
        format!("{settled}/{}", manifest.planned()),
        state,
    ];
    (row, object)
}

const TASKS: [Column; 5] = [
    Column::new("task"),
    Column::new("title").rank(2),
    Column::new("data file").rank(1),
    Column::new("formulations"),
    Column::new("published"),
];

fn tasks(json: bool) -> io::Result<()> {
    let (mut rows, mut objects) = (Vec::new(), Vec::new());
    for benchmark in lumos_benchmarks::all() {
        let formulations: Vec<_> = benchmark.formulations().iter().map(|one| one.name()).collect();
        let metrics = benchmark.metrics();
        let main = main_metric(metrics, |_| false).or(metrics.first()).map_or("", |metric| metric.name);
        let published: Vec<_> = benchmark
            .published()
            .iter()
            .map(|figure| match figure.metric {
                metric if metric == main => format!("{} {}", figure.system, figure.percent),
                metric => format!("{} {} ({metric})", figure.system, figure.percent),
            })
            .collect();
        objects.push(json!({
            "task": benchmark.name(), "title": benchmark.title(), "data_file": benchmark.data_file(),
            "formulations": formulations, "published": published,
        }));
        rows.push(vec![
            benchmark.name().to_owned(),
            benchmark.title().to_owned(),
            benchmark.data_file().to_owned(),
            formulations.join(", "),
            published.join("\n"),
        ]);
    }
    write(&TASKS, &rows, &objects, json)
}

const MODELS: [Column; 6] = [
    Column::new("model"),
    Column::new("benchmarks").rank(2),
    Column::new("held-out tasks").rank(3),
    Column::new("size").right(),
    Column::new("formulations").rank(1),
    Column::new("where"),
];

/// A line of the list of models.
struct Listed<'a> {
    model: &'a str,
    bytes: Option<u64>,
    formulations: &'a [Formulation],
    kind: &'a str,
    place: &'a str,
    /// What a built-in pair is for.
    pair: Option<BuiltinPair>,
}

/// Lists the models that `--model` accepts without a download, and the short names of the published pairs.
fn models(json: bool) -> Result<(), Failure> {
    let (mut rows, mut objects) = (Vec::new(), Vec::new());
    let mut add = |listed: Listed<'_>| {
        let Listed { model, bytes, formulations, kind, place, pair } = listed;
        let formulations: Vec<_> = formulations.iter().map(|one| one.name()).collect();
        let size = bytes.map_or_else(|| "—".to_owned(), |bytes| ByteSize(bytes).to_string());
        let (benchmarks, accuracy) = pair.map_or(("", ""), |pair| (pair.benchmarks, pair.accuracy));
        objects.push(json!({
            "model": model, "kind": kind, "bytes": bytes, "formulations": formulations, "where": place,
            "benchmarks": pair.map(|pair| pair.benchmarks), "accuracy": pair.map(|pair| pair.accuracy),
        }));
        let cells = [model, benchmarks, accuracy, &size, &formulations.join(", "), place];
        rows.push(cells.map(str::to_owned).to_vec());
    };
    for pair in builtin_pairs() {
        let bytes = Some(builtin_bytes(pair.domain));
        let BuiltinPair { formulations, .. } = pair;
        let (model, kind, place) = ("builtin:tiny", "builtin", "this program");
        add(Listed { model, bytes, formulations, kind, place, pair: Some(pair) });
    }
    let cache = HubSettings::from_environment().map_err(Failure::usage)?.cache;
    let found = cached(&cache)
        .map_err(|error| Failure::input(format!("cannot read {}: {error}", cache.display())))?;
    for model in &found {
        let CachedModel { id, revision, bytes, .. } = model;
        let place = if model.usable { "hub cache" } else { "hub cache, incomplete" };
        let model = format!("candle:{id}@{revision}");
        let bytes = Some(*bytes);
        add(Listed { model: &model, bytes, formulations: &[], kind: "hub", place, pair: None });
    }
    for pair in LumosName::all() {
        let ids = |formulation: Formulation| {
            [Role::Planner, Role::Grounder]
                .map(|role| pair.resolve(role, formulation).map(|name| name.id().to_owned()))
        };
        let is_cached = |formulation: &Formulation| {
            ids(*formulation)
                .iter()
                .flatten()
                .all(|id| found.iter().any(|model| model.usable && model.id == *id))
        };
        let place = match pair.formulations().iter().all(is_cached) {
            true => "alias, in the hub cache",
            false => "alias, downloaded when used",
        };
        let (model, formulations) = (pair.to_string(), pair.formulations());
        add(Listed { model: &model, bytes: None, formulations, kind: "alias", place, pair: None });
    }
    Ok(write(&MODELS, &rows, &objects, json)?)
}

#[cfg(all(test, unix))]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use lumos_coordinator::samples::{configuration, item, manifest_of};

    use super::*;

    #[test]
    fn a_run_whose_name_is_not_utf_8_is_listed() {
        let manifest = manifest_of(&[configuration(0)], &[item(0)]);
        let folder = Path::new(OsStr::from_bytes(b"missing/caf\xe9"));
        let (row, object) = run_line(folder, &manifest);
        assert_eq!(row[0], "caf\u{fffd}");
        assert_eq!((&object["run"], &object["name"]), (&json!("missing/caf\u{fffd}"), &json!("caf\u{fffd}")));
    }

    #[test]
    fn a_run_whose_manifest_cannot_be_read_is_listed_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("file"), "").unwrap();
        std::fs::create_dir(path.join("folder")).unwrap();
        manifest_of(&[configuration(0)], &[item(0)]).write(&path.join("planned")).unwrap();
        for (name, text) in [("damaged", "{"), ("newer", "{\"schema\": 99}")] {
            std::fs::create_dir(path.join(name)).unwrap();
            std::fs::write(path.join(name).join("manifest.json"), text).unwrap();
        }
        std::fs::create_dir_all(path.join("odd/manifest.json")).unwrap();
        let lines = run_lines(std::fs::read_dir(path).unwrap()).unwrap();
        let names: Vec<&str> = lines.iter().map(|(row, _)| row[0].as_str()).collect();
        assert_eq!(names, ["damaged", "newer", "odd", "planned"]);
        assert!(lines.iter().all(|(row, _)| row.len() == RUNS.len()));
        let states = ["invalid manifest", "unsupported layout 99: expected 1", "failed to read", "planned"];
        for ((row, object), state) in lines.iter().zip(states) {
            assert!(row[6].starts_with(state), "{row:?}");
            assert_eq!(object["state"], row[6]);
        }
        assert!(lines[0].1["planned"].is_null());
    }
}
