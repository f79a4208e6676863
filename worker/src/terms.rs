//! Settings of a worker's loop, and limits for the episodes of a run.

use std::time::Duration;

use lumos_tasks::RunToken;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::drive::EpisodeLimits;

/// How a worker handles leases. The default fits a queue within the process: no episode is aborted.
#[derive(Debug, Clone, Default)]
pub struct LeaseTerms {
    /// How long an episode may wait for a reply before it is aborted. A longer time limit of the item takes
    /// precedence.
    pub stall: Option<Duration>,
    /// Maximum deliveries of a message. A message that was delivered more often is not executed, because it
    /// probably crashes its worker.
    pub max_deliveries: Option<u32>,
    /// How long a draining worker waits for episodes in progress; `None` waits until they end.
    pub grace: Option<Duration>,
    /// When cancelled, the worker stops immediately and returns its unfinished units.
    pub stop: CancellationToken,
    /// Updated whenever one of the worker's episodes receives a reply.
    pub activity: Activity,
}

impl LeaseTerms {
    /// How long an episode with these limits may wait for a reply.
    pub(crate) fn stall_under(&self, limits: EpisodeLimits) -> Option<Duration> {
        self.stall.map(|stall| stall.max(limits.time.unwrap_or_default()))
    }
}

/// Limits and cancellation of the episodes of one run.
#[derive(Debug, Clone, Default)]
pub struct RunTerms {
    /// Limits of one episode.
    pub limits: EpisodeLimits,
    /// When cancelled, the run's episodes are dropped and their messages are not redelivered.
    pub cancelled: CancellationToken,
}

/// Source of the terms of runs.
pub trait Runs: Send + Sync {
    /// Returns the terms of a run. `None` means the only run, for assignments that name none.
    fn terms(&self, run: Option<&RunToken>) -> RunTerms;
}

/// Uses the same terms for every run, for a worker that serves one run.
impl Runs for RunTerms {
    fn terms(&self, _run: Option<&RunToken>) -> RunTerms {
        self.clone()
    }
}
