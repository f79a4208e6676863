//! The command line.
#![allow(
    rustdoc::invalid_html_tags,
    reason = "doc comments are help texts here: `<folder>` is a placeholder"
)]

mod data;
mod engine;
mod fleet;
mod memory;
mod runs;
mod serve;
mod serve_model;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use lumos_coordinator::report::Format;
use lumos_coordinator::spec::MemorySize;

pub(crate) use data::{DataArgs, DataCommand, ImportSqlArgs};
pub(crate) use engine::{BenchArgs, BenchCommand, BenchEngineArgs, DoctorArgs, EstimateArgs, VerifyArgs};
pub(crate) use fleet::{CancelArgs, FleetArgs, MergeArgs, QueueArgs, StatusArgs, WatchArgs, WorkerArgs};
pub(crate) use memory::MemoryArgs;
pub(crate) use runs::RunsArgs;
pub(crate) use serve::{ServeArgs, ServeCommand, ServeShopArgs};
pub(crate) use serve_model::ServeModelArgs;

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
    /// Check a run's settings, data and models without running it
    Validate(RunArgs),
    /// Print a run's report
    Report(ReportArgs),
    /// Score a recorded run again, or grade it with a judge model
    Score(ScoreArgs),
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
    /// Serve an environment as a website for manual inspection
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

const RUN_EXAMPLES: &str = "\
Examples:
  lumos run --tasks gsm8k --model builtin:tiny --limit 5
  lumos run --tasks gsm8k,svamp --formulation iterative,onetime --planner candle:models/plan --grounder candle:models/ground
  lumos run --config sweep.toml --name sweep --temperature 0.7 --seed 0,1,2
  lumos run --preset paper --tasks svamp --model builtin:tiny --data data --record cases.jsonl

The same command again continues the run. A complete run is not changed.";

/// Options of `run` and `validate`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// Read settings from a TOML file
    ///
    /// Flags and environment variables override the file. Default: no file. Example: --config sweep.toml
    #[arg(long, value_name = "PATH", env = "LUMOS_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Check settings, data and models, print the plan, and stop
    ///
    /// Nothing is written and no episode runs. Default: off.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    #[command(flatten)]
    pub(crate) models: ModelArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Options that select what is run.
