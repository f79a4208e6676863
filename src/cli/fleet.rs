//! Options of queues and workers.

use std::path::PathBuf;

use clap::Args;
use lumos_coordinator::spec::MemorySize;
use lumos_tasks::Swap;
use lumos_tasks::fleet::ShardId;

use super::EngineArgs;

/// Options for connecting to a queue.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Queue")]
pub(crate) struct QueueArgs {
    /// Use this queue: memory, or a NATS server with JetStream
    ///
    /// nats://HOST:4222 or tls://HOST:4222; several addresses comma-separated. `memory` runs in this process.
    /// Default: memory. Example: --queue nats://coordinator:4222
    #[arg(long, value_name = "URL", env = "LUMOS_QUEUE", hide_env_values = true)]
    pub(crate) queue: Option<String>,
    /// Set the user of the NATS server
    ///
    /// Default: none. Example: --queue-user coordinator
    #[arg(long, value_name = "NAME", env = "LUMOS_QUEUE_USER")]
    pub(crate) queue_user: Option<String>,
    /// Set the password of the user
    ///
    /// Prefer LUMOS_QUEUE_PASSWORD, which other users of the machine cannot see. Default: none.
    #[arg(long, value_name = "PASSWORD", env = "LUMOS_QUEUE_PASSWORD", hide_env_values = true)]
    pub(crate) queue_password: Option<String>,
    /// Set an authentication token, instead of user and password
    ///
    /// Prefer LUMOS_QUEUE_TOKEN, which other users of the machine cannot see. Default: none.
    #[arg(long, value_name = "TOKEN", env = "LUMOS_QUEUE_TOKEN", hide_env_values = true)]
    pub(crate) queue_token: Option<String>,
    /// Read the seed of an nkey from a file
    ///
    /// Default: none. Example: --queue-nkey coordinator.nk
    #[arg(long, value_name = "PATH", env = "LUMOS_QUEUE_NKEY")]
    pub(crate) queue_nkey: Option<PathBuf>,
    /// Read credentials from a .creds file
    ///
    /// Default: none. Example: --queue-credentials coordinator.creds
    #[arg(long, value_name = "PATH", env = "LUMOS_QUEUE_CREDENTIALS")]
    pub(crate) queue_credentials: Option<PathBuf>,
    /// Trust this certificate authority (PEM), and enable TLS
    ///
    /// The authority that signed the server's certificate. Default: the system's. Example: --queue-tls-ca
    /// ca.pem
    #[arg(long, value_name = "PATH", env = "LUMOS_QUEUE_TLS_CA")]
    pub(crate) queue_tls_ca: Option<PathBuf>,
    /// Present this client certificate (PEM)
    ///
    /// Needs --queue-tls-key. Default: none. Example: --queue-tls-certificate client.pem
    #[arg(long, value_name = "PATH", env = "LUMOS_QUEUE_TLS_CERTIFICATE", requires = "queue_tls_key")]
    pub(crate) queue_tls_certificate: Option<PathBuf>,
    /// Use this private key of the client certificate (PEM)
    ///
    /// Needs --queue-tls-certificate. Default: none. Example: --queue-tls-key client.key
    #[arg(long, value_name = "PATH", env = "LUMOS_QUEUE_TLS_KEY", requires = "queue_tls_certificate")]
    pub(crate) queue_tls_key: Option<PathBuf>,
    /// Set how many copies of each message a NATS cluster keeps
    ///
    /// Use 3 on a cluster of three servers. Example: --queue-replicas 3
    #[arg(long, value_name = "N", default_value_t = 1, env = "LUMOS_QUEUE_REPLICAS")]
    pub(crate) queue_replicas: usize,
}

impl QueueArgs {
    /// The address of the queue's server; `None` for the in-memory queue of this process.
    pub(crate) fn url(&self) -> Option<&str> {
        self.queue.as_deref().map(str::trim).filter(|url| !matches!(*url, "" | "memory"))
    }
}

/// Options of a run whose workers are on a queue.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Queue")]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// With --queue: set the priority, from 0 (first) to 9 (last)
    ///
    /// Workers take units of a run with a lower number first. Example: --priority 0
    #[arg(long, value_name = "0-9", default_value_t = 5, env = "LUMOS_PRIORITY",
          value_parser = clap::value_parser!(u8).range(0..=i64::from(ShardId::LAST_PRIORITY)))]
    pub(crate) priority: u8,
    /// With --queue: requeue units of silent workers after this many seconds
    ///
    /// Workers extend the leases of their units. After this time without an extension, a unit is delivered
    /// again. Example: --lease 60
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, env = "LUMOS_LEASE")]
    pub(crate) lease: f64,
    /// With --queue: stop an interrupted run within this many seconds
    ///
    /// Workers may finish episodes in progress meanwhile. Example: --grace 60
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, env = "LUMOS_GRACE")]
    pub(crate) grace: f64,
    /// Warn after this many seconds without progress; 0 disables warnings
    ///
    /// The warning names what the run waits for, since when, and what to do. Example: --stall-warning 300
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, env = "LUMOS_STALL_WARNING")]
    pub(crate) stall_warning: f64,
}

const WORKER_EXAMPLES: &str = "\
Examples:
  lumos worker --queue nats://coordinator:4222
  lumos worker --queue tls://nats.example:4222 --queue-tls-ca ca.pem --concurrency 16 --spool /var/lib/lumos
  lumos worker --queue nats://coordinator:4222 --model-at candle:/models/plan=candle:/scratch/plan
  lumos worker --queue nats://coordinator:4222 --allow-path /models --allow-host grid:4444

