//! `lumos score`: scores recorded outcomes again, without a model or with a judge's verdicts, and rewrites
//! the results files.

use std::io::{self, Write};

use lumos_coordinator::export;
use lumos_coordinator::report::Render;

use super::report::open;
use crate::cli::ScoreArgs;
use crate::exit::{CommandResult, Exit};
use crate::session::terminal;
use crate::settings;

pub(crate) async fn run(arguments: &ScoreArgs, quiet: bool) -> CommandResult {
    if let Some(judge) = &arguments.judge {
        return super::judge::run(arguments, judge, quiet).await;
    }
    let folder = arguments.runs.folder(&arguments.run)?;
    crate::writable::check_folder(&folder, None)?;
    let (manifest, checkpoint) = open(&folder)?;
    let scorings = settings::scorings(&arguments.scoring)?;
    let exported = export::export(&folder, &manifest, &checkpoint, &scorings, jiff::Timestamp::now())?;
    let report = exported.report;
    let mut out = io::stdout().lock();
    terminal().render(&report, &mut out)?;
    out.flush()?;
    Ok(if report.total.is_complete() { Exit::Complete } else { Exit::Outstanding })
}
