//! A pool of browsers, leased one by one, with as many sessions as fit on the machine.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::BrowserFault;
use super::leftovers::Owner;
use super::page::BrowserLease;
use super::session::Session;
use crate::browser::{BrowserName, BrowserSettings};

/// Attempts to start a browser for one lease.
const ATTEMPTS: usize = 2;
/// Memory reserved for one session, in bytes.
const SESSION: u64 = 512 << 20;

/// A pool of browsers. Clones share the pool; browsers end when the last clone and the last lease are
/// dropped.
#[derive(Clone)]
pub(crate) struct BrowserPool {
    shared: Arc<Shared>,
}

/// State shared by the pool and its leases.
pub(super) struct Shared {
    pub(super) settings: BrowserSettings,
    places: Arc<Semaphore>,
    // Must be dropped before the owner, whose folder contains the profiles.
    idle: Mutex<Vec<Session>>,
    owner: Option<Owner>,
}

impl BrowserPool {
    /// Creates a pool; browsers start on demand. For local browsers, first kills those that a killed process
    /// of the same user left behind, which blocks for at most a few seconds.
    ///
    /// # Errors
    /// If the folder for profiles cannot be used.
    pub(crate) fn new(settings: BrowserSettings) -> Result<Self, BrowserFault> {
        let owner = match settings.browser {
            BrowserName::Remote(_) => None,
            BrowserName::Chromedriver => Some(Owner::new(&settings.folder).map_err(|error| {
                let reason = format!("{}: {error}", settings.folder.display());
                BrowserFault::new("creating the folder for browsers", reason)
            })?),
        };
        let size = settings.sessions.unwrap_or_else(sessions).clamp(1, Semaphore::MAX_PERMITS);
        let shared =
            Shared { settings, places: Arc::new(Semaphore::new(size)), idle: Mutex::default(), owner };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Leases a browser with an empty page and without state of earlier leases. If all are leased, waits;
    /// requests are served in order.
    ///
    /// # Errors
    /// If no browser can be started.
    pub(crate) async fn session(&self) -> Result<BrowserLease, BrowserFault> {
        let places = Arc::clone(&self.shared.places);
        let place = places.acquire_owned().await.map_err(|error| BrowserFault::new("waiting", error))?;
        let used = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut used) = used {
            match used.refresh().await {
                Ok(()) => return Ok(self.lend(used, place)),
                Err(error) => tracing::info!(%error, "failed to reset a browser; replacing it"),
            }
        }
        let mut attempt = 1;
        loop {
            self.end_leftovers().await;
            match Session::start(&self.shared.settings, self.shared.owner.as_ref()).await {
                Ok(session) => return Ok(self.lend(session, place)),
                Err(fault) if attempt == ATTEMPTS => return Err(fault),
                Err(fault) => tracing::warn!(%fault, "failed to start a browser; retrying"),
            }
            attempt += 1;
        }
    }

    /// Kills the browsers of processes that were killed in the meantime: they use memory and CPU that the new
    /// browser needs.
    async fn end_leftovers(&self) {
        let shared = Arc::clone(&self.shared);
        let ending = tokio::task::spawn_blocking(move || {
            if let Some(owner) = &shared.owner {
                owner.end_leftovers();
            }
        });
        if let Err(error) = ending.await {
            tracing::debug!(%error, "failed to end browsers left by other processes");
        }
    }

    /// Returns the host name or address by which remote browsers reach this machine, if set.
    pub(crate) fn own_host(&self) -> Option<&str> {
        self.shared.settings.own_host.as_deref()
    }

    /// Ends the browsers that are not leased and waits until remote servers confirm. Leased browsers end with
    /// the pool.
    pub(crate) async fn close(&self) {
        let idle = std::mem::take(&mut *self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner));
        futures::future::join_all(idle.into_iter().map(Session::close)).await;
    }

    fn lend(&self, mut session: Session, place: OwnedSemaphorePermit) -> BrowserLease {
        session.leases += 1;
        BrowserLease::new(session, Arc::clone(&self.shared), place)
    }
}

impl Shared {
    /// Takes a session back. Reuses it if it works and has not reached the maximum number of leases.
    pub(super) fn take_back(&self, session: Session) {
        if session.is_ready() && session.leases < self.settings.leases {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
    }
}

/// Returns the number of sessions: at most one per core and as many as fit into free memory, at least one.
/// More sessions than cores lower the total throughput.
fn sessions() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    fitting(cores, lumos_engine::free_memory())
}

fn fitting(cores: usize, free: Option<u64>) -> usize {
    let room = free.map_or(cores, |free| usize::try_from(free / SESSION).unwrap_or(usize::MAX));
    cores.min(room).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_and_memory_are_both_limits() {
        assert_eq!(fitting(4, None), 4);
        assert_eq!(fitting(4, Some(8 << 30)), 4);
        assert_eq!(fitting(4, Some(1 << 30)), 2);
        assert_eq!(fitting(4, Some(0)), 1);
    }
}
