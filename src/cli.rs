//! The command line.
#![allow(
    rustdoc::invalid_html_tags,
    reason = "doc comments are help texts here: `<folder>` is a placeholder"
)]

mod compare;
mod data;
mod engine;
mod export;
mod fleet;
mod results;
mod run;
mod serve;
mod tool;

use std::ffi::OsString;
use std::num::{ParseFloatError, ParseIntError};

use clap::error::ContextKind;
use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use lumos_reports::report::ReportDetail;

use crate::exit::Failure;

pub(crate) use compare::{Annotations, CompareArgs, ComparisonFormat, GateArgs, SelectionArgs};
pub(crate) use data::{DataArgs, DataCommand, FetchArgs, ImportSqlArgs, InitArgs, InitCommand, ReplayArgs};
pub(crate) use engine::{
    BackendArgs, BenchArgs, BenchCommand, DoctorArgs, EngineArgs, EstimateArgs, MemoryArgs, SpeedArgs,
    Switch, VerifyArgs,
};
pub(crate) use export::ExportArgs;
pub(crate) use fleet::{CancelArgs, FleetArgs, QueueArgs, StatusArgs, WatchArgs, WorkerArgs};
pub(crate) use results::{
    Listing, LsArgs, MergeArgs, RepairArgs, ReportArgs, ReportFormat, RunsArgs, ScoreArgs, ShowArgs,
};
pub(crate) use run::{ModelArgs, ResumeArgs, RunArgs};
pub(crate) use serve::{ServeArgs, ServeCommand, ServeModelArgs, ServeRunsArgs, ServeShopArgs};
pub(crate) use tool::{CompleteArgs, ToolArgs};

/// Evaluate Lumos language agents
///
/// Runs planner, grounder and tools on benchmarks. By default everything runs in this process and needs nothing else
/// installed. Outcomes are recorded in the run's folder as they arrive, and the same command continues an interrupted
/// run. With --queue nats://HOST:4222 workers on any number of machines execute the episodes.
#[derive(Debug, Parser)]
#[command(name = "lumos", version, propagate_version = true, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  lumos run --tasks gsm8k,svamp --model builtin:tiny
      run the built-in model on the built-in samples
  lumos fetch gsm8k svamp && lumos run --preset paper --tasks gsm8k,svamp --model builtin:tiny --data data
      run the paper's item sets from the official files
  lumos run --config sweep.toml --queue nats://host:4222 & lumos worker --queue nats://host:4222
      run on several machines: one coordinator, any number of workers
  lumos report runs/<name>                  print the report (--format markdown, json, csv or html)
  lumos show runs/<name> 12                 print the trajectory of item 12
  lumos replay tests/cases/maths.jsonl      replay recorded cases
  lumos tool maths 'Solve 2x + 3 = 11'      call one tool

Exit codes: 0 complete, 1 internal or machine error, 2 invalid usage or input, 4 nothing selected,
5 items outstanding or faulted, 100 check failed, 130 interrupted (recorded outcomes are kept).";

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Print more log messages: -v info, -vv debug, -vvv trace
    ///
    /// Default: warnings. Log messages go to standard error. LUMOS_LOG, if set, takes a filter such as
    /// lumos_worker=debug and overrides this flag.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// Print only errors: no progress, no other log messages
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Set the format of log messages
    #[arg(long, value_enum, default_value_t, global = true, env = "LUMOS_LOG_FORMAT")]
    pub(crate) log_format: LogFormat,
}

/// How much a command prints.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Verbosity {
    /// Print only errors.
    pub(crate) quiet: bool,
    /// Extent of tables.
    pub(crate) detail: ReportDetail,
}

impl Global {
    pub(crate) fn verbosity(&self) -> Verbosity {
        let detail = if self.verbose > 0 { ReportDetail::Full } else { ReportDetail::Summary };
        Verbosity { quiet: self.quiet, detail }
    }
}

