//! `lumos report`, `score`, `merge` and `repair`: the results of recorded runs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lumos_benchmarks::Scoring;
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::{Checkpoint, CheckpointReader, Damage, MergeError};
use lumos_reports::report::{self, Format};
use lumos_reports::results::Labels;
use lumos_reports::viewer::{self, ViewerSource};
use lumos_reports::{export, judge};
use lumos_tasks::Role;
use lumos_tasks::shell::{quoted, quoted_path};

use crate::cli::{MergeArgs, RepairArgs, ReportArgs, ReportFormat, ScoreArgs, Verbosity};
use crate::exit::{CommandResult, Exit, Failure};
use crate::pipeline::{
    checkpoint_failure, lock_results, manifest_failure, open_checkpoint, print_report, write_results,
};
use crate::progress::write_line;
use crate::{settings, writable};

/// Opens an existing run: its manifest, and its checkpoint for reading.
pub(super) fn open(folder: &Path) -> Result<(Manifest, CheckpointReader), Failure> {
    let mut manifest = Manifest::read(folder).map_err(manifest_failure)?;
    manifest.spec.check_benchmarks().map_err(Failure::usage)?;
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
pub(crate) fn report(arguments: &ReportArgs, verbosity: Verbosity) -> CommandResult {
    let folder = arguments.runs.folder(&arguments.run)?;
    let (manifest, checkpoint) = open(&folder)?;
    let scorings = settings::scorings(&arguments.scoring)?;
    let labels = Labels::parse(&arguments.label).map_err(Failure::usage)?;
    let report = report::labelled_report(&manifest, &checkpoint, &scorings, &labels)?;
    let source = ViewerSource { manifest: &manifest, checkpoint: &checkpoint, scorings: &scorings };
    let format = match (arguments.format, &arguments.output) {
        _ if arguments.json => Format::JSON,
        (ReportFormat::Viewer, folder) => {
            write_viewer(folder.as_deref(), &report, &source)?;
            return Ok(exit_of(&report));
        }
        (ReportFormat::Document(Format::Terminal { .. }), None) => {
            print_report(&report, &folder, verbosity)?;
            return Ok(exit_of(&report));
        }
        (ReportFormat::Document(Format::Terminal { width, .. }), Some(_)) => {
            Format::Terminal { width, detail: verbosity.detail }
        }
        (ReportFormat::Document(format), _) => format,
    };
    let write = |out: &mut dyn Write| -> Result<(), Failure> {
        match format {
            // The page has the list of items, which a report lacks.
            format if format == Format::HTML => viewer::write_page(out, &report, &source)?,
            format => report.render(format, out)?,
        }
        Ok(out.flush()?)
    };
    match &arguments.output {
        Some(path) => {
            let file = File::create(path)
                .map_err(|error| Failure::input(format!("cannot write {}: {error}", path.display())))?;
            write(&mut BufWriter::new(file))?;
        }
        None => write(&mut BufWriter::new(io::stdout().lock()))?,
    }
    Ok(exit_of(&report))
}

fn exit_of(report: &report::Report) -> Exit {
    if report.total.is_complete() { Exit::Complete } else { Exit::Outstanding }
}

/// Returns the folder for a page of a format. It is new or empty, or has an earlier page.
pub(super) fn new_folder<'a>(folder: Option<&'a Path>, format: &str) -> Result<&'a Path, Failure> {
    let folder = folder.ok_or_else(|| {
        Failure::input(format!("--format {format} needs a folder")).hint("add --output and a new folder")
    })?;
    if !viewer::may_replace(folder) {
        let message = format!("cannot write the page to {}: it is not an empty folder", folder.display());
        return Err(Failure::input(message).hint("pass a new folder with --output"));
    }
    Ok(folder)
}

/// Writes the item viewer and prints the path of its page.
fn write_viewer(
    folder: Option<&Path>,
    report: &report::Report,
    source: &ViewerSource<'_>,
) -> Result<(), Failure> {
    let folder = new_folder(folder, "viewer")?;
    viewer::write_viewer(folder, None, report, source)?;
    println!("{}", folder.join(viewer::PAGE).display());
    Ok(())
}

/// `lumos score`: scores recorded outcomes again, without a model or with a judge's verdicts, and rewrites
/// the results files.
pub(crate) async fn score(arguments: &ScoreArgs, verbosity: Verbosity) -> CommandResult {
    if let Some(judge) = &arguments.judge {
        return super::judge::run(arguments, judge, verbosity).await;
    }
    let folder = arguments.runs.folder(&arguments.run)?;
    writable::check_folder(&folder, None)?;
    let total = rescore(&folder, &settings::scorings(&arguments.scoring)?, verbosity)?.total;
    Ok(if total.is_complete() { Exit::Complete } else { Exit::Outstanding })
}

