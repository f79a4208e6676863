//! `lumos report`: what came of a run.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::{Checkpoint, report};

use crate::cli::ReportArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::session::checkpoint_failure;
use crate::settings;

/// A run that is there: its manifest and its checkpoint.
pub(super) fn open(folder: &Path) -> Result<(Manifest, Checkpoint), Failure> {
    let manifest = Manifest::read(folder)
        .map_err(|error| Failure::usage(error).hint("`lumos ls` lists the runs there are"))?;
    let checkpoint = Checkpoint::open(&folder.join("checkpoint")).map_err(checkpoint_failure)?;
    Ok((manifest, checkpoint))
}

pub(crate) fn run(arguments: &ReportArgs) -> Outcome {
    let (manifest, checkpoint) = open(&arguments.run)?;
    let scorings = settings::scorings(&arguments.scoring)?;
    let report = report::report(&manifest, &checkpoint, &scorings)?;
    let renderer = arguments.format.renderer();
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
