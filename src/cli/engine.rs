//! Options of what measures, predicts and checks the engine.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lumos_coordinator::spec::MemorySize;
use lumos_engine::RandomShape;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Tokens per second of a model on this machine, and how much of what the machine can do that is
    Engine(BenchEngineArgs),
}

const BENCH_EXAMPLES: &str = "\
Examples:
  lumos bench engine --random-weights tinyllama --dtype bf16
  lumos bench engine --random-weights llama2-7b --batch-sizes 1 --new-tokens 8 --json
  lumos bench engine --model candle:models/planner --output bench.json
  lumos bench engine --random-weights 110m --save-weights weights
      the same weights as a Hugging Face folder, for other programs

The limits (reading memory, the best rate of products) are measured in the same run, so a share of 100 % is what
this machine can do.";

/// What to measure.
#[derive(Debug, Args)]
#[command(after_help = BENCH_EXAMPLES)]
pub(crate) struct BenchEngineArgs {
    /// A shape with random weights; needs no files: llama2-7b, llama2-13b, tinyllama, 110m, 1m.
    #[arg(long, value_name = "SHAPE", required_unless_present = "model", conflicts_with = "model")]
    pub(crate) random_weights: Option<RandomShape>,
    /// A model: candle:<folder>, candle:<file.gguf>, or builtin:tiny.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Sequences computed together, comma-separated.
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", default_value = "1,8,32")]
    pub(crate) batch_sizes: Vec<usize>,
    /// Tokens of each prompt.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) prompt_tokens: usize,
    /// Tokens generated for each.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) new_tokens: usize,
    /// Reuse of prefixes: on, off, or both one after the other.
    #[arg(long, value_name = "on|off|both", default_value = "both")]
    pub(crate) reuse: Reuse,
    /// Type of the weights in memory: f32, bf16, f16.
    #[arg(long, value_name = "TYPE", default_value = "f32", env = "LUMOS_DTYPE")]
    pub(crate) dtype: lumos_engine::DType,
    /// Where the model computes: cpu, cuda:N, or auto for a GPU if there is one.
    #[arg(long, value_name = "DEVICE", default_value_t, env = "LUMOS_DEVICE")]
    pub(crate) device: lumos_engine::DeviceName,
    /// Threads that compute [default: all cores]
    #[arg(long, value_name = "N", env = "LUMOS_THREADS")]
    pub(crate) threads: Option<usize>,
    /// The figures as JSON on standard output, in place of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the figures as JSON to a file, for `lumos estimate --bench`.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write the random weights as a Hugging Face folder and measure nothing.
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    pub(crate) save_weights: Option<PathBuf>,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  lumos doctor
  lumos doctor --json | jq .gpus

Nothing is changed or downloaded; what is missing is no error. A GPU is used by builds with the feature `cuda` only.";

/// How to tell.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// As one JSON object, in place of lines.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which of the two are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reuse {
    /// With reuse of prefixes.
    On,
    /// Without.
    Off,
    /// Without, then with.
    Both,
}

impl Reuse {
    pub(crate) fn rounds(self) -> Vec<bool> {
        match self {
            Self::On => vec![true],
            Self::Off => vec![false],
            Self::Both => vec![false, true],
        }
    }
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  lumos verify runs/sweep --sample 50
  lumos verify runs/sweep --sample 200 --batch-size 8

Items of a run are computed once more at another batch size and compared with the record: a reply that differs is a
flip. In float32 there is none on the same machine; bfloat16 keeps to that where a processor's kernels do. Ends with
exit code 100 when a reply differs.";

/// What to compute once more.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// The run: its folder, or its name below --output-path.
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: super::RunsArgs,
    /// Items computed once more, drawn by hash.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) sample: usize,
    /// One JSON object a unit, and one of the totals.
    #[arg(long)]
    pub(crate) json: bool,
    /// Sequences computed together this time: auto or a number [default: 1, or 8 if the run had 1]
    #[arg(long, value_name = "N")]
    pub(crate) batch_size: Option<String>,
    /// Threads that compute [default: all cores]
    #[arg(long, value_name = "N", env = "LUMOS_THREADS")]
    pub(crate) threads: Option<usize>,
}

const ESTIMATE_EXAMPLES: &str = "\
Examples:
  lumos estimate sweep.toml --bench bench.json
  lumos estimate sweep.toml --random-weights llama2-7b --dtype bf16
  lumos estimate sweep.toml --bench bench.json --like runs/pilot
  lumos estimate sweep.toml --bench bench.json --memory 24GB
      and which way two models fit into it

Tokens per item come from the recorded cases of the original, or from a run of your own (--like), which knows your
models' replies. Tools are left out, and so is loading, but for models that take
turns in memory.";

/// What to predict, and from what.
#[derive(Debug, Args)]
#[command(after_help = ESTIMATE_EXAMPLES)]
pub(crate) struct EstimateArgs {
    /// The run's settings (TOML), as for `lumos run --config`.
    pub(crate) spec: PathBuf,
    /// Figures of `lumos bench engine --output`.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "random_weights",
        conflicts_with = "random_weights"
    )]
    pub(crate) bench: Option<PathBuf>,
    /// Measure this shape now: llama2-7b, llama2-13b, tinyllama, 110m, 1m.
    #[arg(long, value_name = "SHAPE")]
    pub(crate) random_weights: Option<RandomShape>,
    /// Type of the weights in memory, where measured now: f32, bf16, f16.
    #[arg(long, value_name = "TYPE", default_value = "f32", env = "LUMOS_DTYPE")]
    pub(crate) dtype: lumos_engine::DType,
    /// Tokens per item as this run recorded them: its folder, or its name below --output-path.
    #[arg(long, value_name = "RUN")]
    pub(crate) like: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: super::RunsArgs,
    /// Say which way the models fit into so much memory on each device, such as 24GB: together, in phases, quantised [default:
    /// the run's own limit, if it has one]
    #[arg(long, value_name = "BYTES", env = "LUMOS_MEMORY")]
    pub(crate) memory: Option<MemorySize>,
    /// Bytes of weights that are loaded in a second, for what swapping costs.
    #[arg(long, value_name = "BYTES", default_value = "500MB")]
    pub(crate) load_rate: MemorySize,
    /// Workers of that kind.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) workers: u32,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