#[derive(Debug, Args)]
#[command(next_help_heading = "What to run")]
pub(crate) struct SelectionArgs {
    /// Select benchmarks by name or pattern, comma-separated, or all
    ///
    /// Names: gsm8k, svamp, hotpotqa, strategyqa, mind2web, webshop, intercode_sql. No default: name them
    /// here or in the settings file. Examples: --tasks gsm8k,svamp or --tasks "*qa"
    #[arg(long, value_delimiter = ',', value_name = "TASK", env = "LUMOS_TASKS")]
    pub(crate) tasks: Vec<String>,
    /// Set how planner and grounder take turns [default: iterative]
    ///
    /// Comma-separated: iterative (one subgoal at a time), onetime (all subgoals at once), integrated (one
    /// model plans and grounds), cot and direct (one model answers without tools), try-again (intercode_sql
    /// only). Each is one configuration. Example: --formulation iterative,onetime
    #[arg(long, value_delimiter = ',', value_name = "FORMULATION", env = "LUMOS_FORMULATION")]
    pub(crate) formulation: Vec<String>,
    /// Set the agent behaviour: paper, corrected [default: paper]
    ///
    /// `paper` reproduces the published scripts including their bugs; `corrected` fixes them.
    /// Comma-separated; each is one configuration. Example: --behaviour paper,corrected
    #[arg(long, value_delimiter = ',', value_name = "BEHAVIOUR", env = "LUMOS_BEHAVIOUR")]
    pub(crate) behaviour: Vec<String>,
    /// Set how outcomes are scored: paper, corrected [default: both]
    ///
    /// Comma-separated. The first is the main scoring: --fail-under and the attribution in reports use it.
    /// Scoring is applied to the record after the run and can be changed with `lumos score`. Example:
    /// --scoring corrected,paper
    #[arg(long, value_delimiter = ',', value_name = "SCORING", env = "LUMOS_SCORING")]
    pub(crate) scoring: Vec<String>,
    /// Apply a preset: `paper` (paper behaviour, published item sets; needs --data)
    ///
    /// On GPUs it also computes models in half precision (f16) unless --dtype is given. Default: none.
    /// Example: --preset paper --data data
    #[arg(long, value_name = "PRESET", env = "LUMOS_PRESET")]
    pub(crate) preset: Option<String>,
    /// Read benchmark data from this folder [default: the built-in samples]
    ///
    /// The folder has one folder per benchmark, such as gsm8k/test.jsonl and svamp/test.json. `lumos fetch`
    /// downloads them. Example: --data data
    #[arg(long, value_name = "PATH", env = "LUMOS_DATA")]
    pub(crate) data: Option<PathBuf>,
    /// Run only the first N items of each benchmark
    ///
    /// Default: all items. Excludes --samples. Example: --limit 5
    #[arg(long, value_name = "N", env = "LUMOS_LIMIT", value_parser = parse_count, allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
    /// Run only these items, counted from 0; repeatable
    ///
    /// Default: all items. With one benchmark: --samples 0-9,15. With several: --samples gsm8k=0-9 --samples
    /// svamp=3
    #[arg(long, value_name = "ITEMS", env = "LUMOS_SAMPLES")]
    pub(crate) samples: Vec<String>,
    /// Set the seeds, comma-separated; each is one repetition [default: 0]
    ///
    /// Several seeds need --temperature above 0. Example: --temperature 0.7 --seed 0,1,2
    #[arg(long, value_delimiter = ',', value_name = "N", env = "LUMOS_SEED", value_parser = parse_seed,
          allow_negative_numbers = true)]
    pub(crate) seed: Vec<u64>,
    /// Run N repetitions, with seeds 0 to N-1
    ///
    /// Same as --seed 0,1,…,N-1; excludes --seed. Several repetitions need --temperature above 0. Default:
    /// one repetition with seed 0. Example: --temperature 0.7 --epochs 3
    #[arg(long, value_name = "N", conflicts_with = "seed", env = "LUMOS_EPOCHS", value_parser = parse_count,
          allow_negative_numbers = true)]
    pub(crate) epochs: Option<u64>,
    /// Run only part M of N, selected by hash: hash:M/N
    ///
    /// Default: the whole run. Run every part, on any machines, then combine them with `lumos merge`.
    /// Example: --partition hash:2/5 is the second of five parts.
    #[arg(long, value_name = "hash:M/N", env = "LUMOS_PARTITION")]
    pub(crate) partition: Option<String>,
    /// Skip and count unreadable records instead of stopping
    ///
    /// Default: off, so the first unreadable record is an error.
    #[arg(long)]
    pub(crate) skip_invalid: bool,
}

