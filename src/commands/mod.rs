//! The commands, by subject.

pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod complete;
pub(crate) mod data;
pub(crate) mod doctor;
pub(crate) mod dry_run;
pub(crate) mod estimate;
pub(crate) mod export;
pub(crate) mod gate;
pub(crate) mod init;
pub(crate) mod judge;
pub(crate) mod ls;
pub(crate) mod queue;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod tool;
pub(crate) mod verify;
pub(crate) mod worker;

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::exit::{CommandResult, Exit};

/// `lumos completions`: prints a shell completion script.
pub(crate) fn completions(arguments: &CompletionsArgs) -> CommandResult {
    // `clap_complete` panics if writing fails.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "lumos", &mut script);
    println!("{}", String::from_utf8_lossy(&script).trim_end());
    Ok(Exit::Complete)
}
