//! Options of `export`.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use lumos_reports::ModelId;
use lumos_reports::export::{AnnotatedModule, EXPORT_FORMATS, ExportFormat};

use super::RunsArgs;

const EXAMPLES: &str = "\
Examples:
  lumos export runs/first --to inspect --output logs && inspect view --log-dir logs
      show the run in inspect
  lumos export runs/first --to csv --output tables
      write a line per unit
  lumos export runs/train --to annotations --output data --max-turns 6
      make training data of the correct trajectories";

/// Describes the formats.
fn formats() -> String {
    let each = EXPORT_FORMATS.iter().map(|format| format!("{}: {}.", format.name, format.about));
    format!("Set the format\n\n{}", each.collect::<Vec<_>>().join(" "))
}

/// Options of `export`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Select the run: its folder, or its name in --output-path
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Set the format
    #[arg(long, value_name = "FORMAT", long_help = formats())]
    pub(crate) to: ExportFormat,
    /// Write to this folder, which must be missing or empty
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: PathBuf,
    /// Replace the folder of an earlier export
    #[arg(long)]
    pub(crate) force: bool,
    /// Set the scorings: paper, corrected [default: those of the run]
    #[arg(long, value_delimiter = ',', value_name = "SCORING")]
    pub(crate) scoring: Vec<String>,
    /// Show a model under a short name; repeatable
    ///
    /// NAME is the model's name, or the last component of its path. Default: the last component. Example: --label
    /// planner=P
    #[arg(long, value_name = "NAME=TEXT")]
    pub(crate) label: Vec<String>,
    /// Set the id of the models for other tools [default: from the models]
    ///
    /// Default: the id of a hub model; otherwise lumos/ and the models' short names. Example: --model-id
    /// ai2lumos/maths
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) model_id: Option<ModelId>,
    /// Export only correct trajectories as annotations
    ///
    /// A trajectory is correct if it has the full score in the benchmark's main metric. false exports all answered
    /// ones.
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        action = ArgAction::Set,
        help_heading = "Annotations"
    )]
    pub(crate) correct_only: bool,
    /// Export only annotations of at most this many planner turns
    ///
    /// Default: no limit.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Annotations")]
    pub(crate) max_turns: Option<u32>,
    /// Also export items of test sets as annotations; do not train on them
    ///
    /// All files then have the prefix test_. Default: items are left out unless they are known to be in no test set.
    #[arg(long, help_heading = "Annotations")]
    pub(crate) allow_test: bool,
    /// Export the annotations of a module: plan, ground or both
    #[arg(long, value_name = "MODULE", default_value = "both", help_heading = "Annotations")]
    pub(crate) module: AnnotatedModule,
}