/// Options for models and tools.
#[derive(Debug, Args)]
#[command(next_help_heading = "Models and tools")]
pub(crate) struct ModelArgs {
    /// Set one model for all roles; --planner, --grounder, … override it
    ///
    /// Forms: candle:<folder>, candle:<file.gguf>, candle:<hub id>, candle:<base>+<adapter>, lumos:<pair>,
    /// openai:<model>@<base url>, builtin:tiny, script:<cases file>. An existing folder or GGUF file needs no
    /// `candle:`. No default. Example: --model builtin:tiny
    #[arg(long, value_name = "MODEL", env = "LUMOS_MODEL")]
    pub(crate) model: Option<String>,
    /// Set the planner's model
    ///
    /// Forms as for --model. Default: the value of --model. Example: --planner candle:models/plan
    #[arg(long, value_name = "MODEL", env = "LUMOS_PLANNER")]
    pub(crate) planner: Option<String>,
    /// Set the grounder's model
    ///
    /// Forms as for --model. Default: the value of --model. Example: --grounder candle:models/ground
    #[arg(long, value_name = "MODEL", env = "LUMOS_GROUNDER")]
    pub(crate) grounder: Option<String>,
    /// Set the model of cot, direct and try-again
    ///
    /// Forms as for --model. Default: the value of --model. Example: --answerer candle:models/llama
    #[arg(long, value_name = "MODEL", env = "LUMOS_ANSWERER")]
    pub(crate) answerer: Option<String>,
    /// Set the chat model of the question-answering tool
    ///
    /// Forms: openai:<model>@<base url>, script:<cases file>. Default: the value of --model. Example: `--qa
    /// openai:gpt-4@https://api.openai.com/v1`
    #[arg(long, value_name = "MODEL", env = "LUMOS_QA")]
    pub(crate) qa: Option<String>,
    /// Set a tool's backend; repeatable
    ///
    /// maths=native (default) or wolfram. wiki=live, corpus:<JSON lines of title and text> or samples
    /// (default without --data). rank=bm25 (default without --data), dpr:<folder> or cross-encoder:<folder>.
    /// web=native (default) or chromedriver. shop=memory:<folder> (default: webshop in the data folder),
    /// chromedriver:<folder> or http://<host>:<port>,folder=<folder>. sql=sqlite:<folder> (default:
    /// intercode_sql/sqlite in the data folder) or mysql://<host>. maths, wiki, rank and shop also take
    /// recorded:<cases file>.
    ///
    /// With --data, wiki and rank have no default. Example: --tool wiki=live --tool rank=bm25
    #[arg(long = "tool", value_name = "NAME=BACKEND", env = "LUMOS_TOOL")]
    pub(crate) tools: Vec<String>,
    /// Run actions on web pages in a real browser
    ///
    /// `chromedriver` starts a browser on each machine that executes episodes; an address uses the browsers
    /// of a WebDriver server such as a Selenium grid. Applies to the tools web and shop unless --tool sets
    /// their backend. Default: no browser. Example: --browser chromedriver
    #[arg(long, value_name = "chromedriver|http://HOST:PORT", env = "LUMOS_BROWSER", hide_env_values = true)]
    pub(crate) browser: Option<String>,
    /// Read the two worked examples of WebShop's prompts from a JSON file
    ///
    /// The file has the published form. Default: examples written for this project. Example: --exemplars
    /// exemplars.json
    #[arg(long, value_name = "PATH", env = "LUMOS_EXEMPLARS")]
    pub(crate) exemplars: Option<PathBuf>,
    /// Read part-of-speech nouns of product titles, for WebShop's reward
    ///
    /// JSON lines with `title` and `nouns`. Default: an approximation without a tagger. Example: --pos-nouns
    /// nouns.jsonl
    #[arg(long, value_name = "PATH", env = "LUMOS_POS_NOUNS")]
    pub(crate) pos_nouns: Option<PathBuf>,
    /// Set the sampling temperature; 0 decodes greedily [default: 0]
    ///
    /// Example: --temperature 0.7
    #[arg(long, value_name = "NUMBER", env = "LUMOS_TEMPERATURE")]
    pub(crate) temperature: Option<f64>,
    /// Sample from the most likely tokens up to this total probability
    ///
    /// Above 0 and at most 1; needs --temperature above 0. Default: no limit. Example: --top-p 0.95
    #[arg(long, value_name = "PROBABILITY", env = "LUMOS_TOP_P")]
    pub(crate) top_p: Option<f64>,
    /// Sample from the N most likely tokens
    ///
    /// Needs --temperature above 0. Default: no limit. Example: --top-k 40
    #[arg(long, value_name = "N", env = "LUMOS_TOP_K")]
    pub(crate) top_k: Option<u32>,
    /// Limit the length of each reply, in tokens [default: 512]
    ///
    /// Example: --max-new-tokens 256
    #[arg(long, value_name = "N", env = "LUMOS_MAX_NEW_TOKENS")]
    pub(crate) max_new_tokens: Option<u32>,
}

