//! Options of what spans several machines.

use std::path::PathBuf;

use clap::Args;
use lumos_coordinator::spec::MemorySize;
use lumos_tasks::Swap;

/// How to reach the queue.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Queue")]
pub(crate) struct QueueArgs {
    /// `memory`, or the address of a NATS server with JetStream: nats://host:4222, tls://host:4222; several
    /// comma-separated.
    #[arg(long, value_name = "URL", env = "LUMOS_QUEUE", hide_env_values = true)]
    pub(crate) queue: Option<String>,
    /// User of the NATS server.
    #[arg(long, value_name = "NAME", env = "LUMOS_QUEUE_USER")]
    pub(crate) queue_user: Option<String>,
    /// The user's password; better given as LUMOS_QUEUE_PASSWORD, which other users of the machine do not see.
    #[arg(long, value_name = "PASSWORD", env = "LUMOS_QUEUE_PASSWORD", hide_env_values = true)]
    pub(crate) queue_password: Option<String>,
    /// Token in place of user and password; better given as LUMOS_QUEUE_TOKEN.
    #[arg(long, value_name = "TOKEN", env = "LUMOS_QUEUE_TOKEN", hide_env_values = true)]
    pub(crate) queue_token: Option<String>,
    /// File with the seed of an nkey.
    #[arg(long, value_name = "FILE", env = "LUMOS_QUEUE_NKEY")]
    pub(crate) queue_nkey: Option<PathBuf>,
    /// Credentials file (.creds).
    #[arg(long, value_name = "FILE", env = "LUMOS_QUEUE_CREDENTIALS")]
    pub(crate) queue_credentials: Option<PathBuf>,
    /// Certificate of the authority that signed the server's, in PEM; turns TLS on.
    #[arg(long, value_name = "FILE", env = "LUMOS_QUEUE_TLS_CA")]
    pub(crate) queue_tls_ca: Option<PathBuf>,
    /// This client's certificate, in PEM.
    #[arg(long, value_name = "FILE", env = "LUMOS_QUEUE_TLS_CERTIFICATE", requires = "queue_tls_key")]
    pub(crate) queue_tls_certificate: Option<PathBuf>,
    /// Key of this client's certificate, in PEM.
    #[arg(long, value_name = "FILE", env = "LUMOS_QUEUE_TLS_KEY", requires = "queue_tls_certificate")]
    pub(crate) queue_tls_key: Option<PathBuf>,
    /// Copies that a NATS cluster keeps of every message.
    #[arg(long, value_name = "N", default_value_t = 1, env = "LUMOS_QUEUE_REPLICAS")]
    pub(crate) queue_replicas: usize,
}

/// How a run is spread over workers.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Queue")]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// With --queue nats://…: 0 goes before the units of other runs, 9 after them.
    #[arg(long, value_name = "0-9", default_value_t = 5, env = "LUMOS_PRIORITY",
          value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: u8,
    /// With --queue nats://…: seconds after which a unit goes to another worker when nothing is heard of the one that
    /// has it.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, env = "LUMOS_LEASE")]
    pub(crate) lease: f64,
    /// With --queue nats://…: seconds within which an interrupted run ends; workers may end what they hold meanwhile.
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, env = "LUMOS_GRACE")]
    pub(crate) grace: f64,
    /// Seconds without progress after which a warning says what the run waits for; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, env = "LUMOS_STALL_WARNING")]
    pub(crate) stall_warning: f64,
}

const WORKER_EXAMPLES: &str = "\
Examples:
  lumos worker --queue nats://coordinator:4222
  lumos worker --queue tls://nats.example:4222 --queue-tls-ca ca.pem --places 16 --spool /var/lib/lumos
  lumos worker --queue nats://coordinator:4222 --model-at candle:/models/plan=candle:/scratch/plan
  lumos worker --queue nats://coordinator:4222 --allow-path /models --allow-host grid:4444

Runs are planned by others. They may use loopback hosts, the data folder (LUMOS_DATA, or data),
caches, and what --allow-host, --allow-path and --model-at name; everything else is refused.

SIGTERM or Ctrl-C drains: the episodes at hand are finished within --grace seconds or given back to the queue. A worker
that is killed loses nothing either; its items are worked on elsewhere after some seconds.";

