//! Determines what a worker of a queue is waiting for. The decision is a pure function of the current state;
//! `WorkerParts::watch` reads that state.

use std::sync::Arc;
use std::time::Duration;

use lumos_tasks::Reminder;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::worker::WorkerParts;
use crate::activity::Source;
use crate::stall::{LOOK, Wait, remind};

/// State of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Situation {
    /// Whether there is a connection to the server.
    pub(crate) connected: bool,
    /// Number of results that wait to be sent.
    pub(crate) spooled: u64,
    /// The error of the last attempt to send them.
    pub(crate) refused: Option<String>,
    /// Ids of the work messages that it holds.
    pub(crate) held: Vec<String>,
    /// The models and tools that have not replied, with the number of episodes.
    pub(crate) sources: Vec<(Source, usize)>,
    /// Number of active runs.
    pub(crate) runs: usize,
    /// Whether the configurations of some runs were not fetched yet.
    pub(crate) unknown: bool,
    /// Number of shards of these runs.
    pub(crate) shards: usize,
    /// The models that are being verified, if a shard is.
    pub(crate) looking: Option<Vec<String>>,
    /// Reasons for refused shards.
    pub(crate) refusals: Vec<String>,
}

impl Situation {
    /// Returns what the worker waits for: the first applicable cause, since the others follow from it.
    pub(crate) fn wait(self) -> Wait {
        let Self { connected, spooled, refused, held, sources, runs, unknown, shards, looking, refusals } =
            self;
        match () {
            () if !connected => Wait::Connection,
            () if spooled > 0 => {
                let why = refused.unwrap_or_else(|| "no acknowledgement from the server".to_owned());
                Wait::Results { count: spooled, why }
            }
            () if !held.is_empty() => Wait::Replies { units: held, sources },
            () if runs == 0 => Wait::Runs,
            () if unknown => Wait::Configurations,
            () if looking.is_some() => Wait::Models(looking.unwrap_or_default()),
            () if !refusals.is_empty() => Wait::Capability(refusals),
            () => Wait::Units(shards),
        }
    }
}

impl WorkerParts {
    /// Warns when the worker makes no progress for `limit`, until `ended` is cancelled.
    pub(super) async fn watch(self: Arc<Self>, limit: Duration, ended: CancellationToken) {
        let mut reminder = Reminder::new(limit);
        // While the models of one shard are verified, the worker may make progress with other shards.
        let mut verification = Reminder::new(limit);
        let mut known = self.signature();
        let mut since = Instant::now();
        let watching = async {
            loop {
                sleep(LOOK).await;
                let now = self.signature();
                if now != known {
                    (known, since) = (now, Instant::now());
                }
                let last = Some(since.max(self.activity.last())).max(self.models.went_on());
                let silence = last.map_or(Duration::ZERO, |last| last.elapsed());
                remind(&mut reminder, silence, || self.situation().wait());
                let (verifying, models) = self.eligibility.looking_for().unwrap_or_default();
                if silence < limit {
                    remind(&mut verification, verifying, || Wait::Models(models));
                }
            }
        };
        ended.run_until_cancelled(watching).await;
    }

    /// Values that change whenever a unit is claimed, ends or is sent.
    fn signature(&self) -> (u64, u64, u64, usize) {
        let claims = *self.held.changes().borrow();
        (self.meter.units(), claims, self.spool.waiting(), self.catalogue.active())
    }

    fn situation(&self) -> Situation {
        Situation {
            connected: self.server.is_connected(),
            spooled: self.spool.waiting(),
            refused: self.spool.refused(),
            held: self.held.messages(),
            sources: self.activity.sources(),
            runs: self.catalogue.active(),
            unknown: !self.catalogue.wanted().is_empty(),
            shards: self.catalogue.shards().len(),
            looking: self.eligibility.looking_for().map(|(_, models)| models),
            refusals: self.eligibility.refusals(),
        }
    }
}