/// Writes the results of a run again, and prints them.
pub(super) fn rescore(
    folder: &Path,
    scorings: &[Scoring],
    verbosity: Verbosity,
) -> Result<report::Report, Failure> {
    let report = export_again(folder, scorings)?;
    print_report(&report, folder, verbosity)?;
    Ok(report)
}

/// Writes the results of a run again; the run may be in progress.
fn export_again(folder: &Path, scorings: &[Scoring]) -> Result<report::Report, Failure> {
    // Open the run afterwards: it may end and write its results while this waits.
    let _lock = lock_results(folder);
    let (manifest, checkpoint) = open(folder)?;
    Ok(export::export(folder, &manifest, &checkpoint, scorings, jiff::Timestamp::now())?)
}

/// `lumos merge`: merges the parts of a run into one run.
pub(crate) async fn merge(arguments: &MergeArgs) -> CommandResult {
    if arguments.into.to_str().is_none() {
        return Err(writable::not_utf8(&arguments.into).hint("set another folder with --into"));
    }
    writable::check_folder(&arguments.into, Some("--into"))?;
    let parts: Result<Vec<_>, _> = arguments.parts.iter().map(|part| arguments.runs.folder(part)).collect();
    let (parts, into, incomplete) = (parts?, arguments.into.clone(), arguments.allow_incomplete);
    let merged = tokio::task::spawn_blocking(move || lumos_coordinator::merge(&parts, &into, incomplete))
        .await?
        .map_err(merge_failure)?;
    let checkpoint =
        CheckpointReader::open(&arguments.into.join("checkpoint")).map_err(checkpoint_failure)?;
    let written = write_results(&merged, &arguments.into, &checkpoint, None);
    let total = written.map_err(|failure| with_score_hint(failure, &arguments.into))?.total;
    println!(
        "merged {} parts into one run of {} units, {} of them outstanding: {}",
        arguments.parts.len(),
        total.planned,
        total.outstanding + total.faulted,
        arguments.into.display()
    );
    Ok(if total.is_complete() { Exit::Complete } else { Exit::Outstanding })
}

/// Adds how to write the results of merged parts if the disk is full: the same command would refuse the folder.
fn with_score_hint(failure: Failure, into: &Path) -> Failure {
    if !failure.is_disk_full() {
        return failure;
    }
    let score = format!("lumos score {}", quoted_path(into));
    failure.hint(format!("the parts are merged; free disk space and write the results with `{score}`"))
}

/// Parts that cannot be merged are a usage error; an error of the disk is a fault.
fn merge_failure(error: MergeError) -> Failure {
    match error {
        MergeError::Checkpoint(error) => checkpoint_failure(error),
        MergeError::Manifest(error) => manifest_failure(error),
        MergeError::Io { ref source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            Failure::from(error)
        }
        error => Failure::usage(error),
    }
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
            write_line(format_args!("hint: {}", repeat_lost(run, folder)));
            exit = Exit::Outstanding;
        }
        tokio::task::spawn_blocking(move || checkpoint.close()).await??;
    }
    lumos_coordinator::atomic_file::remove_left_behind(run)?;
    Ok(exit)
}

/// Describes how to run the lost units of a run, or of a judge's pass in its folder, again.
fn repeat_lost(run: &Path, folder: &Path) -> String {
    let manifest = Manifest::read(folder).ok();
    let planned = manifest.as_ref().and_then(|manifest| manifest.configurations.first());
    let judge = planned.and_then(|planned| planned.configuration.models.get(&Role::Judge));
    if judge.is_none() && folder == run {
        return format!("run the lost units again: lumos resume {}", quoted_path(run));
    }
    // A pass is in RUN/judge/PASS, and may have been given instead of the run.
    let judged = folder.ancestors().nth(2).filter(|judged| !judged.as_os_str().is_empty());
    let judge = judge.map_or("MODEL", |judge| judge.name.as_str());
    format!(
        "ask the judge for the lost verdicts again: lumos score {} --judge {}",
        quoted_path(judged.unwrap_or(Path::new("."))),
        quoted(judge)
    )
}

fn verdict(damage: Damage) -> &'static str {
    match damage {
        Damage::None => "both copies of the checkpoint are intact",
        Damage::Repaired => "repaired, nothing lost",
        Damage::Lost => "repaired, except for entries lost in both copies",
    }
}

