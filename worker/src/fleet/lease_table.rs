//! The leases that a worker holds: published, so that the coordinator can return the messages if the worker disappears,
//! and used by the policy, so that no model is unloaded during an episode.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lumos_queue::{Lease, LeaseControl, QueueError};
use lumos_tasks::Assignment;
use lumos_tasks::fleet::{HeldLease, WorkMessage};
use tokio::sync::watch;

use super::policy::ModelKey;

/// The leases that a worker holds.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    entries: Mutex<Entries>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    leases: BTreeMap<u64, Entry>,
    /// Number of the last lease that was published.
    told: u64,
}

#[derive(Debug)]
struct Entry {
    /// `None` if the queue has no lease tokens.
    lease: Option<HeldLease>,
    models: Arc<BTreeSet<ModelKey>>,
}

impl LeaseTable {
    /// Tracks a lease until it ends.
    pub(crate) fn hold(
        self: &Arc<Self>,
        lease: Lease<WorkMessage>,
        assignment: Assignment,
        models: Arc<BTreeSet<ModelKey>>,
    ) -> Lease<Assignment> {
        let told = lease.token().map(|token| HeldLease {
            run: lease.body().run.clone(),
            message: lease.id().to_owned(),
            token: token.to_owned(),
        });
        let (id, deliveries) = (lease.id().to_owned(), lease.deliveries());
        let (token, duration) = (lease.token().map(str::to_owned), lease.duration());
        let mut entries = self.lock();
        entries.next += 1;
        let number = entries.next;
        entries.leases.insert(number, Entry { lease: told, models });
        drop(entries);
        self.changed.send_modify(|count| *count += 1);
        let control = Tracked {
            lease: tokio::sync::Mutex::new(Some(lease)),
            token,
            duration,
            number,
            held: Arc::clone(self),
        };
        Lease::new(id, assignment, deliveries, Box::new(control))
    }

    /// Returns the number of leases.
    pub(crate) fn count(&self) -> usize {
        self.lock().leases.len()
    }

    /// Returns the ids of their messages.
    pub(crate) fn messages(&self) -> Vec<String> {
        self.lock().leases.values().filter_map(|entry| Some(entry.lease.as_ref()?.message.clone())).collect()
    }

    /// Returns the leases that were claimed since the last call of this method or [`LeaseTable::all_told`].
    pub(crate) fn untold(&self) -> Vec<HeldLease> {
        let mut entries = self.lock();
        let since = entries.told;
        entries.told = entries.next;
        entries.leases.range(since + 1..).filter_map(|(_, entry)| entry.lease.clone()).collect()
    }

    /// Returns all leases, and marks them as published.
    pub(crate) fn all_told(&self) -> Vec<HeldLease> {
        let mut entries = self.lock();
        entries.told = entries.next;
        entries.leases.values().filter_map(|entry| entry.lease.clone()).collect()
    }

    /// Returns the models that the held units need.
    pub(crate) fn models(&self) -> BTreeSet<ModelKey> {
        self.lock().leases.values().flat_map(|entry| entry.models.iter().cloned()).collect()
    }

    /// Returns a counter that is incremented with every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forwards operations to a lease, and removes it from [`LeaseTable`] when it ends.
struct Tracked {
    lease: tokio::sync::Mutex<Option<Lease<WorkMessage>>>,
    token: Option<String>,
    duration: Option<Duration>,
    number: u64,
    held: Arc<LeaseTable>,
}

impl Tracked {
    async fn take(&self) -> Option<Lease<WorkMessage>> {
        self.lease.lock().await.take()
    }
}

#[async_trait]
impl LeaseControl for Tracked {
    async fn acknowledge(&self) -> Result<(), QueueError> {
        match self.take().await {
            Some(lease) => lease.acknowledge().await,
            None => Ok(()),
        }
    }

    async fn extend(&self) -> Result<(), QueueError> {
        match &*self.lease.lock().await {
            Some(lease) => lease.extend().await,
            None => Ok(()),
        }
    }

    fn release(&self) {
        // The caller owns the lease, so no extension is in progress.
        if let Ok(mut lease) = self.lease.try_lock() {
            drop(lease.take());
        }
    }

    fn release_after(&self, delay: Duration) {
        let lease = self.lease.try_lock().ok().and_then(|mut lease| lease.take());
        if let Some(lease) = lease {
            lease.release_after(delay);
        }
    }

    async fn terminate(&self) -> Result<(), QueueError> {
        match self.take().await {
            Some(lease) => lease.terminate().await,
            None => Ok(()),
        }
    }

    fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    fn duration(&self) -> Option<Duration> {
        self.duration
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.held.lock().leases.remove(&self.number);
        self.held.changed.send_modify(|count| *count += 1);
    }
}
