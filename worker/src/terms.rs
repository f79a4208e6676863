//! The settings of a worker's loop: lease duration, and limits for the episodes of a run.

use std::time::Duration;

use lumos_tasks::RunToken;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::drive::Limits;

/// How a worker deals with the leases it holds. By default as suits a queue within the process: leases do not run
/// out, nothing is given up.
#[derive(Debug, Clone, Default)]
pub struct LeaseTerms {
    /// How long a lease holds without being extended; `None` where leases do not run out. Extended every third of it.
    pub lease: Option<Duration>,
    /// How long an episode may go without a reply before it is given up. An item's time limit that is longer takes
    /// its place.
    pub stall: Option<Duration>,
    /// A message that was delivered more often is not worked on: whoever tries dies of it.
    pub max_deliveries: Option<u32>,
    /// For how long a draining worker lets episodes go on; `None` for as long as they take.
    pub grace: Option<Duration>,
    /// Cancelled: the worker stops at once and gives back what is at hand.
    pub stop: CancellationToken,
    /// Marked whenever one of the worker's episodes gets a reply.
    pub activity: Activity,
}

impl LeaseTerms {
    /// How long an episode with these limits may go without a reply.
    pub(crate) fn stall_under(&self, limits: Limits) -> Option<Duration> {
        self.stall.map(|stall| stall.max(limits.time.unwrap_or_default()))
    }
}

/// What holds for the episodes of one run.
#[derive(Debug, Clone, Default)]
pub struct RunTerms {
    /// Limits of one episode.
    pub limits: Limits,
    /// Cancelled: the run's episodes are dropped, and their messages are not to come back.
    pub cancelled: CancellationToken,
}

/// Who knows the terms of runs.
pub trait Runs: Send + Sync {
    /// The terms of a run; of the only one where assignments name none.
    fn terms(&self, run: Option<&RunToken>) -> RunTerms;
}

/// The same terms for every run: of a worker that serves one.
impl Runs for RunTerms {
    fn terms(&self, _run: Option<&RunToken>) -> RunTerms {
        self.clone()
    }
}
