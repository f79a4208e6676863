//! What a worker without progress is waiting for, both a worker of a queue and the one in this process. Pure except for
//! the two loops at the end, which read the current state.
//!
//! Every wait of a worker that is not ended by its own process is a [`Wait`]: its cause, and a hint for the user; for
//! some waits the hint is that no action is needed. [`crate::fleet::watch`] selects the wait of a worker of a queue.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lumos_tasks::{Reminder, stall_message};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, Source};
use crate::model::Models;

/// How often progress is checked.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// What a worker is waiting for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// A coordinator that sets the server up.
    SetUp {
        /// What is missing.
        why: String,
    },
    /// A connection.
    Connection,
    /// The server, to accept results.
    Results {
        /// How many.
        count: u64,
        /// Its error.
        why: String,
    },
    /// Replies of models or tools.
    Replies {
        /// Ids of the units, if they came from a queue.
        units: Vec<String>,
        /// The models and tools that have not replied, with the number of episodes.
        sources: Vec<(Source, usize)>,
    },
    /// The configurations of a run.
    Configurations,
    /// Models to be verified.
    Models,
    /// A run that this worker can serve.
    Capability {
        /// Why it cannot serve the active runs.
        refusals: Vec<String>,
    },
    /// Units of the active runs.
    Units {
        /// Their lanes.
        lanes: usize,
    },
    /// A run.
    Runs,
    /// Data and models of a run that is being planned.
    Planning,
    /// Models and tools of a run that is about to begin.
    Loading,
    /// The run folder of this process's run.
    RunFolder,
    /// The checkpoint of this process's run, to be opened.
    Checkpoint,
}

impl Wait {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        let hint = match self {
            Self::SetUp { .. } => {
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
            Self::Models => "no action needed: large models take minutes to verify",
            Self::Capability { .. } => {
                "copy the missing files to this machine (pass the location of a model with --model-at \
                 <PLANNED=LOCAL>), or leave these runs to other workers"
            }
            Self::Units { .. } => {
                "no action needed: other workers have the units, or the run is about to end"
            }
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

/// Units and refusals named in a message.
const NAMED: usize = 4;

/// The first of some names, and how many there are beyond.
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
            Self::SetUp { why } => write!(formatter, "the NATS server to be set up: {why}"),
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
            Self::Models => formatter.write_str("models to be found and verified"),
            Self::Capability { refusals } => {
                write!(formatter, "a run that this worker can serve: {}", named(refusals))
            }
            Self::Units { lanes } => write!(formatter, "units in {lanes} lanes, which are empty"),
            Self::Runs => formatter.write_str("a run: none is active on this queue"),
            Self::Planning => formatter.write_str("the data and the models of the run to be read"),
            Self::Loading => formatter.write_str("the models and tools of the run to be loaded"),
            Self::RunFolder => formatter.write_str("outcomes to be recorded in the run folder"),
            Self::Checkpoint => formatter.write_str("the checkpoint of the run to be opened"),
        }
    }
}

/// What is said about a wait that began `silence` before `now`.
pub fn message(wait: &Wait, silence: Duration, now: Timestamp) -> String {
    let since = SignedDuration::try_from(silence).ok().and_then(|silence| now.checked_sub(silence).ok());
    stall_message(wait, &wait.hint(), silence, since.unwrap_or(now).strftime("%H:%M:%S UTC"))
}

/// Runs `work`, and warns when it takes long.
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

/// Watches the episodes of this process's run until `ended`, and warns when none has made progress for long.
pub async fn watch_here(limit: Duration, activity: Activity, models: Arc<Models>, ended: CancellationToken) {
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

/// Warns of a wait if it is time to.
pub(crate) fn remind(reminder: &mut Reminder, silence: Duration, wait: impl FnOnce() -> Wait) {
    if reminder.is_due(silence) {
        tracing::warn!("{}", message(&wait(), silence, Timestamp::now()));
    }
}
