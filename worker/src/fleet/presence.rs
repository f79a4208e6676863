//! The presence of this worker on the server: a notice that is written periodically and expires otherwise,
//! and a message about every claim in between.

use std::sync::Arc;
use std::time::Duration;

use lumos_queue::nats::KeyValue;
use lumos_tasks::fleet::{ClaimNotice, PROTOCOL, WorkerNotice};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::notice_limits;
use super::worker::WorkerParts;

/// Interval within which claims are published together. The first claim is published immediately, so that a
/// coordinator can return it if this worker is killed.
const CLOSE: Duration = Duration::from_millis(20);
/// Time limit for writing a notice. The next notice supersedes it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Publishes the notice of a worker.
pub(super) struct Presence {
    /// What is reported. A notice is written when a run starts or ends.
    pub(super) parts: Arc<WorkerParts>,
    /// Bucket of the workers' notices.
    pub(super) notices: KeyValue,
    /// The notice. Its variable fields are updated before it is written.
    pub(super) notice: WorkerNotice,
    /// Interval between notices if nothing changes.
    pub(super) every: Duration,
    /// Cancelled when the worker accepts no more work.
    pub(super) draining: CancellationToken,
}

impl Presence {
    /// Writes notices until `stop` is cancelled, then a final one, and removes it.
    pub(super) async fn tell(mut self, stop: CancellationToken) {
        let mut held = self.parts.held.changes();
        stop.run_until_cancelled(self.keep_telling(&mut held)).await;
        let leaving = async {
            // Publishes the changes since the previous notice.
            let _ = self.write().await;
            self.notices.delete(&self.notice.name).await
        };
        if !matches!(timeout(PATIENCE, leaving).await, Ok(Ok(()))) {
            tracing::debug!(
                "failed to remove the notice of this worker; the server removes it when it expires"
            );
        }
    }

    async fn keep_telling(&mut self, held: &mut watch::Receiver<u64>) {
        let mut runs = self.parts.catalogue.changes();
        let mut silent = false;
        loop {
            let began = Instant::now();
            match self.write().await {
                Ok(()) => silent = false,
                Err(message) if !silent => {
                    tracing::warn!("failed to publish the notice of this worker: {message}");
                    silent = true;
                }
                Err(_) => {}
            }
            let draining = self.notice.draining;
            tokio::select! {
                () = sleep_until(began + self.every) => {}
                () = tell_claims(&self.parts, &self.notice.name, held) => {}
                () = self.draining.cancelled(), if !draining => {}
                // Leases that end with a run are released shortly after.
                Ok(()) = runs.changed() => sleep(CLOSE).await,
            }
        }
    }

    /// Writes one notice.
    async fn write(&mut self) -> Result<(), String> {
        let (notice, parts) = (&mut self.notice, &self.parts);
        (notice.units_per_second, notice.tokens_per_second) = parts.meter.rates(std::time::Instant::now());
        notice.held = parts.held.all_told();
        notice.in_use = u32::try_from(parts.held.count()).unwrap_or(u32::MAX);
        notice.finished = parts.meter.units();
        notice.spooled = parts.spool.waiting();
        notice.draining = self.draining.is_cancelled();
        notice.refusals = parts.eligibility.refusals();
        notice.holdings.models = parts.models.list().await.into_iter().map(|model| model.identity).collect();
        notice.engines = parts.models.engines();
        notice.oldest = parts.activity.oldest(None);
        notice.servers = parts.models.servers();
        notice.written_ms = jiff::Timestamp::now().as_millisecond();
        let bytes = notice_limits::encoded(notice).map_err(|error| error.to_string())?;
        match timeout(PATIENCE, self.notices.put(&notice.name, &bytes)).await {
            Ok(written) => written.map(|_| ()).map_err(|error| error.to_string()),
            Err(_) => Err("timed out waiting for the server".to_owned()),
        }
    }
}

/// Publishes claims until the sender of `changes` is dropped.
async fn tell_claims(parts: &WorkerParts, name: &str, changes: &mut watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        let claimed = parts.held.untold();
        if claimed.is_empty() {
            continue;
        }
        let written_ms = jiff::Timestamp::now().as_millisecond();
        let notice = ClaimNotice { protocol: PROTOCOL, held: claimed, written_ms };
        // A failure has no effect: the next notice contains the claims, too.
        let told = match serde_json::to_vec(&notice) {
            Ok(bytes) => parts.server.tell_claims(name, bytes).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = told {
            tracing::debug!(error, "failed to publish a claim");
        }
        sleep(CLOSE).await;
    }
}
