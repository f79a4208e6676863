//! The settings of a worker's loop: lease duration, and limits for the episodes of a run.

use std::time::Duration;

use lumos_tasks::RunToken;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::drive::Limits;

/// How a worker handles leases. The default fits a queue within the process: leases do not expire, and no episode is
/// aborted.
#[derive(Debug, Clone, Default)]
pub struct LeaseTerms {
    /// How long a lease lasts without an extension; `None` if leases do not expire. It is extended every third of that.
    pub lease: Option<Duration>,
    /// How long an episode may wait for a reply before it is aborted. A longer time limit of the item takes precedence.
    pub stall: Option<Duration>,
    /// A message that was delivered more often is not executed, because it probably crashes its worker.
    pub max_deliveries: Option<u32>,
    /// How long a draining worker waits for episodes in progress; `None` waits until they end.
    pub grace: Option<Duration>,
    /// Cancelled: the worker stops at once and returns its unfinished units.
    pub stop: CancellationToken,
    /// Updated whenever one of the worker's episodes receives a reply.
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