/// Options for output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Set the folder in which run folders are created [default: runs]
    ///
    /// Example: --output-path /scratch/runs
    #[arg(long, value_name = "PATH", env = "LUMOS_OUTPUT_PATH")]
    pub(crate) output_path: Option<PathBuf>,
    /// Set the run's name, which is also the name of its folder
    ///
    /// Default: derived from benchmarks, formulations and settings. Example: --name sweep
    #[arg(long, value_name = "NAME", env = "LUMOS_NAME")]
    pub(crate) name: Option<String>,
    /// Write episodes to a file as recorded cases for `lumos replay`
    ///
    /// JSON lines. Default: none. Example: --record cases.jsonl
    #[arg(long, value_name = "PATH", env = "LUMOS_RECORD")]
    pub(crate) record: Option<PathBuf>,
    /// Save a screenshot of every step in a browser
    ///
    /// Saved in the run's folder, in screenshots/. Default: off. With --queue, workers save screenshots:
    /// `lumos worker --screenshots PATH`.
    #[arg(long)]
    pub(crate) screenshots: bool,
    /// Print one JSON event per line instead of progress and table
    ///
    /// Events go to standard output. Default: off.
    #[arg(long)]
    pub(crate) json: bool,
    /// Accept this flag of lm-evaluation-harness: samples are always logged
    #[arg(long, hide = true)]
    pub(crate) log_samples: bool,
}

/// Options of the engine.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineArgs {
    /// Set the number of sequences computed together: auto or N [default: auto]
    ///
    /// `auto` uses as many as fit into the memory for keys and values, at most 256. N also sets the number of
    /// episodes in progress, unless --concurrency does. Does not change results on the same machine in f32.
    /// Example: --batch-size 16
    #[arg(long, value_name = "N", env = "LUMOS_BATCH_SIZE")]
    pub(crate) batch_size: Option<String>,
    /// Set the device of models: cpu, auto or cuda:N [default: cpu]
    ///
    /// For all models, or by role, comma-separated. `auto` uses a GPU if there is one. GPUs need a build with
    /// the feature `cuda`. Examples: --device cuda:0 or --device planner=cuda:0,grounder=cuda:1
    #[arg(long, value_name = "DEVICE", env = "LUMOS_DEVICE")]
    pub(crate) device: Option<String>,
    /// Set the type of weights in memory: f32, bf16 or f16 [default: f32]
    ///
    /// GGUF files keep the type of their quantized weights. With --preset paper, GPUs use f16 by default.
    /// Example: --dtype bf16
    #[arg(long, value_name = "TYPE", env = "LUMOS_DTYPE")]
    pub(crate) dtype: Option<String>,
    /// Reuse computed prompt prefixes: on or off [default: on]
    ///
    /// Does not change results. Example: --prefix-cache off
    #[arg(long, value_name = "on|off", env = "LUMOS_PREFIX_CACHE")]
    pub(crate) prefix_cache: Option<Switch>,
    /// Set the number of compute threads [default: all cores]
    ///
    /// Example: --threads 8
    #[arg(long, value_name = "N", env = "LUMOS_THREADS")]
    pub(crate) threads: Option<usize>,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Reuse prefixes
    On,
    /// Compute every prompt in full
    Off,
}

