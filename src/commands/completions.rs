//! `lumos completions`: prints a shell completion script.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::exit::{CommandResult, Exit};

pub(crate) fn run(arguments: &CompletionsArgs) -> CommandResult {
    clap_complete::generate(arguments.shell, &mut Cli::command(), "lumos", &mut std::io::stdout());
    Ok(Exit::Complete)
}