#[cfg(test)]
mod tests {
    use lumos_coordinator::samples::{configuration, item, manifest_of, state};
    use lumos_coordinator::{CheckpointError, unit_of};
    use lumos_tasks::{ContentHash, ModelIdentity};

    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn score_waits_for_a_run_that_writes_its_results_and_reads_all_it_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        let items = [item(0), item(1)];
        let manifest = manifest_of(&[configuration(0)], &items);
        manifest.write(run).unwrap();
        let checkpoint = Checkpoint::create(&run.join("checkpoint")).unwrap();
        checkpoint.store_items("svamp", &items).unwrap();
        let writing = lock_results(run);
        let scored = run.to_owned();
        let scoring = std::thread::spawn(move || export_again(&scored, &[]));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!scoring.is_finished());
        let unit = unit_of(&manifest.configurations[0], &items[0]);
        checkpoint.record(state(0, &unit).unwrap()).await.unwrap();
        checkpoint.close().unwrap();
        drop(writing);
        let report = scoring.join().unwrap().unwrap();
        assert_eq!((report.total.planned, report.total.outstanding), (2, 1));
        assert!(export::is_current(run, &report).unwrap());
    }

    #[test]
    fn only_a_missing_manifest_suggests_the_list_of_runs() {
        let folder = tempfile::tempdir().unwrap();
        let failed = || open(folder.path()).unwrap_err();
        assert_eq!(failed().hint.as_deref(), Some("list the runs: lumos ls"));
        std::fs::write(folder.path().join("manifest.json"), "{\"schema\": 99}").unwrap();
        assert!(failed().error.to_string().contains("use the version of lumos that wrote it"));
        assert_eq!((failed().exit, failed().hint), (Exit::Usage, None));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_merge_into_a_folder_whose_path_is_not_utf_8_is_refused() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        use crate::cli::RunsArgs;

        for into in [&b"caf\xe9/whole"[..], b"caf\xe9"] {
            let arguments = MergeArgs {
                parts: Vec::new(),
                runs: RunsArgs { output_path: "runs".into() },
                into: OsStr::from_bytes(into).into(),
                allow_incomplete: false,
            };
            let failure = merge(&arguments).await.unwrap_err();
            assert!(failure.error.to_string().ends_with("` is not UTF-8"), "{}", failure.error);
            assert_eq!(failure.hint.as_deref(), Some("set another folder with --into"));
        }
    }

    #[test]
    fn a_full_disk_after_a_merge_suggests_score() {
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        let hint = with_score_hint(full, Path::new("runs/my run")).hint.unwrap();
        assert!(hint.ends_with("write the results with `lumos score 'runs/my run'`"), "{hint}");
        let other = with_score_hint(Failure::input("unknown benchmark"), Path::new("runs/whole"));
        assert_eq!(other.hint, None);
    }

    #[test]
    fn a_full_disk_is_a_fault_and_parts_that_do_not_fit_are_wrong_usage() {
        let folder = PathBuf::from("runs/whole");
        let full = MergeError::Checkpoint(CheckpointError::Full { folder: folder.clone() });
        assert_eq!(merge_failure(full).exit, Exit::Fault);
        let source = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(merge_failure(MergeError::Io { folder: folder.clone(), source }).exit, Exit::Fault);
        let in_use = MergeError::Checkpoint(CheckpointError::InUse { folder: folder.clone() });
        assert_eq!(merge_failure(in_use).exit, Exit::Usage);
        assert_eq!(merge_failure(MergeError::Occupied { folder }).exit, Exit::Usage);
    }

    #[test]
    fn lost_units_are_repeated_by_resume_and_lost_verdicts_by_score() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("my run");
        let run_in_shell = quoted_path(&run);
        let resume = format!("run the lost units again: lumos resume {run_in_shell}");
        assert!(run_in_shell.starts_with('\''), "{run_in_shell}");
        assert_eq!(repeat_lost(&run, &run), resume);
        manifest_of(&[configuration(0)], &[item(0)]).write(&run).unwrap();
        assert_eq!(repeat_lost(&run, &run), resume);
        let pass = run.join("judge").join("0123456789ab");
        let score = |judge: &str| {
            format!("ask the judge for the lost verdicts again: lumos score {run_in_shell} --judge {judge}")
        };
        assert_eq!(repeat_lost(&run, &pass), score("MODEL"));
        let name = "openai:judge@http://host/v1".to_owned();
        let content = ContentHash::of_bytes(b"judge");
        let judge = judge::configuration(&ModelIdentity { name: name.clone(), content, dtype: None });
        manifest_of(&[judge], &[item(0)]).write(&pass).unwrap();
        for given in [&run, &pass] {
            assert_eq!(repeat_lost(given, &pass), score(&name));
        }
    }
}
