//! Options of the engine, and of `bench`, `doctor`, `verify` and `estimate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lumos_coordinator::spec::MemorySize;
use lumos_engine::{RandomShape, Speculation};
use lumos_tasks::{BackendChoice, Swap};

/// Options of the engine.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineArgs {
    /// Set the number of sequences computed together: auto or N [default: auto]
    ///
    /// `auto` is 32 on the CPU, and on a GPU as many as fit into the memory for keys and values, at most 256. N also
    /// sets the number of episodes in progress, unless --concurrency does. Does not change results on the same machine in f32.
    /// Example: --batch-size 16
    #[arg(long, value_name = "N", env = "LUMOS_BATCH_SIZE")]
    pub(crate) batch_size: Option<String>,
    /// Set the device of models: cpu, auto or cuda:N [default: cpu]
    ///
    /// For all models, or by role, comma-separated. `auto` uses a GPU if there is one. GPUs need a build with
    /// the feature `cuda`, and with `candle-cuda` for --backend candle-transformers. Examples: --device cuda:0 or --device planner=cuda:0,grounder=cuda:1
    #[arg(long, value_name = "DEVICE", env = "LUMOS_DEVICE")]
    pub(crate) device: Option<String>,
    /// Set the type of weights in memory: f32, bf16 or f16 [default: f32]
    ///
    /// GGUF files keep the type of their quantized weights. With --preset paper, GPUs use f16 by default.
    /// Example: --dtype bf16
    #[arg(long, value_name = "TYPE", env = "LUMOS_DTYPE")]
    pub(crate) dtype: Option<String>,
    #[command(flatten)]
    pub(crate) speed: SpeedArgs,
}

/// Options of the engine that do not change results, so that `resume` may set others than `run`.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct SpeedArgs {
    /// Reuse computed prompt prefixes: on or off [default: on]
    ///
    /// Does not change results. Example: --prefix-cache off
    #[arg(long, value_name = "on|off", env = "LUMOS_PREFIX_CACHE")]
    pub(crate) prefix_cache: Option<Switch>,
    /// Verify drafts of the next tokens: off, lookup or auto [default: auto]
    ///
    /// `lookup` drafts what followed the last tokens where they occurred before in the prompt or the reply, and
    /// computes a draft in one pass. `auto` does so where it saves time, by the measured duration of passes and the
    /// share of accepted tokens. Does not change results. GPUs and candle-transformers reject `lookup`, and `auto`
    /// is `off` there. Example: --speculate off
    #[arg(long, value_name = "off|lookup|auto", env = "LUMOS_SPECULATE")]
    pub(crate) speculate: Option<Speculation>,
    /// Set the number of compute threads [default: all cores]
    ///
    /// Example: --threads 8
    #[arg(long, value_name = "N", env = "LUMOS_THREADS")]
    pub(crate) threads: Option<usize>,
}

/// Which implementation computes models.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct BackendArgs {
    /// Compute models with: auto, native or candle-transformers [default: auto]
    ///
    /// `native` is the engine. `candle-transformers` computes one sequence at a time in f32: slower, and a reference
    /// for the engine. `auto` uses it for architectures that the engine does not support. The manifest
    /// records the backend; results of both are never mixed. Example: --backend candle-transformers
    #[arg(long, value_name = "BACKEND", env = "LUMOS_BACKEND")]
    pub(crate) backend: Option<BackendChoice>,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Reuse prefixes
    On,
    /// Compute every prompt in full
    Off,
}

