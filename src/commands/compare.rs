//! `lumos compare`: the difference of runs, or of the configurations of one run.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use lumos_benchmarks::Scoring;
use lumos_coordinator::CheckpointReader;
use lumos_reports::compare::{CompareError, CompareFormat, CompareOptions, Comparison, Side, compare};
use lumos_reports::results::{Labels, RunTable, SettingsAxis};
use lumos_reports::viewer;
use lumos_tasks::shell::{quoted, quoted_path};

use super::results::{new_folder, open};
use crate::cli::{CompareArgs, ComparisonFormat, RunsArgs, SelectionArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::settings;
use crate::table;

/// Compares the runs and prints the result.
pub(crate) fn run(arguments: &CompareArgs) -> CommandResult {
    let (selection, names) = (&arguments.selection, &arguments.folder);
    let opened: Vec<(Side, CheckpointReader)> =
        arguments.runs.iter().map(|run| open_side(names, run, selection)).collect::<Result<_, _>>()?;
    let (sides, checkpoints): (Vec<Side>, Vec<CheckpointReader>) = opened.into_iter().unzip();
    let options = CompareOptions {
        by: arguments.by,
        only: only(selection)?,
        metric: arguments.metric.clone(),
        unpaired: arguments.unpaired,
        labels: Labels::parse(&arguments.label).map_err(Failure::usage)?,
    };
    let mut comparison = compare(&sides, &options).map_err(refused)?;
    let format = match (arguments.json, arguments.format, &arguments.output) {
        (true, ..) => CompareFormat::Json,
        (false, ComparisonFormat::Html, folder) => {
            return write_page(folder.as_deref(), &mut comparison, &sides, &checkpoints);
        }
        (false, ComparisonFormat::Document(CompareFormat::Terminal { .. }), None) => {
            CompareFormat::Terminal { width: table::width() }
        }
        (false, ComparisonFormat::Document(format), _) => format,
    };
    let is_json = format == CompareFormat::Json;
    let most = match (is_json, arguments.trajectories) {
        (true, true) => usize::MAX,
        (true, false) => 0,
        (false, _) => arguments.items,
    };
    let checkpoints: Vec<&CheckpointReader> = checkpoints.iter().collect();
    comparison.read_texts(&checkpoints, most, is_json && arguments.trajectories)?;
    write(arguments.output.as_deref(), |out| comparison.render(format, out))?;
    if let (CompareFormat::Terminal { .. }, None) = (format, &arguments.output) {
        println!("\nnext: {} --format html --output comparison", command(arguments, &sides));
    }
    Ok(Exit::Complete)
}

/// Returns the command that compares the same.
fn command(arguments: &CompareArgs, sides: &[Side]) -> String {
    let selection = &arguments.selection;
    let mut words = vec!["lumos".to_owned(), "compare".to_owned()];
    words.extend(sides.iter().map(|side| quoted_path(&side.folder)));
    let options = [
        ("--by", arguments.by.map(|axis| axis.to_string())),
        ("--metric", arguments.metric.clone()),
        ("--scoring", selection.scoring.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .chain(selection.only.iter().map(|value| ("--only", value.clone())))
    .chain(arguments.label.iter().map(|value| ("--label", value.clone())));
    words.extend(options.flat_map(|(name, value)| [name.to_owned(), quoted(&value)]));
    words.extend(arguments.unpaired.then(|| "--unpaired".to_owned()));
    words.join(" ")
}

/// Writes the page with all items and prints its path.
fn write_page(
    folder: Option<&Path>,
    comparison: &mut Comparison,
    sides: &[Side],
    checkpoints: &[CheckpointReader],
) -> CommandResult {
    let folder = new_folder(folder, "html")?;
    comparison.read_texts(&checkpoints.iter().collect::<Vec<_>>(), viewer::CHANGED_ITEMS, false)?;
    let sides: Vec<_> = sides.iter().zip(checkpoints).collect();
    viewer::write_comparison(folder, comparison, &sides)?;
    println!("{}", folder.join(viewer::PAGE).display());
    Ok(Exit::Complete)
}

/// Opens a run and scores its units.
pub(super) fn open_side(
    names: &RunsArgs,
    run: &Path,
    selection: &SelectionArgs,
) -> Result<(Side, CheckpointReader), Failure> {
    let folder = names.folder(run)?;
    let (manifest, checkpoint) = open(&folder)?;
    let asked = selection.scoring.clone().into_iter().collect::<Vec<_>>();
    let asked = settings::scorings(&asked)?.first().copied();
    let scoring = asked.or(manifest.spec.scoring.first().copied()).unwrap_or(Scoring::Paper);
    let table = RunTable::read(&manifest, &checkpoint, scoring)?;
    let last = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = last.unwrap_or_else(|| manifest.spec.name.clone());
    Ok((Side { name, folder, table }, checkpoint))
}

/// Parses `AXIS=VALUE` filters.
pub(super) fn only(selection: &SelectionArgs) -> Result<Vec<(SettingsAxis, String)>, Failure> {
    let filter = |text: &String| {
        let (axis, value) = text.split_once('=').ok_or_else(|| {
            Failure::input(format!("invalid value `{text}` for --only: expected <AXIS=VALUE>"))
                .hint("example: --only behaviour=paper")
        })?;
        Ok((axis.parse::<SettingsAxis>().map_err(Failure::usage)?, value.to_owned()))
    };
    selection.only.iter().map(filter).collect()
}

/// Returns the failure of a comparison that is refused or cannot be made.
pub(super) fn refused(error: CompareError) -> Failure {
    let hint = error.hint();
    let failure = match &error {
        CompareError::Refused(_) => Failure::input(format!("the runs are not comparable:\n  {error}")),
        _ => Failure::usage(error),
    };
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Writes to a file, or to standard output.
pub(super) fn write(
    path: Option<&Path>,
    render: impl Fn(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let Some(path) = path else {
        let mut out = BufWriter::new(io::stdout().lock());
        render(&mut out)?;
        return Ok(out.flush()?);
    };
    let failed = |error: io::Error| Failure::input(format!("cannot write {}: {error}", path.display()));
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    render(&mut out).and_then(|()| out.flush()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn the_next_command_has_the_options_that_select_what_is_compared() {
        let options = "--by model --metric exact_match --scoring corrected --only behaviour=paper --label a=b --unpaired";
        let words = ["lumos", "compare", "run"].into_iter().chain(options.split(' '));
        let cli = Cli::try_parse_from(words).unwrap();
        let Command::Compare(arguments) = cli.command else { panic!("another command") };
        assert_eq!(command(&arguments, &[]), format!("lumos compare {options}"));
    }
}
