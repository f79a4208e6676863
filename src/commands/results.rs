//! `lumos report`, `score`, `show`, `merge` and `repair`: the results of recorded runs.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lumos_benchmarks::Scoring;
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::report::{self, Format};
use lumos_coordinator::results::Labels;
use lumos_coordinator::trajectory::{self, Show};
use lumos_coordinator::{Checkpoint, CheckpointReader, Damage, export, judge, merge};

use crate::cli::{MergeArgs, RepairArgs, ReportArgs, ScoreArgs, ShowArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::pipeline::{checkpoint_failure, open_checkpoint, terminal, write_results};
use crate::{settings, writable};

/// Opens an existing run: its manifest, and its checkpoint for reading.
pub(super) fn open(folder: &Path) -> Result<(Manifest, CheckpointReader), Failure> {
    let mut manifest =
        Manifest::read(folder).map_err(|error| Failure::usage(error).hint("list the runs: lumos ls"))?;
    let checkpoint = CheckpointReader::open(&folder.join("checkpoint")).map_err(checkpoint_failure)?;
    // The scorings with which the run was planned, even if the manifest was edited since.
    let planned = checkpoint.plan()?.map(|mark| mark.scoring).unwrap_or_default();
    if !planned.is_empty() && planned != manifest.spec.scoring {
        let names = |scorings: &[Scoring]| {
            scorings.iter().map(|scoring| scoring.name()).collect::<Vec<_>>().join(", ")
        };
        tracing::warn!(
            "{}: `scoring` was changed to [{}] after planning; using [{}], which the run was planned with (--scoring selects others)",
            folder.join("manifest.json").display(),
            names(&manifest.spec.scoring),
            names(&planned)
        );
        manifest.spec.scoring = planned;
    }
    Ok((manifest, checkpoint))
}

/// `lumos report`: prints the results of a run.
pub(crate) fn report(arguments: &ReportArgs) -> CommandResult {
    let (manifest, checkpoint) = open(&arguments.runs.folder(&arguments.run)?)?;
    let scorings = settings::scorings(&arguments.scoring)?;
    let labels = Labels::parse(&arguments.label).map_err(Failure::usage)?;
    let report = report::labelled_report(&manifest, &checkpoint, &scorings, &labels)?;
    let format = match (arguments.format, &arguments.output) {
        (Format::Terminal { .. }, None) => terminal(),
        (format, _) => format,
    };
    match &arguments.output {
        Some(path) => {
            let file = File::create(path)
                .map_err(|error| Failure::input(format!("cannot write {}: {error}", path.display())))?;
            let mut out = BufWriter::new(file);
            report.render(format, &mut out)?;
            out.flush()?;
        }
        None => report.render(format, &mut BufWriter::new(io::stdout().lock()))?,
    }
    Ok(if report.total.is_complete() { Exit::Complete } else { Exit::Outstanding })
}

/// `lumos score`: scores recorded outcomes again, without a model or with a judge's verdicts, and rewrites
/// the results files.
pub(crate) async fn score(arguments: &ScoreArgs, quiet: bool) -> CommandResult {
    if let Some(judge) = &arguments.judge {
        return super::judge::run(arguments, judge, quiet).await;
    }
    let folder = arguments.runs.folder(&arguments.run)?;
    writable::check_folder(&folder, None)?;
    let recorded = open(&folder)?;
    let total = rescore(&folder, recorded, &settings::scorings(&arguments.scoring)?)?.total;
    Ok(if total.is_complete() { Exit::Complete } else { Exit::Outstanding })
}

/// Writes the results of a run again, and prints them.
pub(super) fn rescore(
    folder: &Path,
    (manifest, checkpoint): (Manifest, CheckpointReader),
    scorings: &[Scoring],
) -> Result<report::Report, Failure> {
    let report = export::export(folder, &manifest, &checkpoint, scorings, jiff::Timestamp::now())?;
    let mut out = io::stdout().lock();
    report.render(terminal(), &mut out)?;
    out.flush()?;
    Ok(report)
}

/// `lumos show`: prints one item's trajectory.
pub(crate) fn show(arguments: &ShowArgs) -> CommandResult {
    let folder = arguments.runs.folder(&arguments.run)?;
    let (manifest, checkpoint) = open(&folder)?;
    let found = trajectory::find(&manifest, &checkpoint, &arguments.item, |planned| {
        arguments.task.as_ref().is_none_or(|task| planned.configuration.benchmark == *task)
    })?;
    if found.is_empty() {
        return Err(Failure::input(format!("item `{}` not found in {}", arguments.item, folder.display()))
            .hint("pass the item's index (counted from 0), its name in the data set, or its unit's id"));
    }
    let how = Show { colours: io::stdout().is_terminal(), prompts: arguments.prompts, ..Show::default() };
    let mut out = io::stdout().lock();
    for (index, found) in found.iter().enumerate() {
        if arguments.json {
            for record in &found.records {
                writeln!(out, "{}", serde_json::to_string(record)?)?;
            }
            continue;
        }
        if index > 0 {
            writeln!(out)?;
        }
        write!(out, "{}", trajectory::show(found, &manifest.spec.scoring, how)?)?;
    }
    Ok(Exit::Complete)
}

/// `lumos merge`: merges the parts of a run into one run.
pub(crate) async fn merge(arguments: &MergeArgs) -> CommandResult {
    writable::check_folder(&arguments.into, Some("--into"))?;
    let parts: Result<Vec<_>, _> = arguments.parts.iter().map(|part| arguments.runs.folder(part)).collect();
    let (parts, into, incomplete) = (parts?, arguments.into.clone(), arguments.allow_incomplete);
    let merged = tokio::task::spawn_blocking(move || merge::merge(&parts, &into, incomplete))
        .await?
        .map_err(Failure::usage)?;
    let checkpoint = open_checkpoint(&arguments.into, Checkpoint::open, Duration::ZERO).await?;
    let written = write_results(&merged, &arguments.into, &checkpoint, None);
    checkpoint.close()?;
    let total = written?.total;
    println!(
        "merged {} parts into one run of {} units, {} of them outstanding: {}",
        arguments.parts.len(),
        total.planned,
        total.outstanding + total.faulted,
        arguments.into.display()
    );
    Ok(if total.is_complete() { Exit::Complete } else { Exit::Outstanding })
}

/// `lumos repair`: checks both copies of the checkpoints of a run and its judges, and restores damaged data.
pub(crate) async fn repair(arguments: &RepairArgs) -> CommandResult {
    let run = &arguments.runs.folder(&arguments.run)?;
    if !run.join("checkpoint").is_dir() {
        return Err(Failure::input(format!("checkpoint not found in `{}`", run.display()))
            .hint("list the runs: lumos ls"));
    }
    let mut folders: Vec<PathBuf> = vec![run.clone()];
    folders.extend(judge::pass_folders(run)?);
    let mut exit = Exit::Complete;
    for folder in &folders {
        // Opening for writing compares both copies and restores damaged data. The log contains the details.
        let checkpoint = open_checkpoint(folder, Checkpoint::open, Duration::ZERO).await?;
        println!(
            "{}: {}; {} items, {} units settled",
            folder.display(),
            verdict(checkpoint.damage()),
            checkpoint.item_count(),
            checkpoint.settled()
        );
        if checkpoint.damage() == Damage::Lost {
            eprintln!("hint: run the lost units again: lumos resume {}", run.display());
            exit = Exit::Outstanding;
        }
        tokio::task::spawn_blocking(move || checkpoint.close()).await??;
    }
    lumos_coordinator::remove_left_behind(run)?;
    Ok(exit)
}

fn verdict(damage: Damage) -> &'static str {
    match damage {
        Damage::None => "both copies of the checkpoint are intact",
        Damage::Repaired => "repaired, nothing lost",
        Damage::Lost => "repaired, except for entries lost in both copies",
    }
}
