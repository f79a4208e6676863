//! `lumos report`: prints the results of a run.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use lumos_benchmarks::Scoring;
use lumos_coordinator::manifest::{FILE_NAME, Manifest};
use lumos_coordinator::report::Format;
use lumos_coordinator::{CheckpointReader, report};

use crate::cli::ReportArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::session::{checkpoint_failure, terminal};
use crate::settings;

/// Opens an existing run: its manifest, and its checkpoint for reading.
pub(super) fn open(folder: &Path) -> Result<(Manifest, CheckpointReader), Failure> {
    let mut manifest =
        Manifest::read(folder).map_err(|error| Failure::usage(error).hint("list the runs: lumos ls"))?;
    let checkpoint = CheckpointReader::open(&folder.join("checkpoint")).map_err(checkpoint_failure)?;
    restore_scoring(folder, &mut manifest, &checkpoint)?;
    Ok((manifest, checkpoint))
}

/// Restores the scorings with which the run was planned, and warns if the manifest was edited since.
fn restore_scoring(
    folder: &Path,
    manifest: &mut Manifest,
    checkpoint: &CheckpointReader,
) -> Result<(), Failure> {
    let planned = checkpoint.plan()?.map(|mark| mark.scoring).unwrap_or_default();
    if !planned.is_empty() && planned != manifest.spec.scoring {
        let names = |scorings: &[Scoring]| {
            scorings.iter().map(|scoring| scoring.name()).collect::<Vec<_>>().join(", ")
        };
        tracing::warn!(
            "{}: `scoring` was changed to [{}] after planning; using [{}], which the run was planned with (--scoring selects others)",
            folder.join(FILE_NAME).display(),
            names(&manifest.spec.scoring),
            names(&planned)
        );
        manifest.spec.scoring = planned;
    }
    Ok(())
}

pub(crate) fn run(arguments: &ReportArgs) -> CommandResult {
    let (manifest, checkpoint) = open(&arguments.runs.folder(&arguments.run)?)?;
    let scorings = settings::scorings(&arguments.scoring)?;
    let report = report::report(&manifest, &checkpoint, &scorings)?;
    let renderer = match (arguments.format, &arguments.output) {
        (Format::Terminal, None) => Box::new(terminal()),
        (format, _) => format.renderer(),
    };
    match &arguments.output {
        Some(path) => {
            let file = File::create(path)
                .map_err(|error| Failure::input(format!("cannot write {}: {error}", path.display())))?;
            let mut out = BufWriter::new(file);
            renderer.render(&report, &mut out)?;
            out.flush()?;
        }
        None => renderer.render(&report, &mut BufWriter::new(io::stdout().lock()))?,
    }
    Ok(if report.total.is_complete() { Exit::Complete } else { Exit::Outstanding })
}
