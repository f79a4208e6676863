//! Describes what a worker without progress is waiting for, both for workers of a queue and for the worker in
//! this process. Pure except for the two loops at the end, which read the current state.
//!
//! Every wait that can keep a worker from making progress is a [`Wait`]: its cause, and a hint for the user.
//! For some waits the hint is that no action is needed. `fleet::watch` selects the wait of a queue's worker.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lumos_models::ModelRegistry;
use lumos_tasks::{Reminder, stall_message};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, Source};

/// Interval at which progress is checked.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// What a worker is waiting for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// A coordinator that sets up the server, which lacks this.
    SetUp(String),
    /// A connection to the server.
    Connection,
    /// The server accepting results.
    Results {
        /// Number of results.
        count: u64,
        /// The server's error.
        why: String,
    },
    /// Replies from models or tools.
    Replies {
        /// Ids of the units. Empty for a run in this process.
        units: Vec<String>,
        /// The models and tools that have not replied, with the number of waiting episodes.
        sources: Vec<(Source, usize)>,
    },
    /// The configurations of a run.
    Configurations,
    /// Models to be found and verified, with their names.
    Models(Vec<String>),
    /// A run that this worker can serve, with the reasons why it cannot serve the active runs.
    Capability(Vec<String>),
    /// Units of the active runs, with the number of their shards.
    Units(usize),
    /// A run.
    Runs,
    /// Loading of the data and models of a run that is being planned.
    Planning,
    /// Loading of the models and tools of a run that is about to start.
    Loading,
    /// Outcomes being recorded in the run folder of this process's run.
    RunFolder,
    /// Opening of the checkpoint of this process's run.
    Checkpoint,
}

impl Wait {
    /// What the user can do about it.
    fn hint(&self) -> String {
        let hint = match self {
            Self::SetUp(_) => {
                "start a coordinator of the same version with this --queue: lumos run --queue URL …"
            }
            Self::Connection => "check that the server runs and can be reached: lumos status --queue URL",
            Self::Results { .. } => {
                "free disk space on the server or raise max_file_store in its configuration, and restart it \
                 if it still does not respond; the results are kept and sent later"
            }
            Self::Replies { units, sources } => {
                let hint = sources.first().map_or_else(
                    || "check the model server or the tools that these episodes use".to_owned(),
                    |(source, _)| source.hint(),
                );
                let limit = if units.is_empty() {
                    "--time-limit ends an episode that takes longer"
                } else {
                    "--stall-limit ends an episode without a reply"
                };
                return format!("{hint}; {limit}");
            }
            Self::Configurations => {
                "check that the coordinator of the run is running: it stores the configurations again"
            }
            Self::Models(_) => {
                "no action needed: large models take minutes to verify; otherwise check the disk or network \
                 share that holds them, and the connection to the Hugging Face hub"
            }
            Self::Capability(_) => {
                "copy the missing files to this machine (pass the location of a model with --model-at \
                 <PLANNED=LOCAL>), or leave these runs to other workers"
            }
            Self::Units(_) => "no action needed: other workers have the units, or the run is about to end",
            Self::Runs => "start a run: lumos run --queue URL …",
            Self::Planning => {
                "no action needed: large files take minutes to read, and models are downloaded from the hub"
            }
            Self::Loading => {
                "large models take minutes to load; otherwise check the servers and the browser that the run \
                 uses"
            }
            Self::RunFolder => "check the disk that holds the run folder: df -h, dmesg",
            Self::Checkpoint => {
                "no action needed: large checkpoints may take minutes to open after a crash; otherwise check the disk that \
                 holds the run folder: df -h, dmesg"
            }
        };
        hint.to_owned()
    }
}

/// Maximum number of units, sources, models or refusals named in a message.
const NAMED: usize = 4;

/// Joins the first [`NAMED`] names and appends the number of the others.
fn named(names: &[String]) -> String {
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} others"),
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetUp(why) => write!(formatter, "the NATS server to be set up: {why}"),
            Self::Connection => formatter.write_str("a connection to the NATS server"),
            Self::Results { count, why } => {
                write!(formatter, "the NATS server to accept {count} results: {why}")
            }
            Self::Replies { units, sources } => {
                let waiting: usize = sources.iter().map(|(_, count)| count).sum();
                let episodes = if units.is_empty() { waiting } else { units.len() };
                let noun = if episodes == 1 { "episode" } else { "episodes" };
                write!(formatter, "replies to {episodes} {noun}")?;
                let mut before = ": ";
                if !units.is_empty() {
                    let short: Vec<String> =
                        units.iter().map(|unit| unit.chars().take(12).collect()).collect();
                    write!(formatter, "{before}units {}", named(&short))?;
                    before = "; ";
                }
                if !sources.is_empty() {
                    let from: Vec<String> =
                        sources.iter().map(|(source, count)| format!("{count} from {source}")).collect();
                    write!(formatter, "{before}{}", named(&from))?;
                }
                Ok(())
            }
            Self::Configurations => formatter.write_str("the configurations of a run"),
            Self::Models(models) => write!(formatter, "models to be found and verified: {}", named(models)),
            Self::Capability(refusals) => {
                write!(formatter, "a run that this worker can serve: {}", named(refusals))
            }
            Self::Units(shards) => write!(formatter, "units in {shards} shards, which are empty"),
            Self::Runs => formatter.write_str("a run: none is active on this queue"),
            Self::Planning => formatter.write_str("the data and the models of the run to be read"),
            Self::Loading => formatter.write_str("the models and tools of the run to be loaded"),
            Self::RunFolder => formatter.write_str("outcomes to be recorded in the run folder"),
            Self::Checkpoint => formatter.write_str("the checkpoint of the run to be opened"),
        }
    }
}

/// Formats the warning about a wait that started `silence` before `now`.
pub(crate) fn message(wait: &Wait, silence: Duration, now: Timestamp) -> String {
    let since = SignedDuration::try_from(silence).ok().and_then(|silence| now.checked_sub(silence).ok());
    stall_message(wait, &wait.hint(), silence, since.unwrap_or(now).strftime("%H:%M:%S UTC"))
}

/// Runs `work` and warns if it takes longer than `limit`.
pub async fn reminded<T>(limit: Duration, wait: Wait, work: impl Future<Output = T>) -> T {
    let mut reminder = Reminder::new(limit);
    let began = Instant::now();
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(LOOK) => remind(&mut reminder, began.elapsed(), || wait.clone()),
        }
    }
}

/// Watches the episodes of this process's run until `ended`, and warns if none has made progress for `limit`.
pub async fn watch_here(
    limit: Duration,
    activity: Activity,
    models: Arc<ModelRegistry>,
    ended: CancellationToken,
) {
    let mut reminder = Reminder::new(limit);
    let watching = async {
        loop {
            sleep(LOOK).await;
            let last = Some(activity.last()).max(models.went_on());
            let silence = last.map_or(Duration::ZERO, |last| last.elapsed());
            remind(&mut reminder, silence, || match activity.sources() {
                sources if sources.is_empty() => Wait::RunFolder,
                sources => Wait::Replies { units: Vec::new(), sources },
            });
        }
    };
    ended.run_until_cancelled(watching).await;
}

/// Logs a warning about a wait if one is due.
pub(crate) fn remind(reminder: &mut Reminder, silence: Duration, wait: impl FnOnce() -> Wait) {
    if reminder.is_due(silence) {
        tracing::warn!("{}", message(&wait(), silence, Timestamp::now()));
    }
}