/// Options for time limits, retries and failed items.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Limit the time of an attempt at an item, in seconds
    ///
    /// An attempt that takes longer is a fault and is retried. Default: no limit. Example: --time-limit 300
    #[arg(long, value_name = "SECONDS", env = "LUMOS_TIME_LIMIT")]
    pub(crate) time_limit: Option<f64>,
    /// Set how often a faulted item is retried [default: 2]
    ///
    /// Counts attempts after the first. 0 disables retries. Example: --retry-on-error 5
    #[arg(long, value_name = "N", env = "LUMOS_RETRY_ON_ERROR")]
    pub(crate) retry_on_error: Option<u32>,
    /// Stop when more items fault: a share (0.1), a count (10), or true
    ///
    /// `true`, also without a value, stops at the first fault; `false` never stops. Only items without
    /// attempts left count. Default: false. Example: --fail-on-error 0.05
    #[arg(long, value_name = "LIMIT", num_args = 0..=1, default_missing_value = "true", env = "LUMOS_FAIL_ON_ERROR")]
    pub(crate) fail_on_error: Option<String>,
    /// Exit with code 100 if an accuracy is below this percentage
    ///
    /// Compares every configuration under the main scoring. Default: no check. Example: --fail-under 40
    #[arg(long, value_name = "PERCENT", env = "LUMOS_FAIL_UNDER")]
    pub(crate) fail_under: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Select the run: its folder, or its name in --output-path
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Print one JSON event per line instead of progress and table
    #[arg(long)]
    pub(crate) json: bool,
    /// Write episodes to a file as recorded cases for `lumos replay`
    #[arg(long, value_name = "PATH", env = "LUMOS_RECORD")]
    pub(crate) record: Option<PathBuf>,
    /// Save a screenshot of every step in a browser, in the run's folder
    #[arg(long)]
    pub(crate) screenshots: bool,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Select the run: its folder, or its name in --output-path
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Set the format: table, markdown, json, csv or html
    ///
    /// `json` has the layout of lm-evaluation-harness; `html` is one self-contained page with plots.
    #[arg(long, default_value = "table")]
    pub(crate) format: Format,
    /// Set the scorings: paper, corrected [default: those of the run]
    #[arg(long, value_delimiter = ',', value_name = "SCORING")]
    pub(crate) scoring: Vec<String>,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
}

const SCORE_EXAMPLES: &str = "\
Examples:
  lumos score runs/<name>
      score the record again, without a model
  lumos score runs/<name> --judge openai:gpt-4@https://api.openai.com/v1 --max-cost 5
      ask a model whether each prediction is correct; the same command continues an interrupted pass";

