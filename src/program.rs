//! Runs the command line, with what the binary adds to it.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use lumos_benchmarks::{Benchmark, BenchmarkBuilder};
use lumos_models::ModelBackendDescription;
use lumos_tools::BackendDescription;

use crate::cli::{self, Cli, Command};
use crate::exit::{CommandResult, Exit, Failure};
use crate::{commands, memory, terminal};

/// How long the exit waits for blocking work in progress.
const SHUTDOWN: Duration = Duration::from_millis(500);

/// The program `lumos`, with benchmarks, tools and models of your own. `examples/own-crate` is a whole crate.
///
/// ```
/// use std::process::ExitCode;
///
/// use lumos_eval::Program;
/// use lumos_eval::benchmarks::task_file::{TaskDefinition, TaskFamily};
/// use lumos_eval::benchmarks::{BenchmarkBuilder, Content, RecordError};
///
/// fn doubles() -> BenchmarkBuilder {
///     let definition = TaskDefinition::new("doubles", TaskFamily::Maths, "doubles.jsonl");
///     BenchmarkBuilder::new(definition).samples(b"{\"of\": 21}\n").read(|record| {
///         let number = record["of"].as_u64().ok_or_else(|| {
///             RecordError::new("of", "a number", record["of"].to_string(), "TypeError")
///         })?;
///         Ok(Content::maths(format!("What is twice {number}?"), (2 * number).to_string()))
///     })
/// }
///
/// fn main() -> ExitCode {
///     let program = Program::new().benchmark(doubles());
/// #   let folder = std::env::temp_dir().join(format!("lumos-doubles-{}", std::process::id()));
/// #   let arguments = ["doubles", "run", "--tasks", "doubles", "--model", "builtin:tiny", "--output-path"];
/// #   let code = program.run_with(arguments.map(Into::into).into_iter().chain([folder.clone().into()]));
/// #   assert_eq!(code, ExitCode::SUCCESS);
/// #   let _ = std::fs::remove_dir_all(folder);
/// #   let program = Program::new();
/// #   if true { return code; }
///     program.run()
/// }
/// ```
#[must_use]
#[derive(Default)]
pub struct Program {
    benchmarks: Vec<BenchmarkBuilder>,
    tools: Vec<&'static BackendDescription>,
    models: Vec<&'static ModelBackendDescription>,
}

impl Program {
    /// Creates the program without additions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a benchmark, which all commands then know. An invalid definition ends the program with an error.
    pub fn benchmark(mut self, benchmark: BenchmarkBuilder) -> Self {
        self.benchmarks.push(benchmark);
        self
    }

    /// Adds a backend of a tool: of a built-in tool, or of one of your own, which the actions of agents name
    /// ([`ActionDefinition::tool`](lumos_tasks::families::agent::ActionDefinition::tool)). Workers on a queue run the
    /// same program, so that they have it too.
    pub fn tool(mut self, backend: &'static BackendDescription) -> Self {
        self.tools.push(backend);
        self
    }

    /// Adds a backend of models, which `--model <backend>:<model>` then selects. Workers on a queue run the same program,
    /// so that they have it too.
    pub fn model(mut self, backend: &'static ModelBackendDescription) -> Self {
        self.models.push(backend);
        self
    }

    /// Runs the command line of this process, and returns its exit code. As [`run_with`](Self::run_with).
    #[must_use = "return it from `main`"]
    pub fn run(self) -> ExitCode {
        self.run_with(std::env::args_os())
    }

    /// Runs a command line, whose first argument is the program's name, and returns its exit code.
    ///
    /// Call it once per process, outside of async code: it starts the async runtime, logging and the handling of panics
    /// and signals, and adds the benchmarks, tools and models to those of the process.
    #[must_use = "return it from `main`"]
    pub fn run_with(self, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
        // First, because parsing the arguments takes the stack's first growth.
        memory::watch_panics();
        #[cfg(unix)]
        memory::watch_signals();
        // Before the arguments are parsed, because help texts name the benchmarks.
        if let Err(failure) = self.register() {
            failure.report();
            return failure.exit.into();
        }
        let cli = match cli::parse(arguments) {
            Ok(cli) => cli,
            Err(error) => {
                if let Some(failure) = cli::wrong_number(&error) {
                    failure.report();
                    return failure.exit.into();
                }
                // clap's exit codes: 0 for help and version, 2 for usage errors.
                let code = if error.use_stderr() { Exit::Usage } else { Exit::Complete };
                let _ = error.print();
                return code.into();
            }
        };
        terminal::start_logging(cli.global.verbose, cli.global.quiet, cli.global.log_format);
        let exit = execute(cli).unwrap_or_else(|failure| {
            failure.report();
            failure.exit
        });
        exit.into()
    }

    /// Adds the benchmarks, tools and models to those of the process.
    fn register(self) -> Result<(), Failure> {
        for backend in self.models {
            lumos_models::register_backend(backend).map_err(Failure::usage)?;
        }
        for backend in self.tools {
            lumos_tools::register_backend(backend).map_err(Failure::usage)?;
        }
        if self.benchmarks.is_empty() {
            return Ok(());
        }
        let built: Result<Vec<&'static dyn Benchmark>, _> =
            self.benchmarks.into_iter().map(BenchmarkBuilder::build).collect();
        lumos_benchmarks::register(&built.map_err(Failure::usage)?).map_err(Failure::usage)
    }
}

fn execute(cli: Cli) -> CommandResult {
    let runtime = runtime(&cli.command)?;
    let outcome = runtime.block_on(run(cli));
    // Joins the threads. `shutdown_background` detaches them while they end, and glibc 2.36 then reads a thread's
    // memory after it was unmapped. A blocking read of standard input delays the exit by at most this time.
    runtime.shutdown_timeout(SHUTDOWN);
    outcome
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
    if fleet.is_some_and(|fleet| fleet.queue.url().is_some()) {
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
