//! `lumos show`: prints one item's trajectory.

use std::io::{self, IsTerminal, Write};

use lumos_coordinator::trajectory::{Show, find, show};

use super::report::open;
use crate::cli::ShowArgs;
use crate::exit::{CommandResult, Exit, Failure};

pub(crate) fn run(arguments: &ShowArgs) -> CommandResult {
    let folder = arguments.runs.folder(&arguments.run)?;
    let (manifest, checkpoint) = open(&folder)?;
    let found = find(&manifest, &checkpoint, &arguments.item, |planned| {
        arguments.task.as_ref().is_none_or(|task| planned.configuration.benchmark == *task)
    })?;
    if found.is_empty() {
        return Err(Failure::input(format!("item `{}` not found in {}", arguments.item, folder.display()))
            .hint("pass the item's index (counted from 0), its name in the data set, or its unit's id"));
    }
    let how =
        Show { colours: std::io::stdout().is_terminal(), prompts: arguments.prompts, ..Show::default() };
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
        write!(out, "{}", show(found, &manifest.spec.scoring, how)?)?;
    }
    Ok(Exit::Complete)
}
