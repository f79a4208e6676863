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

/// Evaluate Lumos language agents: planning, grounding, execution.
///
/// One binary, one machine, nothing else installed: episodes run in this process, results are recorded in the
/// run's folder as they come, and the same command continues a run that was interrupted. With --queue nats://… the
/// episodes run on workers on any number of machines.
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
      the small shipped agent on the shipped samples
  lumos fetch gsm8k svamp && lumos run --preset paper --tasks gsm8k,svamp --model builtin:tiny --data data
      the paper's item sets on the official files
  lumos run --config sweep.toml --queue nats://host:4222 & lumos worker --queue nats://host:4222
      the same on any number of machines: one coordinator, as many workers as there are
  lumos report runs/<name>                  the table again, or --format markdown|json|csv|html
  lumos show runs/<name> 12                 one item's trajectory
  lumos replay tests/cases/maths.jsonl      recorded cases through today's code
  lumos tool maths 'Solve 2x + 3 = 11'      one tool by hand

Exit codes: 0 complete, 1 fault, 2 usage or bad input, 4 nothing selected, 5 items outstanding or faulted,
100 a check failed, 130 interrupted (state saved).";

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// More log lines on standard error (-vv, -vvv for more still); LUMOS_LOG filters finer.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// Errors only: no progress, no log lines.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Form of the log lines.
    #[arg(long, value_enum, default_value_t, global = true, env = "LUMOS_LOG_FORMAT")]
    pub(crate) log_format: LogFormat,
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an evaluation, or go on with one
    Run(RunArgs),
    /// Go on with an interrupted run: what is outstanding or faulted
    Resume(ResumeArgs),
    /// Work on the units of runs that others coordinate, over NATS
    Worker(WorkerArgs),
    /// Show how runs and workers on a queue stand
    Status(StatusArgs),
    /// Follow runs and workers on a queue
    Watch(WatchArgs),
    /// Stop a run on a queue, wherever its coordinator is
    Cancel(CancelArgs),
    /// Make one run of the parts that --partition made
    Merge(MergeArgs),
    /// Check a run's settings, data and models without running anything
    Validate(RunArgs),
    /// Print a run's report
    Report(ReportArgs),
    /// Score a run's record anew, without a model or by a judge
    Score(ScoreArgs),
    /// Show one item's trajectory
    Show(ShowArgs),
    /// List runs, benchmarks or models
    Ls(LsArgs),
    /// Check both copies of a run's checkpoint and restore what is damaged
    ///
    /// Every item and outcome is kept twice, with checksums. `repair` compares both copies, restores in each what only
    /// the other has, and reports with numbers and items what neither has. `run` and `resume` do the same when they
    /// start; `report`, `show`, `score` and `ls` never change a checkpoint. Damaged files are kept beside the repaired ones.
    #[command(after_help = "Example:\n  lumos repair runs/sample")]
    Repair(RepairArgs),
    /// Run recorded cases through today's code and compare
    Replay(ReplayArgs),
    /// Use one tool by hand
    Tool(ToolArgs),
    /// Generate with a model by hand
    Complete(CompleteArgs),
    /// Measure this machine
    Bench(BenchArgs),
    /// Say what this machine and this build have: processor, GPUs, programs, folders
    Doctor(DoctorArgs),
    /// Predict time and memory of a run
    Estimate(EstimateArgs),
    /// Compute a sample of a run again at another batch size and compare
    Verify(VerifyArgs),
    /// Open a world as web pages, for people
    Serve(ServeArgs),
    /// Download benchmark data
    Fetch(FetchArgs),
    /// Serve models to programs that speak OpenAI's interface
    ServeModel(ServeModelArgs),
    /// Make of downloaded files what runs take
    Data(DataArgs),
    /// Print a shell's completion script
    Completions(CompletionsArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  lumos run --tasks gsm8k --model builtin:tiny --limit 5
  lumos run --tasks gsm8k,svamp --formulation iterative,onetime --planner candle:models/plan --grounder candle:models/ground
  lumos run --config sweep.toml --name sweep --temperature 0.7 --seed 0,1,2
  lumos run --preset paper --tasks svamp --model builtin:tiny --data data --record cases.jsonl

The same command again continues the run; a complete run is left as it is.";

/// Options of `run` and `validate`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// Settings from a TOML file; flags and environment override it.
    #[arg(long, value_name = "FILE", env = "LUMOS_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Check settings, data and models, print what would run, and stop.
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

/// What is run.
#[derive(Debug, Args)]
#[command(next_help_heading = "What to run")]
pub(crate) struct SelectionArgs {
    /// Benchmarks, comma-separated: gsm8k, svamp, hotpotqa, strategyqa, mind2web, webshop, intercode_sql; patterns such as
    /// gsm*, or all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", env = "LUMOS_TASKS")]
    pub(crate) tasks: Vec<String>,
    /// iterative, onetime, cot, direct, integrated, try-again (intercode_sql) [default: iterative]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", env = "LUMOS_FORMULATION")]
    pub(crate) formulation: Vec<String>,
    /// Whose habits trajectories follow: paper, corrected [default: paper]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", env = "LUMOS_BEHAVIOUR")]
    pub(crate) behaviour: Vec<String>,
    /// How the record is scored: paper, corrected [default: both, side by side]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", env = "LUMOS_SCORING")]
    pub(crate) scoring: Vec<String>,
    /// `paper`: paper behaviour and the published item sets, which need --data.
    #[arg(long, value_name = "NAME", env = "LUMOS_PRESET")]
    pub(crate) preset: Option<String>,
    /// Folder with one folder per benchmark (gsm8k/test.jsonl, svamp/test.json) [default: the shipped samples]
    #[arg(long, value_name = "DIR", env = "LUMOS_DATA")]
    pub(crate) data: Option<PathBuf>,
    /// Only the first N items of each benchmark.
    #[arg(long, value_name = "N", env = "LUMOS_LIMIT", value_parser = parse_count, allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
    /// Only these items, counted from 0: `0-9,15`, or `gsm8k=0-9` (may be repeated).
    #[arg(long, value_name = "ITEMS", env = "LUMOS_SAMPLES")]
    pub(crate) samples: Vec<String>,
    /// Seeds, comma-separated; each is one repetition, several need a --temperature above 0 [default: 0]
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", env = "LUMOS_SEED", value_parser = parse_seed,
          allow_negative_numbers = true)]
    pub(crate) seed: Vec<u64>,
    /// Repetitions with seeds 0, 1, 2 …; several need a --temperature above 0
    #[arg(long, value_name = "N", conflicts_with = "seed", env = "LUMOS_EPOCHS", value_parser = parse_count,
          allow_negative_numbers = true)]
    pub(crate) epochs: Option<u64>,
    /// Only one of several parts, by hash: `hash:2/5` is the second of five; `lumos merge` puts them together.
    #[arg(long, value_name = "hash:M/N", env = "LUMOS_PARTITION")]
    pub(crate) partition: Option<String>,
    /// Count records that cannot be read and go on, where they would stop the run.
    #[arg(long)]
    pub(crate) skip_invalid: bool,
}

