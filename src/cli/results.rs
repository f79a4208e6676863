//! Options of the commands that work on recorded runs: `report`, `score`, `show`, `merge`, `repair` and `ls`.
//! [`RunsArgs`] finds the run that a command refers to.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use lumos_coordinator::spec::MemorySize;
use lumos_reports::report::Format;

use super::{EngineArgs, FleetArgs};
use crate::exit::Failure;

/// The folder in which run names are looked up.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunsArgs {
    /// Look up run names in this folder
    #[arg(long, value_name = "PATH", default_value = "runs", env = "LUMOS_OUTPUT_PATH")]
    pub(crate) output_path: PathBuf,
}

impl RunsArgs {
    /// Returns the folder of a run, given by path or by name: an existing path, otherwise the folder with that name
    /// in the output path. A path that is not a run does not hide a run of that name.
    ///
    /// # Errors
    /// If neither exists.
    pub(crate) fn folder(&self, run: &Path) -> Result<PathBuf, Failure> {
        let mut parts = run.components();
        let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        let below = self.output_path.join(run);
        let is_run = |path: &Path| path.join("manifest.json").is_file();
        if run.exists() && (is_run(run) || !(is_name && is_run(&below))) {
            return Ok(run.to_owned());
        }
        match is_name {
            true if below.exists() => Ok(below),
            true => Err(not_found(run, &format!("neither {} nor {} exists", run.display(), below.display()))),
            false => Err(not_found(run, "no such folder")),
        }
    }
}

fn not_found(run: &Path, why: &str) -> Failure {
    Failure::input(format!("run `{}` not found: {why}", run.display())).hint("list the runs: lumos ls")
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Select the run: its folder, or its name in --output-path
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Set the format: table, markdown, json, csv, html or viewer
    ///
    /// `table` is a summary, or with -v all tables. `json` has the layout of lm-evaluation-harness. `html` is one self-contained page with plots and the list of
    /// items. `viewer` is a folder with the same page and all trajectories; it needs --output.
    #[arg(long, default_value = "table")]
    pub(crate) format: ReportFormat,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Set the scorings: paper, corrected [default: those of the run]
    #[arg(long, value_delimiter = ',', value_name = "SCORING")]
    pub(crate) scoring: Vec<String>,
    /// Show a model under a short name in the table of models; repeatable
    ///
    /// NAME is the model's name or the last part of its path. Default: the last part. Example: --label plan-13b=13B
    #[arg(long, value_name = "NAME=TEXT")]
    pub(crate) label: Vec<String>,
    /// Write to a file (viewer: a folder) instead of standard output
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
}

/// Output format of `lumos report`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportFormat {
    /// One document.
    Document(Format),
    /// The folder of the item viewer.
    Viewer,
}

impl FromStr for ReportFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "viewer" => Ok(Self::Viewer),
            word => word.parse().map(Self::Document).map_err(|error: String| format!("{error}, viewer")),
        }
    }
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
    /// Counts verdicts of earlier sessions, and questions in progress at the average cost of this session's
    /// verdicts. With --queue, at most the concurrency of all workers is in progress. These questions are
    /// finished and paid, so the limit is exceeded by what they cost above the average, and by questions
    /// that begin before the first verdict is recorded or before workers receive the stop. Needs the
    /// model's price in LUMOS_OPENAI_PRICES. Default: no limit. Example: --max-cost 5
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
    /// Print the prompts as the models received them
    ///
    /// Only the prompts of planner, grounder and answerer, rendered with the run's prompt template and the model's own
    /// tokenizer and chat template: the text with its BOS token, or the messages for a server's chat interface. With
    /// --json, one object per prompt. Example: lumos show my-run 3 --rendered
    #[arg(long, conflicts_with = "prompts")]
    pub(crate) rendered: bool,
    /// Print the record as JSON, one object per configuration
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lumos run --config sweep.toml --partition hash:1/2 --name part-1    (on one machine)\n  \
                        lumos run --config sweep.toml --partition hash:2/2 --name part-2    (on another)\n  \
                        lumos merge runs/part-1 runs/part-2 --into runs/sweep"
)]
pub(crate) struct MergeArgs {
    /// Select all parts: their folders, or their names in --output-path
    #[arg(required = true)]
    pub(crate) parts: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Write the merged run to this folder, which must not exist
    #[arg(long, value_name = "PATH")]
    pub(crate) into: PathBuf,
    /// Accept incomplete parts
    ///
    /// Their missing units are outstanding in the merged run, and `lumos resume` runs them.
    #[arg(long)]
    pub(crate) allow_incomplete: bool,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_exists_comes_before_a_name_below_the_output_path() {
        let folder = tempfile::tempdir().unwrap();
        let runs = RunsArgs { output_path: folder.path().to_owned() };
        std::fs::create_dir(folder.path().join("mine")).unwrap();
        assert_eq!(runs.folder(Path::new("mine")).unwrap(), folder.path().join("mine"));
        assert_eq!(runs.folder(&folder.path().join("mine")).unwrap(), folder.path().join("mine"));
        // Tests run in the package's folder, which has one of that name.
        std::fs::create_dir(folder.path().join("src")).unwrap();
        assert_eq!(runs.folder(Path::new("src")).unwrap(), Path::new("src"));
        std::fs::write(folder.path().join("src/manifest.json"), "{}").unwrap();
        assert_eq!(runs.folder(Path::new("src")).unwrap(), folder.path().join("src"));
        let refused = |run: &str| runs.folder(Path::new(run)).unwrap_err().error.to_string();
        assert!(refused("yours").contains("neither yours nor") && refused("yours").contains("run `yours`"));
        // Only names are looked up there.
        std::fs::create_dir(folder.path().join("mine/inner")).unwrap();
        assert!(refused("mine/inner").contains("no such folder"));
        assert!(refused("../mine/../nowhere").contains("no such folder"));
    }
}