/// Format of log messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an evaluation, or continue one
    Run(RunArgs),
    /// Continue an interrupted run: its outstanding and faulted units
    Resume(ResumeArgs),
    /// Execute the units of runs on a queue
    Worker(WorkerArgs),
    /// Show the runs and workers on a queue
    Status(StatusArgs),
    /// Show the runs and workers on a queue, and refresh them
    Watch(WatchArgs),
    /// Cancel a run on a queue, wherever its coordinator runs
    Cancel(CancelArgs),
    /// Merge the parts of a run that --partition made
    Merge(MergeArgs),
    /// Write an example of a task file to start from
    Init(InitArgs),
    /// Check a run's settings, data and models without running it
    Validate(RunArgs),
    /// Print a run's report
    Report(ReportArgs),
    /// Compare runs, or the configurations of one run, item by item
    Compare(CompareArgs),
    /// Check a run against a baseline: pass, fail or cannot tell
    Gate(GateArgs),
    /// Score a recorded run again, or grade it with a judge model
    Score(ScoreArgs),
    /// Convert a run for other tools: inspect, lm-eval, Parquet, LaTeX, training data
    Export(ExportArgs),
    /// Print one item's trajectory
    Show(ShowArgs),
    /// List runs, benchmarks or models
    Ls(LsArgs),
    /// Check both copies of a run's checkpoint and repair damage
    ///
    /// Every item and outcome is stored twice, with checksums. `repair` compares both copies, restores in
    /// each what only the other has, and lists what is lost in both. `run` and `resume` do the same at start;
    /// `report`, `show`, `score` and `ls` never change a checkpoint. Damaged files are kept in the
    /// checkpoint's folder.
    #[command(after_help = "Example:\n  lumos repair runs/sample")]
    Repair(RepairArgs),
    /// Replay recorded cases and compare the results
    Replay(ReplayArgs),
    /// Call one tool
    Tool(ToolArgs),
    /// Generate text with a model
    Complete(CompleteArgs),
    /// Measure the performance of this machine
    Bench(BenchArgs),
    /// Show what this machine and this build provide
    Doctor(DoctorArgs),
    /// Predict the time and memory of a run
    Estimate(EstimateArgs),
    /// Recompute a sample of a run at another batch size and compare
    Verify(VerifyArgs),
    /// Serve runs in progress as a live page, or an environment as a website
    Serve(ServeArgs),
    /// Download benchmark data
    Fetch(FetchArgs),
    /// Serve models over an OpenAI-compatible API
    ServeModel(ServeModelArgs),
    /// Convert downloaded files into lumos's data format
    Data(DataArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Select the shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Parses a command line, whose first argument is the program's name. Ignores variables that flags replace.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let arguments = normalised(arguments);
    let mut command = Cli::command();
    // The first pass only determines which flags are typed. The second one returns errors.
    let typed = command.clone().ignore_errors(true).try_get_matches_from(&arguments);
    if let Some((name @ ("run" | "validate"), typed)) = typed.as_ref().ok().and_then(ArgMatches::subcommand) {
        let replaced = run::replaced(typed);
        command = command.mut_subcommand(name, |command| {
            command.mut_args(|argument| {
                let ignored = replaced.contains(&argument.get_id().as_str());
                if ignored { argument.env(None::<&str>) } else { argument }
            })
        });
    }
    let mut matches = command.try_get_matches_from(arguments)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut Cli::command()))
}

/// Replaces underscores by dashes in flags: `--batch_size` becomes `--batch-size`.
fn normalised(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut only_values = false;
    arguments
        .into_iter()
        .map(|argument| {
            only_values |= argument == "--";
            match argument.to_str() {
                Some(text) if !only_values && text.starts_with("--") => {
                    let (flag, value) =
                        text.split_once('=').map_or((text, None), |(flag, value)| (flag, Some(value)));
                    let flag = flag.replace('_', "-");
                    value.map_or_else(|| flag.clone(), |value| format!("{flag}={value}")).into()
                }
                _ => argument,
            }
        })
        .collect()
}

/// The error for a value that is not a number. clap shows the standard library's messages, which do not say what is expected.
pub(crate) fn wrong_number(error: &clap::Error) -> Option<Failure> {
    let source = std::error::Error::source(error)?;
    let expected = if source.is::<ParseIntError>() {
        "a whole number, such as 8"
    } else if source.is::<ParseFloatError>() {
        "a number, such as 0.5"
    } else {
        return None;
    };
    let (flag, value) = (error.get(ContextKind::InvalidArg)?, error.get(ContextKind::InvalidValue)?);
    Some(Failure::input(format!("invalid value `{value}` for `{flag}`: expected {expected}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_no_number_is_told_what_is_expected() {
        for (given, expected) in [
            (
                ["--temperature", "warm"],
                "invalid value `warm` for `--temperature <NUMBER>`: expected a number, such as 0.5",
            ),
            (["--retry-on-error", "x"], "expected a whole number, such as 8"),
        ] {
            let error = Cli::try_parse_from(["lumos", "run"].into_iter().chain(given)).unwrap_err();
            let failure = wrong_number(&error).unwrap();
            assert!(failure.error.to_string().ends_with(expected), "{}", failure.error);
        }
        let other = Cli::try_parse_from(["lumos", "run", "--unknown"]).unwrap_err();
        assert!(wrong_number(&other).is_none());
    }

    #[test]
    fn flags_replace_variables_that_exclude_them() {
        let cases: [(&str, &[&str]); 7] = [
            ("--model builtin:tiny", &["planner", "grounder", "answerer", "qa"]),
            ("--planner builtin:tiny", &[]),
            ("--seed 3", &["epochs"]),
            ("--epochs 2", &["seed"]),
            ("--limit 20", &["samples"]),
            ("--samples 0-9", &["limit"]),
            ("--seed 3 --epochs 2", &["epochs", "seed"]),
        ];
        for (given, replaced) in cases {
            let words = ["lumos", "run"].into_iter().chain(given.split(' '));
            let typed = Cli::command().ignore_errors(true).try_get_matches_from(words).unwrap();
            let (_, typed) = typed.subcommand().unwrap();
            assert_eq!(run::replaced(typed), replaced, "{given}");
        }
    }

    #[test]
    fn flags_that_exclude_each_other_are_refused() {
        let words = ["lumos", "run", "--seed", "3", "--epochs", "2"].map(OsString::from);
        assert_eq!(parse(words).unwrap_err().kind(), clap::error::ErrorKind::ArgumentConflict);
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn underscores_in_flags_are_dashes_and_values_are_left_alone() {
        let given = ["lumos", "run", "--batch_size=a_b", "--output_path", "my_runs", "--", "--a_b"];
        let normalised = normalised(given.map(OsString::from));
        assert_eq!(normalised[2..], ["--batch-size=a_b", "--output-path", "my_runs", "--", "--a_b"]);
    }
}