#[derive(Debug, Args)]
#[command(after_help = SCORE_EXAMPLES)]
pub(crate) struct ScoreArgs {
    /// Select the run: its folder, or its name in --output-path
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Set the scorings, comma-separated: paper, corrected [default: both]
    #[arg(long, value_delimiter = ',', value_name = "SCORING")]
    pub(crate) scoring: Vec<String>,
    /// Grade predictions with this chat model
    ///
    /// Forms: openai:<model>@<base url>, candle:<folder>, candle:<file.gguf>, script:<cases file>. Default:
    /// no judge.
    #[arg(long, value_name = "MODEL", env = "LUMOS_JUDGE")]
    pub(crate) judge: Option<String>,
    /// With --judge: stop when verdicts have cost this many US dollars
    ///
    /// Verdicts of earlier sessions and questions in progress count. Needs the model's price in
    /// LUMOS_OPENAI_PRICES. Default: no limit. Example: --max-cost 5
    #[arg(long, value_name = "DOLLARS", requires = "judge")]
    pub(crate) max_cost: Option<f64>,
    /// With --judge: set the number of questions in progress
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) concurrency: u64,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// With --judge: limit the memory of a judge computed here, such as 20GiB
    ///
    /// Covers weights, keys and values. Default: no limit.
    #[arg(long, value_name = "BYTES", env = "LUMOS_MEMORY", help_heading = "Engine")]
    pub(crate) memory: Option<MemorySize>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Select the run: its folder, or its name in --output-path
    pub(crate) run: PathBuf,
    /// Select the item: its index, its name, or the beginning of a unit's id
    pub(crate) item: String,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Search only this benchmark
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// Print the prompts in full
    #[arg(long)]
    pub(crate) prompts: bool,
    /// Print the record as JSON, one object per configuration
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Select the run: its folder, or its name in --output-path
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Select what to list
    #[arg(value_enum, default_value_t)]
    pub(crate) what: Listing,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listing {
    /// Runs in the output path
    #[default]
    Runs,
    /// Benchmarks
    Tasks,
    /// Models: built-in, in the hub cache, and short names of published pairs
    Models,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Read recorded cases from these files, .jsonl or .jsonl.gz
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Print one JSON object per case: {"id", "passed", "difference"}
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lumos tool maths '2 * (3 + 4)'\n  lumos tool maths 'Solve x + y = 5, x - y = 1'\n  \
                        echo '{\"query\": \"Expand (x + 1)^2\"}' | lumos tool maths --jsonl\n  \
                        lumos tool wiki Kyoto\n  lumos tool wiki --backend corpus:pages.jsonl 'rivers of Siberia'\n  \
                        echo '{\"query\": \"Which sea?\", \"texts\": [\"The Black Sea.\", \"A river.\"]}' | lumos tool rank --model bm25 --jsonl"
)]
pub(crate) struct ToolArgs {
    /// Select the tool: maths, rank or wiki
    pub(crate) name: String,
    /// Pass this query to the tool
    #[arg(required_unless_present_any = ["jsonl", "model"])]
    pub(crate) argument: Option<String>,
    /// Read one JSON object per line from standard input
    ///
    /// Prints one result per line on standard output, in order.
    #[arg(long, conflicts_with = "argument")]
    pub(crate) jsonl: bool,
    /// Set the backend, as in `lumos run --tool NAME=BACKEND`
    ///
    /// Default: native for maths, bm25 for rank, live for wiki.
    #[arg(long)]
    pub(crate) backend: Option<String>,
    /// Set the backend of rank: bm25, dpr:<folder> or cross-encoder:<folder>
    ///
    /// The folder of a DPR reader or a cross-encoder alone works too.
    #[arg(long, conflicts_with = "backend")]
    pub(crate) model: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  lumos complete --model builtin:tiny --role grounder 'text'\n  \
                        lumos complete --model candle:models/llama --jsonl --max-new-tokens 48 < prompts.jsonl")]
pub(crate) struct CompleteArgs {
    /// Set the model
    ///
    /// Forms: candle:<folder>, candle:<file.gguf>, candle:<hub id>, candle:<base>+<adapter>, builtin:tiny.
    #[arg(long, env = "LUMOS_MODEL")]
    pub(crate) model: String,
    /// Pass this raw prompt; `-` reads it from standard input
    #[arg(required_unless_present_any = ["jsonl", "model"])]
    pub(crate) prompt: Option<String>,
    /// Read one JSON object per line from standard input: {"prompt": …}
    ///
    /// Prints one result per line on standard output, in order.
    #[arg(long, conflicts_with = "prompt")]
    pub(crate) jsonl: bool,
    /// Set the number of prompts in progress
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) concurrency: u64,
    /// Limit the length of each reply, in tokens
    #[arg(long, default_value_t = 512)]
    pub(crate) max_new_tokens: usize,
    /// Continue after the end-of-sequence token
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Stop at this text [default: the newline token]
    ///
    /// An empty text disables stopping at a text.
    #[arg(long)]
    pub(crate) stop: Option<String>,
    /// Set the sampling temperature; 0 decodes greedily
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f64,
    /// Set the seed of sampling
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Print also the N highest logits after the prompt
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) logits: usize,
    /// Select the role of builtin:tiny: planner or grounder
    #[arg(long, default_value = "planner")]
    pub(crate) role: String,
    /// Select the formulation of the planner of builtin:tiny
    #[arg(long, default_value = "iterative")]
    pub(crate) formulation: String,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// Select benchmarks: gsm8k, svamp, hotpotqa, strategyqa, intercode_sql
    #[arg(required = true)]
    pub(crate) tasks: Vec<String>,
    /// Set the data folder; each benchmark gets a folder in it
    #[arg(long, value_name = "PATH", default_value = "data", env = "LUMOS_DATA")]
    pub(crate) data: PathBuf,
    /// Download again even if the file exists and its checksum is right
    #[arg(long)]
    pub(crate) force: bool,
    /// Download from this mirror: <mirror>/<benchmark>/<file>
    #[arg(long, value_name = "URL", env = "LUMOS_MIRROR")]
    pub(crate) mirror: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Select the shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Parses one seed of a list.
fn parse_seed(text: &str) -> Result<u64, String> {
    let expected = || "expected whole numbers from 0 on, comma-separated, such as 0,1,2".to_owned();
    text.trim().parse().map_err(|_| expected())
}

/// Parses a positive integer.
fn parse_count(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| "expected a positive integer".to_owned())
}

/// Replaces underscores by dashes in flags: `--batch_size` becomes `--batch-size`.
pub(crate) fn normalised(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

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
