//! Options of the commands that compare runs: `compare` and `gate`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use lumos_reports::compare::CompareFormat;
use lumos_reports::gate::{AllowedDifference, GateFormat, MetricThreshold};
use lumos_reports::results::SettingsAxis;

use super::RunsArgs;

const COMPARE_EXAMPLES: &str = "\
Examples:
  lumos compare runs/before runs/after
      the second run minus the first, item by item
  lumos compare runs/sweep --by formulation --only behaviour=paper
      the configurations of one run
  lumos compare runs/before runs/after --format markdown --items 50 --output change.md";

#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArgs {
    /// Select the runs: their folders, or their names in --output-path
    ///
    /// With several runs, the first is the baseline of every difference. With one run, its configurations are compared
    /// along --by.
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) folder: RunsArgs,
    /// Compare configurations of one run along an axis
    ///
    /// One of model, formulation, behaviour, tool, seed. Default: the only one that varies.
    #[arg(long, value_name = "AXIS")]
    pub(crate) by: Option<SettingsAxis>,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Show a model or run under a short name; repeatable
    ///
    /// NAME is a model's name, the last part of its path, or a run's name. Default: the last part of each path.
    /// Example: --label candle:/models/plan-13b=13B
    #[arg(long, value_name = "NAME=TEXT")]
    pub(crate) label: Vec<String>,
    /// Compare this metric [default: all of the benchmark]
    #[arg(long, value_name = "METRIC")]
    pub(crate) metric: Option<String>,
    /// Set the format: table, markdown, json or html
    ///
    /// `html` is a folder with a page that lists all items with both trajectories; it needs --output.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    pub(crate) format: ComparisonFormat,
    /// Print JSON, as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Write to a file (html: a folder) instead of standard output
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// List at most this many changed items of each kind
    ///
    /// Per comparison and direction, in tables and Markdown; JSON has all of them. 0 lists none.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) items: usize,
    /// Compare runs over different items, without pairing
    ///
    /// Differences of difficulty then count as differences of the runs. Default: refuse.
    #[arg(long)]
    pub(crate) unpaired: bool,
    /// With JSON: include both trajectories of every listed item
    #[arg(long)]
    pub(crate) trajectories: bool,
}

/// Output format of `lumos compare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComparisonFormat {
    /// One document.
    Document(CompareFormat),
    /// The folder of a page.
    Html,
}

impl FromStr for ComparisonFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "html" => Ok(Self::Html),
            word => word.parse().map(Self::Document).map_err(|error: String| format!("{error}, html")),
        }
    }
}

/// What is compared.
#[derive(Debug, Args)]
pub(crate) struct SelectionArgs {
    /// Keep only configurations with this value; repeatable
    ///
    /// Axes: model, formulation, behaviour, tool, seed. Default: all. Example: --only behaviour=paper
    #[arg(long, value_name = "AXIS=VALUE")]
    pub(crate) only: Vec<String>,
    /// Score with paper or corrected rules [default: the first of the run]
    #[arg(long, value_name = "SCORING")]
    pub(crate) scoring: Option<String>,
}

const GATE_EXAMPLES: &str = "\
Examples:
  lumos gate runs/candidate --baseline runs/released --margin 1
      at most 1 percentage point worse, with 95 % confidence
  lumos gate runs/released --save-baseline baseline.json
  lumos gate runs/candidate --baseline baseline.json --must-pass svamp:17 --junit gate.xml

Exit codes: 0 pass, 100 fail, 5 cannot tell, 2 refused because the runs are not comparable.";

#[derive(Debug, Args)]
#[command(after_help = GATE_EXAMPLES)]
pub(crate) struct GateArgs {
    /// Select the run to check: its folder, or its name in --output-path
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Compare with this run, or with a file written by --save-baseline
    #[arg(long, value_name = "RUN|FILE", required_unless_present = "save_baseline")]
    pub(crate) baseline: Option<PathBuf>,
    /// Allow this loss, in percentage points or the metric's unit; repeatable
    ///
    /// With TASK=, only for this benchmark. Default: 2. Example: --margin 1 --margin svamp=0.5
    #[arg(long, value_name = "[TASK=]POINTS", allow_negative_numbers = true)]
    pub(crate) margin: Vec<String>,
    /// Require these items to be correct; repeatable
    ///
    /// An index or a name, with TASK: if several benchmarks have it, or a file with one per line. Default: none.
    /// Example: --must-pass svamp:17
    #[arg(long, value_name = "ITEM|FILE")]
    pub(crate) must_pass: Vec<String>,
    /// Require a metric of at least N, at most N if lower is better; repeatable
    ///
    /// In percent or the metric's unit, with 95 % confidence. Default: none. Example: --threshold svamp:exact_match=60
    #[arg(long, value_name = "[TASK:]METRIC=N")]
    pub(crate) threshold: Vec<MetricThreshold>,
    /// Compare this metric [default: the benchmark's main metric]
    #[arg(long, value_name = "METRIC")]
    pub(crate) metric: Option<String>,
    /// Answer "cannot tell" below this number of paired items
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) min_items: u64,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Accept a difference that is refused otherwise: prompts or data; repeatable
    #[arg(long, value_name = "DIFFERENCE")]
    pub(crate) allow: Vec<AllowedDifference>,
    /// Set the format: table, markdown, json or junit
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    pub(crate) format: GateFormat,
    /// Print JSON, as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Also write JUnit XML to this file
    #[arg(long, value_name = "PATH")]
    pub(crate) junit: Option<PathBuf>,
    /// Also append Markdown to this file
    ///
    /// Default: GITHUB_STEP_SUMMARY, if it is set.
    #[arg(long, value_name = "PATH", env = "GITHUB_STEP_SUMMARY", hide_env_values = true)]
    pub(crate) summary: Option<PathBuf>,
    /// Print annotations of GitHub Actions
    ///
    /// To standard output with tables, otherwise to standard error. auto: if GITHUB_ACTIONS is true.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) annotations: Annotations,
    /// Write this run's item scores as a baseline file, and exit
    #[arg(long, value_name = "FILE", conflicts_with = "baseline")]
    pub(crate) save_baseline: Option<PathBuf>,
}

/// When annotations are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Annotations {
    /// In GitHub Actions
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