/// Who answers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Models and tools")]
pub(crate) struct ModelArgs {
    /// One model for planner and grounder (and answerer and QA tool): candle:<folder>, candle:<file.gguf>, candle:<hub id>,
    /// candle:<base>+<adapter>, lumos:<pair>, openai:<model>@<base url>, builtin:tiny, script:<cases file>.
    #[arg(long, value_name = "MODEL", env = "LUMOS_MODEL")]
    pub(crate) model: Option<String>,
    /// The planner's model.
    #[arg(long, value_name = "MODEL", env = "LUMOS_PLANNER")]
    pub(crate) planner: Option<String>,
    /// The grounder's model.
    #[arg(long, value_name = "MODEL", env = "LUMOS_GROUNDER")]
    pub(crate) grounder: Option<String>,
    /// The single model of cot and direct.
    #[arg(long, value_name = "MODEL", env = "LUMOS_ANSWERER")]
    pub(crate) answerer: Option<String>,
    /// The chat model of the question-answering tool: openai:<model>@<base url>, script:<cases file>.
    #[arg(long, value_name = "MODEL", env = "LUMOS_QA")]
    pub(crate) qa: Option<String>,
    /// A tool's backend: maths=native (default), maths=wolfram, wiki=live, wiki=corpus:<JSON lines of title and text>,
    /// rank=dpr:<folder>, rank=cross-encoder:<folder>, rank=bm25, shop=memory:<folder> (default: the data's catalogue),
    /// sql=sqlite:<folder> (default: beside the data), sql=mysql://<host>, web=native (default),
    /// recorded:<cases file> for maths, wiki, rank and shop, and browsers for shop and web (see --browser):
    /// shop=chromedriver:<folder>, shop=http://<host>:<port>,folder=<folder>, web=chromedriver.
    #[arg(long = "tool", value_name = "NAME=BACKEND", env = "LUMOS_TOOL")]
    pub(crate) tools: Vec<String>,
    /// Carry actions on web pages out in a real browser, where --tool names no backend for them: `chromedriver` starts
    /// one on each machine that works, the address of a WebDriver server (a Selenium grid) uses those it has. The shop
    /// is served as a site and visited there; pages of mind2web are shown.
    #[arg(long, value_name = "chromedriver|http://HOST:PORT", env = "LUMOS_BROWSER", hide_env_values = true)]
    pub(crate) browser: Option<String>,
    /// The two worked tasks in front of WebShop's prompts, as JSON in the published form [default: the project's own]
    #[arg(long, value_name = "FILE", env = "LUMOS_EXEMPLARS")]
    pub(crate) exemplars: Option<PathBuf>,
    /// Nouns of product titles by a part-of-speech tagger, JSON lines of `title` and `nouns`, for WebShop's reward
    /// [default: an approximation]
    #[arg(long, value_name = "FILE", env = "LUMOS_POS_NOUNS")]
    pub(crate) pos_nouns: Option<PathBuf>,
    /// 0 decodes greedily, above 0 samples [default: 0]
    #[arg(long, value_name = "NUMBER", env = "LUMOS_TEMPERATURE")]
    pub(crate) temperature: Option<f64>,
    /// Nucleus sampling, with a temperature above 0.
    #[arg(long, value_name = "PROBABILITY", env = "LUMOS_TOP_P")]
    pub(crate) top_p: Option<f64>,
    /// Sample from the K most likely tokens, with a temperature above 0.
    #[arg(long, value_name = "K", env = "LUMOS_TOP_K")]
    pub(crate) top_k: Option<u32>,
    /// The most tokens of one reply [default: 512]
    #[arg(long, value_name = "N", env = "LUMOS_MAX_NEW_TOKENS")]
    pub(crate) max_new_tokens: Option<u32>,
}

