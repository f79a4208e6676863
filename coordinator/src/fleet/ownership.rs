//! Ownership of a run: a claim on the server ensures that one coordinator runs it.
//!
//! [`Ownership`] acquires the claim with compare-and-swap, renews it while the session runs, and releases it
//! at the end. A claim expires if its owner stops renewing it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lumos_queue::nats::{KeyValue, KeyValueError};
use lumos_tasks::{Reminder, RunToken};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::claim::{Claim, Renewal};
use super::error::CoordinatorError;
use super::retrying_client::RetryingClient;
use super::stall::{Wait, remind};
use crate::dispatch::{Asker, Command, RunGauges};
use crate::events::Event;

/// Interval at which another coordinator's claim is checked.
const LOOK: Duration = Duration::from_millis(500);
/// Time limit for releasing the claim.
const FAREWELL: Duration = Duration::from_secs(3);

/// Ownership of a run by this session.
#[derive(Debug)]
pub(super) struct Ownership {
    owners: KeyValue,
    key: String,
    claim: Claim,
    revision: u64,
}

impl Ownership {
    /// Claims a run. Replaces a dead owner on this machine at once, and one on another machine when its claim
    /// has expired.
    pub(super) async fn acquire(
        owners: KeyValue,
        run: &RunToken,
        client: &RetryingClient,
        max_age: Duration,
    ) -> Result<Self, CoordinatorError> {
        let key = run.as_str().to_owned();
        let mut seen: Option<(u64, Instant)> = None;
        let mut epoch = 0;
        let mut reminder = Reminder::new(client.settings.stall_warning);
        loop {
            let found = client.call(|| owners.get(&key)).await?;
            let (replaced, wait) = match found {
                None => (None, false),
                Some((bytes, revision)) => {
                    let Ok(other) = serde_json::from_slice::<Claim>(&bytes) else {
                        return Err(CoordinatorError::Malformed(format!(
                            "the claim on run {key} was written by an incompatible version"
                        )));
                    };
                    epoch = epoch.max(other.epoch);
                    let owned = || CoordinatorError::Owned {
                        host: other.host.clone(),
                        process: other.process,
                        age: other.age(),
                    };
                    let waits = match (other.renewal(), seen) {
                        (Renewal::Gone, _) => false,
                        (Renewal::Alive, _) => return Err(owned()),
                        // The claim was renewed, so its owner is alive.
                        (Renewal::Unknown, Some((before, _))) if before != revision => return Err(owned()),
                        // The bucket may keep claims for longer than configured here.
                        (Renewal::Unknown, Some((_, since))) => {
                            let (host, process) = (other.host.clone(), other.process);
                            let wait = || Wait::Claim { host, process };
                            remind(&mut reminder, since.elapsed(), wait, &client.settings.address);
                            since.elapsed() < max_age * 2
                        }
                        (Renewal::Unknown, None) => {
                            seen = Some((revision, Instant::now()));
                            let (host, process) = (other.host.clone(), other.process);
                            let seconds = max_age.as_secs_f64();
                            client.sink.emit(Event::Waiting { host, process, seconds }).await;
                            true
                        }
                    };
                    (Some(revision), waits)
                }
            };
            if wait {
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => continue,
                    () = client.drain.cancelled() => return Err(CoordinatorError::Interrupted),
                }
            }
            let claim = Claim::here(epoch + 1);
            let mut ownership = Self { owners: owners.clone(), key: key.clone(), claim, revision: 0 };
            // After a failed write, the next iteration checks whether it succeeded.
            match ownership.write(replaced).await {
                Ok(()) => return Ok(ownership),
                Err(KeyValueError::Conflict(_)) => {}
                Err(error) => {
                    tracing::debug!(%error, "failed to write the claim");
                    if ownership.look().await == Ok(true) {
                        return Ok(ownership);
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn write(&mut self, replaced: Option<u64>) -> Result<(), KeyValueError> {
        self.claim = self.claim.renewed();
        let bytes = serde_json::to_vec(&self.claim).unwrap_or_default();
        self.revision = match replaced {
            Some(revision) => self.owners.update(&self.key, &bytes, revision).await?,
            None => self.owners.create(&self.key, &bytes).await?,
        };
        Ok(())
    }

    /// Whether the current claim is this session's. Adopts its revision, or recreates the claim if it
    /// expired.
    async fn look(&mut self) -> Result<bool, KeyValueError> {
        match self.owners.get(&self.key).await? {
            None => {
                self.claim.epoch += 1;
                self.write(None).await.map(|()| true)
            }
            Some((bytes, revision)) => {
                let ours = serde_json::from_slice::<Claim>(&bytes)
                    .is_ok_and(|claim| claim.session == self.claim.session);
                if ours {
                    self.revision = revision;
                }
                Ok(ours)
            }
        }
    }

    /// Renews the claim until the session ends, then releases it. Sends a command to the session if another
    /// coordinator takes over the run.
    pub(super) async fn keep(
        mut self,
        every: Duration,
        gauges: Arc<RunGauges>,
        session: mpsc::Sender<Command>,
        over: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = over.cancelled() => break,
            }
            let written = tokio::select! {
                written = self.write(Some(self.revision)) => written,
                () = over.cancelled() => break,
            };
            let ours = match written {
                Ok(()) => Ok(true),
                // Another coordinator has claimed the run, the claim expired while the server was
                // unavailable, or a write that was reported as failed succeeded.
                Err(KeyValueError::Conflict(_)) => self.look().await,
                Err(error) => Err(error),
            };
            match ours {
                Ok(true) => gauges.set_trouble(Asker::Owner, None),
                Ok(false) => {
                    let why = "another coordinator has taken over this run; this one stops, and recorded \
                               outcomes are safe"
                        .to_owned();
                    // The session may have ended and dropped the receiver.
                    let _ = session.send(Command::Displaced(why)).await;
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to renew the claim");
                    gauges.set_trouble(Asker::Owner, Some(error.to_string()));
                }
            }
        }
        self.claim.released = true;
        if tokio::time::timeout(FAREWELL, self.release()).await != Ok(Ok(())) {
            tracing::debug!("failed to release the claim; it expires by itself");
        }
    }

    async fn release(&mut self) -> Result<(), KeyValueError> {
        match self.write(Some(self.revision)).await {
            // An interrupted renewal may have succeeded.
            Err(KeyValueError::Conflict(_)) if self.look().await? => self.write(Some(self.revision)).await,
            released => released,
        }
    }
}
