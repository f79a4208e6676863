//! Options of `run`, `validate` and `resume`.

use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};

use super::{BackendArgs, EngineArgs, FleetArgs, MemoryArgs, RunsArgs, SpeedArgs};

const RUN_EXAMPLES: &str = "\
Examples:
  lumos run --tasks gsm8k --model builtin:tiny --limit 5
  lumos run --tasks gsm8k,svamp --formulation iterative,onetime --planner candle:models/plan --grounder candle:models/ground
  lumos run sweep.toml --name sweep --temperature 0.7 --seed 0,1,2
  lumos run --preset paper --tasks svamp --model builtin:tiny --data data --record cases.jsonl

The same command again continues the run. A complete run is not changed.";

/// Flags, each with the arguments whose variables it replaces, as between the layers of `RunSpec::merge`.
const REPLACED: [(&str, &[&str]); 5] = [
    ("limit", &["samples"]),
    ("samples", &["limit"]),
    ("seed", &["epochs"]),
    ("epochs", &["seed"]),
    ("model", &["planner", "grounder", "answerer", "qa"]),
];

/// Returns the arguments of `run` or `validate` whose variables are replaced by flags.
pub(super) fn replaced(typed: &ArgMatches) -> Vec<&'static str> {
    let is_typed = |id: &str| typed.value_source(id) == Some(ValueSource::CommandLine);
    let flags = REPLACED.into_iter().filter(|(flag, _)| is_typed(flag));
    flags.flat_map(|(_, replaced)| replaced).copied().collect()
}

/// Options of `run` and `validate`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// Read settings from a TOML file, same as --config
    ///
    /// Takes precedence over --config and LUMOS_CONFIG. Default: no file. Example: lumos run sweep.toml
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Read settings from a TOML file
    ///
    /// Flags and environment variables override the file. Default: no file. Example: --config sweep.toml
    #[arg(long, value_name = "PATH", env = "LUMOS_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Check settings, data and models, print the plan, and stop
    ///
    /// The plan has one row per configuration: units, estimated tokens and time, and priority. With --json it is one JSON
    /// object. Nothing is written and no episode runs. Default: off.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Estimate the time of the plan from figures of `lumos bench engine`
    ///
    /// Needs --dry-run. The file is written by `lumos bench engine --output`. Default: no times. Example: --dry-run
    /// --bench bench.json
    #[arg(long, value_name = "PATH")]
    pub(crate) bench: Option<PathBuf>,
    /// Estimate the tokens and the time of the plan from this run
    ///
    /// Needs --dry-run. With --bench, only the tokens are taken from it. A folder, or a name in --output-path. Default: the recorded cases of the original. Example:
    /// --dry-run --like runs/pilot
    #[arg(long, value_name = "RUN")]
    pub(crate) like: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    #[command(flatten)]
    pub(crate) models: ModelArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Describes `--tasks`, with the names of the benchmarks.
fn tasks() -> String {
    let names: Vec<_> = lumos_benchmarks::all().iter().map(|benchmark| benchmark.name()).collect();
    format!(
        "Select benchmarks by name or pattern, comma-separated, or all\n\nNames: {}. A path is a task file of your own, or \
         a folder of them (see `lumos init task`). No default: name them here or in the settings file. Examples: --tasks \
         gsm8k,svamp or --tasks \"*qa\" or --tasks mine/task.toml",
        names.join(", ")
    )
}

impl RunArgs {
    /// Returns the settings file, if there is one.
    pub(crate) fn settings_file(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.as_deref())
    }
}

/// Options that select what is run.
#[derive(Debug, Args)]
#[command(next_help_heading = "What to run")]
pub(crate) struct SelectionArgs {
    /// Select benchmarks by name or pattern, comma-separated, or all
    #[arg(long, value_delimiter = ',', value_name = "TASK", env = "LUMOS_TASKS", long_help = tasks())]
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
    /// openai:<model>@<base url>, openai-chat:<model>@<base url>, builtin:tiny, script:<cases file>. An existing
    /// folder or GGUF file needs no `candle:`. No default. Example: --model builtin:tiny
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
    /// Set the layout of prompts for planner, grounder and answerer
    ///
    /// tulu (the layout that Lumos's modules are trained on), chatml, llama-3, chat (the model's own chat
    /// template) or a file with a Jinja template. Models named openai-chat:… take messages instead. Default:
    /// tulu. Example: --prompt-template chatml
    #[arg(long, value_name = "tulu|chatml|llama-3|chat|PATH", env = "LUMOS_PROMPT_TEMPLATE")]
    pub(crate) prompt_template: Option<String>,
    /// Set the number of worked examples before each prompt
    ///
    /// 0 to 2, with instructions for the role, for models that were not trained on the prompts. Needs another
    /// layout than tulu, or openai-chat:…. Default: 2 for openai-chat:…, otherwise none and no instructions.
    /// Example: --exemplars-per-prompt 1
    #[arg(long, value_name = "N", env = "LUMOS_EXEMPLARS_PER_PROMPT")]
    pub(crate) exemplars_per_prompt: Option<u8>,
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
    pub(crate) speed: SpeedArgs,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
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