/// Options of `worker`.
#[derive(Debug, Args)]
#[command(after_help = WORKER_EXAMPLES)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    #[command(flatten)]
    pub(crate) engine: super::EngineArgs,
    /// Episodes driven side by side [default: as --batch-size, or 64]
    #[arg(long, value_name = "N", env = "LUMOS_PLACES")]
    pub(crate) places: Option<u32>,
    /// Memory that may be filled with models, such as 20GiB [default: no limit]
    #[arg(long, value_name = "BYTES", env = "LUMOS_MEMORY")]
    pub(crate) memory: Option<MemorySize>,
    /// Whether models that do not fit into --memory together take turns in it: auto, always, never [default: auto]
    #[arg(long, value_name = "WHEN", env = "LUMOS_SWAP")]
    pub(crate) swap: Option<Swap>,
    /// Folder for outcomes that cannot be sent while NATS is away [default: a folder of this worker's own below the
    /// system's temporary folder]
    #[arg(long, value_name = "DIR", env = "LUMOS_SPOOL")]
    pub(crate) spool: Option<PathBuf>,
    /// Seconds that episodes at hand get when the worker is asked to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, env = "LUMOS_GRACE")]
    pub(crate) grace: f64,
    /// Seconds without work after which the worker ends [default: it stays]
    #[arg(long, value_name = "SECONDS", env = "LUMOS_IDLE_EXIT")]
    pub(crate) idle_exit: Option<f64>,
    /// Seconds without a reply of a model or a tool after which an episode is given up as stalled.
    #[arg(long, value_name = "SECONDS", default_value_t = 900.0, env = "LUMOS_STALL_LIMIT")]
    pub(crate) stall_limit: f64,
    /// Seconds without progress after which the worker says what it waits for; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, env = "LUMOS_STALL_WARNING")]
    pub(crate) stall_warning: f64,
    /// Where a model lies on this machine, if not where the coordinator named it: NAME=NAME (may be repeated).
    #[arg(long, value_name = "NAME=NAME", env = "LUMOS_MODEL_AT")]
    pub(crate) model_at: Vec<String>,
    /// Allow runs to make this worker connect to a host: HOST, HOST:PORT or *
    ///
    /// Loopback is always allowed. Repeat the flag, or separate hosts by commas.
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', env = "LUMOS_ALLOW_HOSTS")]
    pub(crate) allow_host: Vec<String>,
    /// Allow runs to make this worker read a file or folder
    ///
    /// The data folder and caches are always allowed. Repeat the flag, or separate paths by commas.
    #[arg(long, value_name = "PATH", value_delimiter = ',', env = "LUMOS_ALLOW_PATHS")]
    pub(crate) allow_path: Vec<PathBuf>,
    /// Milliseconds that every scripted reply takes, to rehearse a fleet without models.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0, env = "LUMOS_SCRIPT_LATENCY")]
    pub(crate) script_latency: u64,
    /// Keep a picture of every step in a browser below this folder.
    #[arg(long, value_name = "DIR", env = "LUMOS_SCREENSHOTS")]
    pub(crate) screenshots: Option<PathBuf>,
    /// This worker's name in reports [default: host, process and a random part]
    #[arg(long, value_name = "NAME", env = "LUMOS_WORKER_NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  lumos status --queue nats://coordinator:4222\n  \
                        lumos status sweep --queue nats://coordinator:4222 --json")]
pub(crate) struct StatusArgs {
    /// Only this run: its name, its token or its folder.
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// One JSON object: {"runs": […], "workers": […]}.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Only this run: its name, its token or its folder.
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,
}

#[derive(Debug, Args)]
#[command(after_help = "What is recorded stays: `lumos resume` goes on with a cancelled run.")]
pub(crate) struct CancelArgs {
    /// The run: its name, its token or its folder.
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lumos run --config sweep.toml --partition hash:1/2 --name part-1    (on one machine)\n  \
                        lumos run --config sweep.toml --partition hash:2/2 --name part-2    (on another)\n  \
                        lumos merge runs/part-1 runs/part-2 --into runs/sweep"
)]
pub(crate) struct MergeArgs {
    /// All parts: their folders, or their names below --output-path.
    #[arg(required = true)]
    pub(crate) parts: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: super::RunsArgs,
    /// The folder of the whole run; it must not be there yet.
    #[arg(long, value_name = "DIR")]
    pub(crate) into: PathBuf,
    /// Take parts that are not complete; what they lack is outstanding in the whole, and `lumos resume` runs it.
    #[arg(long)]
    pub(crate) allow_incomplete: bool,
}