/// Where results go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Folder of runs [default: runs]
    #[arg(long, value_name = "DIR", env = "LUMOS_OUTPUT_PATH")]
    pub(crate) output_path: Option<PathBuf>,
    /// The run's name, its folder below the output path [default: made from what is run]
    #[arg(long, value_name = "NAME", env = "LUMOS_NAME")]
    pub(crate) name: Option<String>,
    /// Write each episode as a recorded case that `lumos replay` reads.
    #[arg(long, value_name = "FILE", env = "LUMOS_RECORD")]
    pub(crate) record: Option<PathBuf>,
    /// Keep a picture of every step in a browser, in the run's folder below screenshots/. Workers of a queue keep
    /// theirs with `lumos worker --screenshots`.
    #[arg(long)]
    pub(crate) screenshots: bool,
    /// One JSON event a line on standard output in place of progress and table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Accepted for those who know it from elsewhere: samples are always logged.
    #[arg(long, hide = true)]
    pub(crate) log_samples: bool,
}

/// How models are computed.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineArgs {
    /// Episodes at once and sequences computed together: auto or a number [default: auto]
    #[arg(long, value_name = "N", env = "LUMOS_BATCH_SIZE")]
    pub(crate) batch_size: Option<String>,
    /// Where models are computed: cpu, auto or cuda:0, for all or by role: planner=cuda:0,grounder=cuda:1 [default: cpu]
    #[arg(long, value_name = "DEVICES", env = "LUMOS_DEVICE")]
    pub(crate) device: Option<String>,
    /// Type of the weights in memory: f32, bf16, f16 [default: f32]
    #[arg(long, value_name = "TYPE", env = "LUMOS_DTYPE")]
    pub(crate) dtype: Option<String>,
    /// Whether what a prompt has in common with an earlier one's beginning is taken from the cache: on or off; changes no
    /// result [default: on]
    #[arg(long, value_name = "on|off", env = "LUMOS_PREFIX_CACHE")]
    pub(crate) prefix_cache: Option<Switch>,
    /// Threads that compute [default: all cores]
    #[arg(long, value_name = "N", env = "LUMOS_THREADS")]
    pub(crate) threads: Option<usize>,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// When an item, or the run, is given up.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Seconds an item may take; beyond them it is faulted.
    #[arg(long, value_name = "SECONDS", env = "LUMOS_TIME_LIMIT")]
    pub(crate) time_limit: Option<f64>,
    /// Attempts a faulted item gets beyond the first [default: 2]
    #[arg(long, value_name = "N", env = "LUMOS_RETRY_ON_ERROR")]
    pub(crate) retry_on_error: Option<u32>,
    /// Stop when more than this fails: a share (0.1), a count (10), or `true` for the first fault.
    #[arg(long, value_name = "LIMIT", num_args = 0..=1, default_missing_value = "true", env = "LUMOS_FAIL_ON_ERROR")]
    pub(crate) fail_on_error: Option<String>,
    /// End with exit code 100 when an accuracy (percent, first scoring) is below this.
    #[arg(long, value_name = "PERCENT", env = "LUMOS_FAIL_UNDER")]
    pub(crate) fail_under: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The run: its folder, or its name below --output-path.
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// One JSON event a line on standard output in place of progress and table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write each episode as a recorded case that `lumos replay` reads.
    #[arg(long, value_name = "FILE", env = "LUMOS_RECORD")]
    pub(crate) record: Option<PathBuf>,
    /// Keep a picture of every step in a browser, in the run's folder below screenshots/.
    #[arg(long)]
    pub(crate) screenshots: bool,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The run: its folder, or its name below --output-path.
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// table, markdown, json (lm-eval's layout), csv, html (one self-contained page with plots)
    #[arg(long, default_value = "table")]
    pub(crate) format: Format,
    /// paper, corrected [default: those of the run]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) scoring: Vec<String>,
    /// Write to a file in place of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

