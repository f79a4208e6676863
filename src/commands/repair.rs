//! `lumos repair`: checks both copies of the checkpoints of a run and its judges, and restores damaged data.

use std::path::{Path, PathBuf};

use lumos_coordinator::checkpoint::Recovery;
use lumos_coordinator::{Checkpoint, judge};

use crate::cli::RepairArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::session;

pub(crate) async fn run(arguments: &RepairArgs) -> CommandResult {
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
        let checkpoint = session::open(folder, Checkpoint::open).await?;
        println!(
            "{}: {}; {} items, {} units settled",
            folder.display(),
            verdict(checkpoint.recovery()),
            checkpoint.item_count(),
            checkpoint.settled()
        );
        if checkpoint.recovery().has_lost() {
            say_what_is_next(run);
            exit = Exit::Outstanding;
        }
        tokio::task::spawn_blocking(move || checkpoint.close()).await??;
    }
    lumos_coordinator::remove_left_behind(run)?;
    Ok(exit)
}

fn verdict(recovery: &Recovery) -> &'static str {
    match (recovery.is_empty(), recovery.has_lost()) {
        (true, _) => "both copies of the checkpoint are intact",
        (false, false) => "repaired, nothing lost",
        (false, true) => "repaired, except for entries lost in both copies",
    }
}

fn say_what_is_next(run: &Path) {
    eprintln!("hint: run the lost units again: lumos resume {}", run.display());
}
