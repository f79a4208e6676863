//! The presence of this worker on the server: a notice that is written periodically and expires otherwise,
//! and a message about every claim in between.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lumos_models::ModelRegistry;
use lumos_queue::nats::{KeyValue, KeyValueError, NatsError, Server};
use lumos_tasks::Throughput;
use lumos_tasks::fleet::{ClaimNotice, PROTOCOL, WorkerNotice};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::catalogue::Catalogue;
use super::eligibility::Eligibility;
use super::lease_table::LeaseTable;
use super::spool::Spool;

/// Interval within which claims are published together. The first claim is published immediately, so that a
/// coordinator can return it if this worker is killed.
const CLOSE: Duration = Duration::from_millis(20);
/// Time limit for writing a notice. The next notice supersedes it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Stores the notices of workers.
#[async_trait]
pub trait NoticeBoard: Send + Sync {
    /// Writes a worker's notice.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    async fn put(&self, name: &str, notice: &[u8]) -> Result<(), KeyValueError>;

    /// Removes a worker's notice.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    async fn delete(&self, name: &str) -> Result<(), KeyValueError>;

    /// Publishes the latest claims of a worker.
    ///
    /// # Errors
    /// If the server cannot be reached.
    async fn tell_claims(&self, name: &str, claims: Vec<u8>) -> Result<(), NatsError>;
}

/// The notices on a server.
pub struct ServerBoard {
    /// Bucket of the workers' notices.
    pub notices: KeyValue,
    /// The server.
    pub server: Server,
}

#[async_trait]
impl NoticeBoard for ServerBoard {
    async fn put(&self, name: &str, notice: &[u8]) -> Result<(), KeyValueError> {
        self.notices.put(name, notice).await.map(|_| ())
    }

    async fn delete(&self, name: &str) -> Result<(), KeyValueError> {
        self.notices.delete(name).await
    }

    async fn tell_claims(&self, name: &str, claims: Vec<u8>) -> Result<(), NatsError> {
        self.server.tell_claims(name, claims).await
    }
}

/// Publishes the notice of a worker.
pub struct Presence {
    /// Destination of the notices.
    pub board: Arc<dyn NoticeBoard>,
    /// The notice. Its variable fields are updated before it is written.
    pub notice: WorkerNotice,
    /// Interval between notices if nothing changes.
    pub every: Duration,
    /// The leases that the worker holds.
    pub held: Arc<LeaseTable>,
    /// The known runs. A notice is written when a run starts or ends.
    pub catalogue: Arc<Catalogue>,
    /// Source of the reasons for refused shards.
    pub eligibility: Arc<Eligibility>,
    /// The loaded models.
    pub models: Arc<ModelRegistry>,
    /// The finished units and tokens.
    pub meter: Arc<Throughput>,
    /// The results that wait to be sent.
    pub spool: Arc<Spool>,
    /// Cancelled when the worker accepts no more work.
    pub draining: CancellationToken,
}

impl Presence {
    /// Writes notices until `stop` is cancelled, then a final one, and removes it.
    pub async fn tell(mut self, stop: CancellationToken) {
        let mut held = self.held.changes();
        stop.run_until_cancelled(self.keep_telling(&mut held)).await;
        let leaving = async {
            // Publishes the changes since the previous notice.
            let _ = self.write().await;
            self.board.delete(&self.notice.name).await
        };
        if !matches!(timeout(PATIENCE, leaving).await, Ok(Ok(()))) {
            tracing::debug!(
                "failed to remove the notice of this worker; the server removes it when it expires"
            );
        }
    }

    async fn keep_telling(&mut self, held: &mut watch::Receiver<u64>) {
        let mut runs = self.catalogue.changes();
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
            let (board, told) = (Arc::clone(&self.board), Arc::clone(&self.held));
            let draining = self.notice.draining;
            tokio::select! {
                () = sleep_until(began + self.every) => {}
                () = tell_claims(&*board, &self.notice.name, &told, held) => {}
                () = self.draining.cancelled(), if !draining => {}
                // Leases that end with a run are released shortly after.
                Ok(()) = runs.changed() => sleep(CLOSE).await,
            }
        }
    }

    /// Writes one notice.
    async fn write(&mut self) -> Result<(), String> {
        let notice = &mut self.notice;
        (notice.units_per_second, notice.tokens_per_second) = self.meter.rates(std::time::Instant::now());
        notice.held = self.held.all_told();
        notice.in_use = u32::try_from(self.held.count()).unwrap_or(u32::MAX);
        notice.finished = self.meter.units();
        notice.spooled = self.spool.waiting();
        notice.draining = self.draining.is_cancelled();
        notice.refusals = self.eligibility.refusals();
        notice.holdings.models = self.models.list().await.into_iter().map(|model| model.identity).collect();
        notice.engines = self.models.engines();
        notice.written_ms = jiff::Timestamp::now().as_millisecond();
        let bytes = serde_json::to_vec(notice).map_err(|error| error.to_string())?;
        match timeout(PATIENCE, self.board.put(&notice.name, &bytes)).await {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(_) => Err("timed out waiting for the server".to_owned()),
        }
    }
}

/// Publishes claims until the sender of `changes` is dropped.
async fn tell_claims(
    board: &dyn NoticeBoard,
    name: &str,
    held: &LeaseTable,
    changes: &mut watch::Receiver<u64>,
) {
    while changes.changed().await.is_ok() {
        let claimed = held.untold();
        if claimed.is_empty() {
            continue;
        }
        let written_ms = jiff::Timestamp::now().as_millisecond();
        let notice = ClaimNotice { protocol: PROTOCOL, held: claimed, written_ms };
        // A failure has no effect: the next notice contains the claims, too.
        let told = match serde_json::to_vec(&notice) {
            Ok(bytes) => board.tell_claims(name, bytes).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = told {
            tracing::debug!(error, "failed to publish a claim");
        }
        sleep(CLOSE).await;
    }
}