const SCORE_EXAMPLES: &str = "\
Examples:
  lumos score runs/<name>
      figures from the record, without any model
  lumos score runs/<name> --judge openai:gpt-4@https://api.openai.com/v1 --max-cost 5
      asks a model whether each prediction is correct; the same command goes on with what was interrupted";

#[derive(Debug, Args)]
#[command(after_help = SCORE_EXAMPLES)]
pub(crate) struct ScoreArgs {
    /// The run: its folder, or its name below --output-path.
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// paper, corrected [default: both]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) scoring: Vec<String>,
    /// The chat model that says which predictions are correct: openai:<model>@<base url>, candle:<folder>,
    /// candle:<file.gguf>, script:<cases file>.
    #[arg(long, value_name = "MODEL", env = "LUMOS_JUDGE")]
    pub(crate) judge: Option<String>,
    /// With --judge: stop when its verdicts, those at hand included, have cost so many US dollars.
    #[arg(long, value_name = "DOLLARS", requires = "judge")]
    pub(crate) max_cost: Option<f64>,
    /// With --judge: questions put to it together.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) concurrency: u64,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// With --judge: memory that a judge computed here may take, such as 20GiB: weights, keys and values together [default:
    /// no limit]
    #[arg(long, value_name = "BYTES", env = "LUMOS_MEMORY", help_heading = "Engine")]
    pub(crate) memory: Option<MemorySize>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The run: its folder, or its name below --output-path.
    pub(crate) run: PathBuf,
    /// The item: its index, its name in the data set, or the beginning of a unit's id.
    pub(crate) item: String,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Only of this benchmark.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Option<String>,
    /// The prompts in full.
    #[arg(long)]
    pub(crate) prompts: bool,
    /// The record as JSON, one object a configuration.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// The run: its folder, or its name below --output-path.
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// What to list.
    #[arg(value_enum, default_value_t)]
    pub(crate) what: Listing,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listing {
    /// Runs below the output path.
    #[default]
    Runs,
    /// Benchmarks.
    Tasks,
    /// Models: the built-in one, those in the cache of the Hugging Face hub, short names of published pairs.
    Models,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Recorded cases, .jsonl or .jsonl.gz.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// One object a case: {"id", "passed", "difference"}.
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
    /// The tool: maths, rank or wiki.
    pub(crate) name: String,
    /// What to give it.
    #[arg(required_unless_present_any = ["jsonl", "model"])]
    pub(crate) argument: Option<String>,
    /// One JSON object a line on standard input, one result a line on standard output, in order.
    #[arg(long, conflicts_with = "argument")]
    pub(crate) jsonl: bool,
    /// The tool's backend, as behind `--tool NAME=` of `run`: native for maths, bm25 for rank, live for wiki if none is
    /// named.
    #[arg(long)]
    pub(crate) backend: Option<String>,
    /// The same for rank: bm25, dpr:<folder>, cross-encoder:<folder>, or the folder of one of these alone.
    #[arg(long, conflicts_with = "backend")]
    pub(crate) model: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  lumos complete --model builtin:tiny --role grounder 'text'\n  \
                        lumos complete --model candle:models/llama --jsonl --max-new-tokens 48 < prompts.jsonl")]
pub(crate) struct CompleteArgs {
    /// The model: candle:<folder>, candle:<file.gguf>, candle:<hub id>, candle:<base>+<adapter> or builtin:tiny.
    #[arg(long, env = "LUMOS_MODEL")]
    pub(crate) model: String,
    /// The prompt, raw text; `-` reads standard input.
    #[arg(required_unless_present_any = ["jsonl", "model"])]
    pub(crate) prompt: Option<String>,
    /// {"prompt": …} a line on standard input; results a line each on standard output, in order.
    #[arg(long, conflicts_with = "prompt")]
    pub(crate) jsonl: bool,
    /// Prompts in flight together.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) concurrency: u64,
    /// The most tokens of one reply.
    #[arg(long, default_value_t = 512)]
    pub(crate) max_new_tokens: usize,
    /// Go on after the end-of-sequence token.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Stop at this text; an empty one stops nowhere [default: the newline token]
    #[arg(long)]
    pub(crate) stop: Option<String>,
    /// 0 decodes greedily.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f64,
    /// Seed of sampling.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Also give the N highest logits after the prompt.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) logits: usize,
    /// The module of a pair: planner or grounder (builtin:tiny).
    #[arg(long, default_value = "planner")]
    pub(crate) role: String,
    /// The formulation a planner was trained for (builtin:tiny).
    #[arg(long, default_value = "iterative")]
    pub(crate) formulation: String,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// Benchmarks to download: gsm8k, svamp, hotpotqa, strategyqa, intercode_sql.
    #[arg(required = true)]
    pub(crate) tasks: Vec<String>,
    /// Folder to put them in, one folder per benchmark.
    #[arg(long, value_name = "DIR", default_value = "data", env = "LUMOS_DATA")]
    pub(crate) data: PathBuf,
    /// Download again even if the file is there and right.
    #[arg(long)]
    pub(crate) force: bool,
    /// Take files from this mirror: <mirror>/<benchmark>/<file>.
    #[arg(long, value_name = "URL", env = "LUMOS_MIRROR")]
    pub(crate) mirror: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Reads one seed of a list.
fn parse_seed(text: &str) -> Result<u64, String> {
    let expected = || "expected whole numbers from 0 on, comma-separated, such as 0,1,2".to_owned();
    text.trim().parse().map_err(|_| expected())
}

/// Reads a number of things.
fn parse_count(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| "expected a positive integer".to_owned())
}

/// Flags with underscores mean the same with dashes: `--batch_size` is `--batch-size`.
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
