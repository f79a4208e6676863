//! A pool of browsers, leased one by one.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::capacity;
use super::error::{BrowserError, BrowserFault};
use super::leftovers::Owner;
use super::page::Lease;
use super::session::Session;
use super::settings::{BrowserName, BrowserSettings};

/// Attempts to start a browser for one lease.
const ATTEMPTS: usize = 2;

/// A pool of browsers. Cloning gives another handle to the same pool; browsers end when the last handle and the last
/// lease are dropped.
#[derive(Debug, Clone)]
pub struct BrowserPool {
    shared: Arc<Shared>,
}

/// What leases and the pool have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: BrowserSettings,
    size: usize,
    places: Arc<Semaphore>,
    // Before the owner, whose folder they live in.
    idle: Mutex<Vec<Session>>,
    owner: Option<Owner>,
}

impl BrowserPool {
    /// Creates a pool; browsers start on demand. For local browsers, those that a killed process of the same user left
    /// behind are ended first, which blocks for at most a few seconds.
    ///
    /// # Errors
    /// If the folder for profiles cannot be used.
    pub fn new(settings: BrowserSettings) -> Result<Self, BrowserFault> {
        let owner = match settings.browser {
            BrowserName::Remote(_) => None,
            BrowserName::Chromedriver => Some(Owner::new(&settings.folder).map_err(|error| {
                let reason = format!("{}: {error}", settings.folder.display());
                BrowserFault::new("creating the folder for browsers", reason)
            })?),
        };
        let size = settings.sessions.unwrap_or_else(capacity::sessions).clamp(1, Semaphore::MAX_PERMITS);
        let shared =
            Shared { settings, size, places: Arc::new(Semaphore::new(size)), idle: Mutex::default(), owner };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The maximum number of concurrent sessions.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// Leases a browser with an empty page and no state of earlier leases. If all are leased, waits for one in order of
    /// the requests.
    ///
    /// # Errors
    /// If no browser can be started.
    pub async fn session(&self) -> Result<Lease, BrowserFault> {
        let places = Arc::clone(&self.shared.places);
        let place = places.acquire_owned().await.map_err(|error| BrowserFault::new("waiting", error))?;
        let used = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut used) = used {
            match used.refresh().await {
                Ok(()) => return Ok(self.lend(used, place)),
                Err(BrowserError::Fault(fault)) => {
                    tracing::info!(%fault, "failed to reset a browser; replacing it");
                }
                Err(BrowserError::Refused(refusal)) => {
                    tracing::info!(%refusal, "failed to reset a browser; replacing it");
                }
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

    /// Ends the browsers of processes that were killed since: they take memory and time from the one that starts.
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

    /// The name or address by which remote browsers reach this machine, if set.
    pub fn own_host(&self) -> Option<&str> {
        self.shared.settings.own_host.as_deref()
    }

    /// Ends the browsers that are not leased, and waits for remote servers to confirm. Leased browsers end with the
    /// pool.
    pub async fn close(&self) {
        let idle = std::mem::take(&mut *self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner));
        futures::future::join_all(idle.into_iter().map(Session::close)).await;
    }

    fn lend(&self, mut session: Session, place: OwnedSemaphorePermit) -> Lease {
        session.leases += 1;
        Lease::new(session, Arc::clone(&self.shared), place)
    }
}

impl Shared {
    /// Takes a session back, to be lent again if it works and has not served often enough.
    pub(super) fn take_back(&self, session: Session) {
        if session.is_ready() && session.leases < self.settings.leases {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
    }
}