/// Memory limits for models.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct MemoryArgs {
    /// Limit the memory of models on each device, such as 20GiB
    ///
    /// Covers weights, keys and values together. Default: no limit. Example: --memory 24GB
    #[arg(long, value_name = "BYTES", env = "LUMOS_MEMORY")]
    pub(crate) memory: Option<MemorySize>,
    /// Load models of a device in turns: auto, always or never [default: auto]
    ///
    /// One model is loaded at a time and computes all requests that wait for it, then the next is loaded.
    /// `auto` does so if --memory holds each model but not all of them. Does not change results. Example:
    /// --swap never
    #[arg(long, value_name = "WHEN", env = "LUMOS_SWAP")]
    pub(crate) swap: Option<Swap>,
    /// Set the number of episodes in progress at the same time
    ///
    /// Default: as --batch-size. With --batch-size auto, 16 per core (at most 64) if models are computed on
    /// the CPU, 256 if they are computed on GPUs, else 64. At least 256 if models are loaded in turns.
    /// Example: --concurrency 32
    #[arg(long, value_name = "N", env = "LUMOS_CONCURRENCY", alias = "places")]
    pub(crate) concurrency: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure the tokens per second of a model on this machine
    ///
    /// Also measures the limits of the machine, and prints which share of them the model reaches.
    Engine(BenchEngineArgs),
}

const BENCH_EXAMPLES: &str = "\
Examples:
  lumos bench engine --random-weights tinyllama --dtype bf16
  lumos bench engine --random-weights llama2-7b --batch-sizes 1 --new-tokens 8 --json
  lumos bench engine --model candle:models/planner --output bench.json
  lumos bench engine --random-weights 110m --save-weights weights
      write the same weights as a Hugging Face folder, for other programs

The limits (memory bandwidth, multiplications per second) are measured in the same run: 100 % is the limit of this
machine.";

/// Options of `bench engine`.
#[derive(Debug, Args)]
#[command(after_help = BENCH_EXAMPLES)]
pub(crate) struct BenchEngineArgs {
    /// Measure random weights of a shape; needs no files
    ///
    /// Shapes: llama2-7b, llama2-13b, tinyllama, 110m, qwen3-110m, gemma3-110m, 1m, qwen3-1m, gemma3-1m, moe-1m.
    #[arg(long, value_name = "SHAPE", required_unless_present = "model", conflicts_with = "model")]
    pub(crate) random_weights: Option<RandomShape>,
    /// Measure a model: candle:<folder>, candle:<file.gguf> or builtin:tiny
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Set the numbers of sequences computed together, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,8,32")]
    pub(crate) batch_sizes: Vec<usize>,
    /// Set the length of each prompt, in tokens
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) prompt_tokens: usize,
    /// Set the number of tokens generated for each prompt
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) new_tokens: usize,
    /// Measure with prefix reuse (on), without (off), or both
    #[arg(long, value_name = "on|off|both", default_value = "both")]
    pub(crate) reuse: Reuse,
    /// Verify drafts of the next tokens: off, lookup or auto
    #[arg(long, value_name = "off|lookup|auto", default_value_t, env = "LUMOS_SPECULATE")]
    pub(crate) speculate: Speculation,
    /// Set the type of weights in memory: f32, bf16 or f16
    #[arg(long, value_name = "TYPE", default_value = "f32", env = "LUMOS_DTYPE")]
    pub(crate) dtype: lumos_engine::DType,
    /// Set the device: cpu, cuda:N, or auto (a GPU if there is one)
    #[arg(long, value_name = "DEVICE", default_value_t, env = "LUMOS_DEVICE")]
    pub(crate) device: lumos_engine::DeviceName,
    /// Set the number of compute threads [default: all cores]
    #[arg(long, value_name = "N", env = "LUMOS_THREADS")]
    pub(crate) threads: Option<usize>,
    /// Print the figures as JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the figures as JSON to a file, for `lumos estimate --bench`
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Write the random weights as a Hugging Face folder, and measure nothing
    #[arg(long, value_name = "PATH", conflicts_with = "model")]
    pub(crate) save_weights: Option<PathBuf>,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  lumos doctor
  lumos doctor --json | jq .gpus

Nothing is changed or downloaded, and missing programs are not errors. Only builds with the feature `cuda` use GPUs.";

/// Options of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object instead of lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prefix reuse settings to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reuse {
    /// With reuse of prefixes
    On,
    /// Without reuse of prefixes
    Off,
    /// Without, then with
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
  lumos verify runs/sweep --reference --sample 10

Computes items of a run again at another batch size and compares the replies with the record. In f32, no reply
differs on the same machine; in bf16, this depends on the processor's kernels. The exit code is 100 if a reply differs.";