Coordinators choose what runs use. A worker allows loopback hosts, the data folder (LUMOS_DATA, or data),
caches, and what --allow-host, --allow-path, --allow-tool and --model-at name; it refuses everything else.

SIGTERM or Ctrl-C drains the worker: it finishes episodes within --grace seconds or returns them to the queue. If a
worker is killed, no recorded outcome is lost and its units are delivered to other workers.";

/// Options of `worker`.
#[derive(Debug, Args)]
#[command(after_help = WORKER_EXAMPLES)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Set the number of episodes in progress at the same time
    ///
    /// Default: as --batch-size, or 64 (256 on GPUs). Example: --concurrency 16
    #[arg(long, value_name = "N", env = "LUMOS_CONCURRENCY", alias = "places")]
    pub(crate) concurrency: Option<u32>,
    /// Limit the memory of models, such as 20GiB
    ///
    /// Default: no limit. Example: --memory 24GB
    #[arg(long, value_name = "BYTES", env = "LUMOS_MEMORY")]
    pub(crate) memory: Option<MemorySize>,
    /// Load models in turns: auto, always or never [default: auto]
    ///
    /// `auto` does so if --memory does not hold them together.
    #[arg(long, value_name = "WHEN", env = "LUMOS_SWAP")]
    pub(crate) swap: Option<Swap>,
    /// Keep outcomes that cannot be sent in this folder
    ///
    /// Default: a folder of this worker in the system's temporary folder. Example: --spool /var/lib/lumos
    #[arg(long, value_name = "PATH", env = "LUMOS_SPOOL")]
    pub(crate) spool: Option<PathBuf>,
    /// When stopped, let episodes finish for at most this many seconds
    ///
    /// Episodes that are not finished are returned to the queue. Example: --grace 60
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, env = "LUMOS_GRACE")]
    pub(crate) grace: f64,
    /// Exit after this many seconds without work
    ///
    /// Default: never. Example: --idle-exit 600
    #[arg(long, value_name = "SECONDS", env = "LUMOS_IDLE_EXIT")]
    pub(crate) idle_exit: Option<f64>,
    /// Abandon an episode after this many seconds without a reply
    ///
    /// Counts the time without a reply of a model or a tool. Example: --stall-limit 600
    #[arg(long, value_name = "SECONDS", default_value_t = 900.0, env = "LUMOS_STALL_LIMIT")]
    pub(crate) stall_limit: f64,
    /// Warn after this many seconds without progress; 0 disables warnings
    ///
    /// The warning names what the worker waits for, since when, and what to do. Example: --stall-warning 300
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, env = "LUMOS_STALL_WARNING")]
    pub(crate) stall_warning: f64,
    /// Use a model from another location: PLANNED=LOCAL; repeatable
    ///
    /// Default: models are where the coordinator named them. Example: --model-at
    /// candle:/models/plan=candle:/scratch/plan
    #[arg(long, value_name = "PLANNED=LOCAL", env = "LUMOS_MODEL_AT")]
    pub(crate) model_at: Vec<String>,
    /// Allow runs to make this worker connect to a host: HOST, HOST:PORT or *
    ///
    /// Loopback is always allowed. Repeat the flag, or separate hosts by commas. Example: --allow-host
    /// grid:4444
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', env = "LUMOS_ALLOW_HOSTS")]
    pub(crate) allow_host: Vec<String>,
    /// Allow runs to make this worker read a file or folder
    ///
    /// The data folder and caches are always allowed. Repeat the flag, or separate paths by commas. Example:
    /// --allow-path /models
    #[arg(long, value_name = "PATH", value_delimiter = ',', env = "LUMOS_ALLOW_PATHS")]
    pub(crate) allow_path: Vec<PathBuf>,
    /// Allow runs to make this worker start a program or send calls to a server: NAME=BACKEND
    ///
    /// The tool and its backend exactly as the run names them. Repeat the flag, or give one per line in the variable.
    /// Default: none. Example: --allow-tool 'weather=exec:python3 weather.py'
    #[arg(long, value_name = "NAME=BACKEND", value_delimiter = '\n', env = "LUMOS_ALLOW_TOOLS")]
    pub(crate) allow_tool: Vec<String>,
    /// Delay every scripted reply by this many milliseconds, for tests without models
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0, env = "LUMOS_SCRIPT_LATENCY")]
    pub(crate) script_latency: u64,
    /// Save a screenshot of every step in a browser in this folder
    #[arg(long, value_name = "PATH", env = "LUMOS_SCREENSHOTS")]
    pub(crate) screenshots: Option<PathBuf>,
    /// Set this worker's name in reports
    ///
    /// Default: host, process id and a random part. Example: --name gpu-1
    #[arg(long, value_name = "NAME", env = "LUMOS_WORKER_NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  lumos status --queue nats://coordinator:4222\n  \
                        lumos status sweep --queue nats://coordinator:4222 --json")]
pub(crate) struct StatusArgs {
    /// Show only this run: its name, its token or its folder
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// Print one JSON object: {"runs": […], "workers": […]}
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Show only this run: its name, its token or its folder
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// Refresh after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Recorded outcomes are kept: `lumos resume` with the same --queue continues a cancelled run."
)]
pub(crate) struct CancelArgs {
    /// Select the run: its name, its token or its folder
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_queue_and_memory_name_no_server() {
        let url = |queue: &str| {
            let arguments = QueueArgs { queue: Some(queue.to_owned()), ..QueueArgs::default() };
            arguments.url().map(str::to_owned)
        };
        assert_eq!(["", " ", "memory", " memory "].map(url), [None, None, None, None]);
        assert_eq!(url(" nats://host:4222 ").as_deref(), Some("nats://host:4222"));
        assert_eq!(QueueArgs::default().url(), None);
    }
}
