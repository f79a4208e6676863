//! Distributed batch evaluation of Lumos language agents: planning, grounding, execution.
//!
//! This crate is the command line. `cli` defines the arguments, `settings` resolves them, `commands` contains the
//! commands by subject, and `pipeline` has the stages of a run. `exit` determines the exit code.

mod budget;
mod cli;
mod colour;
mod commands;
mod estimate;
mod exit;
mod fleet;
mod interrupt;
mod logging;
mod memory;
mod pipeline;
mod progress;
mod settings;
mod table;
mod writable;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use cli::{Cli, Command};
use exit::{CommandResult, Exit};

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator;

/// How long the exit waits for blocking work in progress.
const SHUTDOWN: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    // First, because parsing the arguments takes the stack's first growth.
    memory::watch_panics();
    #[cfg(unix)]
    memory::watch_signals();
    let cli = match Cli::try_parse_from(cli::normalised(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => {
            // clap's exit codes: 0 for help and version, 2 for usage errors.
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Complete };
            let _ = error.print();
            return code.into();
        }
    };
    logging::start(cli.global.verbose, cli.global.quiet, cli.global.log_format);
    let outcome = match runtime(&cli.command) {
        Ok(runtime) => {
            let outcome = runtime.block_on(run(cli));
            // Joins the threads. `shutdown_background` detaches them while they end, and glibc 2.36 then reads a thread's
            // memory after it was unmapped. A blocking read of standard input delays the exit by at most this time.
            runtime.shutdown_timeout(SHUTDOWN);
            outcome
        }
        Err(error) => Err(error.into()),
    };
    let exit = outcome.unwrap_or_else(|failure| {
        failure.report();
        failure.exit
    });
    exit.into()
}

/// Creates the async runtime for a command.
///
/// A worker's own work is small and waits for I/O most of the time; one thread avoids hand-overs between
/// threads. Models compute on threads of their own.
///
/// The coordinator of a fleet has one worker thread in addition to the main thread: messages from the queue
/// pass through several tasks that would otherwise wake each other across threads, and interrupts are handled
/// while the main thread opens or reports a large run.
fn runtime(command: &Command) -> std::io::Result<tokio::runtime::Runtime> {
    use tokio::runtime::Builder;
    let fleet = match command {
        Command::Worker(_) => return Builder::new_current_thread().enable_all().build(),
        Command::Run(arguments) => Some(&arguments.fleet),
        Command::Resume(arguments) => Some(&arguments.fleet),
        Command::Score(arguments) => Some(&arguments.fleet),
        _ => None,
    };
    let mut builder = Builder::new_multi_thread();
    if fleet.is_some_and(|fleet| fleet.queue.queue.is_some()) {
        builder.worker_threads(1);
    }
    builder.enable_all().build()
}

async fn run(cli: Cli) -> CommandResult {
    let verbosity = cli.global.verbosity();
    let quiet = verbosity.quiet;
    match cli.command {
        Command::Run(arguments) if arguments.dry_run => commands::dry_run::run(&arguments).await,
        Command::Run(arguments) => commands::run::run(&arguments, verbosity).await,
        Command::Resume(arguments) => commands::run::resume(&arguments, verbosity).await,
        Command::Worker(arguments) => commands::worker::run(&arguments, quiet).await,
        Command::Status(arguments) => commands::queue::status(&arguments).await,
        Command::Watch(arguments) => commands::queue::watch(&arguments).await,
        Command::Cancel(arguments) => commands::queue::cancel(&arguments).await,
        Command::Merge(arguments) => commands::results::merge(&arguments).await,
        Command::Init(arguments) => commands::init::run(&arguments),
        Command::Validate(arguments) => commands::dry_run::run(&arguments).await,
        Command::Report(arguments) => commands::results::report(&arguments, verbosity),
        Command::Compare(arguments) => commands::compare::run(&arguments),
        Command::Gate(arguments) => commands::gate::run(&arguments),
        Command::Score(arguments) => commands::results::score(&arguments, verbosity).await,
        Command::Export(arguments) => commands::export::run(&arguments),
        Command::Show(arguments) => commands::show::run(&arguments),
        Command::Ls(arguments) => commands::ls::run(&arguments),
        Command::Repair(arguments) => commands::results::repair(&arguments).await,
        Command::Replay(arguments) => commands::verify::replay(&arguments),
        Command::Tool(arguments) => commands::tool::run(&arguments).await,
        Command::Complete(arguments) => commands::complete::run(arguments).await,
        Command::Bench(arguments) => commands::bench::run(&arguments).await,
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Estimate(arguments) => commands::estimate::run(&arguments).await,
        Command::Verify(arguments) => commands::verify::verify(&arguments).await,
        Command::Serve(arguments) => commands::serve::serve(&arguments).await,
        Command::Fetch(arguments) => commands::data::fetch(&arguments, quiet).await,
        Command::ServeModel(arguments) => commands::serve::models(&arguments, quiet).await,
        Command::Data(arguments) => commands::data::convert(arguments).await,
        Command::Completions(arguments) => commands::completions(&arguments),
    }
}