/// Options of `verify`.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// Select the run: its folder, or its name in --output-path
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) runs: super::RunsArgs,
    /// Set the number of items to recompute; they are selected by hash
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) sample: usize,
    /// Print one JSON object per unit, and one with the totals
    #[arg(long)]
    pub(crate) json: bool,
    /// Set the number of sequences computed together: auto or N
    ///
    /// Default: 1, or 8 if the run used 1.
    #[arg(long, value_name = "N")]
    pub(crate) batch_size: Option<String>,
    /// Set the number of compute threads [default: all cores]
    #[arg(long, value_name = "N", env = "LUMOS_THREADS")]
    pub(crate) threads: Option<usize>,
    /// Compare the engine with candle-transformers on the prompts of the sample
    ///
    /// Both continue each recorded prompt greedily. Prints the largest difference of the logits after the prompt, and
    /// the tokens at which the most likely one differs. Near ties (margin below 0.002) do not count as failures.
    #[arg(long, conflicts_with = "batch_size")]
    pub(crate) reference: bool,
}

const ESTIMATE_EXAMPLES: &str = "\
Examples:
  lumos estimate sweep.toml --bench bench.json
  lumos estimate sweep.toml --random-weights llama2-7b --dtype bf16
  lumos estimate sweep.toml --bench bench.json --like runs/pilot
  lumos estimate sweep.toml --bench bench.json --memory 24GB
      also show whether the models fit into 24 GB, together or in turns

Tokens per item come from recorded cases of the original, or from your own run (--like), which has the replies of your
models. With --like alone, the time of tools is included, otherwise not. The time of loading is included only where models
take turns in memory.";

/// Options of `estimate`.
#[derive(Debug, Args)]
#[command(after_help = ESTIMATE_EXAMPLES)]
pub(crate) struct EstimateArgs {
    /// Read the run's settings from a TOML file, as for `lumos run --config`
    pub(crate) spec: PathBuf,
    /// Use the figures that `lumos bench engine --output` wrote
    ///
    /// They are those of the engine alone: the time of the harness and of tools is not included.
    #[arg(
        long,
        value_name = "PATH",
        required_unless_present_any = ["random_weights", "like"],
        conflicts_with = "random_weights"
    )]
    pub(crate) bench: Option<PathBuf>,
    /// Measure a shape of `lumos bench engine` now, such as llama2-7b
    #[arg(long, value_name = "SHAPE")]
    pub(crate) random_weights: Option<RandomShape>,
    /// Set the type of weights for --random-weights: f32, bf16 or f16
    #[arg(long, value_name = "TYPE", default_value = "f32", env = "LUMOS_DTYPE")]
    pub(crate) dtype: lumos_engine::DType,
    /// Use the pace and the tokens per item that this run recorded
    ///
    /// Its folder, or its name in --output-path. Its pace includes the time of the harness and of tools; it should
    /// have several times as many items as --concurrency. With --bench or --random-weights, only its tokens per item
    /// are used. Default: the tokens of the recorded cases of the original.
    #[arg(long, value_name = "RUN")]
    pub(crate) like: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: super::RunsArgs,
    /// Show how the models fit into this memory per device, such as 24GB
    ///
    /// Compares loading them together, in turns and, on the CPU, quantized. Default: the limit in the run's
    /// settings, if set.
    #[arg(long, value_name = "BYTES", env = "LUMOS_MEMORY")]
    pub(crate) memory: Option<MemorySize>,
    /// Count memory for drafts of the next tokens: off, lookup or auto [default: auto]
    ///
    /// Unless it is off, models on the CPU need memory for the logits of drafts. Example: --speculate off
    #[arg(long, value_name = "off|lookup|auto", env = "LUMOS_SPECULATE")]
    pub(crate) speculate: Option<Speculation>,
    /// Set how many bytes of weights are loaded per second, for models in turns
    #[arg(long, value_name = "BYTES", default_value = "500MB")]
    pub(crate) load_rate: MemorySize,
    /// Set the number of identical workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) workers: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
